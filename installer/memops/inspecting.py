"""What is in any SQLite file, for a person: asked of its owner, told in lines."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

from memops import owner, probing, report
from memops.errors import NotPermitted, Refused, UsageError
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

_SQLITE = b"SQLite format 3\0"
_OTHERS = re.compile(r"/proc/(\d+)/root(/.*)")


def look(path: str) -> dict[str, Any]:
    """``path``, and what probe.inspect says of it. Raises UsageError, Refused, NotPermitted and MemopsError."""
    real = path if _OTHERS.fullmatch(path) else os.path.realpath(path)
    shown = printable(path, 300)
    try:
        status = os.stat(real)
    except OSError as error:
        raise UsageError(f"{shown} cannot be reached ({error.strerror}).", f"Look at: namei -l {shown}") from None
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{shown} is not a file.", f"See which memory is there: memops doctor {shown}")
    if os.geteuid() not in (0, status.st_uid):
        raise NotPermitted(f"{shown} belongs to {owner.name_of(status.st_uid)}.", f"sudo memops inspect {shown}")
    wrong = "A wrong path makes an empty database. See which memories there are: sudo memops doctor"
    if not status.st_size:
        raise Refused(f"{shown} is empty: the wrong file, most likely.", wrong)
    # By descriptor and without waiting: it is somebody's, and may become a pipe at any time.
    descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            raise Refused(f"{shown} is no SQLite file.", f"See what it is: memops doctor {shown}")
    others = _OTHERS.fullmatch(real)
    pid, inner = (int(others[1]), others[2]) if others else (0, real)
    found = probing.inspect(status.st_uid, inner, pid)
    if not found["tables"]:
        raise Refused(f"{shown} has no table: the wrong file, most likely.", wrong)
    return {"path": path, **found}


def text(found: Mapping[str, Any], width: int) -> str:
    """The screen: tables, events, the last changes."""
    lines = [f"{printable(found['path'], 500)}", ""]
    for table in found["tables"]:
        rows = "" if table["rows"] is None else f"{table['rows']:,} {'row' if table['rows'] == 1 else 'rows'}"
        lines += [f"{table['name']}  {rows}".rstrip()]
        lines += [f"  {line}" for line in table["sql"].splitlines()]
    for column, counts in found["events"].items():
        lines += [
            "",
            *report.wrap(", ".join(f"{count:,} {name}" for name, count in counts.items()), width, f"{column}: "),
        ]
    changes = found["changes"]
    if changes and changes["rows"]:
        lines += ["", f"The last changes in {changes['table']}, by {changes['by']}:"]
        for row in changes["rows"]:
            lines.append("")
            for name, value in row.items():
                lines += report.wrap("NULL" if value is None else value, width, f"  {printable(name, 60)}: ", rest=4)
    return "\n".join(lines)
