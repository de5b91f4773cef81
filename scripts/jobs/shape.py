"""What a database is as a memory store, making one, and changing its schema; the owner's half of an installation.

Standard library only. The installer hands this file and store.py to the system's python3 (see owner.py), since the
library need not be installed yet.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from typing import Any, Final

from store import COLUMNS, FURTHER, connect

CHANGE_LOG_COLUMNS: Final = frozenset({"memory_id", "old_memory", "new_memory", "event"})
"""What marks mem0's ``history`` table: a log of changes, whose rows are not memories."""


def create(path: str, schema: str) -> None:
    """Make an empty store from ``schema`` (SQL text), mode 0600.

    Raises FileExistsError when something is there, and leaves nothing behind when the schema fails.
    """
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        connection = connect(path)
        try:
            connection.executescript("BEGIN;\n" + schema + "\nCOMMIT;")
        finally:
            connection.close()
    except BaseException:
        os.unlink(path)
        raise


def change_schema(path: str, script: str) -> None:
    """Run ``script`` (SQL text that adds a view or an index) in one transaction."""
    connection = connect(path, timeout=30)
    try:
        connection.executescript("BEGIN IMMEDIATE;\n" + script + "\nCOMMIT;")
    finally:
        connection.close()


def set_journal_mode(path: str, mode: str) -> str:
    """Switch to ``mode`` (``wal``, ``delete`` …) and return the mode the store then has, which may be the old one."""
    connection = connect(path)
    try:
        return str(connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])
    finally:
        connection.close()


def tables(path: str) -> dict[str, Any]:
    """The tables of a database: ``name`` → ``columns`` (name → type), ``key`` (columns of the primary key), ``rows``,
    ``rowid`` (whether it has one) and ``triggers`` on updates. What is no SQLite file: ``{}``. Raises sqlite3.Error."""
    if not os.path.isfile(path) or os.path.getsize(path) == 0:
        return {}
    connection = connect(path, readonly=True, seconds=SECONDS)
    try:
        names = [row[0] for row in connection.execute(_PLAIN_TABLES)]
        return {name: _table(connection, name) for name in names}
    finally:
        connection.close()


def pointing_nowhere(path: str) -> list[str]:
    """The ids of facts that were replaced by a row which is not there, at most ten thousand."""
    connection = connect(path, readonly=True)
    try:
        return [
            str(row[0])
            for row in connection.execute(
                "SELECT id FROM main.memory AS m WHERE superseded_by IS NOT NULL"
                " AND NOT EXISTS (SELECT 1 FROM main.memory AS n WHERE n.id = m.superseded_by)"
                " ORDER BY rowid LIMIT 10000"
            )
        ]
    finally:
        connection.close()


def _table(connection: sqlite3.Connection, name: str) -> dict[str, Any]:
    columns = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
    quoted = name.replace('"', '""')
    try:
        (rows,) = connection.execute(f'SELECT count(rowid) FROM "{quoted}"').fetchone()
        rowid = True
    except sqlite3.OperationalError:
        rows, rowid = connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()[0], False
    return {
        "columns": {column: kind for column, kind, _ in columns},
        "key": [column for column, _, key in columns if key],
        "rows": rows,
        "rowid": rowid and not {"rowid", "_rowid_", "oid"} & {column.lower() for column, _, _ in columns},
        "triggers": _update_triggers(connection, name),
    }


def _update_triggers(connection: sqlite3.Connection, table: str) -> list[str]:
    """Names of triggers that an update of a table fires. What follows UPDATE in their text is left unread."""
    found = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? ORDER BY name", (table,)
    )
    return [str(name) for name, sql in found if re.search(r"\bUPDATE\b", str(sql).partition("BEGIN")[0], re.IGNORECASE)]


