"""Asking both halves where words are: the owner, who has the store and all beside it, and root, who has the sets.

Erasing and tracing ask; scripts/jobs/search.py looks. The words go to both by standard input.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from memops import facts, host, owner, sets
from memops.errors import MemopsError
from memops.settings import LIBRARY
from memops.store import printable

if TYPE_CHECKING:
    from memops.settings import Store

TIMEOUT = 3600
"""Seconds for one step."""


def databases(store: Store) -> list[str]:
    """The databases that are looked into: the store, and its parts that are SQLite files."""
    return [store.db, *(part.source for part in store.local_parts if part.kind == "sqlite")]


def ask_owner(store: Store, script: str, op: str, given: dict[str, Any]) -> dict[str, Any]:
    """The answer of a script of the owner's that reads a search.Task, as the owner gets it. Raises MemopsError."""
    root = os.geteuid() == 0
    if not root and os.geteuid() != facts.uid(store):
        raise facts.denied(store)
    strict = root and store.strict
    more = ["MemoryMax=2G"]
    files = [(store.seen_db if strict else store.db, store.db)]
    beside = [(files[0][0].rpartition("/")[0], store.directory)]
    parts: list[tuple[str, str]] = []
    if strict:
        more.append(f"ReadWritePaths={store.state}")
    for part in store.local_parts:
        seen = store.seen_part(part) if strict else part.source
        if strict:
            more.append(f'BindPaths="-{part.directory}":/run/memops/parts/{part.name}')
        (files if part.kind == "sqlite" else parts).append((seen.rstrip("/"), part.source.rstrip("/")))
        if part.directory != store.directory:
            inside = f"/run/memops/parts/{part.name}" if strict else part.directory
            beside.append((inside, part.directory))
    notes = []
    for number, (bound, seen, path) in enumerate(store.note_places):
        notes.append((seen if strict else path, path))
        if strict:
            more.append(f'BindReadOnlyPaths="-{bound}":/run/memops/notes/{number}')
    incoming = (store.seen_incoming if strict else store.incoming, store.incoming)
    if strict:
        more.append(f'BindReadOnlyPaths="-{store.incoming}":{store.seen_incoming}')
    task = {"state": store.state, "databases": files, "parts": parts, "beside": beside, "notes": notes}
    task["incoming"] = [incoming]
    request = json.dumps({"op": op, "task": task, "given": given})
    words = ("/usr/bin/python3", "-I", f"{LIBRARY}/{script}.py")
    if root:
        properties, command = owner.as_owner(store, words, more)
        ran = owner.transient(properties, command, stdin=request, timeout=TIMEOUT)
    else:
        ran = host.ask(*words, stdin=request, timeout=TIMEOUT)
    return _answer(ran, f"{store.db} could not be searched as user {store.user}")


def ask_sets(store: Store, script: str, op: str, given: dict[str, Any], *, writable: bool = False) -> dict[str, Any]:
    """The answer of a script that looks at the sets, as root without rights; with ``writable`` it may remove some.

    Raises MemopsError.
    """
    places = {"sets": store.seen_sets, "record": store.sets_record}
    more = (sets.bound(store, writable=True), *sets.RECORD) if writable else (sets.bound(store),)
    request = json.dumps({"op": op, "given": {**given, **places}})
    words = ("/usr/bin/python3", "-I", f"{LIBRARY}/{script}.py")
    ran = owner.transient(sets.walls(store, *more), words, stdin=request, timeout=TIMEOUT)
    return _answer(ran, f"The sets in {store.sets}/ could not be searched")


def _answer(ran: host.Ran, what: str) -> dict[str, Any]:
    try:
        answer = json.loads(ran.out)
        if not isinstance(answer, dict) or not ({"error", "value"} & answer.keys()):
            raise ValueError
    except (ValueError, RecursionError):
        hint = "If memops was updated since it was installed: sudo memops install"
        raise MemopsError(f"{what}: {printable(ran.said, 300)}", hint) from None
    if "error" in answer:
        code = answer.get("exit")
        code = code if type(code) is int else 1
        said = printable(answer["error"], 400)
        raise MemopsError(f"{said[:1].upper()}{said[1:]}.", printable(answer.get("hint", ""), 300), code)
    found: dict[str, Any] = answer["value"]
    return found


def away(store: Store) -> list[str]:
    """What this command cannot look at: parts that a server keeps, and copies away from this machine."""
    served = [f"the part {part.name} was not looked at: {part.source} keeps it" for part in store.server_parts]
    if not store.offsite:
        return served
    tool, _, address = store.offsite.partition("=")
    if tool == "restic":
        tag = f"memops,store:{store.name}"
        place = f" -r {address}" if address else ""
        words = f"restic{place} snapshots --tag {tag}, then restic{place} forget --prune SNAPSHOT…"
    else:
        words = f"rclone purge {address}{'' if address.endswith((':', '/')) else '/'}{store.name}/SET"
    return [*served, f"copies away from this machine ({store.offsite}) were not looked at: {words}"]
