"""How a run of the prune behaves: the guard, root's word, other writers, hostile stores, being stopped and killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import guard
import job
import prune
import reading
from sections import read_sections
from unit.prune_model import FUTURE, NEW, OLD, PAST, Row, ids, make_chain, make_sql, make_store, query
from unit.test_prune_policy import run_service

if TYPE_CHECKING:
    from pathlib import Path

LIVE = [Row(f"live{n}", created_at=NEW) for n in range(300)]


@pytest.fixture
def sql(tmp_path: Path) -> Path:
    return make_sql(tmp_path / "prune.sql")


@pytest.fixture
def writer(tmp_path: Path):
    """Opens a second connection to a store, as the agent would."""
    with contextlib.ExitStack() as stack:
        yield lambda path: stack.enter_context(
            contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=5))
        )


def command(lib: Path, path: Path, sql: Path, *more: str) -> list[str]:
    """The service's command line."""
    arguments = ["--store", str(path), "--sql", str(sql), "--state", str(path.parent), *more]
    return [sys.executable, "-I", str(lib / "prune.py"), *arguments]


def last_record(path: Path) -> dict[str, Any]:
    return job.read_records(str(path.parent))[-1]


# The guard


def facts(doomed: int = 0, rows: int = 1000, newest: str | None = "2026-08-01 00:00:00") -> dict[str, Any]:
    return {
        "doomed": doomed, "rows": rows, "newest": newest,
        "now": "2026-08-08 12:00:00", "month_ago": "2026-07-09 12:00:00",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "last", "words"),
    [
        (facts(501), None, "501 of 1000 rows would go, more than half of the store"),
        (facts(500), None, None),
        (facts(101, 150), None, "101 of 150 rows"),
        (facts(100, 100), None, None),
        (facts(), "2026-08-08 12:00:01", "before the last run at 2026-08-08 12:00:01 UTC"),
        (facts(), "2026-08-08 12:00:00", None),
        (facts(newest="2026-07-01 00:00:00"), "2026-07-01 00:00:00", "more than 30 days after the last run and"),
        (facts(newest=None), "2026-07-01 00:00:00", "more than 30 days after the last run and"),
        (facts(newest="2026-07-01 00:00:00"), "2026-08-07 00:00:00", None),
        (facts(newest="2026-08-01 00:00:00"), "2026-07-01 00:00:00", None),
        (facts(newest="2026-07-01 00:00:00"), None, None),
    ],
)
def test_what_the_guard_objects_to(given: dict[str, Any], last: str | None, words: str | None) -> None:
    objection = guard.make_objection(given, last)
    assert (words in objection) if words and objection else (objection == words)