def odd_dates(path: str, table: str, column: str) -> int:
    """How many values of a column are no date of ours and not null: another program's format. Raises sqlite3.Error."""
    name, of = (text.replace('"', '""') for text in (column, table))
    connection = connect(path, readonly=True, seconds=SECONDS)
    try:
        odd = f'"{name}" IS NOT NULL AND "{name}" COLLATE BINARY IS NOT datetime("{name}")'
        return int(connection.execute(f'SELECT count(*) FROM "{of}" WHERE {odd}').fetchone()[0])
    finally:
        connection.close()


SECONDS: Final = 60.0
"""What a look at another program's database may take."""

_PLAIN_TABLES: Final = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    " AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name LIMIT 500"
)


def describe(path: str, table: str = "memory", real: str = "") -> dict[str, Any]:
    """Say what is at ``path``, without changing it.

    Returns a dict that JSON can carry. ``kind`` is one of

    - ``missing``: nothing there; ``directory_writable`` says whether a store could be made
    - ``not a file`` | ``empty`` | ``not sqlite`` | ``unreadable``: with ``why``
    - ``other``: a database without ``table``; ``tables`` names what it has, ``change_log`` one that looks like mem0's
    - ``store``: with ``missing_columns``, ``why_not`` (a reason not to look after this table, or null), ``rows``,
      ``journal_mode``, ``user_version``, ``indexes`` (their names), ``indexed`` (columns that a whole index
      begins with), ``live_view`` (is it there), ``full_text`` (``whole``: memops' index is there, with as many rows as
      the table; ``odd``: it is there and not so; ``taken``: its name has something else; ``none``),
      ``has_superseded_at``, ``own`` (it has the columns of stores that memops makes), ``triggers`` (names),
      ``sqlite_version``, ``writable``, ``links``

    real: the table of another program's over which ``table`` is, or will be, a view. Of that one ``kind``, ``rows``,
    ``columns``, ``update_triggers`` and ``adopted`` (the views are there) are told, and what fits of the others.
    """
    directory = os.path.dirname(os.path.abspath(path))
    found: dict[str, Any] = {
        "path": path,
        "sqlite_version": sqlite3.sqlite_version,
        "directory_writable": os.access(directory, os.W_OK | os.X_OK),
    }
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return {**found, "kind": "missing"}
    except OSError as error:
        return {**found, "kind": "unreadable", "why": error.strerror}
    if not stat.S_ISREG(status.st_mode):
        return {**found, "kind": "not a file"}
    found |= {"size": status.st_size, "links": status.st_nlink, "writable": os.access(path, os.W_OK)}
    if status.st_size == 0:
        return {**found, "kind": "empty"}
    try:
        connection = connect(path, readonly=True)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return {**found, "kind": "not sqlite", "why": str(error)}
        return {**found, "kind": "unreadable", "why": str(error)}
    try:
        return {**found, **_shape(connection, table, real)}
    except sqlite3.DatabaseError as error:
        return {**found, "kind": "unreadable", "why": str(error)}
    finally:
        connection.close()


def _shape(connection: sqlite3.Connection, table: str, real: str) -> dict[str, Any]:
    tables = {
        str(name): (str(kind), str(sql or ""))
        for kind, name, sql in connection.execute(
            "SELECT type, name, sql FROM sqlite_schema"
            " WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
    }
    columns = {name: _columns(connection, name) for name in tables}
    shape: dict[str, Any] = {
        "tables": sorted(tables),
        "change_log": next((n for n, c in columns.items() if c >= CHANGE_LOG_COLUMNS), None),
        "journal_mode": connection.execute("PRAGMA journal_mode").fetchone()[0],
        "user_version": connection.execute("PRAGMA user_version").fetchone()[0],
    }
    if real and real in tables:
        return {**shape, **_adopted(connection, table, real, tables, columns)}
    if real or table not in tables:
        return {**shape, "kind": "other"}
    kind, sql = tables[table]
    indexes = [row[0] for row in connection.execute("SELECT name FROM pragma_index_list(?)", (table,))]
    indexed = {
        row[2]
        for index in connection.execute("SELECT name FROM pragma_index_list(?) WHERE partial = 0", (table,)).fetchall()
        for row in connection.execute("SELECT * FROM pragma_index_info(?)", index).fetchall()
        if row[0] == 0
    }
    missing = [name for name in COLUMNS if name not in columns[table]]
    return {
        **shape,
        "kind": "store",
        "missing_columns": missing,
        "why_not": _why_not(connection, table, kind, sql, columns[table], missing),
        "indexes": sorted(indexes),
        "indexed": sorted(name for name in indexed if name),
        "live_view": tables.get("live_" + table, ("", ""))[0] == "view",
        "full_text": _full_text(connection, table, tables.get(f"{table}_text", ("", ""))[1]),
        "has_superseded_at": "superseded_at" in columns[table],
        "own": columns[table] >= {*COLUMNS, *FURTHER},
        "triggers": [
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? ORDER BY name", (table,)
            )
        ],
        "rows": None if missing else connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0],
    }


