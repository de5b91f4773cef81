"""The sealing half does not believe what the agent's user can lay into the incoming directory."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import pytest

import backup_case
from backup_case import AGENT, Case


@pytest.fixture
def case(lib):
    """A store with one sealed set, and a second snapshot waiting."""
    with backup_case.case(lib) as made:
        made.fill(500)
        assert (made.snapshot().returncode, made.seal().returncode, made.snapshot().returncode) == (0, 0, 0)
        yield made


def refused(case: Case, *options: object) -> str:
    """Seal, which must fail and change nothing but the record's word on this run; return what it says."""
    before, newest = case.digest(), case.saved()["newest"]
    done = case.seal(*options)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert case.digest() == before
    assert len(case.whole_sets()) == 1
    saved = case.saved()
    assert (saved["newest"], saved["seal"]["result"], saved["seal"]["exit"]) == (newest, "failed", 1)
    return saved["seal"]["message"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["before"]["rows"].update(memory=501), "500 rows in memory, where the store had 501"),
        (lambda c: c["before"]["rows"].update({"x\n<3>y": 1}), r"0 rows in x\n<3>y, where the store had 1"),
        (lambda c: c["before"].update(user_version=8), "user_version 7, where the store had 8"),
        (lambda c: c["before"].update(schema_sha256="0" * 64), "another schema"),
        (lambda c: c.update(foreign_key_violations=3), "0 foreign-key violations, where the store had 3"),
        (lambda c: c.update(size=c["size"] - 4096), "bytes, and memory.json says"),
        (lambda c: c.update(size=-1), "bytes, and memory.json says -1"),
        (lambda c: c.update(size=10**30), "size is too large"),
        (lambda c: c.update(size=True), "size is not of type int"),
        (lambda c: c.update(exact=1), "exact is not of type bool"),
        (lambda c: c.update(version=2), "of a version that this memops does not know"),
        (lambda c: c.update(before=[]), "before is not of type dict"),
        (lambda c: c["before"]["rows"].update(memory="500"), "memory is not of type int"),
        (lambda c: c["before"]["rows"].update(memory=500.0), "memory is not of type int"),
        (lambda c: c.pop("after"), "after is not of type dict"),
        (lambda c: c.update(taken_at="\x1b[31m"), "memory.json cannot be read"),
        (lambda c: c.update(taken_at="2026-02-31T00:00:00Z"), "memory.json cannot be read"),
        (lambda c: c.update(taken_at=5), "taken_at is not of type str"),
    ],
)
def test_a_claim_that_lies_is_refused(case, change, words):
    claim = case.claim()
    change(claim)
    case.write_claim(claim)
    assert words in refused(case)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"null", id="null"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b"[" * 500_000, id="too deep"),
        pytest.param(b'{"version": ' + b"9" * 100_000 + b"}", id="too many digits"),
        pytest.param(b" " * ((1 << 20) + 1), id="too large"),
        pytest.param(b'{"version": NaN}', id="not a number"),
    ],
)
def test_a_claim_of_another_form_is_refused(case, text):
    case.write_claim(text)
    assert "memory.json" in refused(case)


def make_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def make_second_name(path: Path) -> None:
    path.with_name("other").write_bytes(b"x")
    path.hardlink_to(path.with_name("other"))


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


