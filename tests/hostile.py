"""Databases that attack whoever opens them: each of ATTACKS makes one of a store, as a compromised agent could.

An attack is a list of SQL statements, or a function that is given the database's path. All facts of the store have
MARK in them, which no job may tell.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from faulting.world import PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MARK: Final = " says: word"
ENDLESS: Final = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
SLOW: Final = "length(replace(hex(zeroblob(9000000)), '00', 'abc'))"
VIEW: Final = "CREATE VIEW live_memory AS SELECT id, subject, fact, source, confirmed_at, expires_at, 1 AS origin FROM"


def each_write(body: str) -> list[str]:
    """A trigger with this body on every kind of write; OLD and NEW are at hand as ``ROW``."""
    rows = {"DELETE": "OLD", "UPDATE": "NEW", "INSERT": "NEW"}
    return [
        f"CREATE TRIGGER evil_{what.lower()} BEFORE {what} ON memory BEGIN {body.replace('ROW', row)}; END"
        for what, row in rows.items()
    ]


def poison(statement: str) -> list[str]:
    """Change the schema's own table."""
    return ["PRAGMA writable_schema = ON", statement, "PRAGMA writable_schema = RESET"]


def in_place_of(end: str, make: Callable[[str], None]) -> Callable[[Path], None]:
    """Something else where the database was, or a file of SQLite's beside it."""

    def attack(path: Path) -> None:
        target = f"{path}{end}"
        with contextlib.suppress(FileNotFoundError):
            Path(target).unlink()
        make(target)

    return attack


def bind(path: str) -> None:
    """A socket."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)


def outside(path: str) -> None:
    """A link to root's database; see ``canary``."""
    Path(path).symlink_to(Path(path).parents[1] / "outside" / "memory.db")


def canary(top: Path) -> Path:
    """A database of root's, beside the directories of a store, that links lead to."""
    place = top / "outside"
    place.mkdir(mode=0o700)
    with contextlib.closing(sqlite3.connect(place / "memory.db")) as connection:
        connection.executescript("CREATE TABLE memory (id TEXT); INSERT INTO memory VALUES ('root''s own');")
    return place


