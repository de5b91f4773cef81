"""Where words are in all that belongs to a store: the places that erasing and tracing look at. Nothing here writes.

A place is ``{"kind", "where", "how", …}``: kind ``fact`` (with ``id``), ``row``, ``schema``, ``pages`` (bytes that no
value has), ``record``, ``copy`` (what a restore moved aside), ``part``, ``file``, ``incoming``; how as
traces.Words.of has it.
What is in a database says ``file`` and ``table`` too.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import shown as showing
import traces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LISTED: Final = 500
"""Places that are named."""

SHOWN: Final = 50
WAIT: Final = 20.0
"""Seconds to wait for the agent's lock."""

SECONDS: Final = 3000.0
"""That reading or writing one database may take; the command waits somewhat longer."""

ASIDE: Final = ("before-restore-", ".restore-")
"""How directories begin that a restore makes beside a store: with what was there before, with what is laid ready."""

Place = dict[str, Any]
Pair = tuple[str, str]
"""A path as this process sees it, and as everybody else does."""


@dataclass(frozen=True)
class Task:
    """Where to look. ``databases``: the store, then further ones that are the owner's plain SQLite files."""

    state: str
    databases: tuple[Pair, ...]
    parts: tuple[Pair, ...] = ()
    """Files and directories that a program of its own keeps; they are searched and never written to."""
    beside: tuple[Pair, ...] = ()
    """Directories of databases and parts: files beside them are searched, what a restore moved aside may go."""
    notes: tuple[Pair, ...] = ()
    incoming: tuple[Pair, ...] = ()
    """Where copies lie on their way into a set."""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Task:
        """From a request."""
        pairs = {
            name: tuple((str(seen), str(shown)) for seen, shown in given.get(name, ()))
            for name in ("databases", "parts", "beside", "notes", "incoming")
        }
        return cls(str(given["state"]), **pairs)


@dataclass
class Found:
    """Where words are, and what could not be looked at. ``hide``: what is said of a place is said without the words."""

    words: traces.Words
    hide: bool = True
    places: list[Place] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    count: int = 0

    def shown(self, text: object, limit: int = 300) -> str:
        """The name of a place for people."""
        return self.words.shown(text, limit) if self.hide else showing.text(text, limit)

    def add(self, kind: str, where: str, how: str, **more: Any) -> None:
        """Note a place."""
        self.count += 1
        if len(self.places) < LISTED:
            self.places.append({"kind": kind, "where": self.shown(where), "how": how, **more})

    def failed(self, where: str, error: object) -> None:
        """Note what could not be looked at."""
        if len(self.unread) < SHOWN:
            self.unread.append(self.shown(f"{where}: {error}"))

    def as_json(self) -> dict[str, Any]:
        """As an answer has it."""
        return {"places": self.places, "more": self.count - len(self.places), "unread": self.unread}


def search(task: Task, words: traces.Words, *, hide: bool = True) -> Found:
    """Look at everything. What cannot be read is in ``unread``."""
    found = Found(words, hide)
    known = set()
    for number, (seen, shown) in enumerate(task.databases):
        known |= {seen, *(seen + end for end in traces.SIDECARS)}
        _search_database(found, seen, shown, facts=number == 0)
    for kind, pairs in (("part", task.parts), ("file", task.notes), ("incoming", task.incoming)):
        for seen, shown in pairs:
            known |= in_files(found, kind, seen, shown)
    for seen, shown in task.beside:
        _search_beside(found, seen, shown, known)
    in_files(found, "record", task.state, task.state)
    return found


