"""What the hands share, and what needs no product: dates, versions, ids, the one answer on standard output."""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hands import _hand

langgraph = importlib.import_module("hands.langgraph")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("given", "utc"),
    [
        ("2026-08-08T10:11:12.123456+00:00", "2026-08-08 10:11:12"),
        ("2026-08-08T10:11:12Z", "2026-08-08 10:11:12"),
        ("2026-08-08T01:00:00+02:00", "2026-08-07 23:00:00"),
        ("2026-08-08 10:11:12", "2026-08-08 10:11:12"),
        ("2026-08-08", "2026-08-08 00:00:00"),
        (1786183872, "2026-08-08 10:11:12"),
        (1786183872.9, "2026-08-08 10:11:12"),
        (1786183872123, "2026-08-08 10:11:12"),
        ("", ""),
        ("soon", ""),
        (None, ""),
        (True, ""),
        (1e300, ""),
        ({"a": 1}, ""),
    ],
)
def test_moments_of_every_form_become_utc_text(given, utc):
    assert _hand.utc(given) == utc


@given(st.datetimes(min_value=_hand.datetime(1990, 1, 1), max_value=_hand.datetime(2200, 1, 1)))
def test_a_moment_comes_back(moment):
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    assert _hand.utc(text) == text
    assert _hand.utc(moment.replace(tzinfo=_hand.UTC).timestamp() // 1) == text


def test_versions_are_compared_as_numbers():
    wipes = (1, 0, 0)
    assert all(_hand.numbers(old) <= wipes for old in ("0.1.118", "1.0.0", "1.0.0rc1", "1.0"))
    assert not any(_hand.numbers(new) <= wipes for new in ("1.0.1", "1.0.11", "2.2.1", "10.0"))


@given(st.text(max_size=20), st.text(max_size=20))
def test_an_id_of_langgraphs_names_one_row(prefix, key):
    assert langgraph.parts(langgraph.identity(prefix, key)) == (prefix, key)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('{"text": "likes tea"}', "likes tea"),
        (b'{"kind": "Memory", "content": {"content": "likes tea"}}', "likes tea"),
        ('{"whatever": "likes tea"}', "likes tea"),
        ('{"a": 1, "b": "two"}', '{"a": 1, "b": "two"}'),
        ('{"a": [1]}', '{"a": [1]}'),
        ("{}", "{}"),
        ("no JSON", "no JSON"),
    ],
)
def test_what_a_memory_of_langgraphs_says(value, text):
    assert langgraph.text(value) == text


def run(lib, name, request):
    """The answer of a hand as it is started on a server, with this Python."""
    text = request if isinstance(request, str) else json.dumps(request)
    ran = subprocess.run([sys.executable, lib / "hands" / name], input=text, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), ran.stderr


def test_only_the_answer_is_on_standard_output(lib, tmp_path):
    (tmp_path / "hands").symlink_to(lib / "hands")
    noisy = """
import os, subprocess, sys
sys.path.insert(0, PLACE)
from hands import _hand
def list_(request):
    print("noise")
    os.write(1, b"more noise")
    subprocess.run(["echo", "noise of a child"])
    return {"facts": []}
_hand.serve({"list": list_})
""".replace("PLACE", repr(str(tmp_path)))
    ran = subprocess.run([sys.executable, "-c", noisy], input='{"op": "list"}', capture_output=True, text=True)
    assert json.loads(ran.stdout) == {"value": {"facts": []}}
    assert "noise of a child" in ran.stderr


