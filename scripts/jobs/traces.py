"""Where words are on the disk: in the values of databases, and in the bytes of files. Nothing here writes.

Bytes alone do not tell: SQLite splits a long value over pages, and an index has words in pieces. So the values of a
database are read, each whole, and its file is searched as well, for what no value has any more: words that lie in pages
which are free, or in the -wal. A long text is found there by its pieces. What is split in a free page, and shorter than
two pieces, is not found; such pages are gone once the file has been written anew by VACUUM. What is compressed or
encrypted is found by nothing of this.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SHORTEST: Final = 4
"""Characters that a text has at least; less would be found everywhere."""

PIECE: Final = 128
"""Bytes of a piece of a long text."""

STEP: Final = 300
"""Bytes from one piece to the next: each page of SQLite's (512 bytes or more) full of the text has one whole."""

CHUNK: Final = 4 << 20
MAGIC: Final = b"SQLite format 3\0"
SIDECARS: Final = ("-wal", "-shm", "-journal")
_ROWIDS: Final = ("rowid", "_rowid_", "oid")


class Words:
    """Texts that are looked for, in every form that they may have on a disk."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises store.Refused for a text that is too short."""
        self.texts = tuple(dict.fromkeys(texts))
        if not self.texts or any(len(text.strip()) < SHORTEST for text in self.texts):
            raise store.Refused(
                f"what is looked for has fewer than {SHORTEST} characters, and would be found everywhere",
                "Give more of the words",
            )
        forms: dict[str, None] = {}
        for text in self.texts:
            for same in (text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)):
                # As it is, and as JSON has it.
                forms |= dict.fromkeys((same, json.dumps(same)[1:-1], json.dumps(same, ensure_ascii=False)[1:-1]))
        self.forms = tuple(sorted(forms, key=len, reverse=True))
        found: dict[bytes, None] = {}
        for form in self.forms:
            for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
                with contextlib.suppress(UnicodeEncodeError):
                    found[form.encode(encoding, "surrogateescape" if encoding == "utf-8" else "strict")] = None
        self.whole = tuple(found)
        self.pieces = tuple(dict.fromkeys(piece for each in self.whole for piece in _pieces(each)))
        self.longest = max(map(len, self.whole))

    def of(self, data: bytes) -> str:
        """``whole`` where one of the texts is in ``data``, ``part`` where a long piece of one is; else empty."""
        if any(each in data for each in self.whole):
            return "whole"
        return "part" if any(each in data for each in self.pieces) else ""

    def without(self, text: str, sign: str) -> str:
        """``text`` with ``sign`` in the place of each of the texts."""
        for form in self.forms:
            text = text.replace(form, sign)
        return text

    def shown(self, text: object, limit: int = 300) -> str:
        """The name of a place for people, without the words."""
        return store.printable(self.without(str(text), "[…]"), limit)


def _pieces(whole: bytes) -> Iterator[bytes]:
    if len(whole) < 2 * PIECE:
        return
    # The first two: no break between two pages is within both.
    starts = [0, PIECE, *range(STEP, len(whole) - PIECE, STEP), len(whole) - PIECE]
    for start in starts:
        yield whole[start : start + PIECE]


# Files


def in_file(path: str, words: Words) -> str:
    """As Words.of, of a plain file's bytes; no link is followed. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        found, kept = "", b""
        while chunk := file.read(CHUNK):
            data = kept + chunk
            here = words.of(data)
            if here == "whole":
                return here
            found = found or here
            kept = data[-(words.longest - 1) :]
        return found


def files_below(top: str) -> Iterator[str]:
    """All plain files at a path or below it; no link is followed. Raises OSError for a directory it cannot read."""
    try:
        mode = os.lstat(top).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(mode):
        yield top
    if not stat.S_ISDIR(mode):
        return

    def stop(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for folder, _, names in os.walk(top, onerror=stop):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISREG(os.lstat(path).st_mode):
                    yield path


def is_database(path: str) -> bool:
    """Whether a file is a SQLite database by its first bytes."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


# Databases


@dataclass(frozen=True)
class Hit:
    """Where in a database: table, row (a rowid, or the values of its key), columns; ``how`` is as Words.of has it."""

    table: str
    key: tuple[object, ...]
    columns: tuple[str, ...]
    how: str
    id: str | None = None


