"""A store with all that belongs to it in one directory, as a fault meets it; and what must be true of it afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from memops import assets, render
from memops.settings import Store

PYTHON: Final = "/usr/bin/python3"  # what the units run
AGENT: Final = 65533 if os.geteuid() == 0 else os.geteuid()
"""The store's user: nobody's number, where it can be chosen."""

ENDS: Final = ("", "-wal", "-shm", "-journal")
LEFTOVERS: Final = (".new", ".partial-", ".drill-", ".restore-", ".fetched-", "progress.json", "db-journal")
"""What no job leaves behind, by a piece of its name."""

Fact = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """What kind of store it is; ``unflushed``: a killed writer's -wal has facts that the database has not."""

    mode: str = "wal"
    unflushed: bool = True
    full_text: bool = False


VARIANTS: Final = (
    Variant(),
    Variant(),
    Variant(unflushed=False),
    Variant(full_text=True),
    Variant("delete", unflushed=False),
)
"""Which a run may get; the usual one twice."""


class World:
    """The directories of one run. They are those of a server, but for the names."""

    def __init__(self, top: Path, shared: Path) -> None:
        self.top, self.lib, self.sql = top, shared / "lib", shared / "sql"
        self.srv, self.state, self.incoming = top / "srv", top / "state", top / "incoming"
        self.sets, self.record, self.out = top / "sets", top / "record", top / "out"
        self.store, self.notes = self.srv / "memory.db", self.srv / "notes"
        self.sets_record = self.record / "default.sets.json"

    def sets_there(self) -> list[str]:
        """The names of what looks like a set, oldest first."""
        return sorted(path.name for path in self.sets.iterdir() if path.name[:1].isdigit() and path.is_dir())

    def leftovers(self) -> list[str]:
        """What lies where no finished job leaves anything."""
        found = [path for place in self.places() for path in place.rglob("*")]
        return sorted(
            str(path.relative_to(self.top))
            for path in found
            if any(each in path.name for each in LEFTOVERS) and "/before-restore-" not in str(path)
        )

    def places(self) -> tuple[Path, ...]:
        """The directories in which jobs write."""
        return (self.srv, self.state, self.incoming, self.sets, self.record, self.out)


