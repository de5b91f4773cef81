"""The faults, and one run of a job under one of them: what befell it, what was wrong afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from faulting import asking, powercut, strikes, work, world
from faulting.strikes import Command, Ran, Strike
from faulting.world import AGENT, PYTHON, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faulting.world import State

FAULTS: Final = {
    "kill": "SIGKILL before a call to the file system, or in the middle of a write",
    "moment": "SIGKILL at a moment between the first such call and the end",
    "term": "SIGTERM",
    "full": "the disk is full from one write on",
    "disk": "a small file system that fills up (as root only)",
    "io": "an I/O error, once or from then on",
    "locked": "somebody holds the lock for longer than the job waits",
    "replaced": "the store is replaced by another one meanwhile",
    "future": "the clock is ten years ahead",
    "past": "the clock is ten years behind",
    "sidecars": "files beside the database are missing, foreign or not the agent's",
    "power": "a power cut: what was not synced is lost, or some of it",
}
YEARS: Final = 315_576_000
"""Seconds of ten years."""

RESERVE: Final = 16 << 20
"""What census.py wants to be left free."""


@dataclass(frozen=True)
class Result:
    """One run: its seed, whether the fault struck at all, and what was wrong."""

    seed: str
    struck: bool
    problems: tuple[str, ...]
    story: str = ""


class Case:
    """One run, which its seed ``JOB/FAULT/NUMBER`` decides in all but the time that things take."""

    def __init__(self, shared: Path, seed: str, top: Path) -> None:
        name, self.fault, _ = seed.rsplit("/", 2)
        self.shared, self.seed, self.chance = shared, seed, random.Random(seed)  # noqa: S311
        self.variant = self.chance.randrange(len(world.VARIANTS))
        self.place, self.job = World(top, shared), asking.jobs()[name]
        self.step = self.chance.choice(list(self.job.steps))
        if isinstance(self.job, work.Restore):
            self.job.wanted = self.step
        self.struck, self.story = False, f"variant {world.VARIANTS[self.variant]}, step {self.step}"
        self.afterwards: list[Callable[[], None]] = []

    def begin(self) -> State:
        """Lay the world out; what its store holds."""
        world.copy(self.shared / f"template{self.variant}", self.place.top)
        self.job.prepare(self.place)
        return world.look(self.place.store)

    def attempt(self) -> Ran:
        """Run the job, the chosen step of it under the fault."""
        strike = getattr(self, f"_{self.fault}")()

        def run(step: str, command: Command) -> Ran:
            if step != self.step or strike is None:
                return strikes.start(self.place, command)
            if strike.record is not None:
                return self._cut(command, strike)
            ran = strikes.start(self.place, command, strike)
            self.struck = self.struck or ran.struck
            return ran

        return self.job.run(self.place, run)

    def clean_up(self) -> None:
        """Take away what caused the fault, as a person would."""
        for each in reversed(self.afterwards):
            each()

    # Each fault

    def _at(self, how: str, sorts: str, **more: str) -> Strike:
        calls = [letter for letter in measured(self).calls if letter in sorts]
        at = self.chance.randint(1, max(1, len(calls)))
        self.story += f", {how} at {at} of {len(calls)} calls ({sorts}) {more or ''}"
        return Strike({"STRIKE_HOW": how, "STRIKE_SORTS": sorts, "STRIKE_AT": str(at), **more})

    def _kill(self) -> Strike:
        return self._at("kill", self.chance.choice(["wsnu", "wsnu", "nu", "wsnur"]))

    def _term(self) -> Strike:
        return self._at("term", self.chance.choice(["wsnu", "wsnur"]))

    def _moment(self) -> Strike:
        after = self.chance.random() * measured(self).seconds
        self.story += f", killed {after:.4f} s after its first call"
        return Strike({"STRIKE_HOW": "stop", "STRIKE_AT": "1"}, after=after)

    def _full(self) -> Strike:
        return self._at("error", "wn", STRIKE_ERRNO=str(strikes.ERRNOS["full"]), STRIKE_LASTING="1")

    def _io(self) -> Strike:
        sorts = self.chance.choice(["r", "w", "s", "nu", "rwsnu"])
        lasting = {"STRIKE_LASTING": "1"} if self.chance.random() < 0.3 else {}
        return self._at("error", sorts, STRIKE_ERRNO=str(strikes.ERRNOS["io"]), **lasting)

    def _future(self) -> Strike:
        self.struck = True
        return Strike({"STRIKE_CLOCK": str(YEARS)})

    def _past(self) -> Strike:
        self.struck = True
        return Strike({"STRIKE_CLOCK": str(-YEARS)})

    def _disk(self) -> Strike | None:
        if os.geteuid() != 0:
            return None
        used = sum(-(-path.lstat().st_size // 4096) * 4096 + 4096 for path in self.place.top.rglob("*"))
        size = used + self.chance.choice([0, RESERVE]) + self.chance.randint(0, 400) * 1024
        self.struck, self.story = True, f"{self.story}, a disk of {size} bytes of which {used} are used"
        remount(self.place.top, size)
        self.afterwards.append(lambda: remount(self.place.top, 1 << 30))
        return None

    def _locked(self) -> Strike:
        self.struck = True
        if self.job.on == "store":
            self.afterwards.append(hold(self.place.store))
        else:
            held = [os.open(path, os.O_RDONLY) for path in (self.place.sets, *self.place.sets.glob("2*Z*"))]
            for descriptor in held:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            self.afterwards += [partial(os.close, each) for each in held]
        return Strike({"STRIKE_HASTE": "60"})

    def _replaced(self) -> Strike:
        moved = self.place.top / "moved"
        other = self.place.top / "other"
        other.mkdir()
        world.copy(self.shared / "other", other)

        def swap() -> None:
            moved.mkdir()
            for end in world.ENDS:
                for source, target in ((self.place.store, moved), (other / "memory.db", self.place.srv)):
                    if Path(f"{source}{end}").exists():
                        Path(f"{source}{end}").rename(f"{target}/memory.db{end}")

        def swap_set() -> None:
            moved.mkdir()
            name = "incoming" if self.job.name == "seal" else f"sets/{self.place.sets_there()[0]}"
            target = self.place.top / name / "memory.db"
            if target.exists():
                target.rename(moved / "memory.db")
                shutil.copyfile(other / "memory.db", target)
                if name != "incoming":
                    self.afterwards.append(partial(put_back, moved / "memory.db", target))

        strike = self._at("stop", self.chance.choice(["rwsnu", "wsnu"]))
        return replace(strike, meanwhile=swap if self.job.on == "store" else swap_set)

    def _sidecars(self) -> None:
        self.struck = True
        database = self.place.store
        if self.job.on == "sets":
            database = (
                self.place.incoming if self.job.name == "seal" else self.place.sets / self.place.sets_there()[-1]
            ) / "memory.db"
        there = [end for end in world.ENDS[1:] if Path(f"{database}{end}").exists()]
        choices = ["-shm gone", "-shm garbage"] if "-shm" in there else []
        choices += [f"{end} root's" for end in there if os.geteuid() == 0]
        choices += [
            f"{end} {what}" for end in world.ENDS[1:] if end not in there for what in ("garbage", "directory", "empty")
        ]
        chosen = self.chance.choice(choices)
        self.story += f", {chosen}"
        end, _, what = chosen.partition(" ")
        path = Path(f"{database}{end}")
        if what == "gone":
            path.unlink()
        elif what == "root's":
            mode = path.stat().st_mode
            os.chown(path, 0, 0)
            path.chmod(0o600)
            self.afterwards.append(lambda: given_back(path, mode))
        elif what == "directory":
            path.mkdir()
            self._own(path)
            self.afterwards.append(lambda: removed(path, None))
        else:
            content = b"" if what == "empty" else self.chance.randbytes(5000)
            path.write_bytes(content)
            self._own(path)
            if end != "-shm":
                self.afterwards.append(lambda: removed(path, content))

    def _own(self, path: Path) -> None:
        if os.geteuid() == 0:
            status = path.parent.stat()
            os.chown(path, status.st_uid, status.st_gid)

    def _power(self) -> Strike:
        return Strike({"STRIKE_HOW": "record"}, record=self.place.top.with_name(f"{self.place.top.name}.calls"))

    def _cut(self, command: Command, strike: Strike) -> Ran:
        assert strike.record is not None  # noqa: S101
        disk = powercut.Disk(self.place.top)
        ran = strikes.start(self.place, command, strike)
        calls = powercut.read(strike.record)
        strike.record.unlink()
        count = len(calls) if self.chance.random() < 0.3 else self.chance.randint(0, len(calls))
        for record in calls[:count]:
            disk.call(record)
        disk.cut(self.chance)
        self.struck, self.story = True, f"{self.story}, the power is cut after {count} of {len(calls)} calls"
        return ran if count == len(calls) else replace(ran, code=-9, out=b"")


def put_back(path: Path, target: Path) -> None:
    """A set has its own database again, where it is still there."""
    if target.parent.exists():
        path.replace(target)


def given_back(path: Path, mode: int) -> None:
    """A file is the agent's again, as it was."""
    if path.exists():
        os.chown(path, AGENT, AGENT)
        path.chmod(mode)


