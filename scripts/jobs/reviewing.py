"""The review queue, as review.sql of the store has it: live facts that nobody has confirmed for long, oldest first."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import sections

if TYPE_CHECKING:
    import rows

SECTIONS: Final = ("queue", "count", "unused", "unused_count")


def queue(reader: rows.Reader, path: str, older_than: int | None, limit: int, *, unused: bool) -> dict[str, Any]:
    """The first facts of the queue: ``facts``; ``waiting``, how many there are in all; ``live``, all live facts.

    path: the store's review.sql. older_than: days since the confirmation, of unused facts since the last use
    too; None for what review.sql says. unused: only facts that nothing used for so long.
    Raises store.Refused in a store that does not know when a fact was used, JobError, OSError, sqlite3.Error.
    """
    if unused and "last_used_at" not in reader.columns:
        raise store.Refused(
            "this store has no column last_used_at, so it does not know which facts are used",
            "Review it by age: memops review",
        )
    statements = sections.read_sections(path, SECTIONS)
    (listing,), (count,) = (statements[name] for name in (("unused", "unused_count") if unused else ("queue", "count")))
    values = {"older_than": older_than, "limit": limit}
    connection = reader.connection
    connection.execute("BEGIN")  # all of it from one state of the store
    try:
        found = connection.execute(listing, values).fetchall()
        facts = [fact for row in found for fact in reader.read("WHERE m.rowid = ?", row[:1])]
        waiting, live = connection.execute(count, values).fetchone()
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
    return {"facts": facts, "waiting": waiting, "live": live}
