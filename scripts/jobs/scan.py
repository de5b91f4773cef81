"""Look through databases, and notes in plain files, for what looks like a credential; where it is, never what it is.

It runs as the store's owner and only reads. Standard output gets JSON, a line each: ``{"done", "all"}`` now and then,
and last ``{"rows", "texts", "files", "found", "more", "kinds", "allowed", "unread"}``: how much was looked at; where
something was found (the first LISTED, and how many more); how many of each kind; how many of the store's facts were let
in for a reason; what could not be read.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import json
import os
import re
import sqlite3
import sys
import time
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import job
import notes
import verdicts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import note_forms

LISTED: Final = 1000
"""Places that are listed."""

AT_ONCE: Final = 2000
"""Rows of one statement: a transaction as long as the whole look would keep the WAL from being reset."""

PIECE: Final = 1 << 15
"""Bytes of a value that are looked at together; what is longer is read in pieces that overlap."""

OVERLAP: Final = 4096
UNREAD: Final = 50
SHORTEST: Final = 8
SECONDS: Final = 3000.0
"""That reading one database may take."""

EVERY: Final = 0.5
"""Seconds between two words about how far it is."""

_NUMBERS: Final = re.compile(r"[\d\s:.,+TZ-]*")
_ROWID: Final = ("rowid", "_rowid_", "oid")


@functools.lru_cache(8192)
def _short(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(store.screen(text)[1]))


def kinds_in(text: str) -> tuple[str, ...]:
    """What looks like a credential in a text, each kind once; also where JSON writes it with escapes."""
    if len(text) < SHORTEST or _NUMBERS.fullmatch(text):
        return ()
    # Subjects and sources come again and again.
    found = _short(text) if len(text) < 100 else tuple(dict.fromkeys(store.screen(text)[1]))
    if not found and text[:1] in '{["' and "\\" in text:
        with contextlib.suppress(ValueError, RecursionError):
            found = tuple(dict.fromkeys(kind for each in _strings(json.loads(text)) for kind in store.screen(each)[1]))
    return found


def _strings(value: Any) -> Iterator[str]:
    """The texts in JSON, each behind its name."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        name, at = waiting.pop()
        if isinstance(at, str):
            yield f'{name}: "{at}"' if name and '"' not in at else at
        elif isinstance(at, dict):
            waiting += [(str(key), each) for key, each in at.items()]
        elif isinstance(at, list):
            waiting += [("", each) for each in at]


class Scan:
    """One look; ``as_json`` says what it found."""

    def __init__(self, allowed: dict[str, dict[str, Any]], *, progress: bool) -> None:
        """``allowed``: facts of the store whose credentials are said to be none, as verdicts.allowed has them."""
        self._allowed, self._progress = allowed, progress
        self.rows = self.texts = self.files = self._more = self._let_in = self._all = 0
        self._found: list[dict[str, Any]] = []
        self._unread: list[dict[str, str]] = []
        self._kinds: collections.Counter[str] = collections.Counter()
        self._next = time.monotonic()

    def as_json(self) -> dict[str, Any]:
        """See the head of this file."""
        counts = {"rows": self.rows, "texts": self.texts, "files": self.files}
        found = {"found": self._found, "more": self._more, "kinds": dict(self._kinds.most_common())}
        return {**counts, **found, "allowed": self._let_in, "unread": self._unread[:UNREAD]}

    def unread(self, where: str, what: object) -> None:
        """Note what could not be looked at."""
        if len(self._unread) < UNREAD:
            self._unread.append({"where": store.printable(where, 300), "what": store.printable(what, 200)})

    def found(self, kinds: Sequence[str], **place: Any) -> None:
        """Note that something was found; names and ids are texts of the agent's, too."""
        shown = {
            key: store.printable(store.mask(value), 200) if isinstance(value, str) else value
            for key, value in place.items()
        }
        for kind in kinds:
            self._kinds[kind] += 1
            if len(self._found) < LISTED:
                self._found.append({**shown, "kind": kind})
            else:
                self._more += 1

    # Databases

    def database(self, path: str, name: str, *, facts: bool) -> None:
        """Look through all ordinary tables of a database. facts: it is the store, with what is allowed in it."""
        try:
            with contextlib.closing(store.connect(path, readonly=True, timeout=5, seconds=SECONDS)) as connection:
                connection.text_factory = lambda text: text.decode(errors="replace")
                tables = [
                    str(row[0])
                    for row in connection.execute(
                        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
                        " AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"
                    )
                ]
                for table in tables:
                    try:
                        _Table(self, connection, name, table, facts=facts).read()
                    except sqlite3.Error as error:
                        self.unread(f"{name}, table {table}", error)
        except (sqlite3.Error, store.StoreError, OSError) as error:
            self.unread(name, error)

    def expect(self, rows: int) -> None:
        """There are so many more rows."""
        self._all += rows

    def passed(self, rows: int) -> None:
        """So many more rows were looked at."""
        self.rows += rows
        if self._progress and time.monotonic() >= self._next:
            print(json.dumps({"done": self.rows, "all": max(self._all, self.rows)}), flush=True)
            self._next = time.monotonic() + EVERY

    def of_value(self, kinds: tuple[str, ...], columns: Collection[str], fact: str | None) -> tuple[str, ...]:
        """Those of ``kinds`` that nobody allowed in the fact with this id, if it is one."""
        self.texts += 1
        given = self._allowed.get(fact) if fact is not None and kinds else None
        if given is None:
            return kinds
        known = [(each.get("column"), each.get("kind")) for each in given["secrets"] if isinstance(each, dict)]
        left = tuple(kind for kind in kinds if not any((column, kind) in known for column in columns))
        self._let_in += left != kinds
        return left

    # Notes

    def notes(self, path: str, name: str) -> None:
        """Look through notes in plain files, line by line."""
        reader = _Notes(self)
        reader.top(path, name)
        for problem in reader.summary(0).problems:
            self.unread(problem["where"], problem["what"])