@dataclass(frozen=True)
class Table:
    """A table that has rows of its own."""

    name: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    """What names a row."""
    sort: str = "table"
    """``table``, or ``shadow`` for what a virtual table keeps."""

    @property
    def where(self) -> str:
        """The condition that finds a row by its key."""
        return " AND ".join(f"{_quoted(key)} = ?" for key in self.keys)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def tables(connection: sqlite3.Connection) -> list[Table]:
    """The tables of a database, those of SQLite's statistics too. Raises sqlite3.Error."""
    listed = connection.execute(
        "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'shadow')"
        " AND name <> 'sqlite_schema' ORDER BY name"
    ).fetchall()
    found = []
    for name, sort, without_rowid in listed:
        described = connection.execute("SELECT name, hidden, pk FROM pragma_table_xinfo(?)", (name,)).fetchall()
        # What is generated is made of other columns.
        columns = tuple(str(column) for column, hidden, _ in described if not hidden)
        if without_rowid:
            keys = tuple(str(c) for c, _, pk in sorted(described, key=lambda each: each[2]) if pk)
        else:
            taken = {column.lower() for column in columns}
            alias = next((each for each in _ROWIDS if each not in taken), None)
            if alias is None:
                raise sqlite3.OperationalError(f"table {store.printable(name)} hides its rowid")
            keys = (alias,)
        found.append(Table(str(name), columns, keys, str(sort)))
    return found


def in_table(connection: sqlite3.Connection, table: Table, words: Words) -> Iterator[Hit]:
    """The rows of a table that have the words in a value. Raises sqlite3.Error."""
    chosen = ", ".join(map(_quoted, [*table.keys, *table.columns]))
    before, connection.text_factory = connection.text_factory, bytes
    keys, places = len(table.keys), {name: number for number, name in enumerate(table.columns)}
    try:
        for row in connection.execute(f"SELECT {chosen} FROM {_quoted(table.name)}"):
            hit = {
                name: how
                for name, value in zip(table.columns, row[keys:], strict=True)
                if isinstance(value, bytes) and (how := words.of(value))
            }
            if hit:
                name = row[keys + places["id"]] if "id" in places else None
                shown = name.decode(errors="surrogateescape") if isinstance(name, bytes) else None
                key = tuple(
                    each.decode(errors="surrogateescape") if isinstance(each, bytes) else each for each in row[:keys]
                )
                how = "whole" if "whole" in hit.values() else "part"
                yield Hit(table.name, key, tuple(hit), how, shown)
    finally:
        connection.text_factory = before


def in_database(connection: sqlite3.Connection, words: Words) -> list[Hit]:
    """All of a database: the rows, and what its schema says. Raises sqlite3.Error."""
    found = [hit for table in tables(connection) for hit in in_table(connection, table, words)]
    for name, text in connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall():
        if how := words.of(str(text).encode(errors="surrogateescape")):
            found.append(Hit("sqlite_schema", (str(name),), ("sql",), how))
    return found


def open_still(path: str) -> sqlite3.Connection:
    """Open a database that nobody writes to, without a file beside it; its -wal is not read."""
    connection = sqlite3.connect(f"file:{quote(path)}?immutable=1", uri=True, isolation_level=None)
    connection.execute("PRAGMA query_only = ON")
    store.protect(connection, writes=False)
    return connection


def indexes(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """The full-text indexes of a database: name and module (fts3, fts4, fts5). Raises sqlite3.Error."""
    found = []
    for name, text in connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%' ORDER BY name"
    ).fetchall():
        rest = str(text).lower()
        module = next((each for each in ("fts5", "fts4", "fts3") if f"using {each}" in " ".join(rest.split())), None)
        if module:
            found.append((str(name), module))
    return found


def segments(connection: sqlite3.Connection, index: str) -> int:
    """In how many pieces a full-text index (fts5) is; in one, it has the words of its rows and no others."""
    row = connection.execute(f"SELECT block FROM {_quoted(index + '_data')} WHERE id = 10").fetchone()
    block = bytes(row[0]) if row else b""
    start = 8 if block[4:8] == b"\xff\x00\x00\x01" else 4
    _, at = _varint(block, start)
    return _varint(block, at)[0]


def _varint(data: Sequence[int], at: int) -> tuple[int, int]:
    value = 0
    for number in range(9):
        if at >= len(data):
            return value, at
        byte = data[at]
        at += 1
        if number == 8:
            return value << 8 | byte, at
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    return value, at
