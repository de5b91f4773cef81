"""Asking owners: root opens nobody's database and reads nobody's file; scripts/jobs/probe.py does, as who they are."""

from __future__ import annotations

import json
import os
import pwd
from typing import TYPE_CHECKING, Any

from memops import host, owner, products
from memops.errors import MemopsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memops.processes import Process

SECONDS = 300
"""That one owner may take for all of theirs."""

_END = """
module.become(given["who"])
print(json.dumps(module.answer(given["request"])))
"""


def look(
    uid: int, databases: Iterable[str], configurations: Iterable[str] = (), names: Iterable[str] = (),
    process: Process | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What probe.look_at says of all these, with the owner's rights, and where ``process`` is if that sees other files.

    Raises MemopsError.
    """
    known = [
        {"name": product.name, "what": part.what, "file": part.file, "tables": part.tables, "rows": product.rows}
        for product in products.known().values()
        for part in product.parts
    ]
    request = {"databases": [*databases], "configurations": [*configurations], "names": [*names], "known": known}
    return _ask(uid, {"op": "look", **request}, process.pid if process else 0)


def inspect(uid: int, path: str, pid: int = 0) -> dict[str, Any]:
    """What probe.inspect says of one database. Raises MemopsError."""
    answer = _ask(uid, {"op": "inspect", "path": path}, pid)
    if "unread" in answer:
        raise MemopsError(f"{path} could not be read: {answer['unread']}.", "Look whose it is: ls -l")
    return answer


def _ask(uid: int, request: dict[str, Any], pid: int) -> dict[str, Any]:
    who = _identity(uid, pid) if os.geteuid() == 0 else None
    words = owner.given(("store", "shown", "traces", "probe"), request=request, who=who)
    ran = host.run("/usr/bin/python3", "-I", "-c", owner.LOADER + _END, stdin=words, timeout=SECONDS, ok=None)
    try:
        answer = json.loads(ran.out)
    except (ValueError, RecursionError):
        raise MemopsError(f"{owner.name_of(uid)} could not be asked: {ran.said}") from None
    if not isinstance(answer, dict):
        raise MemopsError(f"{owner.name_of(uid)} gave no answer.")
    return answer


def _identity(uid: int, pid: int) -> dict[str, Any]:
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return {"uid": uid, "gid": uid, "groups": [], "pid": pid}
    return {"uid": uid, "gid": user.pw_gid, "groups": os.getgrouplist(user.pw_name, user.pw_gid), "pid": pid}