def removed(path: Path, content: bytes | None) -> None:
    """What was laid there goes: a directory, or a file that still has this content."""
    if content is None and path.is_dir():
        path.rmdir()
    elif content is not None and path.is_file() and path.read_bytes() == content:
        path.unlink()


def measured(case: Case) -> Ran:
    """The step's calls and its seconds from the first call on, without a fault; looked up where it is known."""
    name = f"{case.job.name}-{case.variant}-{case.step}".replace(" ", "_").replace("/", "_")
    known = case.shared / "measured" / name
    with contextlib.suppress(OSError, ValueError):
        seconds, calls = json.loads(known.read_text())
        return Ran(0, b"", "", calls=calls, seconds=seconds)
    found = Ran(0, b"", "")
    with directory() as top:
        other = Case(case.shared, case.seed, top)
        other.begin()

        def run(step: str, command: Command) -> Ran:
            nonlocal found
            if step != case.step:
                return strikes.start(other.place, command)
            found = strikes.start(other.place, command, Strike({"STRIKE_HOW": "stop", "STRIKE_AT": "1"}))
            return found

        other.job.run(other.place, run)
    fresh = known.with_name(f"{name}.{os.getpid()}")
    fresh.write_text(json.dumps([found.seconds, found.calls]))
    fresh.rename(known)
    return found


