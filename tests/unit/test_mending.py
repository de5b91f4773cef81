"""The safe mends of doctor on real files and stores: what they do, and what they refuse."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import shape
from memops import doctor, facts, findings, mending, owner, safety, settings, store
from memops.errors import MemopsError, NotProven, Refused, UsageError
from memops.found import Found, Part
from memops.settings import Store
from unit.fact_store import Case
from unit.test_findings import CARE, MACHINE, PART

if TYPE_CHECKING:
    from pathlib import Path

USER = 64321
"""An agent's user, who owns nothing else."""

AS_USER = """
import os, sqlite3, sys
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
connection = sqlite3.connect(sys.argv[1], timeout=0)
connection.execute("PRAGMA journal_mode = wal")
connection.execute(sys.argv[2])
connection.commit()
print("open", flush=True)
if len(sys.argv) > 3:
    sys.stdin.read()
"""


def sql(path: Path, statement: str, uid: int = USER) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", AS_USER.format(uid=uid), path, statement], capture_output=True, text=True
    )


@contextlib.contextmanager
def holding(path: Path, statement: str, uid: int):
    command = [sys.executable, "-c", AS_USER.format(uid=uid), path, statement, "wait"]
    # SQLite gives what it makes to the database's owner, where it may.
    command = ["setpriv", "--inh-caps=-chown", "--bounding-set=-chown", *command]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.send_signal(signal.SIGKILL)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A WAL store of the user's in a directory that everybody may pass, readable by all."""
    for place in (tmp_path, *tmp_path.parents):
        if str(place) != "/":
            place.chmod(place.stat().st_mode | 0o711)
    home = tmp_path / "store"
    home.mkdir(mode=0o755)
    os.chown(home, USER, USER)
    ran = sql(home / "memory.db", "CREATE TABLE memory (id TEXT)")
    assert ran.returncode == 0, ran.stderr
    (home / "memory.db").chmod(0o644)
    return home / "memory.db"


def part_of(path: Path) -> Part:
    """The part as discovery would have it."""
    found = path.lstat()
    sidecars = {}
    for end in mending.BESIDE:
        with contextlib.suppress(FileNotFoundError):
            beside = path.with_name(path.name + end).lstat()
            sidecars[end] = (beside.st_uid, beside.st_size, beside.st_mtime)
    return replace(PART, path=str(path), seen=str(path), uid=found.st_uid, owner="", mode=stat.S_IMODE(found.st_mode),
                   sidecars=sidecars)  # fmt: skip


def seen(*parts: Part, care: str = "") -> doctor.Seen:
    found = Found("sqlite", parts[0].path, "named", ())
    found = replace(found, care=care, parts=tuple(doctor._reached(found, part) for part in parts))
    under = {care: replace(CARE, db=parts[0].path)} if care else {}
    return doctor.Seen((found,), MACHINE, under, tuple(findings.findings([found], MACHINE, under)))


def mend(at: doctor.Seen, code: str) -> mending.Mend:
    (one,) = mending.plan(at, code)
    return one


def carry_out(one: mending.Mend) -> list[str]:
    said: list[str] = []
    mending.carry_out(one, said.append, None, no_backup=True)
    return said


def test_what_is_not_known_not_safe_or_not_there() -> None:
    at = seen(replace(PART, links=2))
    with pytest.raises(UsageError):
        mending.plan(at, "bogus")
    with pytest.raises(Refused) as refused:
        mending.plan(at, "hard-links")
    assert "find / -xdev" in refused.value.hint
    assert mending.plan(at, "wal-off") == []


# Modes


def test_modes_are_taken_from_others_only(db: Path) -> None:
    with holding(db, "INSERT INTO memory VALUES ('a')", USER):
        pass  # killed, so its -wal stays
    wal = db.with_name("memory.db-wal")
    wal.chmod(0o664)
    one = mend(seen(part_of(db)), "readable-by-others")
    assert one.lines == (f"chmod 0640 {db} (is 0644)", f"chmod 0660 {wal} (is 0664)", *one.lines[2:])
    (said,) = carry_out(one)
    assert f"sudo chmod 0644 {db}" in said
    assert [stat.S_IMODE(path.stat().st_mode) for path in (db, wal, db.parent)] == [0o640, 0o660, 0o755]
    assert mending.plan(seen(part_of(db)), "readable-by-others") == []
    assert sql(db, "INSERT INTO memory VALUES ('b')").returncode == 0


