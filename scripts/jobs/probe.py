"""Looks into databases for ``memops doctor`` as their owner, and reads that user's configuration. Writes nothing.

One request on standard input, one answer, both JSON. A database beside which nothing lies is read as it is on the disk;
one that is in use is read as every reader reads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from typing import TYPE_CHECKING, Any, Final

import store

import shown
import traces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SECONDS: Final = 20.0
"""What one database may take."""

TABLES: Final = 300
LARGEST: Final = 4 << 20
MOST_LINKS: Final = 2_000_000
SIDECARS: Final = ("-wal", "-journal")

_DATE_NAMES: Final = ("_at", "_at_iso", "timestamp", "date", "time", "_epoch", "created", "updated", "expires")
_DAY: Final = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
_TIME: Final = "[0-9][0-9]:[0-9][0-9]:[0-9][0-9]"
_FORMS: Final = f"""CASE
  WHEN typeof({{0}}) IN ('integer', 'real') THEN CASE
    WHEN abs({{0}}) < 1e8 THEN 'odd' WHEN abs({{0}}) < 1e11 THEN 'epoch'
    WHEN abs({{0}}) < 1e14 THEN 'epoch-ms' ELSE 'odd' END
  WHEN typeof({{0}}) <> 'text' THEN 'odd'
  WHEN {{0}} GLOB '{_DAY} {_TIME}' THEN 'utc'
  WHEN {{0}} GLOB '{_DAY}T{_TIME}*' THEN 'iso'
  WHEN {{0}} GLOB '{_DAY}' THEN 'day'
  WHEN {{0}} GLOB '{_DAY} {_TIME}.*' THEN 'naive'
  ELSE 'odd' END"""
"""The format of a value, as found.Database.dates names it."""

OURS: Final = {"id", "subject", "fact", "source", "created_at", "confirmed_at", "expires_at", "superseded_by"}
"""The columns of a table of memories that memops made."""


def look(path: str, known: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a database holds, as found.Database has it, and ``product``. Raises sqlite3.Error, OSError, StoreError.

    known: products as ``name``, ``what``, ``file``, ``tables`` (name → columns) and ``rows``.
    """
    # Before it is opened: closing a file lets go of all locks that a process has on it.
    mode = _journal_mode(path)
    connection = _open(path)
    try:
        connection.text_factory = lambda data: data.decode(errors="backslashreplace")
        columns = _columns(connection)
        product, what = _product(columns, os.path.basename(path), known)
        rows: Mapping[str, str] = next((each["rows"] for each in known if each["name"] == product and each["rows"]), {})
        main = rows.get("table") or ("memory" if set(columns.get("memory", ())) >= OURS else "")
        needed = {table for each in known if each["name"] == product for table in each["tables"]}
        dated = needed & set(columns) or {main} & set(columns) or set(list(columns)[:20])
        return {
            "product": product,
            "what": what,
            "tables": {name: _count(connection, f"SELECT count(*) FROM {_quoted(name)}") for name in columns},
            "columns": columns,
            "journal_mode": mode,
            "user_version": connection.execute("PRAGMA user_version").fetchone()[0],
            "page_bytes": connection.execute("PRAGMA page_size").fetchone()[0],
            "free_bytes": connection.execute("PRAGMA freelist_count").fetchone()[0]
            * connection.execute("PRAGMA page_size").fetchone()[0],
            "dates": dict(_dates(connection, {name: columns[name] for name in dated})),
            "violations": _violations(connection),
            "facts": {**_keys(connection, columns), **_facts(connection, columns, main)},
        }
    finally:
        connection.close()


def _journal_mode(path: str) -> str:
    """As the header has it; what else a rollback journal may be is each connection's own affair."""
    store.require_plain(path, os.stat(path))
    with open(path, "rb") as file:
        return "wal" if file.read(20)[18:20] == b"\2\2" else "delete"


