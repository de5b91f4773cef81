"""What holds for anything: calendars, texts in units, chains under every command, what a backup brings back."""

from __future__ import annotations

import contextlib
import itertools
import re
import sqlite3
import subprocess
import tempfile
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import restore
from memops import render, survey
from memops.errors import UsageError
from memops.settings import Store, check
from pieces import Piece, Task
from restore_case import STAMP, make_set, sent
from unit.fact_store import EIGHT, FUTURE, PAST, Case
from unit.prune_model import OLD, Row, judge, make_sql
from unit.test_prune_policy import run_service
from unit.test_restore import put_back

# Calendars

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
UNITS = "/etc/systemd/system"


@st.composite
def calendars(draw: st.DrawFn) -> tuple[str, set[int], int, list[time]]:
    """An expression in systemd's language, and what it means: days of the week, a day of the month or 0, times."""
    first, last = sorted((draw(st.integers(0, 6)), draw(st.integers(0, 6))))
    days, word = draw(
        st.sampled_from(
            [
                (set(range(7)), ""),
                ({first, last}, f"{DAYS[first]},{DAYS[last]} "),
                (set(range(first, last + 1)), f"{DAYS[first]}..{DAYS[last]} "),
            ]
        )
    )
    month_day = draw(st.sampled_from([0, 0, 1, 15, 28]))
    hour, minute, step = draw(st.integers(0, 23)), draw(st.integers(0, 59)), draw(st.sampled_from([0, 0, 1, 5, 8]))
    step = step if hour + step < 24 else 0  # systemd refuses what would come once
    hours = range(hour, 24, step) if step else [hour]
    text = f"{hour:02}{f'/{step}' if step else ''}:{minute:02}{draw(st.sampled_from(['', ':00']))}"
    on = f"*-*-{month_day:02} " if month_day else draw(st.sampled_from(["", "*-*-* "]))
    return f"{word}{on}{text} UTC", days, month_day, [time(each, minute) for each in hours]


def meant(days: set[int], month_day: int, times: list[time], since: datetime) -> list[int]:
    """The next three, day by day."""
    found: list[int] = []
    for ahead in itertools.count():
        day = since.date() + timedelta(days=ahead)
        if day.weekday() in days and month_day in (0, day.day):
            found += [int(at.timestamp()) for each in times if (at := datetime.combine(day, each, UTC)) > since]
        if len(found) >= 3:
            return found[:3]
    raise AssertionError


SINCE = st.datetimes(datetime(2024, 1, 1), datetime(2031, 12, 31)).map(lambda at: at.replace(microsecond=0, tzinfo=UTC))


@settings(max_examples=30)
@given(calendars(), calendars(), SINCE)
def test_what_systemd_reads_in_a_timer_is_what_was_meant(one: Any, other: Any, since: datetime) -> None:
    """And memops' own view of when a job is due is the same."""
    store = Store(prune_at=one[0], backup_at=other[0])
    check(store)
    files = render.all_files({"default": store}, {}, {})
    for unit, (_, *meaning) in (("memory-prune.timer", one), ("memory-backup.timer", other)):
        expressions = re.findall(r"^OnCalendar=(.*)$", files[f"{UNITS}/{unit}"].text, re.MULTILINE)
        assert len(expressions) == 1
        ask = ((expressions[0],), since.timestamp())
        assert survey.elapses(run, [ask])[ask] == meant(*meaning, since)


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


@given(st.text(min_size=1, max_size=30), st.sampled_from(["prune_at", "backup_at", "mail_to", "agent_unit"]))
def test_no_text_adds_a_line_to_a_unit(text: str, option: str) -> None:
    """Whatever is typed is refused, or stands in the place of what it replaces and nowhere else."""
    store = Store(**{option: text})
    try:
        check(store)
    except UsageError:
        return
    usual = {"prune_at": "daily", "backup_at": "daily", "mail_to": "a@b.example", "agent_unit": "a.service"}[option]
    plain = render.all_files({"default": Store(**{option: usual})}, {}, {})
    files = render.all_files({"default": store}, {}, {})
    assert files.keys() == plain.keys()
    for path, file in files.items():
        if path.startswith(UNITS):
            ours, theirs = file.text.split("\n"), plain[path].text.split("\n")
            assert [line.partition("=")[0] for line in ours] == [line.partition("=")[0] for line in theirs], path
            changed = [line for line, usually in zip(ours, theirs, strict=True) if line != usually]
            assert all(usual in line for line in theirs if line not in ours), path
            assert len(changed) <= 3, path


# Chains

WORDS = ("new", "new", "replace", "replace", "forget", "only", "expire", "age", "prune")
MOVES = st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 9)), max_size=25)


@settings(max_examples=40)
@given(MOVES)
def test_replace_forget_and_prune_together_keep_a_forest(moves: list[tuple[str, int]]) -> None:
    """Every fact has one place at the most, no chain goes round or leads nowhere, no dead fact comes back by itself."""
    with tempfile.TemporaryDirectory() as directory:
        case = Case(Path(directory))
        sql = make_sql(Path(directory) / "prune.sql")
        back: set[str] = set()
        for move, pick in moves:
            there, live = sorted(case.ids()), case.live()
            name = there[pick % len(there)] if there else None
            allowed: set[str] = set()
            if move == "new" or name is None:
                allowed = {case.remember("f")}
            elif move == "replace" and name in live:
                allowed = {case.remember("next", replaces=name)}
            elif move == "only":
                allowed = set(case.forget(name, only=True)["back"])
            elif move == "forget":
                case.forget(name)
            elif move == "expire":
                case.run("UPDATE memory SET expires_at = ? WHERE id = ?", PAST, name)
            elif move == "age":
                case.run("UPDATE memory SET created_at = ? WHERE id = ?", OLD, name)
            elif move == "prune":
                fields = "id, superseded_by, expires_at, created_at, superseded_at"
                gone, _ = judge([Row(*row) for row in case.run(f"SELECT {fields} FROM memory")])
                run_service(Path(case.path), sql)
                assert case.ids() == set(there) - set(gone)
            back |= case.live() - live - allowed
            require_forest(dict(case.run("SELECT id, superseded_by FROM memory")))
        assert back == set()
        assert case.run("PRAGMA integrity_check") == [("ok",)]


