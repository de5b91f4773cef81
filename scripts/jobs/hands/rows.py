"""Memories that are rows of a SQLite table, as a product's file describes them; the system's python3 is enough.

They are read and never deleted here: what belongs to a row only its own program knows. The configuration: ``path``,
``table``, and for ``id``, ``text``, ``created``, ``updated``, ``expires``, ``subject`` and ``source`` an expression of
SQL each; ``live`` is a condition.
"""

from __future__ import annotations

import os
import sqlite3
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.sort(key=os.path.dirname(os.path.abspath(__file__)).__eq__)

from contextlib import closing
from typing import TYPE_CHECKING, Any

import store

from hands import _hand

if TYPE_CHECKING:
    from hands._hand import Request

SECONDS = 300.0
"""What reading may take."""

NAMES = ("id", "text", "created", "updated", "expires", "subject", "source")
_DATES = ("created", "updated", "expires")


def _read(request: Request) -> list[tuple[Any, ...]]:
    path, table = request.file("path"), request.need("table")
    for name in ("id", "text"):
        request.need(name)
    shown = ", ".join(f"({request.config.get(name) or 'NULL'})" for name in NAMES)
    quoted = table.replace('"', '""')
    where = request.config.get("live") or "1"
    try:
        with closing(store.connect(path, readonly=True, seconds=SECONDS)) as connection:
            connection.text_factory = lambda data: data.decode(errors="replace")
            return connection.execute(f'SELECT {shown} FROM "{quoted}" WHERE {where}').fetchall()
    except (sqlite3.Error, store.StoreError) as error:
        raise _hand.Refused(f"{path} cannot be read: {error}") from error


def _facts(request: Request) -> list[dict[str, str | None]]:
    title = request.config.get("title") or "sqlite"
    found = []
    for row in _read(request):
        given = dict(zip(NAMES, row, strict=True))
        if given["id"] is None:
            continue
        more = {name: _hand.utc(given[name]) for name in _DATES}
        more |= {"subject": _text(given["subject"]), "source": _text(given["source"]) or title}
        found.append(_hand.fact(_text(given["id"]), _text(given["text"]), **more))
    return found


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else "" if value is None else str(value)


def list_(request: Request) -> dict[str, Any]:
    """All rows that are memories."""
    return {"facts": _facts(request), "product": ""}


def delete(request: Request) -> dict[str, Any]:
    """Refused."""
    raise _hand.Refused(f"The rows of {request.need('path')} are deleted by their own program", "Delete it there")


def places(request: Request) -> dict[str, Any]:
    """Where memories are, by id and by what they say."""
    return _hand.listed_places(_facts(request), request, request.need("table"))


if __name__ == "__main__":
    _hand.serve({"list": list_, "delete": delete, "places": places})
