"""No scheduled prune without a new backup: what root's record of the sets must say, and who is let through without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import gate
import job
from unit.prune_model import PAST, Row, ids, make_sql, make_store

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_800_000_000
HOUR = 3600
NEVER_VERIFIED = "there is no verified backup"
DAMAGED = "is damaged, so nothing is known of the backups"


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def record(path: Path, age: float, now: float = NOW, **more: object) -> Path:
    """Root's record, with a newest set of this age."""
    path.write_text(json.dumps({"version": 1, "newest": {"set": "S", "sealed_at": stamp(now - age)}, **more}))
    return path


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (0, None),
        (48 * HOUR, None),
        (48 * HOUR + 1, "the newest verified backup is 48 hours old"),
        (50 * HOUR, "the newest verified backup is 50 hours old"),
        (75 * HOUR, "the newest verified backup is 3 days old"),
        (-300, None),
        (-301, "the newest verified backup is dated 5 minutes from now, so the clock may be wrong"),
        (-400 * 24 * HOUR, "the newest verified backup is dated 400 days from now, so the clock may be wrong"),
    ],
)
def test_how_old_the_newest_set_may_be(tmp_path: Path, age: float, words: str | None) -> None:
    assert gate.make_objection(str(record(tmp_path / "s.json", age)), NOW) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", DAMAGED),
        ("[]", DAMAGED),
        ("[" * 100_000, DAMAGED),
        ("{}", NEVER_VERIFIED),
        ('{"newest": null}', NEVER_VERIFIED),
        ('{"newest": "S"}', DAMAGED),
        ('{"newest": {"set": "S"}}', DAMAGED),
        ('{"newest": {"set": "S", "sealed_at": 7}}', DAMAGED),
        ('{"newest": {"set": "S", "sealed_at": "yesterday"}}', DAMAGED),
        ('{"newest": {"set": "S", "sealed_at": "2027-02-31T00:00:00Z"}}', DAMAGED),
    ],
)
def test_a_record_that_says_nothing(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    said = gate.make_objection(str(path), NOW)
    assert said is not None
    assert said.endswith(words)


def test_no_record_and_a_link_in_its_place(tmp_path: Path) -> None:
    assert gate.make_objection(str(tmp_path / "none.json"), NOW) == NEVER_VERIFIED
    link = tmp_path / "link.json"
    link.symlink_to(record(tmp_path / "s.json", 0))
    assert gate.make_objection(str(link), NOW) == f"{link} {DAMAGED}"


def test_a_newest_set_that_did_not_pass_a_later_verification_is_none(tmp_path: Path) -> None:
    bad, good = {"ok": False, "at": "x", "message": "m"}, {"ok": True, "at": "x"}
    path = record(tmp_path / "s.json", 0, verified={"S": bad})
    assert gate.make_objection(str(path), NOW) == "the newest backup, S, did not pass its last verification"
    path = record(tmp_path / "s.json", 0, verified={"S": good, "older": bad})
    assert gate.make_objection(str(path), NOW) is None


def test_what_to_type_means_the_store() -> None:
    assert "memops backup. Or" in gate.advice("/var/lib/memops/default.sets.json")
    said = gate.advice("/var/lib/memops/work.sets.json")
    assert "memops backup --name work. Or" in said
    assert "memops install --name work --prune-without-backup" in said


# The service


@pytest.mark.parametrize(
    ("trigger", "elapsed", "ended", "expected"),
    [
        ("", 0, None, False),
        ("some.path", 0, None, False),
        ("x.timer", None, None, True),  # leaves no stamp
        ("x.timer", 5, None, True),  # the first run
        ("x.timer", 5, 86400, True),
        # systemd says it of each later run, too.
        ("x.timer", 86400, 86399, False),
        ("x.timer", 86400, 5, False),
        ("x.timer", 86400, 86400, False),  # within a second
        ("x.timer", 5, -1000, True),  # a run that is to come is none
    ],
)
def test_who_started_a_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trigger: str,
    elapsed: int | None,
    ended: int | None,
    expected: bool,
) -> None:
    """elapsed, ended: seconds ago."""
    monkeypatch.setenv("TRIGGER_UNIT", trigger)
    monkeypatch.setattr(job, "STAMPS", str(tmp_path))
    now = time.time()
    if elapsed is not None:
        file = tmp_path / "stamp-x.timer"
        file.touch()
        os.utime(file, (now - elapsed, now - elapsed))
    job.append_record(str(tmp_path), {"job": "snapshot", "end": stamp(now)})
    if ended is not None:
        job.append_record(str(tmp_path), {"job": "prune", "end": stamp(now - ended)})
        job.append_record(str(tmp_path), {"job": "prune", "end": "nonsense"})
    assert job.scheduled("prune", str(tmp_path)) == expected


def run(lib: Path, path: Path, trigger: str | None, *more: str) -> subprocess.CompletedProcess[str]:
    sql = make_sql(path.parent / "prune.sql")
    arguments = ["--store", str(path), "--sql", str(sql), "--state", str(path.parent), *more]
    env = {"TRIGGER_UNIT": trigger} if trigger else {}
    return subprocess.run([sys.executable, "-I", lib / "prune.py", *arguments], capture_output=True, text=True, env=env)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "memory.db", [Row("dead", expires_at=PAST), Row("live")])


def test_a_scheduled_run_without_a_new_backup_deletes_nothing(store: Path, lib: Path) -> None:
    path = record(store.parent / "default.sets.json", 72 * HOUR, time.time())
    before = store.read_bytes()
    ran = run(lib, store, "memory-prune.timer", "--sets-record", str(path))
    assert (ran.returncode, ran.stdout) == (8, "")
    assert ran.stderr == (
        "prune: nothing deleted: the newest verified backup is 3 days old. A run by the timer wants a backup of the"
        " last 48 hours. Type: sudo memops backup. Or, to prune without one:"
        " sudo memops install --prune-without-backup\n"
    )
    kept = job.read_records(str(store.parent))[-1]
    assert (kept["result"], kept["exit"], kept["trigger"]) == ("no backup", job.NO_BACKUP, "timer")
    assert len(kept["message"]) <= 300  # what status shows of it
    assert store.read_bytes() == before


def test_a_person_is_let_through_and_told(store: Path, lib: Path) -> None:
    path = record(store.parent / "s.json", 72 * HOUR, time.time())
    ran = run(lib, store, None, "--sets-record", str(path))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("prune: 1 expired, ")
    assert ran.stdout.endswith("; the newest verified backup is 3 days old\n")
    assert ids(store) == {"live"}


@pytest.mark.parametrize("gated", [True, False])
def test_a_scheduled_run_with_a_new_backup_or_without_a_gate_deletes(store: Path, lib: Path, gated: bool) -> None:
    path = record(store.parent / "s.json", 47 * HOUR, time.time())
    ran = run(lib, store, "memory-prune.timer", *(["--sets-record", str(path)] if gated else []))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "backup" not in ran.stdout
    assert ids(store) == {"live"}
