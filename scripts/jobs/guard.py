"""Whether a run of the prune may delete: what root asked for, and what speaks against it.

A wrong clock must not empty a memory, nor must an agent that dated everything wrong.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from typing import TYPE_CHECKING, Any, Final

import job

if TYPE_CHECKING:
    from collections.abc import Collection


PRUNE_MODES: Final = ("report", "allow-large")


def read_mode(path: str | None, now: float, modes: Collection[str] = PRUNE_MODES) -> str:
    """The mode root asks for, one of ``modes``, else ``""``.

    Obeyed only from a file that is root's alone, and until the time it names, at most ten minutes ahead.
    """
    if path is None:
        return ""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return ""
        raise
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != 0 or status.st_mode & 0o022:
            return ""
        try:
            asked = json.loads(file.read(4096))
            mode, until = asked["mode"], float(asked["until"])
        except (ValueError, TypeError, KeyError):
            return ""
    return str(mode) if mode in modes and now < until <= now + 600 else ""


def last_run(state: str) -> str | None:
    """When the last run ended that passed the guard and did all its work, as SQLite writes dates."""
    for record in reversed(job.read_records(state)):
        if record.get("job") == "prune" and record.get("result") == "done":
            end = str(record.get("end"))
            if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", end, re.ASCII):
                return end[:10] + " " + end[11:19]
    return None


def make_objection(facts: dict[str, Any], last: str | None) -> str | None:
    """What the guard has against this run. facts: the row of [guard]; last: when the last run was."""
    if facts["doomed"] > 100 and facts["doomed"] * 2 > facts["rows"]:
        return f"{facts['doomed']} of {facts['rows']} rows would go, more than half of the store"
    if last and facts["now"] < last:
        return f"the clock says {facts['now']}, before the last run at {last} UTC"
    if last and max(last, facts["newest"] or "") < facts["month_ago"]:
        return f"the clock says {facts['now']}, more than 30 days after the last run and the newest row"
    return None
