from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import time

import pytest

import backup_case
import census
import claims
import snapshot
from backup_case import AGENT, Case
from kinds import sqlite


@pytest.fixture
def case(lib):
    with backup_case.case(lib) as made:
        yield made


@pytest.fixture
def here(case, capsys):
    """Run the snapshot in this process, for tests that turn one of its numbers."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    umask = os.umask(0o022)

    def run(*options: str):
        command = ["--store", str(case.source), "--incoming", str(case.incoming), "--state", str(case.state), *options]
        code = snapshot.main(command)
        return code, "".join(capsys.readouterr())

    yield run
    os.umask(umask)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def left(case: Case) -> list[str]:
    return sorted(path.name for path in case.incoming.iterdir())


def test_a_snapshot_is_a_copy_and_what_the_store_held(case):
    case.fill(1203, more="CREATE TABLE notes(id INTEGER PRIMARY KEY); INSERT INTO notes VALUES (1), (2);")
    before = case.source.read_bytes()
    done = case.snapshot()
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"snapshot: 1,205 rows in 2 tables, \d+\.\d kB, \d+\.\d s\n", done.stdout)
    assert left(case) == ["memory.db", "memory.json"]
    for name in left(case):
        status = (case.incoming / name).stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (AGENT, 0, 0o640)
    claim = case.claim()
    assert claim["exact"] is True
    assert claim["before"] == claim["after"]
    assert claim["before"]["rows"] == {"memory": 1203, "notes": 2}
    assert claim["before"]["user_version"] == 7
    assert (claim["source"], claim["foreign_key_violations"]) == ("memory.db", 0)
    assert claim["size"] == (case.incoming / "memory.db").stat().st_size
    assert backup_case.rows(case.incoming / "memory.db") == 1203
    assert case.source.read_bytes() == before
    (record,) = [json.loads(line) for line in (case.state / "runs.jsonl").read_text().splitlines()]
    assert (record["job"], record["result"], record["exit"]) == ("snapshot", "done", 0)
    assert record["counts"] == {"rows": 1205, "tables": 2, "bytes": claim["size"], "exact": True}


def test_a_wrong_path_is_an_error_and_makes_no_file(case):
    done = case.snapshot()
    assert done.returncode == 1
    assert f"there is no store at {case.source}" in done.stderr
    assert not case.source.exists()
    assert left(case) == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.touch(), "the store is empty: it has no table"),
        (
            lambda path: path.write_bytes(b"not a database, but long enough to look like a file of one" * 100),
            "not a SQLite",
        ),
        (lambda path: path.mkdir(), "is not a file"),
        (os.mkfifo, "is not a file"),
    ],
)
def test_what_is_no_store_is_named(case, make, words):
    make(case.source)
    os.chown(case.source, AGENT, AGENT)
    done = case.snapshot()
    assert done.returncode == 1
    assert words in done.stderr
    assert left(case) == []


def test_leftovers_go_and_links_are_not_followed(case):
    case.fill(3)
    target = case.top / "precious"
    target.write_text("kept")
    case.put("memory.json", b"{}")
    case.put("memory.db-journal", b"old")
    (case.incoming / "memory.db").symlink_to(target)
    assert case.snapshot().returncode == 0
    assert target.read_text() == "kept"
    assert left(case) == ["memory.db", "memory.json"]


def test_a_directory_in_the_way_goes_with_what_is_in_it_and_no_link_is_followed(case):
    case.fill(3)
    kept = case.top / "kept"
    kept.mkdir()
    (case.incoming / "memory.db").mkdir()
    (case.incoming / "memory.db" / "link").symlink_to(kept)
    os.chown(case.incoming / "memory.db", AGENT, 0)
    assert case.snapshot().returncode == 0
    assert left(case) == ["memory.db", "memory.json"]
    assert kept.is_dir()


def test_a_directory_named_like_a_uri_is_a_directory(case, here, monkeypatch):
    case.fill(3)
    monkeypatch.chdir(case.top)
    (case.top / "file:in?mode=memory").mkdir()
    assert here("--incoming", "file:in?mode=memory")[0] == 0
    assert sorted(path.name for path in (case.top / "file:in?mode=memory").iterdir()) == ["memory.db", "memory.json"]


@pytest.mark.parametrize("lock", ["EXCLUSIVE", "IMMEDIATE"])
def test_a_locked_store_ends_the_wait_but_a_writer_does_not_hinder(case, here, monkeypatch, lock):
    case.fill(50)
    monkeypatch.setattr(sqlite, "LOCK_WAIT", 0.3)
    with contextlib.closing(sqlite3.connect(case.source, isolation_level=None)) as agent:
        agent.execute(f"BEGIN {lock}")
        agent.execute("DELETE FROM memory")
        code, output = here()
    if lock == "EXCLUSIVE":
        assert (code, left(case)) == (5, [])
        assert "the agent held the write lock" in output
    else:
        assert (code, case.claim()["before"]["rows"]) == (0, {"memory": 50})


def test_the_wal_of_a_killed_writer_is_in_the_copy_and_stays_as_it_is(case):
    case.fill(10, journal_mode="wal")
    kill_while_writing(case, "INSERT INTO memory(id, subject, fact) VALUES ('late', 's', 'f')", commit=True)
    wal = case.source.with_name("memory.db-wal")
    files = {path: path.read_bytes() for path in (case.source, wal)}
    assert len(files[wal]) > 0
    assert case.snapshot().returncode == 0
    assert {path: path.read_bytes() for path in files} == files
    assert backup_case.rows(case.incoming / "memory.db") == 11


def test_the_hot_journal_of_a_killed_writer_is_rolled_back(case):
    case.fill(5000)
    kill_while_writing(case, "DELETE FROM memory", commit=False)
    assert case.source.with_name("memory.db-journal").stat().st_size > 0
    done = case.snapshot()
    assert done.returncode == 0, done.stderr
    assert case.claim()["before"]["rows"] == {"memory": 5000}
    assert backup_case.rows(case.incoming / "memory.db") == 5000


def kill_while_writing(case: Case, sql: str, *, commit: bool) -> None:
    code = (
        "import os, sqlite3, sys, signal; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('PRAGMA cache_size = 5'); c.execute('BEGIN'); c.execute(sys.argv[2]);"
        f"{'c.execute(chr(67) + chr(79) + chr(77) + chr(77) + chr(73) + chr(84));' if commit else ''}"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    agent = ["setpriv", f"--reuid={AGENT}", f"--regid={AGENT}", "--clear-groups"]
    done = subprocess.run([*agent, backup_case.PYTHON, "-c", code, str(case.source), sql])
    assert done.returncode == -signal.SIGKILL


def test_a_store_written_to_all_the_time_is_copied_with_a_range(case):
    case.fill(20_000, journal_mode="wal")
    with writer(case):
        done = case.snapshot()
        assert done.returncode == 0, done.stderr
    claim = case.claim()
    low, high = (claim[end]["rows"]["memory"] for end in ("before", "after"))
    assert low <= backup_case.rows(case.incoming / "memory.db") <= high
    assert claim["exact"] is (low == high)
    sealed = case.seal()
    assert sealed.returncode == 0, sealed.stderr


@contextlib.contextmanager
def writer(case: Case):
    code = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)\n"
        "print('ready', flush=True)\n"
        "while True: c.execute(\"INSERT INTO memory(id, subject, fact) VALUES (hex(randomblob(9)), 's', 'f')\")"
    )
    agent = ["setpriv", f"--reuid={AGENT}", f"--regid={AGENT}", "--clear-groups"]
    with subprocess.Popen(
        [*agent, backup_case.PYTHON, "-c", code, str(case.source)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
            assert process.poll() is None
        finally:
            process.kill()


@pytest.mark.parametrize(("writes", "exact"), [(1, True), (3, False)])
def test_a_quick_copy_is_made_again_until_nobody_wrote_meanwhile(case, here, monkeypatch, writes, exact):
    case.fill(10)
    copies = []

    def copy_and_write(connection, target, copy=sqlite.vacuum_into):
        copy(connection, target)
        copies.append(target)
        if len(copies) <= writes:
            with contextlib.closing(sqlite3.connect(case.source)) as agent, agent:
                agent.execute("DELETE FROM memory WHERE id = (SELECT max(id) FROM memory)")

    monkeypatch.setattr(sqlite, "vacuum_into", copy_and_write)
    code, output = here()
    claim = case.claim()
    assert (code, claim["exact"], len(copies)) == (0, exact, min(writes + 1, 3))
    assert ("written to meanwhile" in output) is not exact
    if not exact:
        assert [claim[end]["rows"]["memory"] for end in ("before", "after")] == [8, 7]
        assert backup_case.rows(case.incoming / "memory.db") == 8


def test_a_disk_without_room_is_said_before_anything_is_written(case):
    case.fill(15_000)
    with backup_case.small_disk(case.incoming, "20m"):
        done = case.snapshot()
        assert (done.returncode, left(case)) == (1, [])
        assert re.search(r"no room for the copy: it needs \d\.\d MB, and \d\.\d MB may be used", done.stderr)


def test_a_disk_that_fills_up_leaves_nothing(case, here, monkeypatch):
    case.fill(15_000)
    monkeypatch.setattr(census, "RESERVE", -(1 << 40))
    with backup_case.small_disk(case.incoming, "3m"):
        code, output = here()
        assert (code, left(case)) == (1, [])
        assert "the disk of the backups is full" in output


def test_an_incoming_directory_that_cannot_be_written_is_not_taken_for_the_store(case):
    case.fill(3)
    os.chown(case.incoming, 0, 0)
    case.incoming.chmod(0o755)
    done = case.snapshot()
    assert done.returncode == 1
    assert "the copy cannot be written to the incoming directory" in done.stderr


def test_being_told_to_stop_leaves_nothing(case):
    case.fill(150_000)
    with subprocess.Popen(case.snapshot_command(), stderr=subprocess.PIPE, text=True) as process:
        while not (case.incoming / "memory.db").exists():
            assert process.poll() is None
            time.sleep(0.002)
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, left(case)) == (1, [])
    assert "told to stop" in errors


def test_the_deadline_holds(case):
    case.fill(1000)
    done = case.snapshot("--deadline", 0)
    assert (done.returncode, left(case)) == (1, [])
    assert "not done after 0 s" in done.stderr


def test_odd_tables_are_counted_or_named(case):
    case.fill(
        2,
        more="""
        CREATE TABLE "a ""quoted"" name