def test_a_directory_is_closed_at_its_top(db: Path) -> None:
    qdrant = db.parent
    at = seen(replace(part_of(qdrant), kind="qdrant", what="vectors"))
    carry_out(mend(at, "readable-by-others"))
    assert stat.S_IMODE(qdrant.stat().st_mode) == 0o750
    assert stat.S_IMODE(db.stat().st_mode) == 0o644


def test_links_and_hard_links_are_refused(db: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("x")
    canary.chmod(0o644)
    part = part_of(db)
    for make in (os.symlink, os.link):
        db.unlink()
        make(canary, db)
        with pytest.raises(Refused):
            mend(seen(replace(part, uid=canary.stat().st_uid)), "readable-by-others")
    db.parent.rename(tmp_path / "real")
    db.parent.symlink_to(tmp_path / "real")
    with pytest.raises(Refused):
        mend(seen(part), "readable-by-others")
    assert stat.S_IMODE(canary.stat().st_mode) == 0o644


SWAP = """
import os, sys, time
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
path, canary, own = sys.argv[1:]
print("on", flush=True)
count = 0
while True:
    try:
        os.symlink(canary, path + ".x"); os.rename(path + ".x", path)
        os.link(own, path + ".y"); os.rename(path + ".y", path)
        with open(path + ".z", "w") as file: file.write("mine")
        os.rename(path + ".z", path)
    except FileExistsError:
        pass
    count += 3
"""


def test_swapping_files_leads_root_nowhere(db: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("secret")
    canary.chmod(0o604)
    own = db.with_name("own")
    own.write_text("own")
    os.chown(own, USER, USER)
    own.chmod(0o600)
    part = part_of(db)
    one = mend(seen(part), "readable-by-others")
    sidecar = db.with_name("memory.db-journal")
    sidecar.write_bytes(b"")
    done = refused = 0
    swaps = [subprocess.Popen([sys.executable, "-c", SWAP.format(uid=USER), path, canary, own], stdout=subprocess.PIPE)
             for path in (db, sidecar)]  # fmt: skip
    try:
        for swap in swaps:
            assert swap.stdout is not None
            assert swap.stdout.readline() == b"on\n"
        end = time.monotonic() + 2
        while time.monotonic() < end:
            try:
                one.act()
                with mending.host.reached(str(sidecar)) as descriptor:
                    mending._require_sidecar(str(sidecar), descriptor)
                done += 1
            except (Refused, OSError):
                refused += 1
    finally:
        for swap in swaps:
            swap.kill()
            swap.communicate()
    assert refused > 100, (done, refused)
    found = canary.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, canary.read_text()) == (0o604, 0, "secret")


# Sidecars


@pytest.fixture
def locked_out(db: Path) -> Path:
    """The store after root opened it and was killed: the owner cannot write any more."""
    with holding(db, "INSERT INTO memory VALUES ('roots')", 0):
        pass
    ran = sql(db, "INSERT INTO memory VALUES ('own')")
    assert "readonly" in ran.stderr or "unable to open" in ran.stderr
    return db


def test_sidecars_are_given_back_and_the_owner_writes_again(locked_out: Path) -> None:
    at = seen(part_of(locked_out))
    assert at.findings[1].code == "foreign-sidecar"  # it is in /tmp
    one = mend(at, "foreign-sidecar")
    assert any(f"{locked_out}-wal (is of user 0)" in line for line in one.lines)
    (said,) = carry_out(one)
    assert f"sudo chown 0:0 {locked_out}-wal" in said
    assert "foreign-sidecar" not in {each.code for each in seen(part_of(locked_out)).findings}
    ran = sql(locked_out, "INSERT INTO memory VALUES ('own')")
    assert ran.returncode == 0, ran.stderr
    connection = sqlite3.connect(locked_out)
    assert connection.execute("SELECT id FROM memory").fetchall() == [("roots",), ("own",)]
    connection.close()


def test_they_stay_where_somebody_has_the_store_open(locked_out: Path) -> None:
    one = mend(seen(part_of(locked_out)), "foreign-sidecar")
    with holding(locked_out, "INSERT INTO memory VALUES ('x')", 0):
        with pytest.raises(Refused, match="in use"):
            one.act()
        with pytest.raises(Refused, match="in use"):
            mend(seen(part_of(locked_out)), "foreign-sidecar")
    assert locked_out.with_name("memory.db-wal").stat().st_uid == 0


@pytest.mark.parametrize("end", mending.BESIDE)
def test_what_sqlite_did_not_make_is_given_to_nobody(db: Path, tmp_path: Path, end: str) -> None:
    secret = db.with_name(f"memory.db{end}")
    secret.write_text("a secret of root's, moved here by the agent, who owns the directory")
    with pytest.raises(Refused, match="no file that SQLite made"):
        mend(seen(part_of(db)), "foreign-sidecar")
    secret.unlink()
    (tmp_path / "other").write_bytes(b"")
    os.link(tmp_path / "other", secret)
    with pytest.raises(Refused, match="no file that SQLite made"):
        mend(seen(part_of(db)), "foreign-sidecar")
    assert secret.stat().st_uid == 0


# Through the owner


@pytest.fixture
def under_care(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A real store under care, whose owner's half runs here instead of in a unit."""
    case = Case(tmp_path)
    own = Store(db=case.path, user="root")
    monkeypatch.setattr(settings, "load", lambda: {"default": own})
    monkeypatch.setattr(owner, "call", lambda _, function, *words: getattr(shape, function)(case.path, *words))
    monkeypatch.setattr(facts, "ask", lambda _, op, **arguments: case.ask(op, **arguments))
    return case


def rows(path: str) -> set[str]:
    connection = sqlite3.connect(path)
    found = {row[0] for row in connection.execute("SELECT id FROM memory")}
    connection.close()
    return found


def test_what_leads_into_nothing_goes_with_what_it_replaced(under_care) -> None:
    case = under_care
    kept = case.remember("kept")
    connection = sqlite3.connect(case.path)  # foreign keys are off, as with many an agent
    connection.executemany(
        "INSERT INTO memory (id, subject, fact, source, superseded_by) VALUES (?, 's', 'f', 'chat', ?)",
        [("new", None), ("old", "new"), ("older", "old"), ("live", None), ("behind", "live")],
    )
    connection.execute("DELETE FROM memory WHERE id = 'new'")
    connection.commit()
    connection.close()
    database = replace(PART.database, facts={"chains_into_nothing": 1})
    at = seen(replace(PART, path=case.path, seen=case.path, database=database), care="default")
    one = mend(at, "chain-into-nothing")
    assert one.set_first == "must"
    assert rows(case.path) == {kept, "old", "older", "live", "behind"}
    assert carry_out(one) == ["Deleted: 2."]
    assert rows(case.path) == {kept, "live", "behind"}
    assert shape.pointing_nowhere(case.path) == []
    with pytest.raises(Refused):
        mend(at, "chain-into-nothing")


def test_wal_is_switched_on_or_said_not_to_be(under_care, monkeypatch: pytest.MonkeyPatch) -> None:
    case = under_care
    assert shape.set_journal_mode(case.path, "delete") == "delete"
    at = seen(
        replace(PART, path=case.path, seen=case.path, database=replace(PART.database, journal_mode="delete")),
        care="default",
    )
    one = mend(at, "wal-off")
    monkeypatch.setattr(shape, "connect", functools.partial(store.connect, timeout=0.1))
    reader = sqlite3.connect(case.path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memory").fetchone()
    with pytest.raises(MemopsError, match="stays in journal mode delete"):
        carry_out(one)
    reader.close()
    carry_out(one)
    assert shape.describe(case.path)["journal_mode"] == "wal"


# Around all of them


def test_without_a_set_rows_are_left_alone_and_files_are_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def no_set(*_: object) -> str:
        raise Refused("No set could be taken first.")

    monkeypatch.setattr(safety, "first", no_set)
    finding = seen(replace(PART, exposed=True)).findings[0]
    for first, ends in (("must", []), ("try", ["did"]), ("", ["did"])):
        done.clear()
        one = mending.Mend(finding, (), lambda: done.append("did") or "", Store(), first)
        with contextlib.suppress(Refused) if first == "must" else contextlib.nullcontext():
            mending.carry_out(one, lambda _: None, None, no_backup=False)
        assert done == ends, first


def test_mended_is_said_only_of_what_is_gone(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = mend(seen(part_of(db)), "readable-by-others")
    monkeypatch.setattr(doctor, "look", lambda _: seen(part_of(db)))
    with pytest.raises(NotProven) as still:
        mending.require_mended(one, [str(db)])
    assert still.value.exit_code == 7
    carry_out(one)
    mending.require_mended(one, [str(db)])
    monkeypatch.setattr(doctor, "look", lambda _: seen(replace(part_of(db), unread="it went")))
    with pytest.raises(NotProven):
        mending.require_mended(one, [str(db)])