def _open(path: str) -> sqlite3.Connection:
    store.require_plain(path, os.stat(path))
    before = _state(path)
    if any(os.path.lexists(path + end) for end in SIDECARS):
        return store.connect(path, readonly=True, seconds=SECONDS)
    connection = traces.open_still(path)
    end = _deadline()
    connection.set_progress_handler(end, 10_000)
    if before != _state(path):
        connection.close()
        return store.connect(path, readonly=True, seconds=SECONDS)
    return connection


def _deadline() -> Any:
    import time

    end = time.monotonic() + SECONDS
    return lambda: time.monotonic() > end


def _state(path: str) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Plain table → its columns; virtual tables and what SQLite keeps for itself are left out."""
    found: dict[str, list[str]] = {}
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"
        " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        " ORDER BY name LIMIT ?",
        (TABLES,),
    ).fetchall()
    for (name,) in names:
        found[name] = [row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))]
    return found


def _count(connection: sqlite3.Connection, sql: str, *values: object) -> int | None:
    try:
        return int(connection.execute(sql, values).fetchone()[0])
    except sqlite3.Error:
        return None


def _product(columns: Mapping[str, Sequence[str]], name: str, known: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    import fnmatch

    fits = [
        (len(each["tables"]), fnmatch.fnmatch(name, each["file"]), each["name"], each["what"])
        for each in known
        if each["tables"]
        and all(set(wanted) <= set(columns.get(table, ())) for table, wanted in each["tables"].items())
    ]
    if not fits:
        return "sqlite", "memories"
    _, _, product, what = max(fits, key=lambda fit: (fit[1], fit[0]))
    return product, what


def _dates(
    connection: sqlite3.Connection, columns: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, dict[str, int]]]:
    for table, names in columns.items():
        for name in names:
            if not name.lower().endswith(_DATE_NAMES):
                continue
            form = _FORMS.format(_quoted(name))
            with contextlib.suppress(sqlite3.Error):
                found = connection.execute(
                    f"SELECT {form}, count(*) FROM {_quoted(table)}"
                    f" WHERE {_quoted(name)} IS NOT NULL AND {_quoted(name)} <> '' GROUP BY 1"
                ).fetchall()
                if found:
                    yield f"{table}.{name}", dict(found)


def _violations(connection: sqlite3.Connection) -> dict[str, int]:
    found: dict[str, int] = {}
    with contextlib.suppress(sqlite3.Error):
        for child, _, parent, _ in connection.execute("PRAGMA foreign_key_check"):
            found[f"{child}.{parent}"] = found.get(f"{child}.{parent}", 0) + 1
    return found


def _keys(connection: sqlite3.Connection, columns: Mapping[str, Sequence[str]]) -> dict[str, int]:
    count = 0
    for name in columns:
        with contextlib.suppress(sqlite3.Error):
            count += len(connection.execute("SELECT DISTINCT id FROM pragma_foreign_key_list(?)", (name,)).fetchall())
    return {"foreign_keys": count}


def _facts(connection: sqlite3.Connection, columns: Mapping[str, Sequence[str]], main: str) -> dict[str, int]:
    """Figures about the table of memories, as found.FIGURES names them; what cannot be counted is left out."""
    if not main or main not in columns:
        return {}
    has, table = set(columns[main]), _quoted(main)
    counted = {"rows": f"SELECT count(*) FROM {table}"}
    if "deleted_at" in has:
        old = (
            "CASE typeof(deleted_at) WHEN 'text' THEN julianday(deleted_at) ELSE julianday(deleted_at, 'unixepoch') END"
        )
        counted["tombstones"] = f"SELECT count(*) FROM {table} WHERE julianday('now') - {old} > 30"
    if "source" in has:
        counted["empty_sources"] = f"SELECT count(*) FROM {table} WHERE ifnull(trim(source), '') = ''"
        vague = ", ".join("'" + word.replace("'", "''") + "'" for word in sorted(store.VAGUE))
        counted["vague_sources"] = f"SELECT count(*) FROM {table} WHERE lower(trim(source)) IN ({vague})"
    if has >= OURS:
        past = "expires_at IS NOT NULL AND expires_at <= datetime('now')"
        counted["live"] = f"SELECT count(*) FROM {table} WHERE superseded_by IS NULL AND NOT ({past})"
        counted["dead"] = f"SELECT count(*) FROM {table} WHERE {past}"
        other = " OR ".join(
            f"({name} IS NOT NULL AND {name} COLLATE BINARY IS NOT datetime({name}))"
            for name in ("created_at", "confirmed_at", "expires_at")
        )
        counted["doubtful"] = f"SELECT count(*) FROM {table} WHERE {other}"
        counted["self_references"] = f"SELECT count(*) FROM {table} WHERE superseded_by = id"
        counted["chains_into_nothing"] = (
            f"SELECT count(*) FROM {table} AS m WHERE superseded_by IS NOT NULL"
            f" AND NOT EXISTS (SELECT 1 FROM {table} AS n WHERE n.id = m.superseded_by)"
        )
        counted["temporary_over_permanent"] = (
            f"SELECT count(*) FROM {table} AS m JOIN {table} AS n ON n.id = m.superseded_by"
            " WHERE m.id <> n.id AND m.expires_at IS NULL AND n.expires_at IS NOT NULL"
        )
    found = {key: _count(connection, sql) for key, sql in counted.items()}
    if has >= OURS:
        with contextlib.suppress(sqlite3.Error):
            found["cycles"] = _cycles(connection, table)
    return {key: value for key, value in found.items() if value is not None}


def _cycles(connection: sqlite3.Connection, table: str) -> int:
    """Rows of chains that go round."""
    after = dict(
        connection.execute(
            f"SELECT id, superseded_by FROM {table} WHERE superseded_by IS NOT NULL AND superseded_by <> id LIMIT ?",
            (MOST_LINKS,),
        ).fetchall()
    )
    ended: set[object] = set()
    round_: set[object] = set()
    for start in after:
        way: dict[object, None] = {}
        here: object = start
        while here in after and here not in ended and here not in way:
            way[here] = None
            here = after[here]
        if here in way:
            walked = list(way)
            round_.update(walked[walked.index(here) :])
        ended.update(way)
    return len(round_)


def graph(path: str) -> dict[str, int]:
    """``graph``: how many observations an MCP server-memory has in a file. Raises OSError."""
    count = 0
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        for line in file.read(LARGEST * 16).splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                entry = json.loads(line)
                if isinstance(entry, dict) and isinstance(entry.get("observations"), list):
                    count += len(entry["observations"])
    return {"graph": count}


def configured(path: str, names: Sequence[str]) -> dict[str, str]:
    """Key → text, of these keys wherever they are in a JSON file. Raises OSError, ValueError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        given = json.loads(file.read(LARGEST))
    found: dict[str, str] = {}
    waiting = [given]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            found.update({key: value for key, value in each.items() if key in names and isinstance(value, str)})
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return found


