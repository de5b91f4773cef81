"""Records lie in a directory of the agent's: whatever is put there, no job, no screen and no terminal suffers."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import job
from memops import jobs, records
from memops.settings import Store
from memops.store import printable

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = {
    "deep": "[" * 200_000,
    "not an object": "3",
    "binary": "\x00\x1b[31m",
    "no end": '{"job": "prune"}',
}


def put(path: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(3_000_000_000)
    else:
        path.write_text(HOSTILE[kind])


@pytest.mark.parametrize("kind", ["fifo", "link", "huge", *HOSTILE])
def test_a_spoilt_record_keeps_no_job_from_its_work(tmp_path: Path, kind: str) -> None:
    put(tmp_path / "runs.jsonl", kind)
    assert job.run("prune", str(tmp_path), lambda: job.Outcome("done", {"rows": 1})) == 0
    assert json.loads((tmp_path / "runs.jsonl").read_text().splitlines()[-1])["message"] == "done"


@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "huge", *HOSTILE])
def test_a_spoilt_record_is_no_record_to_status(tmp_path: Path, kind: str) -> None:
    put(tmp_path / "runs.jsonl", kind)
    assert records.run_records(str(tmp_path / "runs.jsonl"), printable) == []


def test_forged_counts_are_numbers_or_nothing(tmp_path: Path) -> None:
    forged = {
        "job": "prune", "end": "2026-11-30T22:44:30Z", "exit": "\x1b[2J", "result": "\x1b[31m", "message": "a\nb\x07",
        "counts": {"rows": "\x1b[31m", "gap": "x" * 9999, "live": -1, "dead": 2**70, "doubtful": 3, "violations": True,
                   "journal_mode": "\x1b]0;x\x07"},
    }  # fmt: skip
    (tmp_path / "runs.jsonl").write_text(json.dumps(forged) + "\n")
    (record,) = records.run_records(str(tmp_path / "runs.jsonl"), printable)
    assert (record["counts"], record["exit"]) == ({"doubtful": 3}, None)
    assert "\x1b" not in record["result"] + record["message"]


def test_what_others_said_of_the_sets_is_made_fit_for_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "default.sets.json"
    path.write_text(json.dumps({
        "seal": {"end": "2026-11-30T22:44:30Z", "message": "a\x1b[2J"}, "drill": 3, "loss": {"set": "s", "rows": 9},
        "verified": {"good": {"ok": True}, "odd": 7, "bad\x1b[31m": {"ok": False, "at": "x", "message": "y\x07" * 999}},
    }))  # fmt: skip
    found = records.sets_record(str(path), printable)
    assert found is not None
    assert found["seal"]["message"] == "a\\x1b[2J"
    assert (found["drill"], found["offsite"], found["newest"]) == ({"message": ""}, {"message": ""}, None)
    assert found["loss"] == {"set": "s", "rows": 9}
    (failed,) = found["failed"]
    assert failed["set"] == "bad\\x1b[31m"
    assert failed["message"].isprintable()
    assert len(failed["message"]) <= 300


@pytest.mark.parametrize(
    ("job_name", "sets", "runs", "expected"),
    [
        ("drill", {"drill": {"end": "E", "exit": 0}}, [], "E"),
        ("drill", {"drill": {"end": "E", "exit": 1}}, [], None),
        ("drill", {"drill": {"end": "E", "exit": 1, "good": "G"}}, [], "G"),
        ("drill", {}, None, None),
        ("drill", None, None, None),
        ("prune", None, [("A", 0), ("B", 0), ("C", 6)], "B"),
        ("prune", None, [("A", 6)], None),
        ("prune", None, None, None),
    ],
)
def test_when_a_job_last_went_well(job_name: str, sets, runs, expected: str | None) -> None:
    kept = None if runs is None else [{"job": "prune", "end": end, "exit": code} for end, code in runs]
    assert records.Files(kept, sets).good(job_name) == expected


def test_what_could_not_be_read_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "STATE", str(tmp_path))
    (tmp_path / "default").mkdir()
    found = records.read_files("default", printable)
    assert (found.records, found.sets, found.unreadable, found.restoring) == ([], None, (), False)
    assert found.known("drill")
    (tmp_path / "default.sets.json").write_text("{")
    (tmp_path / "default.restore.json").write_text("{}")
    found = records.read_files("default", printable)
    assert found.unreadable == (f"{tmp_path}/default.sets.json (it is damaged)",)
    assert (found.known("drill"), found.known("backup"), found.known("prune")) == (False, False, True)
    assert found.restoring


FORGED = ["[" * 100_000, '{"done": 1e999, "total": 2}', '{"done": 3, "total": 2}', '{"done": -1, "total": 2}', "x"]


@pytest.mark.parametrize("text", FORGED)
def test_forged_progress_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(Store, "state", property(lambda _: str(tmp_path)))
    (tmp_path / "progress.json").write_text(text)
    assert jobs.progress(Store()) is None


def test_honest_progress_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "state", property(lambda _: str(tmp_path)))
    (tmp_path / "progress.json").write_text('{"done": 1, "total": 2}')
    assert jobs.progress(Store()) == (1, 2)


WRITE = """
import sys
sys.path.insert(0, sys.argv[1])
import job
for n in range(25):
    job.append_record(sys.argv[2], {"job": sys.argv[3], "n": n})
"""


def test_jobs_that_end_together_lose_no_record(tmp_path: Path, lib: Path) -> None:
    names = ["prune", "snapshot", "third"]
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, lib, tmp_path, name]) for name in names]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    records = [(record["job"], record["n"]) for record in job.read_records(str(tmp_path))]
    assert sorted(records) == sorted((name, n) for name in names for n in range(25))


def test_an_agent_that_holds_the_lock_holds_no_job_up(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with job.alone(str(tmp_path), patience=0.2):
            reached = True
    finally:
        os.close(descriptor)
    assert reached
