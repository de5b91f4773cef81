"""The full-text index of a store (sql/full_text.sql.j2), as far as a job has to do with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

PAGES: Final = 32
"""Pages of the index merged in one transaction, which holds the lock for about 10 ms."""


def settle(connection: sqlite3.Connection, going_on: Callable[[], bool]) -> bool:
    """Let the index of the store forget the words of rows that have gone. Returns whether it has.

    SQLite only notes that such a row is no more: its words stay in the file until the pieces of the index are merged,
    which is done here, in transactions of their own with pauses between them. A store without an index needs nothing.

    going_on: asked before each step. Raises sqlite3.Error.
    """
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'memory_text' AND rootpage = 0").fetchone():
        return True
    pages = -PAGES  # at first below zero, which begins with all pieces, however few
    while going_on():
        before, clock = connection.total_changes, time.monotonic()
        connection.execute("INSERT INTO memory_text(memory_text, rank) VALUES ('merge', ?)", (pages,))
        if connection.total_changes - before < 2:  # which is how SQLite says that nothing is left to do
            return True
        pages = PAGES
        time.sleep(time.monotonic() - clock)  # the agent's turn
    return False
