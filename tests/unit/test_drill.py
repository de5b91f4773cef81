"""The drill: a set is put back and asked, what is wrong with it is said, and a hostile one costs a bounded effort."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import time

import pytest

import backup_case
import drill
import job
import setdir

PYTHON = backup_case.PYTHON


@pytest.fixture
def case(lib):
    with backup_case.case(lib) as made:
        yield made


def make_set(case, rows: int = 300, more: str = "") -> str:
    case.source.unlink(missing_ok=True)
    case.fill(rows, more=more)
    assert (case.snapshot().returncode, case.seal().returncode) == (0, 0)
    return str(case.saved()["newest"]["set"])


def command(case, *options: object) -> list[str]:
    """As on a server: root, and of its capabilities only the one to read what others own."""
    only = "-all,+dac_read_search"
    return [
        *("setpriv", f"--bounding-set={only}", "--inh-caps=-all", "--clear-groups"),
        *(PYTHON, "-I", f"{case.lib}/drill.py", "--name", "default", "--sets", str(case.sets)),
        *("--sets-record", str(case.state_file), "--runs", str(case.state), *map(str, options)),
    ]


def run(case, *options: object) -> subprocess.CompletedProcess[str]:
    return backup_case.run(command(case, *options))


def note_prune(case, rows: object, end: str) -> None:
    record = {"job": "prune", "end": end, "result": "done", "exit": 0, "message": "", "counts": {"rows": rows}}
    with (case.state / "runs.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


def names(case) -> list[str]:
    return sorted(path.name for path in case.sets.iterdir())


def test_the_newest_set_is_restored_asked_and_removed_again(case):
    make_set(case, 10)
    name = make_set(case, 300, "UPDATE memory SET superseded_by = 'm_00000001' WHERE id > 'm_00000200'")
    before = case.digest()
    done = run(case)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"drill: set {name} restored and opened: 300 rows, 200 live facts, ")
    assert case.digest() == before
    assert [each for each in names(case) if each.startswith(".")] == []
    state = case.saved()
    assert (state["drill"]["set"], state["drill"]["result"], state["drill"]["exit"]) == (name, "done", 0)
    assert state["drill"]["good"] == state["drill"]["end"]
    assert state["verified"][name] == {"at": state["drill"]["end"], "ok": True, "message": ""}
    assert state["seal"]["result"] == "done"
    assert state["newest"]["set"] == name


def test_a_damaged_set_fails_once_and_is_not_the_newest_any_more(case):
    older = make_set(case, 100)
    good = run(case)
    assert good.returncode == 0
    good_end = case.saved()["drill"]["end"]
    newer = make_set(case, 200)
    file = case.sets / newer / "memory.db"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    done = run(case)
    assert done.returncode == 1
    assert f"drill: set {newer}: memory.db has changed" in done.stderr
    assert [each for each in names(case) if each.startswith(".")] == []
    state = case.saved()
    assert (state["drill"]["set"], state["drill"]["exit"], state["drill"]["good"]) == (newer, 1, good_end)
    assert state["verified"][newer]["ok"] is False
    assert state["verified"][newer]["message"].startswith("memory.db has changed")
    done = run(case)
    assert (done.returncode, older in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: (path / "memory.db").unlink(), "memory.db is missing"),
        (lambda path: (path / "memory.db-wal").touch(), "memory.db-wal is in the set, and not in its manifest"),
    ],
)
def test_files_missing_and_extra_are_named(case, damage, words):
    damage(case.sets / make_set(case))
    done = run(case)
    assert (done.returncode, words in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr


def test_without_a_set_it_says_what_to_type(case):
    done = run(case)
    assert (done.returncode, "there is no verified set to try; make one with: sudo memops backup" in done.stderr) == (
        1,
        True,
    )
    assert case.saved()["drill"]["set"] is None


def test_what_killed_drills_left_is_removed_and_a_running_ones_is_not(case):
    make_set(case)
    for name in (".drill-0123", ".drill-4567"):
        (case.sets / name / "deep").mkdir(parents=True)
        (case.sets / name / "memory.db").write_text("half")
    holder = os.open(case.sets / ".drill-4567", os.O_RDONLY)
    drill.fcntl.flock(holder, drill.fcntl.LOCK_SH)
    assert run(case).returncode == 0
    assert [each for each in names(case) if each.startswith(".")] == [".drill-4567"]
    os.close(holder)


def test_killed_at_any_moment_it_leaves_the_sets_and_its_record_as_they_were(case):
    make_set(case, 50_000)
    assert run(case).returncode == 0
    before, record = case.digest(), case.saved()
    clock = time.monotonic()
    assert run(case).returncode == 0
    usual, chance = time.monotonic() - clock, random.Random(4)
    for _ in range(5):
        with subprocess.Popen(command(case), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(chance.uniform(0.05, usual))
            process.kill()
        left = [path for path in case.sets.iterdir() if path.name.startswith(".drill-")]
        assert len(left) <= 1  # each run removes what the one before left
        assert {name: digest for name, digest in case.digest().items() if not name.startswith(".drill-")} == before
        assert case.saved().keys() == record.keys()
    assert run(case).returncode == 0
    assert case.digest() == before
    assert [each for each in names(case) if each.startswith(".")] == []


def test_told_to_stop_it_says_so_and_does_not_call_the_set_damaged(case):
    name = make_set(case, 100_000)
    with subprocess.Popen(command(case), stderr=subprocess.PIPE, text=True) as process:
        while not list(case.sets.glob(".drill-*")):
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, f"set {name}: told to stop before the end" in errors) == (1, True)
    assert "verified" not in case.saved()
    assert not list(case.sets.glob(".drill-*"))


def test_no_room_is_said_before_anything_is_copied(case):
    name = make_set(case, 15_000)
    whole = case.sets.with_name("kept")
    case.sets.rename(whole)
    case.sets.mkdir(0o700)
    with backup_case.small_disk(case.sets, "24m"):
        backup_case.shutil.copytree(whole / name, case.sets / name)
        done = run(case)
        assert done.returncode == 1
        assert f"set {name}: no room to try it: it needs 5." in done.stderr
        assert names(case) == [name]
    assert "verified" not in case.saved()


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n", "not done after 2 s"),
        ("SELECT DISTINCT hex(zeroblob(1000000000)) AS fact", "string or blob too big"),
        ("SELECT load_extension('/tmp/x.so') AS fact", "live_memory cannot be read"),
        ("SELECT readfile('/etc/shadow') AS fact", "live_memory cannot be read"),
        ("SELECT * FROM no_such", "no such table: main.no_such"),
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000)"  # noqa: ISC004
            " SELECT DISTINCT hex(randomblob(400000)) AS t FROM n ORDER BY t",
            "live_memory cannot be read",
        ),
    ],
)
def test_a_hostile_view_costs_a_bounded_effort(case, limit, monkeypatch, view, words):
    name = make_set(case, 10, f"DROP VIEW live_memory; CREATE VIEW live_memory AS {view}")
    monkeypatch.setattr(drill, "PATIENCE", 2)
    monkeypatch.setattr(drill, "HEAP", 64 << 20)
    before = case.digest()
    try:
        with pytest.raises(job.JobError, match=words) as caught:
            drill.drill("default", str(case.sets), str(case.state_file), str(case.state), limit)
    finally:
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("PRAGMA hard_heap_limit = 0")
    assert f"set {name}: " in str(caught.value)
    assert caught.value.counts == {"set": name, "problem": None}
    assert case.digest() == before


def test_a_set_without_the_view_says_so(case):
    make_set(case, 10, "DROP VIEW live_memory")
    done = run(case)
    assert (done.returncode, "no such table: live_memory" in done.stderr) == (1, True)


def test_a_set_that_is_no_copy_of_the_store_is_found_out(case):
    """The set before was made of another file, say: the store had many more rows when it was counted before that."""
    name = make_set(case, 10)
    note_prune(case, 5000, "2020-01-01T00:00:00Z")
    done = run(case)
    assert done.returncode == 1
    assert f"set {name}: it holds 10 facts, and the store had 5,000 at its prune of 2020-01-01T00:00:00Z" in done.stderr
    assert case.saved()["verified"][name]["ok"] is True  # what there is of it is whole


def test_a_store_that_grew_since_is_only_remarked_on(case):
    make_set(case, 10)
    note_prune(case, 5000, "2999-01-01T00:00:00Z")
    done = run(case)
    assert done.returncode == 0
    assert done.stdout.endswith("; it holds 10 facts, and the store had 5,000 at its prune of 2999-01-01T00:00:00Z\n")


def test_a_store_that_shrank_is_no_fault_of_the_set(case):
    make_set(case, 300)
    note_prune(case, 1, "2020-01-01T00:00:00Z")
    assert run(case).returncode == 0


@pytest.mark.parametrize(
    "lines",
    [
        b'{"job": "prune", "end": "2020-01-01T00:00:00Z", "counts": {"rows": "5000"}}\n',
        b'{"job": "prune", "end": "2020-01-01T00:00:00Z", "counts": {"rows": -1}}\n',
        b'{"job": "prune", "end": "2020-01-01T00:00:00Z", "counts": {"rows": 1e400}}\n',
        b'{"job": "prune", "end": 5, "counts": {"rows": 5000}}\n',
        b"[" * 100_000,
        b"\xff\xfe\x00",
        b"",
    ],
)
def test_forged_run_records_are_passed_over(case, lines):
    make_set(case, 10)
    (case.state / "runs.jsonl").write_bytes(lines)
    done = run(case)
    assert (done.returncode, done.stderr) == (0, "")


def test_run_records_are_not_followed_elsewhere(case, tmp_path):
    make_set(case, 10)
    (case.state / "runs.jsonl").unlink(missing_ok=True)
    os.mkfifo(case.state / "runs.jsonl")
    assert run(case).returncode == 0
    (case.state / "runs.jsonl").unlink()
    other = case.top / "other.jsonl"
    other.write_text('{"job": "prune", "end": "2020-01-01T00:00:00Z", "counts": {"rows": 5000}}\n')
    (case.state / "runs.jsonl").symlink_to(other)
    assert run(case).returncode == 0


def test_a_set_dated_ahead_of_the_clock_is_not_the_newest(case):
    name = make_set(case, 10)
    ahead = case.sets / "2999-01-01T000000Z"
    backup_case.shutil.copytree(case.sets / name, ahead)
    manifest = json.loads((ahead / "manifest.json").read_text())
    manifest.pop("checksum", None)
    (ahead / "manifest.json").write_text(json.dumps({**manifest, "set": ahead.name}))
    assert name in run(case).stdout
    assert [each.ok for each in setdir.list_sets(str(case.sets), {})] == [True, True]
