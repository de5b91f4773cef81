"""Stores are found on this very machine: real directories, processes and namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fake_qdrant
from memops import doctor, doctor_text, findings, gathering, inspecting, processes, seeking
from memops.errors import MemopsError, Refused
from unit.test_findings import MACHINE

if TYPE_CHECKING:
    from memops.found import Found

AGENT = 65533
LOG = "CREATE TABLE history (id, memory_id, old_memory, new_memory, event, created_at, updated_at, is_deleted)"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for each in (tmp_path, *tmp_path.parents):
        if each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    directory = tmp_path / "agent"
    directory.mkdir()
    return directory


def make(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def qdrant(path: Path, points: int = 2) -> Path:
    rows = "".join(f"INSERT INTO points VALUES ('{n}', x'00');" for n in range(points))
    make(
        path / "collection" / "mem0" / "storage.sqlite",
        f"CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB); {rows}",
    )
    (path / "meta.json").write_text("{}")
    return path


def give(top: Path) -> None:
    for path in (top, *top.rglob("*")):
        os.chown(path, AGENT, AGENT)


def found(*paths: Path) -> list[Found]:
    return gathering.look([str(path) for path in paths])[0]


def test_a_pair_is_one_store_and_half_of_one_says_what_it_lacks(place: Path) -> None:
    make(place / "history.db", f"{LOG}; INSERT INTO history (id) VALUES (1)")
    give(place)
    (half,) = found(place)
    assert (half.product, half.lacking, half.parts[0].rows) == ("mem0", ("vectors",), 1)
    qdrant(place / "qdrant")
    give(place)
    (whole,) = found(place)
    assert (whole.product, whole.lacking) == ("mem0", ())
    assert [(part.what, part.kind, part.rows, part.uid) for part in whole.parts] == [
        ("change log", "sqlite", 1, AGENT), ("vectors", "qdrant", 2, AGENT),
    ]  # fmt: skip


def test_kinds_are_told_apart(place: Path) -> None:
    make(place / "plain.db", "CREATE TABLE notes (a); INSERT INTO notes VALUES (1)")
    make(place / "chroma" / "chroma.sqlite3", "CREATE TABLE embeddings (id); INSERT INTO embeddings VALUES (1), (2)")
    (place / "graph.jsonl").write_text('{"type":"entity","name":"Ada","observations":["a","b"]}\n')
    (place / "letter.txt").write_text("no memory")
    give(place)
    kinds = {(each.product, each.parts[0].rows) for each in found(place)}
    assert kinds == {("sqlite", 1), ("chroma", 2), ("server-memory", 2)}
    (place / "notes").mkdir()
    (place / "notes" / "a.md").write_text("# Notes")
    assert [each.product for each in found(place / "notes")] == ["notes"]


def test_what_cannot_be_reached_is_said(place: Path) -> None:
    with pytest.raises(MemopsError, match="nothing at"):
        found(place / "gone")
    (place / "x.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    give(place)
    (broken,) = found(place / "x.db")
    assert broken.parts[0].unread


HOLD = """
import os, sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1])
connection.execute("CREATE TABLE IF NOT EXISTS facts (a)")
connection.commit()
print("ready", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def process(*words: str, **more: object):
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **more) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "ready\n"
            yield started
        finally:
            started.kill()


def test_a_process_that_uses_it_is_named_with_its_user(place: Path) -> None:
    give(place)
    stepping = ("setpriv", f"--reuid={AGENT}", f"--regid={AGENT}", "--clear-groups")
    with process(*stepping, "/usr/bin/python3", "-c", HOLD, str(place / "a.db")) as holder:
        (one,) = found(place / "a.db")
        (seen,) = one.holders
        assert (seen.pid, seen.uid, seen.writes) == (holder.pid, AGENT, True)
        (place / "a.db").unlink()
        running, _ = processes.every()
        (again,) = [each for each in running if each.pid == holder.pid]
        assert str(place / "a.db") in again.deleted


def test_a_store_that_only_one_process_can_see(place: Path) -> None:
    """It is read where that process has it, by its owner, and nothing is run that lies there."""
    hidden = place / "hidden"
    hidden.mkdir()
    give(place)
    script = f"mount -t tmpfs tmpfs {hidden} && chmod 777 {hidden} && exec setpriv --reuid={AGENT} --clear-groups"
    with process("unshare", "--mount", "sh", "-c", f"{script} /usr/bin/python3 -c '{HOLD}' {hidden}/a.db") as holder:
        stores, _ = gathering.look([])
        (one,) = [each for each in stores if each.path == f"{hidden}/a.db"]
        assert (one.namespace, one.parts[0].file_system) == (f"process {holder.pid}", "tmpfs")
        assert one.parts[0].database is not None
        assert "facts" in one.parts[0].database.tables
        assert "facts" in json.dumps(inspecting.look(f"/proc/{holder.pid}/root{hidden}/a.db"))
    assert list(hidden.iterdir()) == []