class _Table:
    """One table of a database."""

    def __init__(self, scan: Scan, connection: sqlite3.Connection, name: str, table: str, *, facts: bool) -> None:
        self._scan, self._connection, self._database, self._table = scan, connection, name, table
        found = connection.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,)).fetchall()
        # What is generated is made of other columns.
        self._columns = [str(column) for column, hidden in found if not hidden]
        taken = {column.lower() for column in self._columns}
        self._rowid = next((alias for alias in _ROWID if alias not in taken), None)
        self._id = "id" if "id" in self._columns else None
        self._facts = facts and table == "memory"

    def read(self) -> None:
        """Look through all rows. Raises sqlite3.Error."""
        with_rowid = self._rowid is not None and self._has_rowid()
        values = ", ".join(map(_value, self._columns)) or "NULL"
        table = _quoted(self._table)
        if not with_rowid:
            for number, row in enumerate(self._connection.execute(f"SELECT {values} FROM {table}"), 1):
                self._row(number, row, rowid=False)
            return
        last, count = self._connection.execute(f"SELECT max({self._rowid}), count(*) FROM {table}").fetchone()
        self._scan.expect(count)
        rows = f"SELECT {self._rowid}, {values} FROM {table} WHERE {self._rowid} >= ?"
        at = -(1 << 63)
        while count and at <= last:
            number = at - 1
            for number, *row in self._connection.execute(f"{rows} ORDER BY {self._rowid} LIMIT {AT_ONCE}", (at,)):
                self._row(number, row, rowid=True)
                self._scan.passed(1)
            at = number + 1 if number >= at else last + 1

    def _has_rowid(self) -> bool:
        try:
            self._connection.execute(f"SELECT {self._rowid} FROM {_quoted(self._table)} LIMIT 0")
        except sqlite3.OperationalError:  # WITHOUT ROWID
            return False
        return True

    def _row(self, number: int, row: Sequence[Any], *, rowid: bool) -> None:
        fact = None
        for column, value in zip(self._columns, row, strict=True):
            if value is None:
                continue
            kinds: tuple[str, ...] = ()
            if isinstance(value, int):
                kinds = self._long(column, number, rowid=rowid)
            elif text := value if isinstance(value, str) else _as_text(value):
                kinds = kinds_in(text)
            if kinds and self._facts and fact is None and self._id is not None:
                fact = str(row[self._columns.index(self._id)])
            if left := self._scan.of_value(kinds, (column,), fact):
                place = {"database": self._database, "table": self._table, "row": number, "column": column}
                name = row[self._columns.index(self._id)] if self._id is not None else None
                self._scan.found(left, **place, **({"id": name} if isinstance(name, str) else {}))
        if not rowid:
            self._scan.passed(1)

    def _long(self, column: str, number: int, *, rowid: bool) -> tuple[str, ...]:
        """What is in a value that is too long to be read at once."""
        if not rowid:
            self._scan.unread(f"{self._database}, table {self._table}, row {number}, {column}", "it is too long")
            return ()
        kinds: dict[str, None] = {}
        with self._connection.blobopen(self._table, column, number, readonly=True) as blob:
            rest = b""
            while piece := blob.read(PIECE):
                kinds |= dict.fromkeys(kinds_in((rest + piece).decode(errors="replace")))
                rest = piece[-OVERLAP:]
        return tuple(kinds)


def _value(column: str) -> str:
    """SQL for a column's text; its length in bytes where that is long, NULL where it is no text."""
    name = _quoted(column)
    size = f"length(CAST({name} AS BLOB))"
    return f"CASE WHEN typeof({name}) IN ('text', 'blob') THEN iif({size} <= {PIECE}, {name}, {size}) END"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _as_text(value: bytes) -> str:
    """Bytes that are text; empty for others, such as the numbers of a vector."""
    with contextlib.suppress(UnicodeDecodeError):
        return value.decode()
    return ""


class _Notes(notes._Reader):
    """Reads notes as ``notes`` does, and looks at each line of a file."""

    def __init__(self, scan: Scan) -> None:
        super().__init__(time.time(), notes.OLD, git=False)
        self._scan = scan

    def _count(self, found: note_forms.Notes, path: str, shown: str, content: bytes, owner: int) -> None:
        del found, path, owner
        self._scan.files += 1
        lines = content.decode(errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            self._scan.texts += 1
            if kinds := kinds_in(line):
                self._scan.found(kinds, file=shown, line=number)


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line, look, print JSON."""
    parser = argparse.ArgumentParser(description="Look for what looks like a credential; says where, never what.")
    pair = {"nargs": 2, "action": "append", "default": [], "metavar": ("SEEN", "PATH")}
    parser.add_argument("--store", nargs=2, required=True, metavar=("SEEN", "PATH"), help="the store")
    parser.add_argument("--state", required=True, help="the directory with the record of verdicts")
    parser.add_argument("--database", **pair, help="a further database")  # type: ignore[arg-type]
    parser.add_argument("--notes", **pair, help="notes in plain files")  # type: ignore[arg-type]
    parser.add_argument("--progress", action="store_true", help="say now and then how far it is")
    options = parser.parse_args(argv)
    scan = Scan(verdicts.allowed(options.state), progress=options.progress)
    scan.database(*options.store, facts=True)
    for seen, path in options.database:
        scan.database(seen, path, facts=False)
    for seen, path in options.notes:
        scan.notes(seen, path)
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(scan.as_json()), flush=True)
    return job.DONE


if __name__ == "__main__":
    sys.exit(main())