def cut(path: Path) -> None:
    """Half of the database."""
    os.truncate(path, path.stat().st_size // 8192 * 4096)


def chain(count: int) -> list[str]:
    """A chain of so many replaced facts, the oldest of which expired long ago."""
    return [
        "PRAGMA foreign_keys = OFF",
        f"""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
        INSERT INTO memory (id, subject, fact, source, created_at, superseded_by)
        SELECT 'c' || i, 's', 'c{MARK} ' || i, 'chat', '2020-01-01', iif(i > 1, 'c' || (i - 1), NULL) FROM n""",
    ]


ATTACKS: Final[dict[str, Sequence[str] | Callable[[Path], None]]] = {
    # Triggers
    "a trigger refuses": each_write("SELECT RAISE(ABORT, 'no such table: live_000 says: word')"),
    "a trigger ignores": each_write("SELECT RAISE(IGNORE)"),
    "a trigger rolls back": each_write("SELECT RAISE(ROLLBACK, 'live_000 says: word')"),
    "a trigger never ends": each_write(f"SELECT ({ENDLESS})"),
    "a trigger tells a fact": each_write("SELECT json_extract('{}', ROW.fact)"),
    "a trigger loads an extension": each_write("SELECT load_extension('/tmp/evil.so')"),
    "a trigger makes a tokenizer": each_write("SELECT fts3_tokenizer('simple', x'4141414141414141')"),
    "a trigger writes a file": each_write("SELECT writefile('/tmp/evil', 'evil')"),
    "a trigger deletes what it is asked to keep": [
        "PRAGMA recursive_triggers = ON",
        "CREATE TRIGGER evil AFTER DELETE ON memory BEGIN DELETE FROM memory WHERE rowid = OLD.rowid + 1; END",
    ],
    "a trigger brings back": [
        """CREATE TRIGGER evil AFTER DELETE ON memory BEGIN INSERT INTO memory (id, subject, fact, source, expires_at)
        VALUES (OLD.id, OLD.subject, OLD.fact, OLD.source, OLD.expires_at); END"""
    ],
    # Views and what is computed
    "a view never ends": ["DROP VIEW live_memory", f"{VIEW} memory WHERE ({ENDLESS}) > 0"],
    "a view shows nothing": ["DROP VIEW live_memory", f"{VIEW} memory WHERE 0"],
    "views go round": ["DROP VIEW live_memory", "CREATE VIEW a AS SELECT * FROM live_memory", f"{VIEW} a"],
    "a view multiplies": ["DROP VIEW live_memory", f"{VIEW} memory, memory AS b, memory AS c, memory AS d"],
    "memory is a view": [
        "DROP VIEW live_memory",
        "ALTER TABLE memory RENAME TO truth",
        "CREATE VIEW memory AS SELECT * FROM truth",
        f"{VIEW} truth",
    ],
    "a column is computed": [f"ALTER TABLE memory ADD COLUMN slow GENERATED ALWAYS AS ({SLOW}) VIRTUAL"],
    "an index is computed": [f"CREATE INDEX slow ON memory ({SLOW}) WHERE id IN ('live_000', 'live_001')"],
    "a check is computed": ["ALTER TABLE memory ADD COLUMN odd TEXT CHECK (odd IS NULL OR abs(random()) >= 0)"],
    # The schema itself
    "a schema that is no SQL": poison(
        "UPDATE sqlite_schema SET sql = 'live_000 says: word' WHERE name LIKE '%expires'"
    ),
    "a root page beyond the end": poison("UPDATE sqlite_schema SET rootpage = 99999 WHERE name = 'memory_expires'"),
    "a root page of another": poison(
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'memory')"
        " WHERE name = 'memory_expires'"
    ),
    "a module nobody has": poison(
        "INSERT INTO sqlite_schema VALUES ('table', 'odd', 'odd', 0, 'CREATE VIRTUAL TABLE odd USING nothing(a)')"
    ),
    "a full-text index of garbage": [
        "CREATE VIRTUAL TABLE words USING fts5(a)",
        "INSERT INTO words VALUES ('one two three')",
        "UPDATE words_data SET block = randomblob(2000)",
    ],
    "many tables": [f"CREATE TABLE t{number} (a)" for number in range(800)],
    "names that are no names": [
        'CREATE TABLE "\x1b[31m""; DROP TABLE memory; --\n" ("\x07a\n" TEXT)',
        'INSERT INTO "\x1b[31m""; DROP TABLE memory; --\n" VALUES (\'x\')',
        'CREATE INDEX "\r\ni" ON memory (source)',
        'CREATE TRIGGER "\x9b31m" AFTER INSERT ON memory BEGIN SELECT 1; END',
    ],
    # Values
    "a value beyond all measure": ["UPDATE memory SET fact = CAST(zeroblob(70000000) AS TEXT) WHERE id = 'live_000'"],
    "a deep chain": chain(5000),
    "chains go round": [
        "PRAGMA foreign_keys = OFF",
        "UPDATE memory SET superseded_by = 'live_001' WHERE id = 'live_000'",
        "UPDATE memory SET superseded_by = 'live_000' WHERE id = 'live_001'",
        "UPDATE memory SET superseded_by = id WHERE id = 'live_002'",
    ],
    "no text": [
        "UPDATE memory SET fact = CAST(x'fffe00c328' AS TEXT), source = CAST(x'00' AS TEXT) WHERE id LIKE 'live_00%'",
        "UPDATE memory SET id = CAST(x'ff00fe' AS TEXT), subject = char(0, 10, 27) || '[2J' WHERE id = 'live_010'",
        "UPDATE memory SET id = 7.5, created_at = x'00ff', confirmed_at = 1e300 WHERE id = 'live_011'",
        "UPDATE memory SET expires_at = char(0) || '2020-01-01 00:00:00' WHERE id = 'live_012'",
    ],
    # Files
    "a pipe": in_place_of("", os.mkfifo),
    "a directory": in_place_of("", os.mkdir),
    "a socket": in_place_of("", bind),
    "a link to root's": in_place_of("", outside),
    "nothing in it": in_place_of("", lambda path: Path(path).touch()),
    "text in it": in_place_of("", lambda path: Path(path).write_text("live_000 says: word\n" * 500)),
    "half of it": cut,
    "a pipe for the -wal": in_place_of("-wal", os.mkfifo),
    "a pipe for the journal": in_place_of("-journal", os.mkfifo),
    "a link to root's for the -shm": in_place_of("-shm", outside),
    "a link to root's for the -wal": in_place_of("-wal", outside),
}


_RUN: Final = """
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in json.load(sys.stdin):
    connection.execute(statement)
connection.close()
"""


def attack(name: str, path: Path) -> None:
    """Make the store at ``path`` such a database."""
    what = ATTACKS[name]
    if callable(what):
        what(path)
        return
    # In a process of its own: tests of the drill limit the memory that SQLite gets in this one, for good.
    subprocess.run([PYTHON, "-I", "-c", _RUN, path], input=json.dumps(what), text=True, check=True)
