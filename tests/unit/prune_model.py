"""The prune's policy once more, slow and obvious, for tests to compare with; and stores to try it on."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from memops import render
from memops.settings import Store

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class Row:
    id: str
    superseded_by: str | None = None
    expires_at: object = None
    created_at: object = "2020-01-01 00:00:00"
    superseded_at: object = None


def day(days: float) -> str:
    """The date so many days from now."""
    return (datetime.now(UTC) + timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S")


NEW, OLD, PAST, FUTURE = day(-10), day(-200), day(-1), day(30)


def is_date(value: object) -> bool:
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", value, re.ASCII):
        return False
    try:  # SQLite has a year 0, a leap year; Python begins with 1
        datetime.strptime(re.sub("^0000", "2000", value), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return False
    return True


def is_doubtful(row: Row, history_from: str) -> bool:
    dates = [row.created_at] if row.expires_at is None else [row.created_at, row.expires_at]
    if history_from == "superseded" and (row.superseded_at is not None or row.superseded_by is not None):
        dates.append(row.superseded_at)
    return not all(map(is_date, dates))


def reason(row: Row, history_from: str) -> str | None:
    """Why the row is dead by itself, or None."""
    if row.expires_at is not None and str(row.expires_at) <= day(0):
        return "expired"
    since = row.created_at if history_from == "created" else row.superseded_at
    return "superseded" if row.superseded_by is not None and str(since) < day(-180) else None


def judge(rows: Iterable[Row], history_from: str = "created") -> tuple[dict[str, str], set[str]]:
    """What goes (id → reason), and the ids of what is kept as doubtful."""
    store = {row.id: row for row in rows}

    def path(row: Row) -> list[Row] | None:
        """The row and all that replaced it, up to the head; None when that goes round in a circle."""
        found = [row]
        while (newer := store.get(found[-1].superseded_by or "")) is not None:
            if newer in found:
                return None
            found.append(newer)
        return found

    paths = {name: path(row) for name, row in store.items()}
    bad_heads = {p[-1].id for name, p in paths.items() if p and is_doubtful(store[name], history_from)}
    doubtful = {name for name, p in paths.items() if p is None or p[-1].id in bad_heads}
    gone = {}
    for name, p in paths.items():
        reasons = [reason(row, history_from) for row in p or []]
        if name not in doubtful and any(reasons):
            gone[name] = reasons[0] or "chain"
    return gone, doubtful


def make_store(path: Path, rows: Iterable[Row], journal_mode: str = "wal", *, full_text: bool = False) -> Path:
    """A store with these rows, pointers unchecked."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal_mode}")
        connection.executescript(
            render.template(
                "schema.sql.j2",
                table="memory",
                view="live_memory",
                indexes=render.INDEXES,
                full_text=full_text,
                own=True,
            )
        )
        connection.executescript("DROP TRIGGER memory_superseded_at_once; BEGIN;")
        connection.executemany(
            "INSERT INTO memory (id, subject, fact, source, superseded_by, expires_at, created_at, superseded_at)"
            " VALUES (?, 's', 'SECRET', 'test', ?, ?, ?, ?)",
            [(r.id, r.superseded_by, r.expires_at, r.created_at, r.superseded_at) for r in rows],
        )
        connection.execute("COMMIT")
    return path


def make_sql(path: Path, history_from: str = "created") -> Path:
    """prune.sql with the default settings."""
    path.write_text(render.sql("prune", Store(history_from=history_from)))
    return path


def make_chain(length: int, head: Row) -> list[Row]:
    """A chain of ``length`` rows, head first, whose older rows are too young to be dead themselves."""
    older = [Row(f"{head.id}_{n}", head.id if n == 1 else f"{head.id}_{n - 1}", None, NEW) for n in range(1, length)]
    return [head, *older]


def ids(path: Path) -> set[str]:
    return {row[0] for row in query(path, "SELECT id FROM memory")}


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def by_hand(path: Path, sql: Path) -> dict[str, int]:
    """Run prune.sql in the sqlite3 shell; returns the row that it reports."""
    with sql.open() as script:
        shell = subprocess.run(
            ["sqlite3", "-init", "/dev/null", str(path)], stdin=script, capture_output=True, text=True, check=True
        )
    assert shell.stderr == ""
    names, values = shell.stdout.splitlines()[-2:]
    return {name: int(value) for name, value in zip(names.split("|"), values.split("|"), strict=True)}
