"""Rendering: values cannot get out of their place, and the golden files show every text for review.

``MEMOPS_GOLDEN=write scripts/test --ring unit`` writes the golden files anew.
"""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

import jinja2
import pytest
from hypothesis import given

import shape
from memops import render
from memops.settings import Store
from unit.test_settings import ALLOWED

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
STORES = {
    "default": Store(),
    "work": Store(
        name="work",
        db="/home/ada/my %agent $x#;:ü/mem ory.db",
        user="ada",
        backup_dir="/mnt/b 100%",
        prune_at="Mon 04:00",
        keep_superseded=30,
        history_from="superseded",
        mail_to="ops@example.org",
        ping="backup prune",
        textfile="/var/lib/my %h exporter/memops $x.prom",
    ),
    # All that can be asked for.
    "whole": Store(
        name="whole",
        db="/srv/whole/memory.db",
        parts=("sqlite=/srv/whole/history.db", "files=/srv/notes/", "qdrant=http://127.0.0.1:6333"),
        secrets=("qdrant",),
        agent_unit="agent.service",
        prune_without_backup=True,
        mail_to="ops@example.org",
        ping="backup",
        offsite="restic=/mnt/disk/memory",
        offsite_env="/etc/memops/offsite.env",
        full_text=True,
        notes=("/srv/whole/repo %h $x/./CLAUDE.md", "/home/whole/.claude"),
    ),
}


def rendered() -> dict[str, str]:
    files = render.all_files(STORES, {"agent": "-"}, {"work": "https://hc.example/{job}"})
    return {
        path: re.sub(r"memops \d+\.\d+\.\d+", "memops VERSION", file.text)
        for path, file in files.items()
        if "/lib/memops/" not in path
    }


def test_every_text_is_as_reviewed() -> None:
    texts = rendered()
    if os.environ.get("MEMOPS_GOLDEN") == "write":
        for path, text in texts.items():
            target = GOLDEN / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    golden = {f"/{path.relative_to(GOLDEN)}": path.read_text() for path in GOLDEN.rglob("*") if path.is_file()}
    assert golden.keys() == texts.keys()
    for path, text in texts.items():
        assert text == golden[path], f"{path} is not as reviewed"


def test_a_timer_never_requires_its_service() -> None:
    for path, text in rendered().items():
        if path.endswith(".timer"):
            assert "Requires=" not in text
            assert "OnCalendar=" in text
            assert ("Persistent=true" in text) == ("metrics" not in path)  # figures of the past are of no use


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render.template("memory-prune.service.j2", lib="/usr/local/lib/memops")


@given(ALLOWED)
def test_a_path_stays_one_word_of_a_unit(name: str) -> None:
    word = render.unit_path(f"/srv/{name}/x")
    assert word[0] == word[-1] == '"'
    assert '"' not in word[1:-1]
    assert "\n" not in word
    assert word[1:-1].replace("%%", "%") == f"/srv/{name}/x"
    assert "%" not in word.replace("%%", "")
    assert render.unit_argument(name)[1:-1].replace("$$", "$").replace("%%", "%") == name


@pytest.mark.parametrize("value", ['a"b', "a'b", "a\\b", "a\nb", "a\rb", "a\0b"])
def test_what_no_quoting_can_carry_is_refused_once_more(value: str) -> None:
    with pytest.raises(ValueError, match="cannot carry"):
        render.unit_path(value)


@given(ALLOWED)
def test_sql_quoting_is_sqlites(name: str) -> None:
    connection = sqlite3.connect(":memory:")
    try:
        odd = name + "'" + '"'
        connection.execute(f"CREATE TABLE {render.sql_identifier(odd)} (x)")
        assert connection.execute(f"SELECT name, {render.sql_literal(odd)} FROM sqlite_schema").fetchone() == (odd, odd)
    finally:
        connection.close()


def test_the_schema_makes_what_describe_calls_a_store(tmp_path) -> None:
    path = str(tmp_path / "memory.db")
    shape.create(path, render.sql("schema", Store()))
    found = shape.describe(path)
    assert (found["kind"], found["missing_columns"], found["why_not"], found["rows"]) == ("store", [], None, 0)
    assert found["live_view"]
    assert set(render.INDEXES) <= set(found["indexes"])
    assert {column for column in render.INDEXES.values() if column} <= set(found["indexed"])
    assert (tmp_path / "memory.db").stat().st_mode & 0o777 == 0o600


def test_the_order_in_which_stores_came_changes_no_file() -> None:
    backwards = dict(reversed(STORES.items()))
    assert render.all_files(backwards, {}) == render.all_files(STORES, {})
    assert list(backwards) != list(STORES)
