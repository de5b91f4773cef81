"""The review queue, as review.sql of the store has it: live facts that nobody has confirmed for long, oldest first."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import sections

if TYPE_CHECKING:
    from collections.abc import Iterator

    import rows

SECTIONS: Final = ("queue", "count", "unused", "unused_count")


def queue(reader: rows.Reader, sql: str, older_than: int | None, limit: int, *, unused: bool) -> dict[str, Any]:
    """The first facts of the queue: ``facts``; ``waiting``, how many there are in all; ``live``, all live facts.

    sql: the directory of the store's SQL files. older_than: days since the confirmation, of unused facts since the last
    use too; None for what review.sql says. unused: only facts that nothing used for so long.
    Raises store.Refused in a store that does not know when a fact was used, JobError, OSError, sqlite3.Error.
    """
    statements = _statements(reader, sql, unused=unused)
    listing, count = ("unused", "unused_count") if unused else ("queue", "count")
    values = {"older_than": older_than, "limit": limit}
    connection = reader.connection
    connection.execute("BEGIN")  # all of it from one state of the store
    try:
        facts = list(_facts(reader, statements[listing][0], values))
        waiting, live = connection.execute(statements[count][0], values).fetchone()
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
    return {"facts": facts, "waiting": waiting, "live": live}


def unused(reader: rows.Reader, sql: str) -> Iterator[rows.Fact]:
    """All live facts that nothing used and nobody confirmed for half a year. Raises as ``queue`` does."""
    statements = _statements(reader, sql, unused=True)
    return _facts(reader, statements["unused"][0], {"older_than": None, "limit": -1})


def _statements(reader: rows.Reader, sql: str, *, unused: bool) -> dict[str, list[str]]:
    if unused and "last_used_at" not in reader.columns:
        raise store.Refused(
            "this store has no column last_used_at, so it does not know which facts are used",
            "Review it by age: memops review",
        )
    return sections.read_sections(os.path.join(sql, "review.sql"), SECTIONS)


def _facts(reader: rows.Reader, listing: str, values: dict[str, int | None]) -> Iterator[rows.Fact]:
    for row in reader.connection.execute(listing, values).fetchall():
        yield from reader.read("WHERE m.rowid = ?", row[:1])
