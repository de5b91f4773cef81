"""``memops scan``: where in a store, its further databases and its notes something looks like a credential.

scripts/jobs/scan.py looks, as the store's owner, and says where, never what. What it says is the owner's word: it is
limited, checked and escaped before anybody sees it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from memops import facts, host, owner
from memops.errors import MemopsError
from memops.settings import LIBRARY
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from memops.settings import Store

TIMEOUT = 3600
"""Seconds for one look; a million facts take some minutes."""

MOST = 16 << 20
"""Bytes of an answer."""

SHOWN = 50
"""Places that are shown to a person."""


def scan(store: Store, *, notes: bool, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """What scan.py found in a store and its parts that are SQLite files, and with ``notes`` in its notes.

    progress: called now and then with rows done and rows in all. Raises MemopsError.
    """
    words = ["/usr/bin/python3", "-I", f"{LIBRARY}/scan.py", "--state", store.state]
    words += ["--progress"] if progress else []
    if os.geteuid() == 0:
        command = _in_unit(store, words, notes=notes)
    elif os.geteuid() == facts.uid(store):
        words += ["--store", store.db, store.db]
        words += [word for part in _databases(store) for word in ("--database", part.source, part.source)]
        words += [word for path in store.notes if notes for word in ("--notes", path, path)]
        command = tuple(words)
    else:
        raise facts.denied(store)
    found: Any = None

    def hear(line: str) -> None:
        nonlocal found
        found = _json(line)
        if progress and isinstance(found, dict) and _counts(found, ("done", "all")):
            progress(found["done"], found["all"] + 1)

    ran = host.follow(command, hear, TIMEOUT, MOST)
    if not _is_answer(found):
        hint = "If memops was updated since it was installed: sudo memops install"
        raise MemopsError(f"{store.db} could not be read as user {store.user}: {ran.said}", hint)
    answer: dict[str, Any] = found
    if progress:
        progress(answer["rows"], answer["rows"])
    return answer


def _databases(store: Store) -> list[Any]:
    return [part for part in store.local_parts if part.kind == "sqlite"]


def _in_unit(store: Store, words: list[str], *, notes: bool) -> tuple[str, ...]:
    """The command line by which root has it done as the owner."""
    more = ["Nice=10"]
    words = [*words, "--store", store.seen_db, store.db]
    for part in _databases(store):
        seen = store.seen_part(part) if store.strict else part.source
        words += ["--database", seen, part.source]
        # Readers make -wal and -shm beside a database.
        more += [f'BindPaths="{part.directory}":/run/memops/parts/{part.name}'] if store.strict else []
    for number, (bound, seen, path) in enumerate(store.note_places if notes else ()):
        words += ["--notes", seen, path]
        more += [f'BindReadOnlyPaths="-{bound}":/run/memops/notes/{number}'] if store.strict else []
    properties, command = owner.as_owner(store, tuple(words), more)
    return owner.transient_words(properties, command, TIMEOUT)


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _counts(found: Mapping[str, Any], keys: Iterable[str]) -> bool:
    return all(type(found.get(key)) is int and found[key] >= 0 for key in keys)


def _is_answer(found: Any) -> bool:
    """Whether the answer has its form: the owner may have meddled with the process."""
    if not isinstance(found, dict) or not _counts(found, ("rows", "texts", "files", "more", "allowed")):
        return False
    lists = all(
        isinstance(found.get(key), list) and all(isinstance(each, dict) for each in found[key])
        for key in ("found", "unread")
    )
    kinds = found.get("kinds")
    return lists and isinstance(kinds, dict) and _counts(kinds, kinds)


def is_clean(found: Mapping[str, Any]) -> bool:
    """Whether nothing was found, and everything could be read."""
    return not found["found"] and not found["unread"]


def describe(found: Mapping[str, Any]) -> Iterator[str]:
    """The answer as lines. Pure."""
    looked = f"{found['rows']:,} rows" + (f", {found['files']:,} files" if found["files"] else "")
    count = len(found["found"]) + found["more"]
    for each in found["found"][:SHOWN]:
        yield f"{_place(each)}: {printable(each.get('kind'), 60)}"
    if count > SHOWN:
        yield f"and {count - SHOWN:,} more" + (" (--json lists more)" if len(found["found"]) > SHOWN else "")
    for each in found["unread"]:
        yield f"! {printable(each.get('where'), 300)} was not read: {printable(each.get('what'), 200)}"
    if found["allowed"]:
        yield f"Left out: {found['allowed']:,} that were stored with --allow-secret."
    if count:
        kinds = ", ".join(f"{number:,} {printable(kind, 60)}" for kind, number in found["kinds"].items())
        yield f"{count:,} found in {looked}: {kinds}."
        yield "Change what opens something where it does so, first; then: memops replace ID --redact."
    else:
        yield f"Nothing in {looked} looks like a credential."


def _place(each: Mapping[str, Any]) -> str:
    if "file" in each:
        return f"{printable(each['file'], 300)}:{printable(each.get('line'), 20)}"
    table, column = printable(each.get("table"), 100), printable(each.get("column"), 100)
    row = printable(each["id"], 100) if "id" in each else f"row {printable(each.get('row'), 30)}"
    database = printable(each.get("database"), 300)
    return f"{row} ({column})" if table == "memory" and "id" in each else f"{database}, {table}, {row} ({column})"