def require_forest(newer: dict[str, str | None]) -> None:
    for name in newer:
        seen, at = {name}, newer[name]
        while at is not None:
            assert at in newer, f"{name} leads nowhere"
            assert at not in seen, f"{name} goes round"
            seen.add(at)
            at = newer[at]


# Backup and restore

TEXT = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.sampled_from(["a\0b", "\0", "", "'; DROP TABLE memory; --", "NULL", "\ufeff", "x" * 5000]),
)
VALUE = st.one_of(
    st.none(), TEXT, st.binary(max_size=30), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.just(-0.0)
)
ROWS = st.lists(st.tuples(TEXT, TEXT, TEXT, VALUE, st.one_of(st.none(), st.just(FUTURE), VALUE)), max_size=8)
FURTHER = """
CREATE TABLE "odd name; -- 'x" (a, b BLOB, c INTEGER UNIQUE, d REAL, e TEXT COLLATE NOCASE, f AS (a || 1) STORED);
CREATE TABLE bare (k TEXT PRIMARY KEY, v) WITHOUT ROWID;
CREATE INDEX partial ON "odd name; -- 'x" (a) WHERE b IS NOT NULL;
CREATE TRIGGER refuses BEFORE DELETE ON bare BEGIN SELECT RAISE(ABORT, 'no'); END;
CREATE VIEW everything AS SELECT * FROM memory;
PRAGMA user_version = 41;
PRAGMA application_id = 99;
"""
SCHEMAS = {
    "own": lambda: render.sql("schema", Store()),
    "full text": lambda: render.sql("schema", Store(full_text=True)),
    "eight columns": lambda: EIGHT,
}


@settings(max_examples=30)
@given(
    kind=st.sampled_from(sorted(SCHEMAS)),
    mode=st.sampled_from(["wal", "delete"]),
    rows=ROWS,
    further=st.lists(st.tuples(VALUE, VALUE, VALUE, TEXT), max_size=4),
    bad=st.booleans(),
)
def test_a_restore_of_a_backup_is_the_store_that_it_was(
    kind: str, mode: str, rows: Any, further: Any, bad: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "agent").mkdir()
        db = top / "agent" / "memory.db"
        make(db, kind, mode, rows, further, bad=bad)
        before = content(db)
        chosen = make_set(top / "2026-11-29T233000Z", {"memory": ("sqlite", db)})
        with contextlib.closing(sqlite3.connect(db)) as connection, connection:
            connection.execute("DROP VIEW everything")
            connection.execute("INSERT INTO memory (id, subject, fact, source) VALUES ('new', 's', 'f', 'x')")
        assert content(db) != before
        task = Task(STAMP, (Piece("memory", "sqlite", str(db.parent), db.name, mode),), ())
        put_back(task, sent(chosen, ["memory"]))
        restore.settle(task)
        assert content(db) == before


def make(db: Path, kind: str, mode: str, rows: Any, further: Any, *, bad: bool) -> None:
    with contextlib.closing(sqlite3.connect(db, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.executescript(SCHEMAS[kind]() + FURTHER)
        for number, (subject, fact, source, created, end) in enumerate(rows):
            dates = (created if created is not None else PAST, end)
            connection.execute(
                "INSERT OR IGNORE INTO memory (id, subject, fact, source, created_at, expires_at)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (f"{subject[:3]}{number}", subject, fact, source, *dates),
            )
            if number % 2 and kind != "full text":
                connection.execute(
                    "UPDATE memory SET superseded_by = ? WHERE rowid = ?", (f"{subject[:3]}{number}", number)
                )
        for a, b, c, e in further:
            connection.execute(
                'INSERT OR IGNORE INTO "odd name; -- \'x" (a, b, c, d, e) VALUES (?, ?, ?, ?, ?)', (a, b, c, b, e)
            )
            connection.execute("INSERT OR IGNORE INTO bare VALUES (?, ?)", (e, a))
        if bad:  # text that is no UTF-8
            connection.execute(
                "INSERT INTO memory (id, subject, fact, source) VALUES ('bad', 's', CAST(x'ff00fe' AS TEXT), 's')"
            )


def content(db: Path) -> dict[str, Any]:
    """All that is in a database, to the byte and to the type of each value."""
    with contextlib.closing(sqlite3.connect(db)) as connection:
        connection.text_factory = bytes
        schema = connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
        ).fetchall()
        found: dict[str, Any] = {"schema": schema}
        for kind, name, *_ in schema:
            if kind == b"table":
                quoted = render.sql_identifier(name.decode())
                columns = [row[1].decode() for row in connection.execute(f"PRAGMA table_xinfo({quoted})")]
                parts = [f"typeof({c}), CAST({c} AS BLOB)" for c in map(render.sql_identifier, columns)]
                found[name.decode()] = sorted(connection.execute(f"SELECT {', '.join(parts)} FROM {quoted}"), key=repr)
        for pragma in ("user_version", "application_id", "journal_mode", "encoding", "integrity_check"):
            found[pragma] = connection.execute(f"PRAGMA {pragma}").fetchall()
        if "memory_fts" in found:
            connection.execute("INSERT INTO memory_fts (memory_fts, rank) VALUES ('integrity-check', 1)")
    return found