def make_shared(shared: Path) -> None:
    """What all worlds of one run of this program read: the jobs and the SQL, as on a server."""
    shared.chmod(0o755)
    for name, text in assets.jobs().items():
        file = shared / "lib" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (shared / "sql").mkdir()
    for name in render.STORE_SQL:
        (shared / "sql" / f"{name}.sql").write_text(render.sql(name, Store()), encoding="utf-8")
    for path in (shared, *shared.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def make_directories(world: World) -> None:
    """Empty ones, with the owners and modes that they have on a server."""
    world.top.chmod(0o755)
    root = os.geteuid() == 0
    for directory, mode, owner, group in (
        (world.srv, 0o700, AGENT, AGENT),
        (world.notes, 0o700, AGENT, AGENT),
        (world.state, 0o750, AGENT, AGENT),
        (world.incoming, 0o2770, AGENT, 0),
        (world.sets, 0o700, 0, 0),
        (world.record, 0o755, 0, 0),
        (world.out, 0o700, 0, 0),
    ):
        directory.mkdir()
        if root:
            os.chown(directory, owner, group)
        directory.chmod(mode)


def day(days: float) -> str:
    """The date so many days from now, as a store has it."""
    return (datetime.now(UTC) + timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S")


INSERT: Final = (
    "INSERT INTO memory (id, subject, fact, source, created_at, confirmed_at, expires_at, superseded_by, superseded_at)"
    " VALUES (?, ?, ?, 'chat 2026-08-08', ?, ?, ?, ?, ?)"
)


def row(
    name: str, *, subject: str = "s", at: float = -300, ends: object = None, by: str | None = None, since: float = 0
) -> tuple[Any, ...]:
    """A fact: made ``at`` so many days from now, replaced ``by`` another one ``since`` so many."""
    fact = f"{name} says: " + " ".join(f"word{n} of {name}" for n in range(8))
    return (name, subject, fact, day(at), day(at), ends, by, day(since) if by else None)


def old_facts() -> list[tuple[Any, ...]]:
    """What the sets have: live facts, some of which end one day, and those that the commands work on."""
    found = [row(f"live_{n:03}", ends=day(700 + n) if n % 3 == 0 else None) for n in range(50)]
    for end in ("", "2"):
        found += [row(f"live_{what}{end}") for what in ("confirm", "replace", "a1", "a2", "a3", "forget")]
        found += [row(f"kept_forget{end}_{n}", at=-9, by=f"live_forget{end}", since=-5) for n in range(3)]
        found += [row(f"live_all{end}_{n}", subject=f"all{end}") for n in range(12)]
    return found


def new_facts() -> list[tuple[Any, ...]]:
    """What came after the sets: facts that are dead by now, history, doubtful ones, and today's."""
    found = [row(f"dead_{n:03}", ends=day(-40 + n)) for n in range(30)]
    for n in range(8):
        found.append(row(f"live_head_{n}"))
        found += [
            row(f"dead_{n}_{k}", by=f"live_head_{n}" if k == 0 else f"dead_{n}_{k - 1}", since=-200) for k in range(4)
        ]
    found += [row(f"kept_{n}", at=-9, by=f"live_head_{n}", since=-3) for n in range(8)]
    found += [row(f"live_odd_{n}", ends="9999-99-99 00:00:00") for n in range(3)]
    return found + [row(f"live_new_{n}", at=0) for n in range(8)]


def last_facts() -> list[tuple[Any, ...]]:
    """What was written in the last moment before the agent was killed."""
    return [row(f"live_last_{n}", at=0) for n in range(4)] + [row(f"dead_last_{n}", ends=day(-1)) for n in range(3)]


def fill(path: Path, variant: Variant, facts: list[tuple[Any, ...]], last: list[tuple[Any, ...]]) -> None:
    """Add facts to the store at ``path``, which is made where there is none; ``last`` stay in its -wal if they may."""
    new = not path.exists()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if new:
            connection.execute(f"PRAGMA journal_mode = {variant.mode}")
            connection.executescript(render.sql("schema", Store(full_text=variant.full_text)))
        connection.execute("BEGIN")
        connection.executemany(INSERT, facts)
        connection.execute("COMMIT")
        kept: dict[str, bytes] = {}
        if last and variant.unflushed:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if last:
            connection.execute("BEGIN")
            connection.executemany(INSERT, last)
            connection.execute("COMMIT")
        if last and variant.unflushed:
            kept = {end: Path(f"{path}{end}").read_bytes() for end in ("", "-wal", "-shm")}
    for end, content in kept.items():
        Path(f"{path}{end}").write_bytes(content)


def give(directory: Path) -> None:
    """All in there to the agent."""
    if os.geteuid() == 0:
        for path in directory.iterdir():
            os.chown(path, AGENT, AGENT)


@dataclass(frozen=True)
class State:
    """What a database holds, and what is wrong with it."""

    facts: dict[str, Fact]
    live: frozenset[str]
    problems: tuple[str, ...]


def look(path: Path) -> State:
    """Look at a store by way of a copy, so that nothing of it changes: not even what a killed writer left."""
    with tempfile.TemporaryDirectory(prefix="faults-look-") as name:
        for end in ("", "-wal", "-journal"):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                shutil.copyfile(f"{path}{end}", f"{name}/{path.name}{end}")
        try:
            with contextlib.closing(sqlite3.connect(f"{name}/{path.name}", isolation_level=None)) as connection:
                return _look(connection)
        except sqlite3.Error as error:
            return State({}, frozenset(), (f"{path.name} cannot be read: {error}",))


def _look(connection: sqlite3.Connection) -> State:
    connection.row_factory = sqlite3.Row
    problems = [
        f"integrity_check: {line[0]}" for line in connection.execute("PRAGMA integrity_check") if line[0] != "ok"
    ]
    problems += [f"foreign_key_check: {tuple(line)}" for line in connection.execute("PRAGMA foreign_key_check")]
    facts = {str(line["id"]): dict(line) for line in connection.execute("SELECT * FROM memory")}
    now = day(0)
    live = (
        name
        for name, fact in facts.items()
        if fact["superseded_by"] is None and (fact["expires_at"] is None or fact["expires_at"] > now)
    )
    # An index that lost a row would hide it, whatever the table has.
    seen = {str(line[0]) for line in connection.execute("SELECT id FROM live_memory")}
    alive = frozenset(live)
    if seen != alive:
        problems.append(f"live_memory shows {len(seen)} facts of {len(alive)}")
    return State(facts, alive, tuple(problems))


SAID: Final = ("subject", "fact", "source", "created_at")


def compare(
    before: State, after: State, may_go: frozenset[str] | set[str], may_come: frozenset[str] | set[str]
) -> list[str]:
    """What must not be: a live fact missing that may not go, one back from the dead, one that says something else."""
    problems = list(after.problems)
    if lost := sorted(before.live - after.live - may_go):
        problems.append(f"{len(lost)} live facts are missing: {', '.join(lost[:3])}")
    if back := sorted(after.live - before.live - may_come):
        problems.append(f"{len(back)} facts live that did not: {', '.join(back[:3])}")
    if came := sorted(after.facts.keys() - before.facts.keys() - may_come):
        problems.append(f"{len(came)} facts came from nowhere: {', '.join(came[:3])}")
    if gone := sorted(before.facts.keys() - after.facts.keys() - may_go):
        problems.append(f"{len(gone)} rows are gone: {', '.join(gone[:3])}")
    both = sorted(before.facts.keys() & after.facts.keys())
    changed = [n for n in both if any(before.facts[n][what] != after.facts[n][what] for what in SAID)]
    return problems + [f"{name} says something else" for name in changed]


def unreadable(world: World) -> list[str]:
    """Records that a reader could not make sense of."""
    problems = []
    for path in [*world.state.glob("*.jsonl"), *world.state.glob("*.json"), world.sets_record]:
        if not path.exists():
            continue
        text = path.read_bytes().decode(errors="replace")
        try:
            for line in text.splitlines() if path.suffix == ".jsonl" else [text]:
                if not isinstance(json.loads(line), dict):
                    raise ValueError("no object")
        except ValueError as error:
            problems.append(f"{path.name} cannot be read: {error}")
    return problems


def copy(template: Path, top: Path) -> None:
    """A world like that in ``template``, with owners and modes."""
    subprocess.run(["cp", "-a", "--", f"{template}/.", str(top)], check=True)
