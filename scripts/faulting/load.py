"""Eight writers and four readers, while all that memops does to a store is done to it over and over.

No error for anybody; what was acknowledged is there at the end; the -wal stays bounded. Then once more with a read that
does not end: how the -wal grows is in the prune's record, and status tells of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from faulting import asking, strikes, templates, work, world
from faulting.world import AGENT, PYTHON, World
from memops import health

if TYPE_CHECKING:
    from collections.abc import Callable

WRITERS: Final = ("plain",) * 7 + ("memory",)
READERS: Final = ("reader",) * 3 + ("recall",)
BOUND: Final = health.WAL_MOST
"""Bytes that the -wal may have while nobody reads for long."""


@dataclass
class Agent:
    """A process that uses the store, and what it said was acknowledged."""

    name: str
    process: subprocess.Popen[bytes]
    out: Path
    count: int = 0

    def end(self) -> str:
        """Wait for its end; what went wrong."""
        _, err = self.process.communicate()
        last = err.decode(errors="replace").strip().rpartition("\n")[2]
        if self.process.returncode:
            return f"{self.name}: {last}"
        self.count = int(last)
        return ""


@dataclass
class Load:
    """What happened."""

    place: World
    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    wal: int = 0

    def agent(self, role: str, name: str, seconds: float) -> Agent:
        """Start one."""
        out = self.place.top / f"{name}.out"
        user: dict[str, Any] = {"user": AGENT, "group": AGENT, "extra_groups": []} if os.geteuid() == 0 else {}
        script = str(self.place.lib.parent / "agents.py")
        words = [PYTHON, "-I", script, role, name, str(self.place.store), str(seconds)]
        with out.open("wb") as stdout:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                words, stdout=stdout, stderr=subprocess.PIPE, cwd="/", **user
            )
        return Agent(name, process, out)

    def over_and_over(self, name: str, end: float, turn: Callable[[int], list[str]]) -> threading.Thread:
        """Do something until the time is over."""

        def go() -> None:
            number = 0
            while time.monotonic() < end:
                number += 1
                try:
                    self.problems += [f"{name}: {problem}" for problem in turn(number)]
                except Exception as error:
                    self.problems.append(f"{name}: {error!r}")
            self.counts[name] = number

        thread = threading.Thread(target=go)
        thread.start()
        return thread

    def job(self, job: work.Job) -> Callable[[int], list[str]]:
        """A turn that runs a job."""

        def turn(_: int) -> list[str]:
            ran = strikes.start(self.place, job.command(self.place))
            time.sleep(0.1)
            return [f"ended with {ran.code}: {work.said(ran)}"] if ran.code else []

        return turn

    def backup(self, number: int) -> list[str]:
        """A turn that takes a set."""
        return self.job(work.Snapshot())(number) or self.job(work.Seal())(number)

    def extract(self, _: int) -> list[str]:
        """A turn that puts the newest set into a directory, proves it there and removes it."""
        name = self.place.sets_there()[-1]
        target = self.place.out / name
        target.mkdir(mode=0o700)
        arguments = ("extract", str(self.place.sets / name), str(target))
        ran = strikes.start(self.place, strikes.Command("setcopy.py", arguments, agent=False))
        found = [work.said(ran)] if ran.code else work.verify(self.place, self.place.out, [name])
        shutil.rmtree(target)
        return found

    def ask(self, op: str, **arguments: object) -> list[str]:
        """One request to the desk."""
        options = ("--store", self.place.store, "--state", self.place.state, "--sql", self.place.sql)
        request = json.dumps({"op": op, "arguments": arguments}).encode()
        ran = strikes.start(self.place, strikes.Command("desk.py", tuple(map(str, options)), stdin=request))
        return [] if asking.acknowledged(ran) else [work.said(ran)]

    def review(self, number: int) -> list[str]:
        """A turn that asks for the queue, and for one fact."""
        time.sleep(0.1)
        shown = self.ask("show", id="live_000")
        return self.ask("queue", older_than=90, limit=20, unused=False) or shown or self.job(work.Review())(number)

    def count(self, _: int) -> list[str]:
        """A turn that counts as status does."""
        options = ("--store", self.place.store, "--sql", self.place.sql, "--count")
        ran = strikes.start(self.place, strikes.Command("digest.py", tuple(map(str, options))))
        time.sleep(0.1)
        return [f"ended with {ran.code}: {work.said(ran)}"] if ran.code else []

    def look(self, _: int) -> list[str]:
        """A turn that measures the -wal."""
        self.wal = max(self.wal, self.wal_now())
        time.sleep(0.05)
        return []

    def wal_now(self) -> int:
        """Bytes of the -wal."""
        try:
            return Path(f"{self.place.store}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def work(self, seconds: float) -> list[Agent]:
        """All of it at once; returns who wrote."""
        end = time.monotonic() + seconds
        writers = [self.agent(role, f"w{number}", seconds) for number, role in enumerate(WRITERS)]
        readers = [self.agent(role, f"r{number}", seconds) for number, role in enumerate(READERS)]
        turns: dict[str, Callable[[int], list[str]]] = {
            "prune": self.job(work.Prune()),
            "backup": self.backup,
            "restore --to": self.extract,
            "review": self.review,
            "counts": self.count,
            "look": self.look,
        }
        threads = [self.over_and_over(name, end, turn) for name, turn in turns.items()]
        for thread in threads:
            thread.join()
        self.problems += [problem for agent in (*writers, *readers) if (problem := agent.end())]
        self.counts |= {"writes": sum(a.count for a in writers), "reads": sum(a.count for a in readers)}
        return writers

    def pinned(self, seconds: float) -> dict[str, int]:
        """Write beside a read that does not end; returns the counts of a prune meanwhile."""
        long = self.agent("pinned", "pinned", 10_000)
        while not long.out.read_text():
            time.sleep(0.01)
        writer, end = self.agent("bulk", "bulk", seconds), time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.05)
        self.problems += [problem for problem in [writer.end()] if problem]
        self.problems += self.job(work.Prune())(0)
        counts = self.last_counts()
        long.process.terminate()
        long.process.communicate()
        return counts

    def last_counts(self) -> dict[str, int]:
        """What the newest record of a prune counts."""
        lines = map(json.loads, (self.place.state / "runs.jsonl").read_text().splitlines())
        found: dict[str, int] = [line["counts"] for line in lines if line["job"] == "prune"][-1]
        return found


def missing(before: world.State, after: world.State, writers: list[Agent]) -> list[str]:
    """What was acknowledged and is not there, or not as it should be."""
    told = "".join(writer.out.read_text() for writer in writers)
    return asking.broken_promises(told, after, {name for name in before.live if name.startswith("live_")})


def run(seconds: float, shared: Path, top: Path) -> list[str]:
    """Both phases; prints the figures and returns what was wrong."""
    world.copy(shared / "template0", top)
    load = Load(World(top, shared))
    before = world.look(load.place.store)
    load.problems += load.job(work.Prune())(0)
    writers = load.work(seconds)
    load.problems += load.job(work.Prune())(0)
    load.problems += load.backup(0)
    after = world.look(load.place.store)
    load.problems += missing(before, after, writers)
    kept = world.look(load.place.sets / load.place.sets_there()[-1] / "memory.db")
    if kept.facts != after.facts:
        load.problems.append("the last set is not what the store holds")
    load.problems += work.sets_problems(load.place)
    if left := load.place.leftovers():
        load.problems.append(f"left behind: {left[0]}")
    if load.wal > BOUND:
        load.problems.append(f"the -wal grew to {load.wal:,} bytes")
    counts = load.counts
    counts.pop("look")
    print(f"{seconds:g} s: {', '.join(f'{count:,} {name}' for name, count in sorted(counts.items()))}")
    print(f"{len(after.facts):,} rows at the end; the -wal had {load.wal / 1e6:.1f} MB at the most")
    load.problems += held(load, max(2.0, seconds / 8))
    return load.problems


def held(load: Load, seconds: float) -> list[str]:
    """The second phase: what a long read does must show, and be over when it is."""
    during = load.pinned(seconds)
    problem = health.wal_problem(during)
    grown = load.wal_now()
    writer = load.agent("plain", "after", 1)  # SQLite begins the -wal anew when somebody writes
    load.problems += [problem for problem in [writer.end()] if problem]
    load.problems += load.job(work.Prune())(0)
    later = load.last_counts()
    print(
        f"A long read: the -wal grew to {grown / 1e6:.1f} MB; the prune's record: {during['wal_waiting']:,} bytes wait"
    )
    print(f"status: {problem or 'nothing'}")
    print(f"After it: {later['wal_waiting']:,} bytes wait")
    problems = [] if problem else ["a long read held the -wal, and nothing tells of it"]
    if health.wal_problem(later):
        problems.append("the long read is over, and it still counts as one")
    return problems


def main(seconds: float) -> int:
    """Make a world, load it, say how it went; 1 where anything was wrong."""
    with tempfile.TemporaryDirectory(prefix="faults-shared-") as name, tempfile.TemporaryDirectory() as top:
        templates.make(Path(name))
        problems = run(seconds, Path(name), Path(top))
    for problem in problems[:20]:
        print(problem)
    print(f"{len(problems)} problems.")
    return 1 if problems else 0
