"""What the two halves of a backup share: counting what a database holds, and a limit on how long that may take.

snapshot.py counts the store, seal.py the copy; only the same functions on both sides make the numbers comparable.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import hashlib
import os
import re
import sqlite3
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from job import JobError, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

DATABASE: Final = "memory.db"
CLAIM: Final = "memory.json"
DEADLINE: Final = 1800.0
"""Seconds that either half may take."""

RESERVE: Final = 16 << 20
"""Bytes that a backup leaves free on its disk."""

_FTS5: Final = re.compile(r"CREATE VIRTUAL TABLE\b.*\bUSING\s+fts5\b", re.IGNORECASE | re.DOTALL)
_FTS5_OWN: Final = ("config", "data", "docsize", "idx")
"""The tables that FTS5 keeps an index in. They hold no rows of anybody's, and merge in their own time."""


@dataclass(frozen=True)
class Census:
    """What a database holds. ``uncounted`` names the tables that hold nothing of their own or could not be counted."""

    rows: dict[str, int]
    uncounted: list[str]
    schema_sha256: str
    user_version: int


def take(connection: sqlite3.Connection) -> Census:
    """Count every ordinary table, with a virtual table's shadow tables but for those of a full-text index.

    Views and virtual tables are not run.
    """
    factory, connection.text_factory = connection.text_factory, lambda text: text.decode(errors="backslashreplace")
    try:
        schema = connection.execute(
            "SELECT type, name, tbl_name, sql, ifnull(rootpage, 0) FROM sqlite_schema"
            " WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name"
        ).fetchall()
    finally:
        connection.text_factory = factory
    rows: dict[str, int] = {}
    uncounted = []
    indexes = [name for _, name, _, sql, root in schema if not root and _FTS5.match(str(sql))]
    derived = {f"{name}_{own}" for name in indexes for own in _FTS5_OWN}
    for kind, name, _, _, root in schema:
        if kind != "table":
            continue
        count = _count(connection, str(name)) if root and name not in derived else None
        if count is None:
            uncounted.append(str(name))
        else:
            rows[str(name)] = count
    return Census(
        rows,
        uncounted,
        hashlib.sha256("\0".join(f"{part}" for row in schema for part in row[:4]).encode()).hexdigest(),
        connection.execute("PRAGMA user_version").fetchone()[0],
    )


def _count(connection: sqlite3.Connection, table: str) -> int | None:
    quoted = table.replace('"', '""')
    try:
        return int(connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return None


def violations(connection: sqlite3.Connection) -> int | None:
    """How many foreign keys point nowhere; None where a key is declared in a way that SQLite cannot check."""
    try:
        return sum(1 for _ in connection.execute("PRAGMA foreign_key_check"))
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return None


class Limit:
    """The end of a job's time: ``seconds`` from now, or when it is told to stop. To be made in the main thread."""

    def __init__(self, seconds: float) -> None:
        self._stop, self._seconds, self._end = Stop(), seconds, time.monotonic() + seconds

    def within(self, seconds: float) -> Limit:
        """A limit of ``seconds`` from now for one piece of the job, which ends with this one at the latest."""
        inner = copy.copy(self)
        inner._seconds, inner._end = seconds, min(time.monotonic() + seconds, self._end)
        return inner

    def check(self) -> None:
        """Raise JobError when the time is over."""
        if self._stop:
            raise JobError("told to stop before the end")
        if time.monotonic() > self._end:
            raise JobError(f"not done after {self._seconds:g} s")

    def _over(self) -> bool:
        return bool(self._stop) or time.monotonic() > self._end

    @contextlib.contextmanager
    def on(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Interrupt what ``connection`` does in here when the time is over, with the error that ``check`` raises."""
        connection.set_progress_handler(self._over, 100_000)
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                self.check()
            raise
        finally:
            connection.set_progress_handler(None, 0)

    def run(self, work: Callable[[], T], grace: float = 2.0) -> T:
        """Do ``work`` in a thread and give up on it ``grace`` seconds after the time is over.

        For a file that nobody vouches for: one call of an SQL function can take hours, and no progress handler is
        asked in there.
        """
        results: list[T] = []
        errors: list[BaseException] = []

        def call() -> None:
            try:
                results.append(work())
            except BaseException as error:  # raised again below, by the thread that waits
                errors.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        while thread.is_alive() and not self._over():
            thread.join(0.1)
        thread.join(grace)
        if errors:
            raise errors[0]
        if not results:
            self.check()
        return results[0]


def open_directory(path: str, inside: int | None = None) -> int:
    """A descriptor of the directory ``path``, or of the one in the open directory ``inside``; it may not be a link."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)


def free_bytes(directory: int) -> int:
    """What may still be written to the file system of ``directory`` when the reserve is kept."""
    status = os.fstatvfs(directory)
    return status.f_bavail * status.f_frsize - RESERVE


def require_room(directory: int, size: int, purpose: str = "for the copy") -> None:
    """Raise JobError when ``size`` bytes will not fit on the disk of the backups, where ``directory`` is."""
    require_free(free_bytes(directory), size, purpose)


def require_free(free: int, size: int, purpose: str, where: str = "on the disk of the backups") -> None:
    """As ``require_room``, where it is known how many bytes are ``free``."""
    if size > free:
        raise JobError(f"no room {purpose}: it needs {amount(size)}, and {amount(max(free, 0))} may be used {where}")


@contextlib.contextmanager
def full_disk_named() -> Iterator[None]:
    """Say of a full disk whose it is."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise JobError("the disk of the backups is full") from error
        raise


def amount(size: float) -> str:
    """``size`` bytes for a reader: 812 B, 28.7 kB, 1.2 MB."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}" if unit != "B" else f"{size} B"
        size /= 1000
    return f"{size:.1f} GB"