in two lines"(x); INSERT INTO "a ""quoted"" name
in two lines" VALUES (1);
        CREATE TABLE pairs(a, b, PRIMARY KEY (a, b)) WITHOUT ROWID; INSERT INTO pairs VALUES (1, 2), (1, 3);
        CREATE TABLE made(x INTEGER, y AS (x + 1) STORED); INSERT INTO made(x) VALUES (1);
        CREATE VIRTUAL TABLE words USING fts5(text); INSERT INTO words VALUES ('one fact');
        CREATE TABLE counted(id INTEGER PRIMARY KEY AUTOINCREMENT); ANALYZE;
        """,
    )
    assert case.snapshot().returncode == 0
    held = case.claim()["before"]
    assert held["rows"]['a "quoted" name\nin two lines'] == 1
    assert (held["rows"]["pairs"], held["rows"]["made"], held["rows"]["words_content"]) == (2, 1, 1)
    # What a full-text index is kept in holds nothing of its own, and SQLite merges it when it likes.
    assert held["uncounted"] == ["words", *(f"words_{own}" for own in ("config", "data", "docsize", "idx"))]
    assert not [name for name in held["rows"] if name.startswith("sqlite_")]
    sealed = case.seal()
    assert sealed.returncode == 0, sealed.stderr


def test_a_list_of_tables_too_long_for_the_sealing_half_is_refused(case, here, monkeypatch):
    case.fill(3)
    monkeypatch.setattr(claims, "LIMIT", 100)
    code, output = here()
    assert (code, "more tables than a backup can list" in output) == (1, True)
    assert left(case) == []


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (999, "999 B"), (28_672, "28.7 kB"), (1_200_000, "1.2 MB"), (5e12, "5000.0 GB")]
)
def test_sizes_are_written_for_readers(size, words):
    assert census.amount(size) == words