def test_variables_and_working_directories_lead_to_it(place: Path) -> None:
    make(
        place / "vector_store.db",
        "CREATE TABLE vectors (id, vector, payload); CREATE TABLE memory_migrations (user_id)",
    )
    make(place / "dir" / "history.db", LOG)
    give(place)
    script = "import sys, time; print('ready', flush=True); time.sleep(60)"
    stepping = ("setpriv", f"--reuid={AGENT}", f"--regid={AGENT}", "--clear-groups")
    environment = {"MEM0_DIR": "dir", "PATH": os.environ["PATH"]}
    with process(*stepping, "/usr/bin/python3", "-c", script, cwd=place, env=environment):
        stores = {each.path: each for each in gathering.look([])[0]}
    log = stores[f"{place}/dir/history.db"]
    assert (log.product, log.relative) == ("mem0", "dir")
    assert "MEM0_DIR" in log.how
    vectors = stores[f"{place}/vector_store.db"]
    assert (vectors.product, vectors.relative) == ("mem0-ts", "vector_store.db")


def test_a_database_that_is_nowhere_is_a_store_all_the_same(place: Path) -> None:
    script = "import time; print('ready', flush=True); time.sleep(60)"
    environment = {"MCP_MEMORY_SQLITE_PATH": ":memory:", "PATH": os.environ["PATH"]}
    with process("/usr/bin/python3", "-c", script, env=environment) as started:
        (one,) = [each for each in gathering.look([])[0] if each.path == ":memory:"]
    assert (one.product, one.parts, one.holders[0].pid) == ("mcp-memory-service", (), started.pid)
    assert next(each.code for each in findings.findings([one], MACHINE, {})) == "in-memory"


def test_a_server_on_this_machine_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_qdrant.Fake() as fake:
        monkeypatch.setattr(seeking, "PORTS", (fake.server.server_address[1],))
        found = [each for each in gathering.look([])[0] if each.path == fake.url]
    assert [(each.product, each.parts) for each in found] == [("qdrant", ())]
    assert "Qdrant" in doctor_text.text(doctor.Seen(tuple(found), MACHINE, {}, ()), 80)


def test_homes_are_looked_at_for_what_products_make_only(tmp_path: Path) -> None:
    make(
        tmp_path / "work" / "agent.db",
        "CREATE TABLE store (prefix, key, value, updated_at); CREATE TABLE store_migrations (v)",
    )
    make(tmp_path / "work" / "mine.db", "CREATE TABLE mine (a)")
    make(tmp_path / "node_modules" / "x.db", "CREATE TABLE x (a)")
    places = seeking.distinct([*seeking.below([str(tmp_path)])])
    assert sorted(each.path for each in places) == [f"{tmp_path}/work/agent.db", f"{tmp_path}/work/mine.db"]
    items = [item for each in places for item in gathering._items(each, [])]
    assert [each.product for each in gathering._stores(items, [])] == ["langgraph"]


def test_packages_of_a_python_are_told_by_their_directories(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    for name in ("mem0ai-2.2.1.dist-info", "Qdrant_Client-1.20.0.dist-info", "mem0"):
        (site / name).mkdir()
    assert processes.packages(str(tmp_path / "bin" / "python3")) == {"mem0ai": "2.2.1", "qdrant-client": "1.20.0"}


def test_inspect_calls_an_empty_database_the_wrong_file(place: Path) -> None:
    (place / "empty.db").touch()
    make(place / "bare.db", "PRAGMA user_version = 1")
    (place / "text.db").write_text("no database")
    give(place)
    for name in ("empty.db", "bare.db"):
        with pytest.raises(Refused, match="the wrong file"):
            inspecting.look(str(place / name))
    with pytest.raises(Refused, match="no SQLite file"):
        inspecting.look(str(place / "text.db"))
    make(place / "a.db", "CREATE TABLE t (a, created_at); INSERT INTO t VALUES ('tea', '2026-01-01')")
    give(place)
    text = inspecting.text(inspecting.look(str(place / "a.db")), 80)
    assert "t  1 row" in text
    assert "  a: tea" in text