def test_the_guard_holds_a_large_run_and_says_what_to_type(tmp_path: Path, sql: Path, lib: Path) -> None:
    path = make_store(tmp_path / "memory.db", [Row(f"dead{n}", expires_at=PAST) for n in range(101)])
    ran = subprocess.run(command(lib, path, sql), capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (6, "")
    assert ran.stderr == (
        "prune: nothing deleted: 101 of 101 rows would go, more than half of the store. "
        "If that is right: memops prune --allow-large\n"
    )
    record = last_record(path)
    assert (record["result"], record["exit"], record["counts"]["dead"], record["counts"]["rows"]) == (
        "guard",
        6,
        101,
        101,
    )
    assert len(ids(path)) == 101


@pytest.mark.parametrize("days", [-1, 400])
def test_a_wrong_clock_empties_nothing(days: int, tmp_path: Path, sql: Path) -> None:
    """The last run lies ahead of the clock, or too far behind it; runs that the guard held do not count as runs."""
    path = make_store(tmp_path / "memory.db", [Row("dead", created_at=OLD, expires_at=PAST)])
    end = (datetime.now() - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for result, at in (("done", end), ("guard", job.now()), ("report", job.now()), ("locked", job.now())):
        job.append_record(str(tmp_path), {"job": "prune", "result": result, "end": at})
    with pytest.raises(job.JobError, match="the clock says") as raised:
        run_service(path, sql)
    assert raised.value.exit_code == job.GUARD
    assert ids(path) == {"dead"}


# Root's word


def write_mode(path: Path, mode: str, seconds: float = 60) -> Path:
    path.write_text(json.dumps({"mode": mode, "until": time.time() + seconds}))
    path.chmod(0o644)
    return path


def test_a_report_deletes_nothing(tmp_path: Path, sql: Path) -> None:
    path = make_store(tmp_path / "memory.db", [*LIVE, Row("dead", expires_at=PAST), Row("older", "dead", None, NEW)])
    outcome = run_service(path, sql, mode_file=str(write_mode(tmp_path / "mode.json", "report")))
    assert (outcome.result, outcome.message) == ("report", "would delete 2 of 302 rows")
    assert {key: outcome.counts[key] for key in ("expired", "chain", "dead", "rows", "live", "gap")} == {
        "expired": 1, "chain": 1, "dead": 2, "rows": 302, "live": 300, "gap": 2,
    }  # fmt: skip
    assert len(ids(path)) == 302


def test_a_large_run_is_allowed_once_root_says_so(tmp_path: Path, sql: Path) -> None:
    path = make_store(tmp_path / "memory.db", [Row(f"dead{n}", expires_at=PAST) for n in range(101)])
    mode = str(write_mode(tmp_path / "mode.json", "report"))
    assert "the guard would hold: 101 of 101" in run_service(path, sql, mode_file=mode).message
    mode = str(write_mode(tmp_path / "mode.json", "allow-large"))
    assert run_service(path, sql, mode_file=mode).counts["expired"] == 101


def test_only_roots_own_fresh_word_is_obeyed(tmp_path: Path) -> None:
    def word(path: Path) -> str:
        return guard.read_mode(str(path), time.time())

    path = tmp_path / "mode.json"
    assert guard.read_mode(None, 0) == word(path) == ""
    assert word(write_mode(path, "report")) == "report"
    link = tmp_path / "link.json"
    link.symlink_to(path)
    assert word(link) == ""
    assert word(write_mode(path, "report", -1)) == ""
    assert word(write_mode(path, "report", 700)) == ""
    assert word(write_mode(path, "something")) == ""
    for text in ("", "[]", "{}", '{"mode": "report", "until": null}', "\0"):
        path.write_text(text)
        assert word(path) == ""
    write_mode(path, "report").chmod(0o664)
    assert word(path) == ""
    os.chown(write_mode(path, "report"), 1234, -1)
    assert word(path) == ""
    os.mkfifo(tmp_path / "fifo")
    assert word(tmp_path / "fifo") == ""


# Beside other writers


def listed(path: Path, sql: Path, writer) -> tuple[sqlite3.Connection, list[str], int]:
    """A connection that has listed the doomed rows, ready to delete them."""
    connection = writer(path)
    connection.execute("PRAGMA foreign_keys = ON")
    sections = read_sections(str(sql), prune.SECTIONS)
    return connection, sections["batch"], prune.prepare(connection, sections)["doomed"]


def test_a_chain_whose_head_is_renewed_meanwhile_stays(tmp_path: Path, sql: Path, writer) -> None:
    rows = [*make_chain(40, Row("renewed", expires_at=PAST)), *make_chain(40, Row("dead", expires_at=PAST))]
    path = make_store(tmp_path / "memory.db", rows)
    connection, batch, total = listed(path, sql, writer)
    assert total == 80
    writer(path).execute("UPDATE memory SET expires_at = ? WHERE id = 'renewed'", (FUTURE,))
    for first in range(1, 81, 10):
        prune.delete_range(connection, batch, first, first + 9)
    assert ids(path) == {row.id for row in rows if row.id.startswith("renewed")}


def test_a_row_in_the_middle_that_comes_back_to_life_keeps_what_is_left(tmp_path: Path, sql: Path, writer) -> None:
    path = make_store(tmp_path / "memory.db", make_chain(40, Row("head", expires_at=PAST)))
    connection, batch, _ = listed(path, sql, writer)
    prune.delete_range(connection, batch, 1, 10)
    writer(path).execute("UPDATE memory SET superseded_by = NULL WHERE id = 'head_5'")
    prune.delete_range(connection, batch, 11, 40)
    assert ids(path) == {"head", *(f"head_{n}" for n in range(1, 30))}


def test_a_row_that_something_new_points_at_stays(tmp_path: Path, sql: Path, writer) -> None:
    path = make_store(tmp_path / "memory.db", [Row("dead", expires_at=PAST), Row("alone", expires_at=PAST)])
    connection, batch, total = listed(path, sql, writer)
    writer(path).execute(
        "INSERT INTO memory (id, subject, fact, source, superseded_by) VALUES ('new', 's', 'f', 't', 'dead')"
    )
    prune.delete_range(connection, batch, 1, total)
    assert ids(path) == {"dead", "new"}
    report = reading.one_row(connection, read_sections(str(sql), prune.SECTIONS)["report"])
    assert (report["expired"], report["refused"]) == (1, 0)


def test_a_lock_held_too_long_is_said(tmp_path: Path, sql: Path, writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "WAIT_SECONDS", 0.2)
    path = make_store(tmp_path / "memory.db", [Row("dead", expires_at=PAST)])
    agent = writer(path)
    agent.execute("BEGIN IMMEDIATE")
    with pytest.raises(job.JobError, match=r"the agent held the write lock .* \(0\.2 s\); 0 expired") as raised:
        run_service(path, sql)
    assert raised.value.exit_code == job.LOCKED
    agent.execute("COMMIT")
    assert run_service(path, sql).counts["expired"] == 1


# Hostile stores


def test_what_a_trigger_refuses_is_said_and_the_rest_goes(tmp_path: Path, sql: Path, writer) -> None:
    path = make_store(tmp_path / "memory.db", [Row(f"r{n}", expires_at=PAST) for n in range(90)])
    writer(path).execute(
        "CREATE TRIGGER pinned BEFORE DELETE ON memory WHEN OLD.rowid <= 40 BEGIN SELECT RAISE(IGNORE); END"
    )
    with pytest.raises(
        job.JobError, match="a trigger of the store kept 40 dead rows, or put them back; 50 expired"
    ) as raised:
        run_service(path, sql)
    assert raised.value.exit_code == job.FAILED
    assert raised.value.counts["dead"] == len(ids(path)) == 40


def test_a_rule_of_the_store_that_forbids_is_said(tmp_path: Path, sql: Path, writer) -> None:
    path = make_store(tmp_path / "memory.db", [Row("dead", expires_at=PAST)])
    writer(path).executescript("CREATE TABLE note (about REFERENCES memory(id)); INSERT INTO note VALUES ('dead')")
    with pytest.raises(job.JobError, match=r"forbids it \(SQLite: FOREIGN KEY constraint failed\); 0 expired"):
        run_service(path, sql)
    assert ids(path) == {"dead"}


def test_a_trigger_without_end_is_given_up(tmp_path: Path, sql: Path, writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "BATCH_SECONDS", 0.3)
    path = make_store(tmp_path / "memory.db", [Row("dead", expires_at=PAST)])
    writer(path).execute(
        "CREATE TRIGGER endless AFTER DELETE ON memory BEGIN"
        " SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n); END"
    )
    with pytest.raises(job.JobError, match="may never end; 0 expired"):
        run_service(path, sql)
    assert ids(path) == {"dead"}


def test_what_a_killed_run_left_of_its_progress_goes(tmp_path: Path, sql: Path) -> None:
    path = make_store(tmp_path / "memory.db", LIVE)
    for name in ("progress.json", "progress.json.new"):
        (tmp_path / name).write_text("half")
    run_service(path, sql)
    assert not list(tmp_path.glob("progress*"))


def test_a_long_read_keeps_the_wal_and_the_record_says_how_much_waits(tmp_path: Path, sql: Path, writer) -> None:
    path = make_store(tmp_path / "memory.db", [*LIVE, Row("dead", expires_at=PAST)])
    reader, agent = writer(path), writer(path)
    agent.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert run_service(path, sql).counts["wal_waiting"] < 100_000
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memory").fetchone()
    for _ in range(20):
        agent.execute("UPDATE memory SET fact = hex(randomblob(300))")
    counts = run_service(path, sql).counts
    assert 20 * 300 * 600 < counts["wal_waiting"] <= counts["wal_bytes"]
    assert counts["wal_bytes"] == path.with_name("memory.db-wal").stat().st_size
    reader.execute("COMMIT")
    # The agent goes on, and SQLite begins the -wal anew by itself; the file keeps its length.
    for _ in range(3):
        agent.execute("UPDATE memory SET fact = hex(randomblob(9)) WHERE id = (SELECT min(id) FROM memory)")
    after = run_service(path, sql).counts
    assert after["wal_waiting"] < 100_000
    assert after["wal_bytes"] >= counts["wal_bytes"]


def test_no_job_runs_a_checkpoint_beside_the_agent(lib: Path) -> None:
    """SQLite 3.7.0 to 3.51.2 may lose what another process commits meanwhile: https://www.sqlite.org/wal.html#walresetbug."""
    scripts = {str(script.relative_to(lib)): script.read_text() for script in lib.rglob("*.py")}
    # An erasing does so once nobody else has the store open, and says that it could not where somebody has.
    assert [name for name, text in scripts.items() if "wal_checkpoint" in text.lower()] == ["erase.py"]


def test_no_fact_is_told_and_ids_are_escaped(tmp_path: Path, sql: Path, lib: Path) -> None:
    rows = [*LIVE, Row("a\n\033[31m" + "x" * 99, expires_at=PAST), Row("old", "a\n\033[31m" + "x" * 99, None, NEW)]
    path = make_store(tmp_path / "memory.db", rows)
    before = path.read_bytes()
    ran = subprocess.run(command(lib, path, sql, "--list"), capture_output=True, text=True, check=True)
    shown = "a\\n\\x1b[31m" + "x" * 52 + "…"
    assert [json.loads(line) for line in ran.stdout.splitlines()] == [
        {"id": "old", "reason": "chain", "date": PAST, "behind": shown},
        {"id": shown, "reason": "expired", "date": PAST},
    ]
    assert path.read_bytes() == before
    assert not (tmp_path / "runs.jsonl").exists()
    done = subprocess.run(command(lib, path, sql), capture_output=True, text=True, check=True)
    told = done.stdout + done.stderr + (tmp_path / "runs.jsonl").read_text() + ran.stdout
    assert "SECRET" not in told
    assert done.stdout.startswith(
        "prune: 1 expired, 0 superseded, 1 in chains, 0 kept as doubtful; 300 rows, 300 live, gap 0, "
    )


def test_an_id_that_is_not_utf_8_goes_as_well(tmp_path: Path, sql: Path, lib: Path, writer) -> None:
    path = make_store(tmp_path / "memory.db", [Row("dead", expires_at=PAST)])
    writer(path).execute("UPDATE memory SET id = CAST(x'ff' AS TEXT)")
    ran = subprocess.run(command(lib, path, sql, "--list"), capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == {"id": "\\xff", "reason": "expired", "date": PAST}
    assert run_service(path, sql).counts["expired"] == 1


def test_a_missing_store_and_half_a_policy(tmp_path: Path, sql: Path, lib: Path) -> None:
    missing = subprocess.run(command(lib, tmp_path / "none.db", sql), capture_output=True, text=True)
    assert missing.returncode == 1
    assert "the store is not there" in missing.stderr
    assert not (tmp_path / "none.db").exists()
    path = make_store(tmp_path / "memory.db", [Row("dead", expires_at=PAST)])
    sql.write_text(sql.read_text()[:-1500])
    with pytest.raises(job.JobError, match=r"prune\.sql is not whole"):
        run_service(path, sql)


# Stopped and killed


def start_and_wait(arguments: list[str], path: Path, rows: int) -> subprocess.Popen[str]:
    """Start a run and return once it has deleted something, but not all."""
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while query(path, "SELECT count(*) FROM memory")[0][0] == rows:
        assert running.poll() is None
        time.sleep(0.01)
    return running


@pytest.fixture
def large(tmp_path: Path) -> tuple[Path, list[Row]]:
    """A store that takes a second or two to prune: single rows and a long chain."""
    rows = [Row(f"live{n}", created_at=NEW) for n in range(24_000)]
    rows += [Row(f"dead{n}", expires_at=PAST) for n in range(16_000)]
    rows += make_chain(5000, Row("head", expires_at=PAST))
    return make_store(tmp_path / "memory.db", rows), rows


def test_killed_at_any_moment_it_leaves_a_sound_store(large: tuple[Path, list[Row]], sql: Path, lib: Path) -> None:
    path, rows = large
    left = len(rows)
    for _ in range(3):
        running = start_and_wait(command(lib, path, sql), path, left)
        running.kill()
        running.communicate()
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
        assert query(path, "PRAGMA foreign_key_check") == []
        left = len(ids(path))
        assert 24_000 < left < len(rows)
    subprocess.run(command(lib, path, sql), check=True, capture_output=True)
    assert ids(path) == {row.id for row in rows if row.id.startswith("live")}


def test_told_to_stop_it_finishes_the_batch_and_ends_well(large: tuple[Path, list[Row]], sql: Path, lib: Path) -> None:
    path, rows = large
    running = start_and_wait(command(lib, path, sql), path, len(rows))
    progress = path.parent / "progress.json"
    while not progress.exists():  # the first is written after the first transaction
        assert running.poll() is None
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=20)
    assert (running.returncode, err) == (0, "")
    record = last_record(path)
    assert (record["result"], record["exit"]) == ("stopped", 0)
    assert record["counts"]["dead"] == len(ids(path)) - 24_000 > 0
    assert out.startswith(f"prune: told to stop with {record['counts']['dead']} dead rows left; ")
    assert not progress.exists()


def test_the_deadline_leaves_the_rest_for_the_next_run(tmp_path: Path, sql: Path) -> None:
    path = make_store(tmp_path / "memory.db", [Row("dead", expires_at=PAST)])
    with pytest.raises(job.JobError, match=r"the time was up with 1 rows left.*; 0 expired") as raised:
        run_service(path, sql, deadline=0.0)
    assert raised.value.exit_code == job.FAILED
    assert run_service(path, sql).counts["expired"] == 1
