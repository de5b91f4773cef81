"""What an owner says of a database: real files, counted as they are; nothing is written, whatever is in them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING

import pytest

import probe
from memops import products, render
from memops.found import FIGURES, Database
from memops.settings import Store

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = [
    {"name": each.name, "what": part.what, "file": part.file, "tables": part.tables, "rows": each.rows}
    for each in products.known().values()
    for part in each.parts
]
OLD = "2020-01-01 00:00:00"


def make(path: Path, script: str, *, wal: bool = False) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        if wal:
            connection.execute("PRAGMA journal_mode = wal")
        connection.executescript(script)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rows = [
        ("round", "chat", OLD, None, "trip"), ("trip", "chat", OLD, None, "round"), ("self", "chat", OLD, None, "self"),
        ("lost", "Ada", OLD, None, "nowhere"), ("for ever", "Ada", OLD, None, "a week"),
        ("a week", "Ada", OLD, "2199-01-01 00:00:00", None), ("odd", "", "2026-11-01T00:00:00Z", None, None),
        ("past", "Ada", OLD, "2021-01-01 00:00:00", None),
    ]  # fmt: skip
    path = make(tmp_path / "memory.db", render.sql("schema", Store()), wal=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executemany(
            "INSERT INTO memory (id, subject, fact, source, created_at, expires_at, superseded_by)"
            " VALUES (?, 's', 'f', ?, ?, ?, ?)",
            rows,
        )
        connection.commit()
    return path


def test_figures_of_a_store_of_ours(store: Path) -> None:
    said = probe.look(str(store), KNOWN)
    facts = said["facts"]
    assert (said["product"], said["journal_mode"]) == ("sqlite", "wal")
    assert {key: facts[key] for key in ("rows", "live", "dead", "doubtful", "cycles", "self_references")} == {
        "rows": 8, "live": 2, "dead": 1, "doubtful": 1, "cycles": 2, "self_references": 1,
    }  # fmt: skip
    assert (facts["chains_into_nothing"], facts["temporary_over_permanent"], facts["empty_sources"]) == (1, 1, 1)
    assert facts.keys() <= FIGURES.keys()
    assert Database.__dataclass_fields__.keys() <= said.keys()
    assert said["violations"] == {"memory.memory": 1}
    assert said["dates"]["memory.created_at"] == {"utc": 7, "iso": 1}


def test_nothing_is_left_beside_what_nobody_has_open(store: Path) -> None:
    before = sorted(path.name for path in store.parent.iterdir())
    probe.look(str(store), KNOWN)
    probe.inspect(str(store))
    assert sorted(path.name for path in store.parent.iterdir()) == before == ["memory.db"]


def test_what_only_the_wal_has_is_seen(store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute("DELETE FROM memory")
        connection.commit()
        assert probe.look(str(store), KNOWN)["facts"]["rows"] == 0


@pytest.mark.parametrize(
    ("script", "product", "what"),
    [
        ("CREATE TABLE history (id, memory_id, old_memory, new_memory, event, created_at, updated_at, is_deleted)",
         "mem0", "change log"),
        ("CREATE TABLE store (prefix, key, value, updated_at); CREATE TABLE store_migrations (v)",
         "langgraph", "memories"),
        ("CREATE TABLE notes (a, b)", "sqlite", "memories"),
    ],
)  # fmt: skip
def test_a_product_is_known_by_its_tables(tmp_path: Path, script: str, product: str, what: str) -> None:
    said = probe.look(str(make(tmp_path / "x.db", script)), KNOWN)
    assert (said["product"], said["what"]) == (product, what)


def test_forms_of_dates(tmp_path: Path) -> None:
    values = ["'2026-01-01 00:00:00'", "'2026-01-01T00:00:00Z'", "1764547200", "1764547200000", "'2026-01-01'",
              "'2026-01-01 00:00:00.5'", "'soon'", "''", "NULL", "x'00'"]  # fmt: skip
    script = "CREATE TABLE t (created_at); " + "".join(f"INSERT INTO t VALUES ({each});" for each in values)
    said = probe.look(str(make(tmp_path / "x.db", script)), KNOWN)
    assert said["dates"] == {
        "t.created_at": {"utc": 1, "iso": 1, "epoch": 1, "epoch-ms": 1, "day": 1, "naive": 1, "odd": 2}
    }


def test_the_last_changes_and_events(tmp_path: Path) -> None:
    script = "CREATE TABLE log (id INTEGER PRIMARY KEY, text, event, created_at);" + "".join(
        f"INSERT INTO log (text, event, created_at)"
        f" VALUES ('t{n}', '{'ADD' if n else 'DELETE'}', '2026-01-{n + 1:02}');"
        for n in range(7)
    )
    said = probe.inspect(str(make(tmp_path / "x.db", script)))
    assert [row["text"] for row in said["changes"]["rows"]] == ["t6", "t5", "t4", "t3", "t2"]
    assert said["events"] == {"log.event": {"ADD": 6, "DELETE": 1}}
    assert said["tables"][0]["rows"] == 7


def test_a_credential_is_masked_and_texts_are_escaped(tmp_path: Path) -> None:
    script = (
        "CREATE TABLE t (a, created_at); INSERT INTO t VALUES ('password: hunter2secret9XzQ' || char(27) || '[2J', 1)"
    )
    (row,) = probe.inspect(str(make(tmp_path / "x.db", script)))["changes"]["rows"]
    assert "hunter2" not in row["a"]
    assert row["a"].isprintable()


@pytest.mark.parametrize("kind", ["empty", "text", "fifo", "directory", "missing"])
def test_what_is_no_database_is_said(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.db"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind != "missing":
        path.write_text("" if kind == "empty" else "no database at all, of some length, so that it has a header")
    request = {"op": "look", "databases": [str(path)], "configurations": [], "names": [], "known": KNOWN}
    said = probe.answer(request)["databases"][str(path)]
    assert "unread" in said or said["tables"] == {}


def test_configurations_are_read_by_key(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(
        '{"mcpServers": {"memory": {"env": {"MEMORY_FILE_PATH": "/srv/g.jsonl", "KEY": "s"}}}, "list": [3]}'
    )
    assert probe.configured(str(path), ["MEMORY_FILE_PATH"]) == {"MEMORY_FILE_PATH": "/srv/g.jsonl"}
