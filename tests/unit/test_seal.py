"""The sealing half does what it should, on sound snapshots and on a machine that fails in the middle."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest

import backup_case
import census
import job
import retention
import seal
from backup_case import AGENT
from kinds import sqlite


@pytest.fixture
def case(lib):
    with backup_case.case(lib) as made:
        yield made


def test_a_set_is_sealed(case):
    case.fill(1203)
    assert case.snapshot().returncode == 0
    claim = case.claim()
    done = case.seal()
    assert (done.returncode, done.stderr) == (0, "")
    (name,) = case.whole_sets()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{6}Z", name)
    assert re.fullmatch(rf"backup: set {name} sealed: 1,203 rows, \d+\.\d kB, verified, \d+\.\d s\n", done.stdout)
    for path in (case.sets / name, *(case.sets / name).iterdir()):
        status = path.stat()
        assert (status.st_uid, status.st_gid) == (0, 0)
        assert status.st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
    manifest = json.loads((case.sets / name / "manifest.json").read_text())
    (part,) = manifest["parts"]
    assert (manifest["version"], manifest["store"], manifest["set"]) == (1, "default", name)
    assert manifest["sealed_at"].replace(":", "") == name
    assert part["sha256"] == hashlib.sha256((case.sets / name / "memory.db").read_bytes()).hexdigest()
    assert {key: part[key] for key in ("kind", "name", "file", "exact", "rows", "user_version")} == {
        "kind": "sqlite",
        "name": "memory.db",
        "file": "memory.db",
        "exact": True,
        "rows": {"memory": 1203},
        "user_version": 7,
    }
    assert (part["size"], part["taken_at"]) == (claim["size"], claim["taken_at"])
    assert part["schema_sha256"] == claim["before"]["schema_sha256"]
    assert list(case.incoming.iterdir()) == []
    saved = case.saved()
    assert case.state_file.stat().st_mode & 0o777 == 0o644
    assert (saved["version"], saved["seal"]["set"], saved["seal"]["result"], saved["seal"]["exit"]) == (
        1,
        name,
        "done",
        0,
    )
    assert saved["newest"] == {"set": name, "sealed_at": manifest["sealed_at"], "bytes": claim["size"], "rows": 1203}


def test_the_agent_cannot_reach_the_sets(case):
    case.fill(3)
    case.snapshot()
    case.seal()
    agent = ["setpriv", f"--reuid={AGENT}", f"--regid={AGENT}", "--clear-groups"]
    assert "Permission denied" in backup_case.run([*agent, "ls", str(case.sets)]).stderr
    done = backup_case.run([*agent, "rm", "-rf", str(case.sets / case.whole_sets()[0])])
    assert "Permission denied" in done.stderr
    assert len(case.whole_sets()) == 1


def test_two_sets_of_one_second_are_two_sets(case):
    case.fill(3)
    case.snapshot()
    now = datetime.now(UTC)
    for second in range(60):
        for suffix in ("", "-2"):
            (case.sets / f"{now + timedelta(seconds=second):%Y-%m-%dT%H%M%SZ}{suffix}").mkdir()
    assert case.seal().returncode == 0
    assert re.fullmatch(r".*Z-3", case.saved()["newest"]["set"])
    assert (case.sets / case.saved()["newest"]["set"] / "manifest.json").exists()


def test_each_run_makes_a_set_and_keeps_the_earlier_ones(case):
    case.fill(3)
    for _ in range(3):
        assert (case.snapshot().returncode, case.seal().returncode) == (0, 0)
    assert len(case.whole_sets()) == 3


def test_a_failure_keeps_the_earlier_set_and_the_newest(case):
    case.fill(3)
    case.snapshot()
    case.seal()
    before, newest = case.digest(), case.saved()["newest"]
    done = case.seal()  # there is no new snapshot
    assert done.returncode == 1
    assert "there is no finished snapshot: memory.json is missing" in done.stderr
    assert (case.digest(), case.saved()["newest"]) == (before, newest)
    assert case.saved()["seal"] == {
        "set": None,
        "start": case.saved()["seal"]["start"],
        "end": case.saved()["seal"]["end"],
        "result": "failed",
        "exit": 1,
        "message": "there is no finished snapshot: memory.json is missing",
        "invocation": case.saved()["seal"]["invocation"],
    }


@pytest.mark.parametrize("content", ["", "[1]", '{"version": 1, "drill": {"result": "done"}}'])
def test_the_state_file_keeps_what_others_wrote_and_survives_damage(case, content):
    case.state_file.write_text(content)
    case.fill(3)
    case.snapshot()
    assert case.seal().returncode == 0
    assert case.saved()["newest"]["rows"] == 3
    assert case.saved().get("drill") == (json.loads(content)["drill"] if "drill" in content else None)


def test_violations_that_the_store_has_too_are_recorded(case):
    case.fill(3, more="INSERT INTO memory VALUES ('child', 's', 'f', 'gone')")
    case.snapshot()
    done = case.seal()
    assert (done.returncode, "1 foreign-key violations as in the store" in done.stdout) == (0, True)
    manifest = json.loads((case.sets / case.saved()["newest"]["set"] / "manifest.json").read_text())
    assert manifest["parts"][0]["foreign_key_violations"] == 1


def test_a_key_that_cannot_be_checked_is_no_reason_to_have_no_backup(case):
    case.fill(3, more="CREATE TABLE other(x); CREATE TABLE child(y REFERENCES other(x)); INSERT INTO child VALUES (1)")
    assert case.snapshot().returncode == 0
    assert case.claim()["foreign_key_violations"] is None
    assert case.seal().returncode == 0


def test_a_second_sealing_beside_the_first_is_refused(case):
    case.fill(3)
    case.snapshot()
    holder = os.open(case.sets, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    (case.sets / ".partial-of-the-first").mkdir()
    done = case.seal()
    os.close(holder)
    assert (done.returncode, "another backup of this store is being sealed" in done.stderr) == (1, True)
    assert (case.sets / ".partial-of-the-first").exists()


def test_sets_that_others_may_write_prove_nothing(case):
    case.fill(3)
    case.snapshot()
    case.sets.chmod(0o770)
    done = case.seal()
    assert (done.returncode, "others may write to the directory of the sets" in done.stderr) == (1, True)


def test_leftovers_of_killed_runs_go(case):
    case.fill(3)
    case.snapshot()
    (case.sets / ".partial-0123" / "deep").mkdir(parents=True)
    (case.sets / ".partial-0123" / "memory.db").write_text("half")
    assert case.seal().returncode == 0
    assert len(case.whole_sets()) == 1


def test_being_killed_at_any_moment_leaves_no_false_set_and_loses_none(case):
    case.fill(100_000)
    assert (case.snapshot().returncode, case.seal().returncode) == (0, 0)
    kept = case.digest()
    assert case.snapshot().returncode == 0
    clock = time.monotonic()
    assert case.seal().returncode == 0
    usual, chance = time.monotonic() - clock, random.Random(4)
    kept = case.digest()
    for _ in range(5):
        assert case.snapshot().returncode == 0
        with subprocess.Popen(case.seal_command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(chance.uniform(0.05, usual))
            process.kill()
        partial = [path for path in case.sets.iterdir() if path.name.startswith(".partial-")]
        assert len(partial) <= 1
        found = {name: digest for name, digest in case.digest().items() if not name.startswith(".partial-")}
        assert kept.items() <= found.items()
        kept = found
    assert (case.snapshot().returncode, case.seal().returncode) == (0, 0)
    assert case.saved()["newest"]["set"] == case.whole_sets()[-1]
    assert kept.items() <= case.digest().items()


def test_being_told_to_stop_ends_as_a_failure(case):
    case.fill(100_000)
    case.snapshot()
    with subprocess.Popen(case.seal_command(), stderr=subprocess.PIPE, text=True) as process:
        while not list(case.sets.glob(".partial-*")):
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, case.whole_sets()) == (1, [])
    assert "told to stop" in errors
    assert case.saved()["seal"]["result"] == "failed"


def test_no_room_is_said_before_anything_is_copied(case):
    case.fill(15_000)
    case.snapshot()
    with backup_case.small_disk(case.sets, "20m"):
        done = case.seal()
        assert (done.returncode, case.whole_sets()) == (1, [])
        assert re.search(r"no room for the set: it needs \d\.\d MB, and \d\.\d MB may be used", done.stderr)


def test_a_disk_that_fills_up_leaves_the_earlier_sets(case, monkeypatch):
    case.fill(15_000)
    with backup_case.small_disk(case.sets, "10m"), limit(60) as running:
        monkeypatch.setattr(census, "RESERVE", -(1 << 40))
        places = (str(case.incoming), str(case.sets))
        order = seal.Order("default", *places, (), retention.Keep(), str(case.state_file), accept_loss=False)
        for expected in ("done", "failed"):
            assert case.snapshot().returncode == 0
            if expected == "done":
                seal.seal(order, running)
                before = case.digest()
            else:
                with pytest.raises(job.JobError, match="the disk of the backups is full"):
                    seal.seal(order, running)
        assert case.digest() == before
        assert len(case.whole_sets()) == 1


@contextlib.contextmanager
def limit(seconds: float):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield census.Limit(seconds)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_memory_stays_small(case):
    case.fill(200_000)
    peaks = []
    for command in (case.snapshot_command(), case.seal_command()):
        code, peak = backup_case.peak(command)
        assert code == 0
        peaks.append(peak)
    assert max(peaks) < 64 * 1024, f"KiB: {peaks}"
    assert len(case.whole_sets()) == 1


def claim(before: int, after: int, *, exact: bool = False) -> sqlite.Claim:
    ends = [census.Census({"memory": rows, "notes": 0}, [], "hash", 1) for rows in (before, after)]
    return sqlite.Claim(4096, exact, ends[0], ends[1], 0)


@pytest.mark.parametrize(
    ("stated", "rows", "accepted"),
    [
        (claim(500, 500, exact=True), 500, True),
        (claim(500, 500, exact=True), 499, False),
        (claim(500, 500, exact=True), 501, False),
        (claim(10_000, 10_050), 10_300, False),
        (claim(10_000, 10_050), 10_250, True),
        (claim(10_000, 10_050), 9_800, True),
        (claim(10_050, 10_000), 9_799, False),
        (claim(50, 60), 0, False),  # within the slack, but a table that had rows all the time is not empty
        (claim(0, 60), 0, True),
    ],
)
def test_the_rows_of_a_copy_lie_between_the_two_counts(stated, rows, accepted):
    found = census.Census({"memory": rows, "notes": 0}, [], "hash", 1)
    assert (sqlite.difference(stated, found, 0) is None) is accepted


def test_a_missing_table_a_schema_and_a_version_make_a_difference():
    stated = claim(5, 5, exact=True)
    same = stated.before
    assert sqlite.difference(stated, same, 0) is None
    assert "0 rows in memory" in str(sqlite.difference(stated, census.Census({"notes": 0}, [], "hash", 1), 0))
    assert "another schema" in str(sqlite.difference(stated, census.Census(same.rows, [], "other", 1), 0))
    assert "user_version 2" in str(sqlite.difference(stated, census.Census(same.rows, [], "hash", 2), 0))
    assert "1 foreign-key" in str(sqlite.difference(stated, same, 1))
