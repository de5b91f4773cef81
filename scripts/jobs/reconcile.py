"""Bringing a ledger in line with what a product holds: memops' own database with a row for each of its memories.

The product is right about which memories there are and what they say; the ledger about when somebody confirmed them,
and until when, where somebody said so here.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import job

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from handing import Listing, Memory

FEW: Final = 100
"""Memories that may vanish at once, however small the store."""


@dataclass(frozen=True)
class Change:
    """What was done to the ledger, in numbers; ``unread``: memories kept though nothing is known of them now."""

    new: int = 0
    changed: int = 0
    gone: int = 0
    unread: int = 0

    def words(self) -> str:
        """In a few words; empty where nothing happened."""
        numbers = {"new": self.new, "changed": self.changed, "gone": self.gone, "not readable now": self.unread}
        return ", ".join(f"{number:,} {word}" for word, number in numbers.items() if number)


@dataclass(frozen=True)
class _Row:
    row: int
    fact: str
    subject: str
    source: str
    confirmed: object
    expires: object
    said: str | None
    text_hash: str | None


def reconcile(connection: sqlite3.Connection, listing: Listing, now: str, *, allow_large: bool) -> Change:
    """Make the ledger say what the product holds, in one transaction.

    now: UTC text. allow_large: also where more than half of the memories, and more than ``FEW``, have vanished. Raises
    JobError (GUARD) for that, and then nothing was changed.
    """
    with store.writing(connection):
        known = _known(connection)
        away = [name for name in known if name not in listing.memories]
        unread = [name for name in away if name.startswith(listing.unread)] if listing.unread else []
        gone = sorted({*away} - {*unread})
        if len(gone) > FEW and len(gone) * 2 > len(known) and not allow_large:
            raise job.JobError(
                f"nothing changed: {len(gone)} of {len(known)} memories are not in the product any more, more than half"
                " of the ledger. If that is right: memops prune --allow-large",
                job.GUARD,
            )
        # A product knows no chains: what a stranger put into this column must take nothing along.
        connection.execute("UPDATE main.memory SET superseded_by = NULL WHERE superseded_by IS NOT NULL")
        connection.executemany("DELETE FROM main.memory WHERE rowid = ?", [(known[name].row,) for name in gone])
        new = changed = 0
        for memory in listing.memories.values():
            row = known.get(memory.id)
            if row is None:
                new += 1
                _add(connection, memory, now)
            else:
                changed += _renew(connection, memory, row, now)
        connection.execute("DELETE FROM main.ledger WHERE id NOT IN (SELECT id FROM main.memory)")
    return Change(new, changed, len(gone), len(unread))


def _known(connection: sqlite3.Connection) -> Mapping[str, _Row]:
    rows = connection.execute(
        "SELECT m.id, m.rowid, m.fact, m.subject, m.source, m.confirmed_at, m.expires_at, l.expires, l.text_hash"
        " FROM main.memory AS m LEFT JOIN main.ledger AS l ON l.id = m.id"
    )
    return {str(name): _Row(*rest) for name, *rest in rows}


def _add(connection: sqlite3.Connection, memory: Memory, now: str) -> None:
    created = memory.created or memory.updated or now
    confirmed = min(max(created, memory.updated or ""), now)
    connection.execute(
        "INSERT INTO main.memory (id, subject, fact, source, created_at, confirmed_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (memory.id, memory.subject, memory.text, memory.source, created, confirmed, memory.expires),
    )
    _note(connection, memory)


def _renew(connection: sqlite3.Connection, memory: Memory, row: _Row, now: str) -> bool:
    """Take over what the product says; whether the text is another one."""
    changed = row.text_hash != hash_of(memory.text)
    if changed:
        # Whoever changed it there says that it is so; a date that is here already is never moved back.
        said = min(memory.updated or now, now)
        confirmed = max(str(row.confirmed), said) if store.moment_of(row.confirmed) else said
        connection.execute("UPDATE main.memory SET confirmed_at = ? WHERE id = ?", (confirmed, memory.id))
    if (row.fact, row.subject, row.source) != (memory.text, memory.subject, memory.source):
        connection.execute(
            "UPDATE main.memory SET fact = ?, subject = ?, source = ? WHERE id = ?",
            (memory.text, memory.subject, memory.source, memory.id),
        )
    if memory.expires != row.said and row.expires == row.said:
        connection.execute("UPDATE main.memory SET expires_at = ? WHERE id = ?", (memory.expires, memory.id))
    if changed or memory.expires != row.said:
        _note(connection, memory)
    return changed


def _note(connection: sqlite3.Connection, memory: Memory) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO main.ledger (id, expires, text_hash) VALUES (?, ?, ?)",
        (memory.id, memory.expires, hash_of(memory.text)),
    )


def hash_of(text: str) -> str:
    """What tells a text from another one."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
