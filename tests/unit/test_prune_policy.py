"""What the prune deletes: run by the service's script and by hand in the sqlite3 shell, both as the model says."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import prune
from sections import read_sections
from unit.prune_model import (
    FUTURE,
    NEW,
    OLD,
    PAST,
    Row,
    by_hand,
    ids,
    is_date,
    judge,
    make_chain,
    make_sql,
    make_store,
    query,
)

FOREIGN = [
    *("", "now", "never", "1700000000", 1700000000, 1.5e9, b"2020-01-01 00:00:00"),
    *("2020-01-01T00:00:00Z", "2020-01-01 00:00:00+02:00", "2020-01-01 00:00:00.5", "2020-01-01 00:00", "2020-01-01"),
    *("2020-01-01 00:00:00 ", "2020-01-01 00:00:00\0", "-020-01-01 00:00:00", "\uff12020-01-01 00:00:00"),
    *(
        "2026-02-31 00:00:00",
        "2023-02-29 00:00:00",
        "2020-13-01 00:00:00",
        "2020-00-01 00:00:00",
        "2020-01-00 00:00:00",
    ),
    *("2020-01-01 24:00:00", "2020-01-01 00:60:00", "2020-01-01 00:00:60"),
]
DATES = [OLD, NEW, PAST, FUTURE, "2024-02-29 12:00:00", "9999-12-31 23:59:59", "0000-01-01 00:00:00"]


def run_service(path: Path, sql: Path, **options: object) -> prune.job.Outcome:
    """One run of the script, in this process; signal handlers as before afterwards."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    values = {"store": str(path), "sql": str(sql), "state": str(path.parent), "deadline": 1800.0}
    values |= {"mode_file": None, "sets_record": None}
    try:
        return prune.prune(argparse.Namespace(**{**values, **options}))
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def check(
    rows: list[Row],
    directory: Path,
    journal_mode: str = "wal",
    history_from: str = "created",
    gone: dict[str, str] | None = None,
) -> dict[str, str]:
    """Prune these rows both ways and compare with ``gone``, or with what the model says; returns that."""
    sql = make_sql(directory / "prune.sql", history_from)
    mine = make_store(directory / "service.db", rows, journal_mode)
    hand = Path(shutil.copy(mine, directory / "hand.db"))
    gone, doubtful = (gone, set()) if gone else judge(rows, history_from)
    before = dangling(mine)
    counts = run_service(mine, sql).counts
    reported = by_hand(hand, sql)
    for path in (mine, hand):
        assert ids(path) == {row.id for row in rows} - set(gone)
        assert dangling(path) <= before  # no chain was cut, no pointer reset
    kinds = Counter(gone.values())
    live = query(mine, "SELECT count(*) FROM live_memory")[0][0]
    left = len(rows) - len(gone)
    expected = {reason: kinds[reason] for reason in ("expired", "superseded", "chain")}
    expected |= {"doubtful": len(doubtful), "refused": 0, "rows": left, "live": live, "gap": left - live}
    assert reported == expected
    extra = {"dead": 0, "violations": len(dangling(mine)), "journal_mode": journal_mode}
    sizes = {key: counts.pop(key) for key in ("bytes", "wal_bytes", "wal_waiting")}
    assert counts == expected | extra
    assert sizes["bytes"] == mine.stat().st_size
    assert (sizes["wal_bytes"] > 0) <= (journal_mode == "wal")
    return gone


def dangling(path: Path) -> set[object]:
    """Rows whose pointer leads nowhere."""
    sql = "SELECT id, superseded_by FROM memory WHERE superseded_by NOT IN (SELECT id FROM memory)"
    return set(query(path, sql))


