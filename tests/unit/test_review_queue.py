"""The review queue, by the job and by hand: as a slow model says, and without reading the table."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import store
from hypothesis import given, settings
from hypothesis import strategies as st

import reviewing
import rows
from memops import render
from unit.prune_model import day, is_date
from unit.test_prune_policy import FOREIGN

if TYPE_CHECKING:
    from pathlib import Path

OWN = [*store.COLUMNS, *store.FURTHER]


@dataclass(frozen=True)
class Row:
    confirmed_at: object
    expires_at: object = None
    superseded: bool = False
    last_used_at: object = None
    created_at: object = "2020-01-01 00:00:00"


def make_store(
    path: Path, facts: list[Row], indexes: dict[str, str] = render.INDEXES, *, nullable: bool = True
) -> Path:
    """A store with these facts, m_0 first; confirmed_at may be NULL, as in a store that others made."""
    schema = render.template(
        "schema.sql.j2", table="memory", view="live_memory", indexes=indexes, full_text=False, own=True
    )
    for column in ("created_at    TEXT", "confirmed_at  TEXT"):
        assert f"{column} NOT NULL" in schema
        schema = schema.replace(f"{column} NOT NULL", column)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(schema + "BEGIN;")
        connection.executemany(
            "INSERT INTO memory (id, subject, fact, source, created_at, confirmed_at, expires_at, superseded_by,"
            " last_used_at) VALUES (?, 's', 'f', 'chat 2026-08-08', ?, ?, ?, ?, ?)",
            [
                (
                    f"m_{n}",
                    r.created_at,
                    r.confirmed_at,
                    r.expires_at,
                    "m_new" if r.superseded else None,
                    r.last_used_at,
                )
                for n, r in enumerate(facts)
            ],
        )
        connection.execute("COMMIT")
    return path


@pytest.fixture(scope="module")
def sql(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("sql")
    (directory / "review.sql").write_text(render.template("review.sql.j2", table="memory", view="live_memory"))
    return directory


def look(path: Path, sql: Path, older_than: int | None = None, limit: int = 20, *, unused: bool = False):
    with contextlib.closing(store.connect(str(path), readonly=True)) as connection:
        connection.text_factory = lambda text: text.decode(errors="backslashreplace")  # as desk.py has it
        return reviewing.queue(rows.Reader(connection), str(sql / "review.sql"), older_than, limit, unused=unused)


def as_text(value: object) -> object:
    """What SQLite stores of a value in a column of text."""
    return str(value) if isinstance(value, int | float) else value


def order(value: object) -> tuple[int, object]:
    """NULL, then text, then blobs, as SQLite compares."""
    return (0, b"") if value is None else (1, value.encode()) if isinstance(value, str) else (2, value)


def model(facts: list[Row], older_than: int, *, unused: bool) -> tuple[list[str], int]:
    """The ids of the whole queue in its order, and how many live facts there are."""
    old, ahead = day(-older_than), day(1)

    def long_ago(value: object) -> bool:
        return not is_date(value) or str(value) < old or str(value) > ahead

    queue, live = [], 0
    for n, row in enumerate(facts):
        confirmed, expires = as_text(row.confirmed_at), as_text(row.expires_at)
        if row.superseded or (expires is not None and order(expires) <= order(day(0))):
            continue
        live += 1
        last = as_text(row.created_at if row.last_used_at is None else row.last_used_at)
        if not long_ago(confirmed) or (unused and not (last is None or long_ago(last))):
            continue
        kind = 0 if confirmed is None else 1 if not is_date(confirmed) else 2 if str(confirmed) > ahead else 3
        queue.append((kind, order(confirmed), order(None if kind == 1 else expires), n))
    return [f"m_{n}" for *_, n in sorted(queue)], live


CONFIRMED = [*(day(-d) for d in (89, 91, 181, 183, 400)), day(0.5), day(2), "9999-12-31 23:59:59", None, *FOREIGN]
ENDS = [None, None, day(-1), day(30), "tomorrow", b"\xff"]
FACTS = st.lists(
    st.builds(
        Row,
        st.sampled_from(CONFIRMED),
        st.sampled_from(ENDS),
        st.booleans(),
        st.sampled_from(CONFIRMED),
        st.sampled_from([c for c in CONFIRMED if c is not None]),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(FACTS, st.sampled_from([0, 1, 90, 182, 500]), st.integers(1, 25), st.booleans(), st.booleans())
def test_the_queue_is_what_the_model_says(tmp_path_factory, sql, facts, older_than, limit, unused, indexed):
    path = make_store(tmp_path_factory.mktemp("store") / "m.db", facts, render.INDEXES if indexed else {})
    found = look(path, sql, older_than, limit, unused=unused)
    ids, live = model(facts, older_than, unused=unused)
    assert [fact["id"] for fact in found["facts"]] == ids[:limit]
    assert (found["waiting"], found["live"]) == (len(ids), live)


def test_what_was_never_confirmed_comes_first_and_90_days_are_the_default(tmp_path, sql):
    facts = [Row(day(-89)), Row(day(-91)), Row("yesterday"), Row(day(-300)), Row("9999-01-01 00:00:00"), Row("")]
    found = look(make_store(tmp_path / "m.db", facts), sql)
    assert [fact["id"] for fact in found["facts"]] == ["m_5", "m_2", "m_4", "m_3", "m_1"]
    assert [fact["age"] is None for fact in found["facts"]] == [True, True, False, False, False]
    assert (found["waiting"], found["live"]) == (5, 6)


def test_unused_is_neither_used_nor_confirmed_for_half_a_year(tmp_path, sql):
    old, new = day(-190), day(-10)
    facts = [
        Row(old, last_used_at=old, created_at=old),
        Row(old, last_used_at=new, created_at=old),
        Row(new, last_used_at=old, created_at=old),
        Row(old, last_used_at=None, created_at=new),
        Row(old, last_used_at=None, created_at=old),
        Row(old, last_used_at="2026-99-99 00:00:00", created_at=new),
    ]
    path = make_store(tmp_path / "m.db", facts)
    assert [fact["id"] for fact in look(path, sql, unused=True)["facts"]] == ["m_0", "m_4", "m_5"]
    assert look(path, sql, 5, unused=True)["waiting"] == 6

    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE memory DROP COLUMN last_used_at")
    with pytest.raises(store.Refused, match="no column last_used_at"):
        look(path, sql, unused=True)
    assert look(path, sql)["waiting"] == 5


@pytest.mark.parametrize("section", ["queue", "unused", "count"])
def test_no_statement_reads_the_whole_table(tmp_path, sql, section):
    """The queue itself stops at its limit; the count reads indexes alone."""
    path = make_store(tmp_path / "m.db", [Row(day(-d)) for d in range(200)])
    statements = reviewing.sections.read_sections(str(sql / "review.sql"), reviewing.SECTIONS)
    with contextlib.closing(store.connect(str(path), readonly=True)) as connection:
        plan = [
            row[3]
            for row in connection.execute(
                "EXPLAIN QUERY PLAN " + statements[section][0], {"older_than": 90, "limit": 20}
            )
        ]
    read = [step for step in plan if "memory" in step or step.startswith(("SCAN m", "SEARCH m"))]
    assert len(read) > 4
    assert not [step for step in read if step.startswith("SCAN") and "INDEX" not in step], plan
    assert "superseded_by=?" not in "".join(read), plan  # that index has all live facts under NULL


def test_by_hand_it_shows_the_same_with_nothing_that_a_terminal_obeys(tmp_path, sql):
    facts = [Row(day(-400)), *[Row(day(-300), day(30))] * 30]
    path = make_store(tmp_path / "m.db", facts)
    nasty = "a'b\"\x1b]0;x\x07\n-- [queue]\x9b31m\x7f\u202e"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        values = (nasty, b"\x1b\xff", nasty[:9])
        connection.execute("UPDATE memory SET fact = ?, source = ?, id = ? WHERE id = 'm_0'", values)
    script = (sql / "review.sql").read_bytes()
    command = ["sqlite3", "-init", "/dev/null", "-readonly", str(path)]
    shell = subprocess.run(command, input=script, capture_output=True, check=True)
    assert shell.stderr == b""
    text = shell.stdout.decode(errors="replace")
    assert text.count("confirmed_at = ") == 40
    assert text.index('"a\'b\\"\\u001b') < text.index('id = "m_1"')
    assert "waiting = 31\n   live = 31" in text
    assert not [c for c in text if c != "\n" and not c.isprintable() and c not in "\u202e\ufffd"]
    assert nasty.encode().hex().upper() in text


def test_the_answer_is_plain_json_and_of_one_moment(tmp_path, sql):
    path = make_store(tmp_path / "m.db", [Row(b"\xff\x00"), Row(day(-100))])
    found = json.loads(json.dumps(look(path, sql)))
    assert [fact["id"] for fact in found["facts"]] == ["m_0", "m_1"]
    assert all(len(fact["seen"]) >= 8 and set(OWN) <= set(fact) for fact in found["facts"])


def test_a_file_that_is_not_whole_is_an_error(tmp_path, sql):
    path = make_store(tmp_path / "m.db", [])
    (tmp_path / "review.sql").write_text("-- [queue]\nSELECT 1;\n")
    with pytest.raises(reviewing.sections.job.JobError, match="memops install"):
        look(path, tmp_path)


def test_an_error_leaves_no_transaction(tmp_path, sql):
    path = make_store(tmp_path / "m.db", [Row(day(-100))])
    with contextlib.closing(store.connect(str(path))) as connection:
        reader = rows.Reader(connection)
        connection.execute("ALTER TABLE memory DROP COLUMN last_used_at")
        with pytest.raises(sqlite3.OperationalError, match="last_used_at"):
            reviewing.queue(reader, str(sql / "review.sql"), 90, 20, unused=True)
        assert not connection.in_transaction
        assert [fact["id"] for fact in look(path, sql)["facts"]] == ["m_0"]
