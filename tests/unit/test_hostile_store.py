"""Every job and every command that opens the store, against every database of tests/hostile.py.

Whatever it is, the job ends in its time, writes nowhere else, tells no fact, and does not say that all is well when
it did nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import store

import hostile
import job
from faulting import asking, erasing, strikes, templates, work, world
from faulting.strikes import Command, Ran

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 20.0
"""Seconds that a job may take here, where its own times are cut to ``TIMES``."""

TIMES = {
    "reading.py": ("DEADLINE: Final = 900.0", "DEADLINE: Final = 2.0"),
    "census.py": ("DEADLINE: Final = 1800.0", "DEADLINE: Final = 3.0"),
    "prune.py": ("BATCH_SECONDS: Final = 60", "BATCH_SECONDS: Final = 2"),
    "desk.py": ("SECONDS: Final = 300.0", "SECONDS: Final = 2.0"),
    "scan.py": ("SECONDS: Final = 3000.0", "SECONDS: Final = 2.0"),
    "search.py": ("SECONDS: Final = 3000.0", "SECONDS: Final = 2.0"),
}


class Asking(work.Job):
    """What only reads: some request to the desk."""

    def __init__(self, op: str, **arguments: object) -> None:
        self.name, self.request = f"desk: {op}", json.dumps({"op": op, "arguments": arguments})

    def command(self, place: world.World) -> Command:
        options = ("--store", place.store, "--state", place.state, "--sql", place.sql)
        return Command("desk.py", tuple(map(str, options)), stdin=self.request.encode())


class Scan(work.Job):
    name = "scan"

    def command(self, place: world.World) -> Command:
        return Command("scan.py", ("--store", str(place.store), "memory.db", "--state", str(place.state)))


class Compare(work.Job):
    name = "comparison"

    def command(self, place: world.World) -> Command:
        return Command("comparison.py", ("write", str(place.store)))


class Backup(work.Job):
    """A copy is taken, sealed, tried and fetched, as far as it comes."""

    name, on = "backup", "sets"

    def run(self, place: world.World, run: work.Run) -> Ran:
        before, ran = place.sets_there(), Ran(0, b"", "")
        for each in (work.Snapshot(), work.Seal(), work.Drill(), work.Extract()):
            ran = each.run(place, run)
            if each.name == "seal" and ran.code == 0:
                assert place.sets_there() != before, "it says that all is well, and there is no new set"
            if ran.code:
                break
        return ran


def jobs() -> dict[str, work.Job]:
    found = [job for name, job in asking.jobs().items() if name in ("prune", "digest", "review")]
    found += [job for job in asking.jobs().values() if isinstance(job, asking.Desk | erasing.Erase)]
    found += [Asking("recall", query="word", subject=None, limit=5, max_chars=None), Asking("show", id="live_000")]
    found += [Asking("list", which=which, subject=None, source_class=None, limit=20) for which in ("live", "doubtful")]
    found += [Asking("queue", older_than=90, limit=20, unused=False), Asking("digest", since="2020-01-01 00:00:00")]
    found += [Asking("going", ids=["live_000"], only=False, subject=None, user=None), Scan(), Compare(), Backup()]
    return {f"{number}. {job.name}": job for number, job in enumerate(found)}


FACT = "iif(id = 'live_000', 'long', fact)"
"""That one is made longer than this process may read, where a test of the drill went before."""


def look(path: Path) -> world.State:
    """As world.look, of a database that may be anything; what cannot be read is empty."""
    place, facts, problems = Path(path), {}, ["cannot be read"]
    with (
        contextlib.suppress(sqlite3.Error, OSError),
        tempfile.TemporaryDirectory(prefix="hostile-look-") as name,
    ):
        for end in ("", "-wal"):
            if Path(f"{place}{end}").is_file():
                Path(name, f"{place.name}{end}").write_bytes(Path(f"{place}{end}").read_bytes())
        with contextlib.closing(sqlite3.connect(Path(name, place.name))) as connection:
            end_of = time.monotonic() + 5
            connection.set_progress_handler(lambda: time.monotonic() > end_of, 10_000)
            connection.text_factory = lambda data: data.decode(errors="backslashreplace")
            connection.row_factory = sqlite3.Row
            for row in connection.execute(
                f"SELECT id, subject, {FACT} AS fact, source, created_at, confirmed_at, expires_at,"
                " superseded_by FROM memory"
            ):
                facts[str(row["id"])] = dict(row)
            problems = []
    now = world.day(0)
    live = (
        name
        for name, fact in facts.items()
        if fact["superseded_by"] is None and not (isinstance(fact["expires_at"], str) and fact["expires_at"] <= now)
    )
    return world.State(facts, frozenset(live), tuple(problems))


def tree(top: Path) -> list[object]:
    """All that is below a directory, to the byte."""
    return [
        (path.name, path.lstat().st_mode, path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(top.rglob("*"))
    ]


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="faults-shared-") as name:
        templates.make(Path(name), struck=False)
        for file, (right, short) in TIMES.items():
            script = Path(name, "lib", file)
            text = script.read_text()
            assert text.count(right) == 1
            script.write_text(text.replace(right, short))
        yield Path(name)


def pairs() -> list[tuple[str, str]]:
    """Each attack on some of the jobs, in turn; with MEMOPS_LONG on all."""
    step = 1 if os.environ.get("MEMOPS_LONG") else 5
    names = list(jobs())
    return [(each, name) for row, each in enumerate(hostile.ATTACKS) for name in names[row % step :: step]]


GREEN = ("it says that all is well", "it was acknowledged, and is not done")


@pytest.mark.parametrize(("attack", "name"), pairs())
def test_no_database_makes_a_job_do_anything_else(
    attack: str, name: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs()[name]
    with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
        top = Path(directory, "world")
        top.mkdir()
        Path(directory).chmod(0o755)
        world.copy(shared / "template0", top)
        place = world.World(top, shared)
        monkeypatch.setattr(world, "look", look)
        monkeypatch.setattr(strikes, "PATIENCE", PATIENCE)
        whole = look(place.store)
        assert len(whole.facts) > 100
        outside = hostile.canary(top)
        hostile.attack(attack, place.store)
        world.give(place.srv)
        job.prepare(place)
        before, known = look(place.store), tree(outside)
        ran = job.run(place, lambda _, command: strikes.start(place, command))
        after = look(place.store)

        assert ran.code != strikes.HUNG, "it hangs"
        assert "Traceback" not in ran.err, ran.err
        said = ran.err if ran.out.startswith(b"{") or name.endswith("comparison") else ran.err + ran.out.decode()
        assert hostile.MARK not in said, said
        assert tree(outside) == known, "it wrote outside"
        problems = [] if after.problems else job.judge(place, before, after, ran)
        assert [each for each in problems if any(word in each for word in GREEN)] == []
        if job.name in ("prune", "digest", "review", "backup"):
            assert ran.code or before.facts, "it did nothing, and ended well"
        if job.name == "scan":
            found = json.loads(ran.out)
            assert found["rows"] or found["unread"], "it looked at nothing, and does not say so"


STATEMENTS = {
    "a function that loads code, though a full-text index keeps the schema trusted": (
        "DELETE FROM memory",
        "not authorized",
    ),
    "the schema's own table": ("PRAGMA writable_schema = ON", "not authorized"),
    "another file": ("ATTACH '/tmp/other.db' AS other", "too many attached"),
    "a value beyond all measure": ("SELECT zeroblob(70000000)", "too big"),
    "triggers that call each other": ("INSERT INTO loop VALUES (1)", "too many levels"),
}


@pytest.mark.parametrize("what", STATEMENTS)
def test_each_protection_stops_what_it_is_for(what: str, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE memory (id TEXT); INSERT INTO memory VALUES ('a');"
            "CREATE VIRTUAL TABLE words USING fts5(a);"
            "CREATE TRIGGER evil BEFORE DELETE ON memory BEGIN SELECT load_extension('/tmp/evil.so'); END;"
            "CREATE TABLE loop (a);"
            "CREATE TRIGGER one AFTER INSERT ON loop BEGIN UPDATE loop SET a = a + 1; END;"
            "CREATE TRIGGER two AFTER UPDATE ON loop BEGIN DELETE FROM loop; INSERT INTO loop VALUES (2); END;"
        )
    statement, words = STATEMENTS[what]
    with contextlib.closing(store.connect(str(path))) as connection:
        connection.execute("PRAGMA recursive_triggers = ON")
        with pytest.raises(sqlite3.Error, match=words):
            connection.execute(statement).fetchall()


@pytest.mark.parametrize("name", ["eval", "edit", "readfile"])
def test_a_table_of_the_agents_may_have_any_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"CREATE TABLE {name} (a); INSERT INTO {name} VALUES (1);")
    with contextlib.closing(store.connect(str(path))) as connection:
        connection.execute(f"UPDATE {name} SET a = a + 1")
        assert connection.execute(f"SELECT a FROM {name}").fetchall() == [(2,)]
        store.let_vacuum(connection)
        connection.execute("VACUUM")


def test_a_statement_has_its_time(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.touch()
    with (
        contextlib.closing(store.connect(str(path), seconds=0.2)) as connection,
        pytest.raises(sqlite3.OperationalError, match="interrupted"),
    ):
        connection.execute(hostile.ENDLESS)


def test_what_sqlite_says_has_no_fact_in_it() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for statement in (
            "SELECT json_extract('{}', 'a secret')",
            "SELECT json('a secret')",
            "SELECT 'x' LIKE 'y' ESCAPE 'a secret'",
        ):
            with pytest.raises(sqlite3.Error) as raised:
                connection.execute(statement).fetchall()
            assert job.said(raised.value) == "SQLITE_ERROR"
        with pytest.raises(sqlite3.Error) as raised:
            connection.execute("SELECT * FROM nowhere")
        assert job.said(raised.value) == "no such table: nowhere"