@pytest.mark.parametrize("name", ["memory.db", "memory.json"])
@pytest.mark.parametrize(
    "make", [make_link, make_second_name, make_socket, make_huge, os.mkfifo, os.mkdir, Path.touch, None]
)
def test_what_is_not_a_file_of_its_own_is_refused(case, name, make):
    path = case.incoming / name
    path.unlink()
    if make:
        make(path)
        os.chown(path, AGENT, 0, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(0o660)
    assert name in refused(case)


def test_a_huge_hole_that_the_claim_vouches_for_does_not_fit(case):
    case.write_claim({**case.claim(), "size": 1 << 42})
    os.truncate(case.incoming / "memory.db", 1 << 42)
    assert "no room for the set" in refused(case)


def test_a_hole_that_fits_is_no_database(case):
    case.write_claim({**case.claim(), "size": 1 << 24})
    (case.incoming / "memory.db").write_bytes(b"")
    os.truncate(case.incoming / "memory.db", 1 << 24)
    assert "not a database" in refused(case)


def test_a_file_that_root_may_not_read_is_refused(case):
    (case.incoming / "memory.db").chmod(0o600)
    assert "Permission denied" in refused(case)


def test_half_a_copy_that_answers_ok_is_refused(case):
    case.source.unlink()
    case.fill(150_000)
    assert case.snapshot().returncode == 0
    claim = case.claim()
    (case.incoming / "memory.db").unlink()
    with subprocess.Popen(case.snapshot_command()) as process:
        while not (case.incoming / "memory.db").exists() or (case.incoming / "memory.db").stat().st_size < 1 << 22:
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    assert "memory.json is missing" in refused(case)
    case.write_claim(claim)
    assert "the snapshot is unfinished: there is a memory.db-journal" in refused(case)
    # What a person sees who opens it: SQLite rolls back to an empty database, and it is sound.
    with contextlib.closing(sqlite3.connect(case.incoming / "memory.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
        connection.execute("PRAGMA user_version = 7")
    size = (case.incoming / "memory.db").stat().st_size
    assert "bytes, and memory.json says" in refused(case)
    case.write_claim({**claim, "size": size})
    assert "another schema, with 0 tables where the store had 1" in refused(case)


def test_a_copy_cut_off_is_refused(case):
    content = (case.incoming / "memory.db").read_bytes()[:-4096]
    case.put("memory.db", content)
    assert "bytes, and memory.json says" in refused(case)
    case.write_claim({**case.claim(), "size": len(content)})
    assert "cannot be verified" in refused(case)


def test_a_damaged_page_is_refused(case):
    content = bytearray((case.incoming / "memory.db").read_bytes())
    content[4096 * 3 : 4096 * 3 + 64] = b"\xff" * 64
    case.put("memory.db", bytes(content))
    message = refused(case)
    assert "damaged" in message or "cannot be verified" in message


def test_damage_that_only_the_full_check_sees_is_refused(case):
    path = case.incoming / "memory.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'memory_superseded'").fetchone()
        sql = "CREATE INDEX memory_superseded ON memory(superseded_by)"
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'memory_superseded'")
        connection.execute("PRAGMA writable_schema = RESET")
        connection.execute("UPDATE memory SET superseded_by = id WHERE rowid = 3")  # unseen by the index
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "INSERT INTO sqlite_schema VALUES ('index', 'memory_superseded', 'memory', ?, ?)", (root, sql)
        )
        connection.execute("PRAGMA writable_schema = RESET")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    assert path.stat().st_size == case.claim()["size"]
    assert "damaged (integrity_check: " in refused(case)


def test_a_row_that_breaks_a_check_is_refused(case):
    hostile(case, "CREATE TABLE t(x, CHECK (x > 3)); INSERT INTO t VALUES (1);")
    assert "damaged (integrity_check: CHECK constraint failed in t)" in refused(case)


def test_a_copy_with_the_wal_flag_is_refused(case):
    with contextlib.closing(sqlite3.connect(case.incoming / "memory.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert "not a database as VACUUM INTO writes it" in refused(case)


# A few calls of an SQL function that take minutes; SQLite's progress handler is not asked in there.
SLOW = (
    "CREATE TABLE t(x, CHECK (x"
    + " + instr(zeroblob(1000000), zeroblob(500000) || x'01')" * 30
    + ")); INSERT INTO t VALUES (1);"
)


def hostile(case: Case, schema: str) -> None:
    """Lay a database with ``schema`` into incoming, with a claim that fits it but for the numbers."""
    path = case.incoming / "memory.db"
    path.unlink()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.executescript(schema)
    path.chmod(0o660)
    os.chown(path, AGENT, 0)
    case.write_claim({**case.claim(), "size": path.stat().st_size})


def test_a_database_that_never_ends_is_given_up_on(case):
    hostile(case, SLOW)
    clock = time.monotonic()
    assert "not done after 1 s" in refused(case, "--deadline", 1)
    assert time.monotonic() - clock < 15


def test_a_view_that_poses_as_a_table_is_not_run(case):
    hostile(
        case,
        "CREATE TABLE t(x); PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql ="
        " 'CREATE VIEW t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT i FROM n';",
    )
    assert "malformed" in refused(case)


def test_a_database_that_swells_is_given_up_on(case):
    hostile(case, "CREATE TABLE t(x, CHECK (length(hex(zeroblob(400000000))) > x)); INSERT INTO t VALUES (1);")
    code, peak = backup_case.peak(case.seal_command())
    assert code == 1
    assert peak < 64 * 1024
    assert "too big" in refused(case)


def test_a_schema_of_nonsense_is_refused_in_words(case):
    hostile(
        case,
        "CREATE TABLE t(x); PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES"
        " (NULL, NULL, NULL, 7, x'00'), ('table', x'ff', 'y', 99, char(27) || '[2J'),"
        " ('table', CAST(x'ff' AS TEXT), 'z', 3, 5)",
    )
    message = refused(case)
    assert message.isprintable()


def test_swapping_files_while_sealing_makes_no_false_set(case):
    """Whatever the agent does meanwhile, a set that is sealed is whole and holds what the store held."""
    done = threading.Event()
    genuine = {name: (case.incoming / name).read_bytes() for name in ("memory.db", "memory.json")}
    case.put("aside", genuine["memory.db"])

    def no_follow(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

    def swap() -> None:
        path, turn = case.incoming / "memory.db", 0
        while not done.is_set():
            turn += 1
            with contextlib.suppress(OSError):
                new = case.incoming / "new"
                if turn % 4 == 0:
                    new.symlink_to("/etc/shadow")
                elif turn % 4 == 1:
                    os.mkfifo(new, 0o660)
                elif turn % 4 == 2:
                    new.write_bytes(genuine["memory.db"])
                    new.chmod(0o660)
                else:
                    new.hardlink_to(case.incoming / "aside")
                new.replace(path)
                with open(path, "r+b", opener=no_follow) as file:
                    file.seek(5 * 4096)
                    file.write(b"torn" * 64 if turn % 8 == 2 else genuine["memory.db"][5 * 4096 : 5 * 4096 + 256])

    thread = threading.Thread(target=swap)
    thread.start()
    outcomes = set()
    try:
        for _ in range(25):
            case.put("memory.json", genuine["memory.json"])
            sealed = case.seal()
            assert "Traceback" not in sealed.stderr
            outcomes.add(sealed.returncode)
    finally:
        done.set()
        thread.join()
    assert outcomes <= {0, 1}
    assert 1 in outcomes
    for name in case.whole_sets():
        assert backup_case.rows(case.sets / name / "memory.db") == 500
        with contextlib.closing(sqlite3.connect(f"file:{case.sets / name}/memory.db?mode=ro", uri=True)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_an_open_handle_does_not_reach_into_the_set(case):
    with (case.incoming / "memory.db").open("r+b") as handle:
        assert case.seal().returncode == 0
        before = case.digest()
        handle.write(b"the agent was here")
        handle.flush()
        assert case.digest() == before
    assert len(case.whole_sets()) == 2


def test_a_range_is_recorded_as_such(case):
    claim = case.claim()
    claim["after"] = json.loads(json.dumps(claim["before"]))
    claim["exact"], claim["after"]["rows"]["memory"] = False, 480
    case.write_claim(claim)
    assert case.seal().returncode == 0
    manifest = json.loads((case.sets / case.saved()["newest"]["set"] / "manifest.json").read_text())
    assert (manifest["parts"][0]["exact"], manifest["parts"][0]["rows"]) == (False, {"memory": 500})


def test_signals_are_not_lost_while_sqlite_is_deep_in_one_call(case):
    hostile(
        case,
        SLOW,
    )
    with subprocess.Popen(case.seal_command(), stderr=subprocess.PIPE, text=True) as process:
        while not list(case.sets.glob(".partial-*")):
            assert process.poll() is None
            time.sleep(0.002)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=15)
    assert (process.returncode, "told to stop" in errors) == (1, True)
    assert len(case.whole_sets()) == 1