def _adopted(
    connection: sqlite3.Connection,
    table: str,
    real: str,
    tables: dict[str, tuple[str, str]],
    columns: dict[str, set[str]],
) -> dict[str, Any]:
    quoted = real.replace('"', '""')
    views = all(tables.get(name, ("", ""))[0] == "view" for name in (table, f"live_{table}"))
    # Of this table, and not of another one.
    views = views and tables[table][1].endswith(f'FROM "{quoted}"')
    return {
        "kind": "store",
        "missing_columns": [],
        "why_not": None if tables[real][0] == "table" else f"{real} is no table",
        "adopted": views and columns[table] == {*COLUMNS, "rowid"},
        "columns": sorted(columns[real]),
        "update_triggers": _update_triggers(connection, real),
        "live_view": views,
        "full_text": "none",
        "has_superseded_at": False,
        "own": False,
        "rows": connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()[0],
    }


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    try:
        return {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
    except sqlite3.DatabaseError:  # a virtual table of a module this SQLite lacks, or a view onto nothing
        return set()


def _full_text(connection: sqlite3.Connection, table: str, sql: str) -> str:
    text = f"{table}_text"
    quoted = table.replace("'", "''")
    if not sql:
        return "none"
    if not re.match(rf"CREATE VIRTUAL TABLE .* USING fts5\(.*content='{re.escape(quoted)}'", sql, re.DOTALL):
        return "taken"
    (triggers,) = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1"
        " AND name IN (?2 || '_before', ?2 || '_insert', ?2 || '_delete', ?2 || '_update')",
        (table, text),
    ).fetchone()
    # In one statement, and so in one state of the store.
    count = f'SELECT (SELECT count(*) FROM "{table}") = (SELECT count(*) FROM "{text}_docsize")'
    return "whole" if triggers == 4 and connection.execute(count).fetchone() == (1,) else "odd"


def _why_not(
    connection: sqlite3.Connection, table: str, kind: str, sql: str, columns: set[str], missing: list[str]
) -> str | None:
    if kind == "view" or sql.upper().startswith("CREATE VIRTUAL"):
        return f"{table} is a {'view' if kind == 'view' else 'virtual table'}, not a table"
    if missing:
        return None
    if {"rowid", "_rowid_", "oid"} & {name.lower() for name in columns}:
        return f"{table} has a column named like SQLite's own rowid"
    try:
        connection.execute(f'SELECT rowid FROM "{table}" LIMIT 1')
    except sqlite3.OperationalError:
        return f"{table} is a WITHOUT ROWID table"
    if not connection.execute(
        "SELECT 1 FROM pragma_table_info(?) WHERE name = 'id' AND pk = 1"
        " AND (SELECT count(*) FROM pragma_table_info(?) WHERE pk > 0) = 1",
        (table, table),
    ).fetchone():
        return f"the primary key of {table} is not id"
    (kind,) = connection.execute("SELECT type FROM pragma_table_info(?) WHERE name = 'id'", (table,)).fetchone()
    if "INT" in kind.upper():
        return f"the ids of {table} are numbers, and those of facts are text (id TEXT PRIMARY KEY)"
    return None