def _search_database(found: Found, seen: str, shown: str, *, facts: bool) -> None:
    hits = []
    try:
        with contextlib.closing(store.connect(seen, readonly=True, timeout=WAIT, seconds=SECONDS)) as connection:
            connection.text_factory = text_of
            hits = traces.in_database(connection, found.words)
    except (sqlite3.Error, store.StoreError, OSError, UnicodeError) as error:
        found.failed(shown, error)
    for hit in hits:
        columns = ", ".join(hit.columns)
        if facts and hit.table == "memory" and hit.id is not None:
            name = found.shown(hit.id, 100)
            found.add("fact", f"{name} ({columns})", hit.how, id=name, file=shown, table=hit.table)
        elif hit.table == "sqlite_schema":
            found.add("schema", f"{shown}, the definition of {hit.key[0]}", hit.how, file=shown)
        else:
            row = hit.id if hit.id is not None else f"row {hit.key[0]}"
            found.add("row", f"{shown}, {hit.table}, {row} ({columns})", hit.how, file=shown, table=hit.table)
    for end in ("", *traces.SIDECARS):
        with naming(found, shown + end):
            # In the file itself, of what a row has nothing is news.
            if (how := traces.in_file(seen + end, found.words)) and (end or not hits):
                found.add("pages", shown + end, how)


def in_files(found: Found, kind: str, seen: str, shown: str) -> set[str]:
    """Look at all plain files at a path or below it; returns their paths."""
    looked = set()
    with naming(found, shown):
        for path in traces.files_below(seen):
            looked.add(path)
            where = shown + path[len(seen) :]
            with naming(found, where):
                how = traces.in_file(path, found.words)
                hits = _hits(path, found.words) if traces.is_database(path) else []
                for table in dict.fromkeys(hit.table for hit in hits):
                    found.add(kind, where, _most(hit for hit in hits if hit.table == table), table=table)
                if how and not hits:
                    # What a program keeps has values, and pages that are free.
                    bare = kind == "part" and traces.is_database(path)
                    found.add("pages" if bare else kind, where, how)
    return looked


def _hits(path: str, words: traces.Words) -> list[traces.Hit]:
    """The values in a database that have words. Raises OSError."""
    try:
        with contextlib.closing(store.connect(path, readonly=True, timeout=WAIT, seconds=SECONDS)) as connection:
            connection.text_factory = text_of
            return traces.in_database(connection, words)
    except (sqlite3.Error, store.StoreError, UnicodeError) as error:
        raise OSError(str(error)) from None


def _search_beside(found: Found, seen: str, shown: str, known: set[str]) -> None:
    with naming(found, shown):
        for entry in sorted(os.scandir(seen), key=lambda each: each.name):
            where = f"{shown}/{entry.name}"
            if entry.is_dir(follow_symlinks=False) and entry.name.startswith(ASIDE):
                in_files(found, "copy", entry.path, where)
            elif entry.is_file(follow_symlinks=False) and entry.path not in known:
                known.add(entry.path)
                in_files(found, "file", entry.path, where)


@contextlib.contextmanager
def naming(found: Found, where: str) -> Iterator[None]:
    """Note what cannot be read; what is not there is no matter."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        found.failed(where, error.strerror or error)


def text_of(data: bytes) -> str:
    """Text of SQLite's, whatever bytes it has."""
    return data.decode(errors="surrogateescape")


# Copies that nobody writes to


def holds(top: str, words: traces.Words, unread: list[str]) -> str:
    """As Words.of, of all files at ``top`` and below it, or ``unread``; databases are opened without a file beside
    them. What could not be read is added to ``unread``.
    """
    found, failed = "", False
    try:
        for path in traces.files_below(top):
            try:
                how = traces.in_file(path, words) or (_in_still(path, words) if traces.is_database(path) else "")
            except (OSError, sqlite3.Error, UnicodeError) as error:
                unread.append(f"{path}: {error}")
                failed = True
                continue
            if how == "whole":
                return how
            found = found or how
    except OSError as error:
        unread.append(f"{top}: {error}")
        failed = True
    return found or ("unread" if failed else "")


def _in_still(path: str, words: traces.Words) -> str:
    with contextlib.closing(traces.open_still(path)) as connection:
        connection.text_factory = text_of
        hits = traces.in_database(connection, words)
    return _most(hits)


def _most(hits: Iterable[traces.Hit]) -> str:
    # "whole" is more than "part", as words too.
    return max((hit.how for hit in hits), default="")