@contextlib.contextmanager
def directory(*, small: bool = False) -> Iterator[Path]:
    """A directory for a world; ``small``: on a disk of its own, which can be made small."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        top = Path(name, "world")
        top.mkdir()
        Path(name).chmod(0o755)
        if small:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g,mode=755", "tmpfs", top], check=True)
        try:
            yield top
        finally:
            if small:
                subprocess.run(["umount", "--lazy", top], check=True)


def remount(top: Path, size: int) -> None:
    """Make a disk larger or smaller."""
    subprocess.run(["mount", "-o", f"remount,size={size}", top], check=True)


HOLDER: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


def hold(path: Path) -> Callable[[], None]:
    """Hold the store's lock as the agent, until the function that is returned is called."""
    user: dict[str, object] = {"user": AGENT, "group": AGENT, "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen(
        [PYTHON, "-I", "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **user
    )  # type: ignore[call-overload]
    assert process.stdout.readline() == b"held\n"  # noqa: S101
    return lambda: process.communicate() and None


def one(shared: Path, seed: str) -> Result:
    """One run of the matrix."""
    with directory(small="/disk/" in seed and os.geteuid() == 0) as top:
        case = Case(shared, seed, top)
        before = case.begin()
        try:
            ran = case.attempt()
            if case.fault in ("locked", "disk", "replaced"):
                case.clean_up()
                case.afterwards.clear()
            problems = judge(case, before, ran)
        finally:
            case.clean_up()
        problems += [f"afterwards: {problem}" for problem in mend(case)]
        story = f"{case.story}; ended with {ran.code}: {work.said(ran)}"
        return Result(seed, case.struck, tuple(problems), story)


def judge(case: Case, before: State, ran: Ran) -> list[str]:
    """What is wrong right after the fault."""
    place, job = case.place, case.job
    problems = ["it hangs"] if ran.code == strikes.HUNG else []
    if "Traceback" in ran.err:
        problems.append(f"it ends in a traceback: {ran.err.strip().splitlines()[-1]}")
    problems += world.unreadable(place)
    if case.fault == "replaced" and job.on == "store" and (place.top / "moved").exists():
        return problems + judge_replaced(case, before, ran)
    return problems + job.judge(place, before, world.look(place.store), ran)


def judge_replaced(case: Case, before: State, ran: Ran) -> list[str]:
    """Both stores have all that they had, wherever they lie by now."""
    place, job = case.place, case.job
    paths = [path for top in (place.srv, place.top / "moved") for path in top.rglob("memory.db")]
    states = [world.look(path) for path in paths]
    problems = [problem for state in states for problem in state.problems]
    other = world.look(case.shared / "other" / "memory.db")
    if not any(other.live <= state.live for state in states):
        problems.append("the new store lost facts")
    failed = replace(ran, code=1)
    if isinstance(job, work.Restore):
        if not any(before.live <= state.live for state in states):
            problems.append("the old store lost facts")
    elif isinstance(job, asking.Library):
        # Each fact went to the store that was there; the first of them may be replaced in the other one.
        if not any(before.live <= state.live for state in states):
            problems.append("the old store lost facts")
    elif old := min((job.judge(place, before, state, failed) for state in states), key=len):
        problems += [f"the old store: {problem}" for problem in old]
    if (
        isinstance(job, asking.Desk)
        and asking.acknowledged(ran)
        and not any(job.ask("", before).done(s) for s in states)
    ):
        problems.append("it was acknowledged, and is done in neither store")
    return problems


def mend(case: Case) -> list[str]:
    """What is wrong after the next run, which nothing disturbs."""
    place, job = case.place, case.job
    if case.fault == "replaced" and (place.top / "moved").exists() and job.on == "store":
        if isinstance(job, asking.Desk):
            job = asking.jobs()["remember"]
        if isinstance(job, work.Digest):
            job = work.Review()
    problems = job.again(place)
    problems += [*world.look(place.store).problems, *world.unreadable(place)]
    left = [name for name in place.leftovers() if case.fault != "replaced" or ".stray" not in name]
    return problems + ([f"it leaves {left[0]}"] if left else [])
