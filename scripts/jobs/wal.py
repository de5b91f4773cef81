"""How much stands in the -wal of a store, without a checkpoint: none of ours ever runs beside the agent.

A read that does not end keeps SQLite from beginning its -wal anew, which then grows with every write.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from typing import Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

HEADER: Final = 32
FRAME: Final = 24
"""Bytes before all frames, and before the page of each (https://www.sqlite.org/fileformat2.html#walformat)."""


def measure(connection: sqlite3.Connection) -> dict[str, Any]:
    """Bytes of the store (``bytes``), of the -wal beside it (``wal_bytes``), and of what was written to that since
    SQLite began it anew (``wal_waiting``). Empty where that cannot be told."""
    try:
        (size,), (pages,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_size", "page_count"))
        _, _, path = connection.execute("PRAGMA database_list").fetchone()
        length, frames = _frames(f"{path}-wal", size + FRAME)
    except (sqlite3.Error, OSError):
        return {}
    return {"bytes": pages * size, "wal_bytes": length, "wal_waiting": frames * size}


def _frames(path: str, step: int) -> tuple[int, int]:
    """A -wal's length, and how many of its frames are of its present beginning, which carry the salts of its header."""
    try:
        # SQLite has no locks on this file that a close here could drop, as it has on the database and the -shm.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0, 0
    try:
        length = os.fstat(descriptor).st_size
        salts = os.pread(descriptor, 8, 16)
        # They stand in front of those of earlier times, so the first of the others is looked for by halves.
        low, high = 0, max(0, length - HEADER) // step
        while low < high:
            middle = (low + high) // 2
            if os.pread(descriptor, 8, HEADER + middle * step + 8) == salts:
                low = middle + 1
            else:
                high = middle
        return length, low
    finally:
        os.close(descriptor)
