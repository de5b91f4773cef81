"""LangGraph's SQLite store, by SQL: it has no lock of its own, and the system's python3 is enough for it.

Foreign keys are on here, so that vectors go with their memory. LangGraph never switches them on: what its own sweep
removed leaves its vectors, and those are taken out too.
"""

from __future__ import annotations

import json
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
    from collections.abc import Iterator

    from hands._hand import Request

TITLE = "LangGraph"
TEXTS = ("text", "content", "memory", "data", "fact", "value")
PATIENCE = 30.0
ORPHANS = """SELECT rowid FROM store_vectors v
    WHERE NOT EXISTS (SELECT 1 FROM store s WHERE s.prefix = v.prefix AND s.key = v.key)"""
THREADS = {"checkpoints": "checkpoint", "writes": "value"}
"""Tables of LangGraph's checkpointer, often in the same file: whole states, with the messages in them."""


def _open(request: Request, *, readonly: bool) -> sqlite3.Connection:
    path = request.file("path")
    try:
        connection = store.connect(path, readonly=readonly, timeout=PATIENCE)
        if not _tables(connection) >= {"store"}:
            connection.close()
            raise _hand.Refused(f"{path} has no table store, so it is not LangGraph's", "", "missing")
    except (sqlite3.Error, store.StoreError) as error:
        raise _hand.Refused(f"{path} cannot be opened: {error}") from error
    return connection


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def identity(prefix: str, key: str) -> str:
    """A memory's id here: its namespace and its key, ``users.ada/tea``; a slash in one of them is written %2F."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in (prefix, key))


def parts(identity: str) -> tuple[str, str]:
    """The namespace and the key of such an id. Raises ValueError."""
    prefix, key = (part.replace("%2F", "/").replace("%25", "%") for part in identity.split("/"))
    return prefix, key


def text(value: object) -> str:
    """What a memory says: its one text, the text under one of the usual keys, else its whole value."""
    try:
        found = json.loads(value) if isinstance(value, (str, bytes)) else value
    except ValueError:
        return str(value)
    while isinstance(found, dict):
        usual = [found[key] for key in TEXTS if isinstance(found.get(key), (str, dict))]
        inner = usual[0] if usual else (next(iter(found.values())) if len(found) == 1 else None)
        if not isinstance(inner, (str, dict)):
            break
        found = inner
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, sort_keys=True)


def list_(request: Request) -> dict[str, Any]:
    """All memories, also those that expired and that LangGraph still returns."""
    with closing(_open(request, readonly=True)) as connection:
        names = {str(row[1]) for row in connection.execute("PRAGMA table_info(store)")}
        ends = "expires_at" if "expires_at" in names else "NULL"
        rows = connection.execute(f"SELECT prefix, key, value, created_at, updated_at, {ends} FROM store").fetchall()
    facts = [
        _hand.fact(
            identity(prefix, key),
            text(value),
            created=_hand.utc(created),
            updated=_hand.utc(updated),
            expires=_hand.utc(expires),
            subject=key,
            source=f"{TITLE}, namespace {prefix}",
        )
        for prefix, key, value, created, updated, expires in rows
    ]
    return {"facts": facts, "product": ""}


def delete(request: Request) -> dict[str, Any]:
    """Delete rows with their vectors in one transaction, then look at them from another connection."""
    left: dict[str, str] = {}
    wanted: dict[str, tuple[str, str]] = {}
    for each in request.ids:
        try:
            wanted[each] = parts(each)
        except ValueError:
            left[each] = "it is no id of LangGraph's: NAMESPACE/KEY"
    with closing(_open(request, readonly=False)) as connection:
        try:
            texts = _delete(connection, wanted)
        except sqlite3.Error as error:
            raise _hand.Refused(f"{request.config['path']}: {error}; nothing was deleted") from error
    with closing(_open(request, readonly=True)) as connection:
        tables = _tables(connection)
        for each, pair in wanted.items():
            for table in ("store", "store_vectors"):
                if (
                    table in tables
                    and connection.execute(f"SELECT 1 FROM {table} WHERE prefix = ? AND key = ?", pair).fetchone()
                ):
                    left[each] = f"it is still in {table}"
        remains = {each: list(_threads(connection, tables, said)) for each, said in texts.items() if each not in left}
    return {
        "gone": [each for each in request.ids if each not in left],
        "left": left,
        "remains": {each: said for each, said in remains.items() if said},
    }


def _delete(connection: sqlite3.Connection, wanted: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Delete in one transaction, and return what was there: id → text. Closing the connection undoes half of it."""
    texts: dict[str, str] = {}
    connection.execute("BEGIN IMMEDIATE")
    for each, pair in wanted.items():
        for row in connection.execute("SELECT value FROM store WHERE prefix = ? AND key = ?", pair):
            texts[each] = text(row[0])
        connection.execute("DELETE FROM store WHERE prefix = ? AND key = ?", pair)
    if "store_vectors" in _tables(connection):
        connection.execute(f"DELETE FROM store_vectors WHERE rowid IN ({ORPHANS})")
    connection.execute("COMMIT")
    return texts


def _threads(connection: sqlite3.Connection, tables: set[str], said: str) -> Iterator[str]:
    """The states of conversations in which the words are as well."""
    for table, column in THREADS.items():
        if table in tables and said:
            sql = f"SELECT count(*) FROM {table} WHERE instr({column}, CAST(? AS BLOB))"
            (number,) = connection.execute(sql, [said]).fetchone()
            if number:
                yield _hand.rows(number, table)


def places(request: Request) -> dict[str, Any]:
    """Where memories are, by id and by what they say."""
    answer = []
    with closing(_open(request, readonly=True)) as connection:
        tables = _tables(connection)
        rows = connection.execute("SELECT prefix, key, value FROM store").fetchall()
        found = {identity(prefix, key): (prefix, key, text(value)) for prefix, key, value in rows}
        wanted = [*request.ids, *(each for each, row in found.items() if any(said in row[2] for said in request.texts))]
        for each in dict.fromkeys(wanted):
            if each in found:
                answer.append(_hand.place(each, "store", 1, retrieval=True))
            if "store_vectors" in tables and each.count("/") == 1:
                sql = "SELECT count(*) FROM store_vectors WHERE prefix = ? AND key = ?"
                (number,) = connection.execute(sql, parts(each)).fetchone()
                if number:
                    answer.append(_hand.place(each, "store_vectors", number, retrieval=True))
    return {"places": answer}


if __name__ == "__main__":
    _hand.serve({"list": list_, "delete": delete, "places": places})
