"""Notes in plain files, an entry each (notes.py), which their agent and people write: read, and never changed.

An entry is known by its file and its words: one that says something else is another one. A file that cannot be read
now is named, so that nobody takes its entries for deleted.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.sort(key=os.path.dirname(os.path.abspath(__file__)).__eq__)

from typing import TYPE_CHECKING, Any

import notes
from hands import _hand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hands._hand import Request


def _look(request: Request) -> tuple[list[dict[str, str | None]], list[str]]:
    """The entries, and what begins the ids of those that could not be read."""
    top = request.file("path").rstrip("/") or "/"
    if not os.access(top, os.R_OK):
        raise _hand.Refused(f"{top} cannot be read", f"Look at: namei -l {top}")
    try:
        entries, problems = notes.entries(top, time.time())
    except ValueError as error:
        raise _hand.Refused(f"{top}: {error}", "Name a directory with less in it") from None
    base = top if os.path.isdir(top) else os.path.dirname(top)
    title = request.config.get("title") or "notes"
    facts: list[dict[str, str | None]] = []
    seen: dict[str, int] = {}
    for file, entry in entries:
        name = os.path.relpath(file, base)
        identity = f"{name}#{hashlib.sha256(entry.whole.encode(errors='replace')).hexdigest()[:12]}"
        seen[identity] = number = seen.get(identity, 0) + 1
        if number > 1:
            identity += f"-{number}"
        created = f"{entry.date} 00:00:00" if entry.date else ""
        facts.append(_hand.fact(identity, entry.whole, created=created, subject=name, source=f"{title}, file {name}"))
    unread = {
        beginning
        for each in problems
        if each["where"].startswith(top)
        for beginning in _beginnings(os.path.relpath(each["where"], base))
    }
    return facts, sorted(unread)


def _beginnings(name: str) -> Iterator[str]:
    """What the ids of a file's entries begin with, or of a directory's. A line of a file stands for all of it."""
    if name == ".":
        yield ""
        return
    file, _, line = name.rpartition(":")
    for each in (name, *([file] if line.isdigit() and file else [])):
        yield from (f"{each}#", f"{each}/")


def list_(request: Request) -> dict[str, Any]:
    """All entries. ``unread``: beginnings of ids of which nothing is known now."""
    facts, unread = _look(request)
    return {"facts": facts, "product": "", "unread": unread}


def delete(request: Request) -> dict[str, Any]:
    """Refused."""
    raise _hand.Refused(
        f"The notes in {request.need('path')} are yours to change", "Open the file, and delete it there"
    )


def places(request: Request) -> dict[str, Any]:
    """Where entries are, by id and by what they say."""
    return _hand.listed_places(_look(request)[0], request, "notes")


if __name__ == "__main__":
    _hand.serve({"list": list_, "delete": delete, "places": places})
