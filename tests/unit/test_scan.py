"""memops scan finds what looks like a credential wherever it stands in a database, and never says what it is."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from typing import TYPE_CHECKING, Any

import pytest

import scan
from memops import host, scanning
from memops.errors import MemopsError

if TYPE_CHECKING:
    from pathlib import Path

    from unit.fact_store import Case

RANDOM = "aB3dE5fG7hI9jK1lM3nO5pQ7"
KEY = f"ghp_{RANDOM}"


def look(capsys: pytest.CaptureFixture[str], case: Case, *more: str) -> dict[str, Any]:
    """What scan.py says about a store, which is never what it found."""
    scan.main(["--store", case.path, "/srv/memory.db", "--state", str(case.state), *more])
    said = capsys.readouterr().out
    assert RANDOM not in said
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert scanning._is_answer(found)
    assert RANDOM not in "\n".join(scanning.describe(found))
    return found


def places(found: dict[str, Any]) -> set[tuple[Any, ...]]:
    return {(each["table"], each["row"], each["column"], each["kind"]) for each in found["found"]}


def test_nothing_is_found_in_an_ordinary_store(case: Case, capsys) -> None:
    case.many(
        "INSERT INTO memory (id, subject, fact, source) VALUES (?, 'build', ?, 'chat 2026-12-01')",
        [(f"m_{i}", f"commit {i:040x} is in /srv/agent/{i}") for i in range(5000)],
    )
    found = look(capsys, case)
    assert (found["rows"], found["found"], found["unread"], found["kinds"]) == (5000, [], [], {})
    assert found["texts"] == 5000 * 6
    assert scanning.is_clean(found)


def test_every_column_of_every_table_is_looked_at(case: Case, capsys) -> None:
    name = case.remember("plain")
    case.run("UPDATE memory SET source = ? WHERE id = ?", f"chat, {KEY}", name)
    nested = json.dumps({"a": [{"url": "postgres://u:hunter2@db/x"}]}).replace("/", "\\/")
    deep = "[" * 5000 + '"\\n"' + "]" * 5000
    tables = {
        "CREATE TABLE loose (a, b BLOB, c INTEGER, d REAL)": [
            ("loose", (None, KEY.encode(), KEY, 1.5)),
            ("loose", (nested, b"\xff\xfe" + KEY.encode(), 7, KEY)),
            ("loose", (deep, None, None, None)),
        ],
        'CREATE TABLE "odd ""name" (rowid TEXT, _rowid_ TEXT, "a b" JSON)': [('odd ""name', ("x", "y", f'"{KEY}"'))],
        "CREATE TABLE keyed (a TEXT PRIMARY KEY, b TEXT) WITHOUT ROWID": [("keyed", ("a", "b")), ("keyed", ("c", KEY))],
        "CREATE TABLE long (a TEXT, b TEXT)": [("long", ("x" * 200_000 + f" {KEY} " + "y" * 50_000, "b"))],
        "CREATE TABLE edge (a TEXT)": [],
        "CREATE TABLE made (a TEXT, b TEXT AS (a || 'ghp_') STORED)": [],
    }
    for sql, rows in tables.items():
        case.run(sql)
        for table, row in rows:
            case.run(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(row))})', *row)
    for rowid in (-(1 << 63), -5, (1 << 63) - 1):
        case.run("INSERT INTO edge (rowid, a) VALUES (?, ?)", rowid, KEY)
    with contextlib.closing(sqlite3.connect(case.path)) as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(a)")
        connection.execute("INSERT INTO words VALUES (?)", (f"token: {RANDOM}",))
        connection.execute("CREATE VIEW shown AS SELECT * FROM loose")
        connection.commit()
    found = look(capsys, case)
    assert found["unread"] == []
    token, (memory,) = "GitHub token", case.run("SELECT rowid FROM memory")[0]
    # An index keeps the words themselves.
    assert {each for each in places(found) if each[0] != "words_data"} == {
        ("memory", memory, "source", token),
        ("loose", 1, "b", token),
        ("loose", 1, "c", token),
        ("loose", 2, "a", "password in an address"),
        ("loose", 2, "d", token),
        ('odd "name', 1, "a b", token),
        ("keyed", 2, "b", token),
        ("long", 1, "a", token),
        *(("edge", rowid, "a", token) for rowid in (-(1 << 63), -5, (1 << 63) - 1)),
        ("words_content", 1, "c0", "secret value"),
    }
    assert "hunter2" not in json.dumps(found)
    assert {"id": name, "table": "memory"}.items() <= next(each for each in found["found"] if "id" in each).items()


def test_names_and_ids_are_the_agents_text_too(case: Case, capsys) -> None:
    case.run(f'CREATE TABLE "{KEY}" (id TEXT, "\x1b[2J {KEY}" TEXT)')
    case.run(f'INSERT INTO "{KEY}" VALUES (?, ?)', f"id {KEY}\n", KEY)
    found = look(capsys, case)
    assert len(found["found"]) == 2
    assert "\x1b" not in "\n".join(scanning.describe(found))


def test_what_is_listed_and_what_is_kept_has_an_end(case: Case, capsys, monkeypatch) -> None:
    case.run("CREATE TABLE many (a TEXT)")
    case.many("INSERT INTO many VALUES (?)", [(KEY,)] * 3000)
    monkeypatch.setattr(scan, "AT_ONCE", 7)
    found = look(capsys, case)
    assert (len(found["found"]), found["more"], found["kinds"]) == (scan.LISTED, 2000, {"GitHub token": 3000})
    lines = list(scanning.describe(found))
    assert len(lines) < scanning.SHOWN + 5
    assert "3,000 found in 3,000 rows" in "\n".join(lines)


def test_progress_comes_while_it_looks(case: Case, capsys, monkeypatch) -> None:
    case.run("CREATE TABLE many (a TEXT)")
    case.many("INSERT INTO many VALUES (?)", [("x",)] * 50)
    monkeypatch.setattr(scan, "EVERY", 0)
    scan.main(["--store", case.path, "/srv/memory.db", "--state", str(case.state), "--progress"])
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"done": 25, "all": 50} in said
    assert said[-1]["rows"] == 50


def test_what_cannot_be_read_is_said(case: Case, capsys, tmp_path: Path) -> None:
    junk, gone = tmp_path / "junk.db", tmp_path / "gone.db"
    junk.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    found = look(capsys, case, "--database", str(junk), "/srv/junk.db", "--database", str(gone), "/srv/gone.db")
    assert [each["where"] for each in found["unread"]] == ["/srv/junk.db", "/srv/gone.db"]
    assert not gone.exists()
    assert not scanning.is_clean(found)


def test_notes_are_looked_at_line_by_line(case: Case, capsys, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text(f"# mine\n\n- tea\n- the token is {KEY}\n")
    (folder / "b.jsonl").write_text(
        json.dumps({"type": "entity", "name": "x", "entityType": "y", "observations": [f"password: {RANDOM}"]}) + "\n"
    )
    (folder / "c.txt").write_text(KEY)
    (folder / "link.md").symlink_to("/etc/shadow")
    found = look(capsys, case, "--notes", str(folder), "/srv/notes")
    assert [(each["file"], each["line"], each["kind"]) for each in found["found"]] == [
        ("/srv/notes/a.md", 4, "GitHub token"),
        ("/srv/notes/b.jsonl", 1, "password"),
    ]
    assert [each["where"] for each in found["unread"]] == ["/srv/notes/link.md"]


def test_what_was_allowed_is_left_out_until_it_changes(case: Case, capsys) -> None:
    name = case.remember(f"order {RANDOM}", allow_secret="an order")  # noqa: S106
    found = look(capsys, case)
    assert (found["found"], found["allowed"]) == ([], 1)
    case.run("UPDATE memory SET subject = ? WHERE id = ?", KEY, name)
    found = look(capsys, case)
    assert [(each["id"], each["column"]) for each in found["found"]] == [(name, "subject")]
    assert found["allowed"] == 1


@pytest.mark.parametrize(
    "answer",
    [
        None, [], {}, {"rows": 1},
        {"rows": 1, "texts": 1, "files": 0, "more": 0, "allowed": 0, "found": [1], "unread": [], "kinds": {}},
        {"rows": -1, "texts": 1, "files": 0, "more": 0, "allowed": 0, "found": [], "unread": [], "kinds": {}},
        {"rows": 1, "texts": 1, "files": 0, "more": 0, "allowed": 0, "found": [], "unread": [], "kinds": {"a": "b"}},
    ],
)  # fmt: skip
def test_another_answer_is_none(answer: object) -> None:
    assert not scanning._is_answer(answer)


def test_an_odd_answer_is_escaped() -> None:
    odd = {"id": ["\x1b"], "table": "memory", "column": {"\x1b": 1}, "row": None}
    counts = {"rows": 1, "texts": 1, "files": 0, "more": 0, "allowed": 0}
    found = {**counts, "found": [odd, {"file": "\x1b"}, {}], "unread": [{}, {"where": "\x1b"}], "kinds": {"\x1b": 3}}
    assert scanning._is_answer(found)
    assert "\x1b" not in "".join(scanning.describe(found))


def test_lines_are_handed_over_while_a_program_runs() -> None:
    heard: list[str] = []
    ran = host.follow((sys.executable, "-c", "import sys; print('a'); print('b'); sys.exit(3)"), heard.append, 60, 1000)
    assert (heard, ran.code, ran.out) == (["a\n", "b\n"], 3, "b\n")
    endless = (sys.executable, "-c", "while True: print('x' * 100)")
    with pytest.raises(MemopsError, match="printed more than"):
        host.follow(endless, heard.append, 60, 10_000)
    silent = (sys.executable, "-c", "import time; time.sleep(600)")
    with pytest.raises(MemopsError, match="did not end within"):
        host.follow(silent, heard.append, 0.2, 10_000)
    with pytest.raises(MemopsError, match="is not on this machine"):
        host.follow(("no-such-program",), heard.append, 1, 1)