@st.composite
def stores(draw: st.DrawFn) -> list[Row]:
    names = [f"r{n}" for n in range(draw(st.integers(1, 14)))]
    pointer = st.one_of(st.none(), st.sampled_from([*names, "nobody"]))
    date = st.sampled_from(DATES if draw(st.booleans()) else DATES + FOREIGN)
    expiry = st.one_of(st.none(), st.none(), date)
    rows = [Row(name, draw(pointer), draw(expiry), draw(date), draw(st.one_of(st.none(), date))) for name in names]
    return draw(st.permutations(rows))


@settings(max_examples=200)
@given(rows=stores(), history_from=st.sampled_from(["created", "superseded"]))
def test_both_ways_delete_what_the_model_says(rows: list[Row], history_from: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        check(rows, Path(directory), history_from=history_from)


@pytest.fixture(scope="module")
def doubtful_view(tmp_path_factory: pytest.TempPathFactory):
    path = make_store(tmp_path_factory.mktemp("dates") / "memory.db", [Row("a", created_at=NEW)])
    sections = read_sections(str(make_sql(path.with_suffix(".sql"))), prune.SECTIONS)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    prune.prepare(connection, sections)
    yield connection
    connection.close()


@settings(max_examples=1000)
@given(
    year=st.integers(0, 9999),
    month=st.integers(0, 13),
    date=st.integers(0, 32),
    hour=st.integers(0, 25),
    minute=st.integers(0, 60),
    second=st.integers(0, 60),
    at=st.integers(0, 18),
    other=st.none() | st.characters(exclude_categories=["Cs"]),
)
@example(year=9999, month=12, date=31, hour=23, minute=59, second=59, at=0, other=None)
@example(year=2026, month=2, date=31, hour=0, minute=0, second=0, at=0, other=None)
def test_a_date_is_exact_and_real_or_doubtful(doubtful_view, year, month, date, hour, minute, second, at, other):
    text = f"{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02}"
    if other:
        text = text[:at] + other + text[at + 1 :]
    for dates in ((text, None), (NEW, text)):
        doubtful_view.execute("UPDATE memory SET (created_at, expires_at) = (?, ?)", dates)
        assert bool(doubtful_view.execute("SELECT * FROM doubtful").fetchall()) is not is_date(text)


@pytest.mark.parametrize("value", FOREIGN, ids=repr)
def test_foreign_dates_are_kept(value: object, tmp_path: Path) -> None:
    rows = [
        Row("expiry", expires_at=value),
        Row("creation", "expiry", None, value),
        Row("alone", "nobody", None, value),
    ]
    assert check(rows, tmp_path) == {}


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
@pytest.mark.parametrize("order", ["parents first", "parents last", "shuffled"])
def test_a_long_chain_among_many_live_rows(order: str, journal_mode: str, tmp_path: Path) -> None:
    rows = make_chain(5000, Row("head", expires_at=PAST, created_at=NEW))
    gone = {row.id: "chain" for row in rows} | {"head": "expired"}
    rows += [Row(f"live{n}", created_at=NEW) for n in range(20_000)]
    if order == "parents last":
        rows.reverse()
    elif order == "shuffled":
        random.Random(1).shuffle(rows)
    check(rows, tmp_path, journal_mode, gone=gone)


def test_a_wide_tree_goes_with_its_head(tmp_path: Path) -> None:
    rows = [Row("head", expires_at=PAST, created_at=NEW), *(Row(f"r{n}", "head", None, NEW) for n in range(3000))]
    rows += [Row(f"live{n}", created_at=NEW) for n in range(4000)]
    assert len(check(rows, tmp_path)) == 3001


def test_one_doubtful_row_keeps_its_whole_chain(tmp_path: Path) -> None:
    chain = make_chain(50, Row("head", expires_at=PAST, created_at=NEW))
    chain[30] = Row(chain[30].id, chain[30].superseded_by, None, "yesterday")
    assert check([*chain, Row("other", expires_at=PAST)], tmp_path) == {"other": "expired"}


def test_circles_are_kept_and_dangling_rows_judged_by_their_dates(tmp_path: Path) -> None:
    rows = [Row("self", "self"), Row("a", "b"), Row("b", "a"), Row("behind", "a"), Row("behind that", "behind")]
    rows += [Row("old", "nobody", None, OLD), Row("young", "nobody", None, NEW), Row("under", "young", None, OLD)]
    assert check(rows, tmp_path) == {"old": "superseded", "under": "superseded"}


def test_history_counts_from_the_correction_where_asked(tmp_path: Path) -> None:
    rows = [
        Row("head"),
        Row("just replaced", "head", None, OLD, PAST),
        Row("replaced long ago", "head", None, OLD, OLD),
    ]
    assert check(rows, tmp_path, history_from="superseded") == {"replaced long ago": "superseded"}


def test_pointers_compare_as_foreign_keys_do(tmp_path: Path) -> None:
    """By the collation of id: 'A' and 'a' are one row in such a store, and SQLite's cascade would take the second."""
    path = make_store(tmp_path / "memory.db", [])
    with sqlite3.connect(path) as connection:
        schema = query(path, "SELECT sql FROM sqlite_schema WHERE name = 'memory'")[0][0]
        connection.executescript(
            f"DROP TABLE memory; {str(schema).replace('TEXT PRIMARY KEY', 'TEXT COLLATE NOCASE PRIMARY KEY')};"
            f"INSERT INTO memory (id, subject, fact, source, expires_at) VALUES ('Head', 's', 'f', 't', '{PAST}');"
            "INSERT INTO memory (id, subject, fact, source, superseded_by) VALUES ('older', 's', 'f', 't', 'hEAD');"
        )
    connection.close()
    counts = run_service(path, make_sql(tmp_path / "prune.sql")).counts
    assert (counts["expired"], counts["chain"], counts["rows"]) == (1, 1, 0)


def test_foreign_keys_come_first_and_are_read_back(tmp_path: Path) -> None:
    path, sql = make_store(tmp_path / "memory.db", [Row("a", expires_at=PAST)]), make_sql(tmp_path / "prune.sql")
    assert read_sections(str(sql), prune.SECTIONS)["prepare"][0].strip() == "PRAGMA foreign_keys = ON;"
    with sql.open() as script:  # void inside a transaction
        shell = subprocess.run(["sqlite3", "-cmd", "BEGIN", str(path)], stdin=script, capture_output=True, text=True)
    assert shell.returncode == 1
    assert "CHECK constraint failed" in shell.stderr
    assert ids(path) == {"a"}


def test_the_text_of_a_deleted_fact_is_overwritten(tmp_path: Path) -> None:
    for name in ("service.db", "hand.db"):
        path = make_store(tmp_path / name, [Row("a", expires_at=PAST)], "delete")
        assert b"SECRET" in path.read_bytes()
        sql = make_sql(tmp_path / "prune.sql")
        assert (run_service(path, sql).counts if name == "service.db" else by_hand(path, sql))["expired"] == 1
        assert b"SECRET" not in path.read_bytes()


def test_the_schema_notes_when_a_row_was_superseded(tmp_path: Path) -> None:
    path = make_store(tmp_path / "memory.db", [Row("new"), Row("old")])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE memory SET superseded_by = 'new' WHERE id = 'old'")
        assert connection.execute("SELECT superseded_at >= datetime('now', '-5 seconds') FROM memory").fetchall() == [
            (None,),
            (1,),
        ]
        long_ago = "2020-01-01 00:00:00"
        connection.execute("UPDATE memory SET superseded_at = ?, superseded_by = 'other'", (long_ago,))
        assert connection.execute("SELECT superseded_at FROM memory WHERE id = 'old'").fetchone() == (long_ago,)
        connection.execute("UPDATE memory SET superseded_by = NULL")
        assert connection.execute("SELECT superseded_at FROM memory WHERE id = 'old'").fetchone() == (None,)
    connection.close()