def test_what_cannot_be_done_is_an_answer(lib, tmp_path):
    answer, _ = run(lib, "langgraph.py", {"op": "list", "config": {"path": str(tmp_path / "none.db")}})
    assert answer["why"] == "missing"
    assert not (tmp_path / "none.db").exists()
    answer, _ = run(lib, "langgraph.py", {"op": "list", "config": {}})
    assert (answer["why"], answer["error"]) == ("missing", "the configuration has no path")
    for odd in ("", "[]", '{"op": "format"}', "{"):
        answer, _ = run(lib, "langgraph.py", odd)
        assert answer["why"] == "failed"
    (tmp_path / "other.db").write_bytes(b"no database at all, but long enough to look like one")
    answer, _ = run(
        lib, "langgraph.py", {"op": "delete", "config": {"path": str(tmp_path / "other.db")}, "ids": ["a/b"]}
    )
    assert answer["why"] == "failed"
    for name in ("mem0.py", "chroma.py"):  # no module of ours stands in for the product's
        config = {"history": str(tmp_path / "other.db"), "path": str(tmp_path)}
        answer, _ = run(lib, name, {"op": "list", "config": config})
        assert answer["why"] == "missing"
        assert "has no " in answer["error"]


def test_a_deletion_in_langgraphs_store_is_all_or_nothing(lib, tmp_path):
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE store (prefix TEXT, key TEXT, value TEXT, created_at, updated_at, PRIMARY KEY (prefix, key));
        INSERT INTO store VALUES ('a', 'b', '{"text": "one"}', '', ''), ('a', 'c', '{"text": "two"}', '', '');
        CREATE TRIGGER odd BEFORE DELETE ON store WHEN old.key = 'c' BEGIN SELECT raise(ABORT, 'not this one'); END;
    """)
    answer, _ = run(lib, "langgraph.py", {"op": "delete", "config": {"path": str(path)}, "ids": ["a/b", "a/c"]})
    assert answer["error"] == f"{path}: not this one; nothing was deleted"
    assert connection.execute("SELECT count(*) FROM store").fetchone() == (2,)
    answer, _ = run(lib, "langgraph.py", {"op": "list", "config": {"path": str(path)}})
    assert [(each["text"], each["expires"]) for each in answer["value"]["facts"]] == [("one", None), ("two", None)]
    connection.close()


def test_a_look_reads_and_changes_nothing(tmp_path):
    path = str(tmp_path / "store.db")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE facts (id TEXT, text BLOB)")
    connection.execute("INSERT INTO facts VALUES ('a', CAST(x'ff41' AS TEXT))")
    connection.commit()
    before = Path(path).read_bytes()
    found = _hand.look(path, ("SELECT id, text FROM facts WHERE id = ?", ["a"]), ("SELECT 1 FROM none", []))
    assert found == [[["a", "\N{REPLACEMENT CHARACTER}A"]], []]
    assert _hand.count(path, "SELECT count(*) FROM facts") == 1
    with pytest.raises(_hand.Refused, match="readonly"):
        _hand.look(path, ("DELETE FROM facts", []))
    with pytest.raises(_hand.Refused, match="cannot be read"):
        _hand.look(str(tmp_path / "none.db"), ("SELECT 1", []))
    assert Path(path).read_bytes() == before
    assert os.listdir(tmp_path) == ["store.db"]  # noqa: PTH208
    connection.close()


def test_who_has_a_store_open_is_named(tmp_path):
    path = tmp_path / "dir" / "file"
    path.parent.mkdir()
    path.touch()
    assert _hand.holders([str(path.parent)]) == []  # not even we
    with path.open() as opened, subprocess.Popen(["sleep", "60"], stdin=opened) as process:
        try:
            assert _hand.holders([str(path.parent)]) == [f"process {process.pid} (sleep)"]
            assert _hand.holders([str(path)]) == [f"process {process.pid} (sleep)"]
        finally:
            process.kill()


def test_one_collection_is_meant():
    assert _hand.only(["a"], "", "/srv") == "a"
    assert _hand.only(["a", "b"], "b", "/srv") == "b"
    for names, wanted in ((["a", "b"], ""), (["a"], "b"), ([], "")):
        with pytest.raises(_hand.Refused) as raised:
            _hand.only(names, wanted, "/srv")
        assert raised.value.why == "missing"
