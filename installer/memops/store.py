"""An agent's memory store: open it with every pragma right, and say what it is.

One file, standard library only. memops installs it to /usr/local/lib/memops, where the nightly jobs import it; an agent
may import or copy it as well. Dates in a store are UTC text, ``YYYY-MM-DD HH:MM:SS``.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from typing import Final
from urllib.parse import quote

COLUMNS: Final = ("id", "subject", "fact", "source", "created_at", "confirmed_at", "expires_at", "superseded_by")
"""The columns every store has; further ones are left alone."""

# SQLite opens a store read-only but cannot roll a crashed writer's journal back that way (result code 8).
_HOT_JOURNAL: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_READONLY_ROLLBACK, sqlite3.SQLITE_READONLY_RECOVERY)


class StoreError(Exception):
    """The store cannot be used; the text says why in one sentence."""


def connect(path: str, *, readonly: bool = False, timeout: float = 5.0) -> sqlite3.Connection:
    """Open an existing store the way every writer should.

    Only the store's owner should call this: any other user leaves files beside a WAL store that lock its owner out.

    path: the database file; it is never created.
    readonly: only read. A crashed writer's journal is still rolled back, as any reader's opening would.
    timeout: seconds to wait for a lock before ``sqlite3.OperationalError`` (code SQLITE_BUSY).

    Returns a connection in autocommit mode with foreign keys enforced, ``secure_delete`` on, and the functions that a
    schema may call limited to harmless ones. Raises sqlite3.Error when the file cannot be opened, StoreError when
    this SQLite has no foreign keys.
    """
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would make SQLite wait for ever
            raise StoreError(f"{path} is not a plain file")
    try:
        connection = _open(path, "ro" if readonly else "rw", timeout)
    except sqlite3.OperationalError as error:
        if not readonly or error.sqlite_errorcode not in _HOT_JOURNAL:
            raise
        connection = _open(path, "rw", timeout)
    try:
        if readonly:
            connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        # The setting is per connection and void inside a transaction, so it is read back
        # (https://www.sqlite.org/foreignkeys.html#fk_enable).
        if connection.execute("PRAGMA foreign_keys").fetchone() != (1,):
            raise StoreError("this SQLite was built without foreign keys")
    except BaseException:
        connection.close()
        raise
    return connection


def _open(path: str, mode: str, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?mode={mode}", uri=True, timeout=timeout, isolation_level=None
    )
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def printable(text: object, limit: int = 64) -> str:
    """The agent's text as it may appear on a terminal or in the journal: escaped, at most ``limit`` characters."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(text))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