def inspect(path: str) -> dict[str, Any]:
    """What is in a database, for a person: ``tables``, ``changes`` and ``events``. Raises sqlite3.Error, OSError.

    ``changes``: ``table``, ``by`` (the column that says when) and ``rows``, the last five, each column → text.
    """
    if os.path.getsize(path) == 0:
        return {"tables": []}
    connection = _open(path)
    try:
        connection.text_factory = lambda data: data.decode(errors="backslashreplace")
        columns = _columns(connection)
        texts = connection.execute(
            "SELECT name, ifnull(sql, '') FROM sqlite_schema WHERE type = 'table' ORDER BY name LIMIT ?", (TABLES,)
        ).fetchall()
        counts = {name: _count(connection, f"SELECT count(*) FROM {_quoted(name)}") for name in columns}
        return {
            "tables": [
                {
                    "name": shown.text(name, 200),
                    "sql": _lines(sql),
                    "rows": counts.get(name),
                }
                for name, sql in texts
            ],
            "changes": _changes(connection, columns, counts),
            "events": _events(connection, columns),
        }
    finally:
        connection.close()


def _lines(sql: str) -> str:
    return "\n".join(shown.text(line, 300) for line in sql.splitlines()[:200])


_EVENTS: Final = ("event", "action", "operation", "op", "event_type")
_MOMENTS: Final = ("updated_at", "deleted_at", "created_at", "timestamp", "updated", "created", "created_at_epoch")


