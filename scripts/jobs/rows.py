"""Facts as the commands show them: rows of the store as JSON, found by id, and the chains they stand in.

A fact is a dict: ``id``, ``subject``, ``fact``, ``source``, ``class`` (one of store.CLASSES), ``origin``,
``created_at``, ``confirmed_at``, ``expires_at``, ``last_used_at``, ``superseded_by``, ``superseded_at``, ``state``
(``live``, ``expired``, ``replaced``), ``doubtful`` (a date of it is no real one), ``age`` (seconds since it was
confirmed; null where that is no real date) and ``seen``, which is another when the row says something else. All of it
is the agent's text.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

Fact = dict[str, Any]

TEXTS: Final = ("subject", "fact", "source", "origin")
"""Where a credential may have slipped into."""

MOST: Final = 100_000
"""Characters of a text that is masked; a fact that was stored by the rules has a tenth of that."""

NEIGHBOURS: Final = 50
"""Ids on either side that an unknown one is compared with."""


class Reader:
    """Reads the facts of one store."""

    def __init__(self, connection: sqlite3.Connection, sources: store.Sources | None = None) -> None:
        self.connection = connection
        self.columns = store.columns_of(connection)
        self.sources = sources or store.read_sources()
        self._shown = ", ".join(
            [
                *(f"m.{name}" for name in store.COLUMNS),
                *(f"m.{n}" if n in self.columns else "NULL" for n in store.FURTHER),
            ]
        )

    def read(self, rest: str, values: Sequence[object] = ()) -> Iterable[Fact]:
        """The facts of ``SELECT … FROM memory AS m`` followed by ``rest``, one by one."""
        now = datetime.now(UTC)
        for row in self.connection.execute(f"SELECT {self._shown} FROM memory AS m {rest}", tuple(values)):
            yield self._fact(row, now)

    def named(self, ids: Sequence[str]) -> list[Fact]:
        """These facts, in this order. Raises store.Refused for an id that is not there."""
        return [self.one(name) for name in ids]

    def one(self, name: str) -> Fact:
        """The fact with this id. Raises store.Refused, which offers the nearest ids."""
        for fact in self.read("WHERE m.id = ?", (name,)):
            return fact
        near = nearest(self.connection, name)
        hint = f"The nearest: {', '.join(near)}" if near else "See the ids: memops list"
        raise store.Refused(f"there is no fact {store.printable(name)}", hint)

    def _fact(self, row: Sequence[Any], now: datetime) -> Fact:
        values = [None if value is None else str(value) for value in row]
        fact: Fact = dict(zip((*store.COLUMNS, *store.FURTHER), values, strict=True))
        if "origin" not in self.columns:
            fact["origin"] = store.origins(self.connection, [row[0]])[row[0]]
        confirmed, ends = store.moment_of(row[5]), row[6]
        expired = ends is not None and str(ends) <= store.text_of(now)
        said = json.dumps(values[: len(store.COLUMNS)]).encode()
        return {
            **fact,
            "class": self.sources.class_of(fact["source"], fact["origin"]),
            "state": "replaced" if row[7] is not None else "expired" if expired else "live",
            "doubtful": not all(store.moment_of(d) for d in (row[4], row[5], *([ends] if ends is not None else []))),
            "age": None if confirmed is None else int((now - confirmed).total_seconds()),
            "seen": hashlib.sha256(said).hexdigest()[:12],
        }


def marked(fact: Fact, *, hide: bool) -> Fact:
    """A fact with its ``secrets``: what looks like a credential, ``{"column", "kind"}`` each; with ``hide``, masked.

    No more than MOST characters of a text are looked at, and with ``hide`` no more are given.
    """
    screened = {name: store.screen(fact[name][:MOST]) for name in TEXTS if fact[name] is not None}
    secrets = [{"column": name, "kind": kind} for name, (_, kinds) in screened.items() for kind in dict.fromkeys(kinds)]
    masked = {name: text for name, (text, _) in screened.items()} if hide else {}
    return {**fact, **masked, "secrets": secrets}


def nearest(connection: sqlite3.Connection, name: str) -> list[str]:
    """Up to three ids that are like ``name``, most alike first."""
    around = [
        str(row[0])
        for order in ("< ? ORDER BY id DESC", ">= ? ORDER BY id")
        for row in connection.execute(f"SELECT id FROM memory WHERE id {order} LIMIT {NEIGHBOURS}", (name,))
    ]
    return [store.printable(each) for each in difflib.get_close_matches(name, around, n=3, cutoff=0.6)]


def behind(connection: sqlite3.Connection, ids: Iterable[str]) -> list[str]:
    """These facts and all that they replaced, each before what is behind it; ends also where chains go in a circle."""
    query = f"{store.BEHIND} SELECT id FROM behind"
    return [str(row[0]) for row in connection.execute(query, (json.dumps(list(ids)),))]


def head(connection: sqlite3.Connection, name: str) -> str:
    """The newest fact of the chain that ``name`` stands in; in a circle, ``name`` itself."""
    seen = {name}
    at = name
    while True:
        row = connection.execute("SELECT superseded_by FROM memory WHERE id = ?", (at,)).fetchone()
        if row is None or row[0] is None:
            return at
        if str(row[0]) in seen:
            return name
        if not store.is_there(connection, row[0]):
            return at
        at = str(row[0])
        seen.add(at)


def chain(reader: Reader, name: str, most: int) -> tuple[list[dict[str, Any]], int]:
    """The chain that a fact stands in, as a tree from its newest fact: ``{"fact", "depth"}`` each, what a fact replaced
    right below it. At most ``most`` of them, and how many more there are."""
    found: list[dict[str, Any]] = []
    waiting, seen, more = [(head(reader.connection, name), 0)], set(), 0
    while waiting:
        at, depth = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if len(found) < most:
            found.append({"fact": reader.one(at), "depth": depth})
        else:
            more += 1
        older = reader.connection.execute("SELECT id FROM memory WHERE superseded_by = ? ORDER BY created_at", (at,))
        waiting += [(str(row[0]), depth + 1) for row in older]
    return found, more