def _changes(
    connection: sqlite3.Connection, columns: Mapping[str, Sequence[str]], counts: Mapping[str, int | None]
) -> dict[str, Any] | None:
    """Of the table of changes where there is one, else of the one with the most rows that says when."""

    def rank(name: str) -> tuple[bool, bool, int]:
        lower = {column.lower() for column in columns[name]}
        return bool(lower & set(_EVENTS)), bool(lower & set(_MOMENTS)), counts[name] or 0

    table = max(columns, key=rank, default="")
    if not table:
        return None
    by = next((each for wanted in _MOMENTS for each in columns[table] if each.lower() == wanted), "")
    for order in [f"{_quoted(by)} DESC, rowid DESC", f"{_quoted(by)} DESC"] if by else ["rowid DESC", "1 DESC"]:
        with contextlib.suppress(sqlite3.Error):
            found = connection.execute(f"SELECT * FROM {_quoted(table)} ORDER BY {order} LIMIT 5")
            names = [column[0] for column in found.description]
            rows = [dict(zip(names, map(_value, row), strict=True)) for row in found]
            return {"table": shown.text(table, 200), "by": shown.text(by or "rowid", 200), "rows": rows}
    return None


def _value(value: object) -> str | None:
    if value is None:
        return None
    return f"{len(value):,} bytes" if isinstance(value, bytes) else shown.text(value, 500)


def _events(connection: sqlite3.Connection, columns: Mapping[str, Sequence[str]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for table, names in columns.items():
        for name in names:
            if name.lower() in _EVENTS:
                with contextlib.suppress(sqlite3.Error):
                    rows = connection.execute(
                        f"SELECT {_quoted(name)}, count(*) FROM {_quoted(table)} GROUP BY 1 ORDER BY 2 DESC LIMIT 20"
                    ).fetchall()
                    found[shown.text(f"{table}.{name}", 200)] = {shown.text(each, 100): count for each, count in rows}
    return found


def become(who: Mapping[str, Any] | None) -> None:
    """Be this user from now on: ``uid``, ``gid``, ``groups``, in the file system that the process ``pid`` has.

    What was loaded before is this machine's; nothing in that file system is run with root's rights. Raises OSError.
    """
    if not who:
        return
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if who["pid"]:
        space = os.open(f"/proc/{who['pid']}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        if library.setns(space, 0x20000):  # CLONE_NEWNS
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        os.close(space)
    os.setgroups(who["groups"])
    os.setresgid(who["gid"], who["gid"], who["gid"])
    os.setresuid(who["uid"], who["uid"], who["uid"])
    library.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS


def look_at(request: Mapping[str, Any]) -> dict[str, Any]:
    """``databases``: path → what look says, or ``unread``; ``configurations``: path → key → text."""
    databases: dict[str, Any] = {}
    for path in request["databases"]:
        try:
            databases[path] = graph(path) if path.endswith((".jsonl", ".json")) else look(path, request["known"])
        except (sqlite3.Error, store.StoreError, OSError, UnicodeError) as error:
            databases[path] = {"unread": store.printable(error, 200)}
    configurations: dict[str, Any] = {}
    for path in request["configurations"]:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            configurations[path] = configured(path, request["names"])
    return {"databases": databases, "configurations": configurations}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request of ``look`` or ``inspect``."""
    if request["op"] == "look":
        return look_at(request)
    try:
        return inspect(request["path"])
    except (sqlite3.Error, store.StoreError, OSError, UnicodeError) as error:
        return {"unread": store.printable(error, 200)}
