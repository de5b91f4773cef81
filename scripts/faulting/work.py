"""The jobs and writing commands that faults strike: how each is run, and what must be so afterwards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from faulting import strikes, world
from faulting.strikes import Command, Ran

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from faulting.world import State, World

    Run = Callable[[str, Command], Ran]
    """Runs one step of a job by its name, under the fault if it is the one that was chosen."""

# ruff: noqa: ARG002 - every job is asked in the same way

BY: Final = {"by": "faults", "terminal": False}
"""Who asks, where a request says so."""

NOTES: Final = ("--part", "notes", "files")


class Job:
    """One row of the table."""

    name = ""
    steps: Sequence[str] = ("run",)
    on: str = "store"
    """What it works on, and so what a fault replaces, locks or leaves something beside: ``store`` or ``sets``."""
    writes = False
    """Whether it writes to the store, and so needs its lock."""

    def prepare(self, place: World) -> None:
        """Bring a world to where the job begins."""

    def run(self, place: World, run: Run) -> Ran:
        """Do it once; the result is that of the step that decides."""
        return run("run", self.command(place))

    def command(self, place: World) -> Command:
        """Of a job that is one program."""
        raise NotImplementedError

    def judge(self, place: World, before: State, after: State, ran: Ran) -> list[str]:
        """What is wrong after a run that a fault struck."""
        return world.compare(before, after, set(), set())

    def again(self, place: World) -> list[str]:
        """Run it once more without a fault; what is wrong after that."""
        ran = self.run(place, lambda _, command: strikes.start(place, command))
        return [f"the next run ended with {ran.code}: {said(ran)}"] if ran.code else []


def said(ran: Ran) -> str:
    """What a program said last."""
    return (ran.err.strip() or ran.out.decode(errors="replace").strip())[-300:]


class Prune(Job):
    """memory-prune.service."""

    name, writes = "prune", True

    def command(self, place: World) -> Command:
        """As its unit has it."""
        options = ("--store", place.store, "--sql", place.sql / "prune.sql", "--state", place.state)
        return Command("prune.py", tuple(map(str, options)))

    def judge(self, place: World, before: State, after: State, ran: Ran) -> list[str]:
        """Only what is dead may go; green means all of it went."""
        dead = {name for name in before.facts if name.startswith("dead_")}
        problems = world.compare(before, after, dead, set())
        stopped = b"told to stop" in ran.out
        if ran.code == 0 and not stopped and (left := dead & after.facts.keys()):
            problems.append(f"it says that all is well, and {len(left)} dead rows are left")
        return problems

    def again(self, place: World) -> list[str]:
        """All that is dead is gone then."""
        problems = super().again(place)
        left = [name for name in world.look(place.store).facts if name.startswith("dead_")]
        return problems + ([f"{len(left)} dead rows are left after the next run"] if left else [])


class Snapshot(Job):
    """memory-snapshot.service."""

    name = "snapshot"

    def command(self, place: World) -> Command:
        """As its unit has it."""
        options = ("--store", place.store, "--incoming", place.incoming, "--state", place.state)
        return Command("snapshot.py", (*map(str, options), *NOTES, f"{place.notes}/"), umask=0o007)

    def judge(self, place: World, before: State, after: State, ran: Ran) -> list[str]:
        """What it says it copied is there."""
        problems = world.compare(before, after, set(), set())
        if ran.code == 0:
            copied = world.look(place.incoming / "memory.db")
            if not (place.incoming / "memory.json").exists() or copied.facts.keys() != before.facts.keys():
                problems.append("it says that all is well, and the copy is not whole")
        return problems

    def again(self, place: World) -> list[str]:
        """Its copy can be sealed."""
        return super().again(place) or Seal().again(place)


class Seal(Job):
    """memory-backup.service."""

    name, on = "seal", "sets"
    known: Sequence[str] = ()

    def prepare(self, place: World) -> None:
        """The snapshot is there."""
        require(strikes.start(place, Snapshot().command(place)))
        self.known = place.sets_there()

    def command(self, place: World) -> Command:
        """As its unit has it."""
        options = ("--name", "default", "--incoming", place.incoming, "--sets", place.sets)
        keep = ("--keep-daily", "7", "--keep-weekly", "5", "--keep-monthly", "12")
        record = ("--sets-record", str(place.sets_record))
        return Command("seal.py", (*map(str, options), *record, *keep, *NOTES, f"{place.notes}/"), agent=False)

    def judge(self, place: World, before: State, after: State, ran: Ran) -> list[str]:
        """What it says it sealed is there; the sets that were there still are."""
        problems = world.compare(before, after, set(), set())
        there = set(place.sets_there())
        if ran.code == 0 and not there - set(self.known):
            problems.append("it says that all is well, and there is no new set")
        if not there & set(self.known) or (ran.code and there < set(self.known)):
            problems.append("a set is gone")
        return problems + sets_problems(place)

    def again(self, place: World) -> list[str]:
        """After another snapshot, as the unit needs one."""
        again = strikes.start(place, Snapshot().command(place))
        problems = super().again(place)
        if again.code:
            problems.append(f"the next snapshot ended with {again.code}: {said(again)}")
        return problems + sets_problems(place)


class Drill(Job):
    """memory-drill.service."""

    name, on = "drill", "sets"

    def command(self, place: World) -> Command:
        """As its unit has it."""
        options = ("--name", "default", "--sets", place.sets, "--sets-record", place.sets_record, "--runs", place.state)
        return Command("drill.py", tuple(map(str, options)), agent=False)

    def judge(self, place: World, before: State, after: State, ran: Ran) -> list[str]:
        """The sets are as they were."""
        return world.compare(before, after, set(), set()) + sets_problems(place)


class Digest(Job):
    """memory-digest.service."""

    name = "digest"

    def command(self, place: World) -> Command:
        """As its unit has it."""
        options = ("--store", place.store, "--sql", place.sql, "--state", place.state)
        return Command("digest.py", tuple(map(str, options)))

    def again(self, place: World) -> list[str]:
        """No new fact was left out of all digests."""
        problems, kept = super().again(place), place.state / "digests.jsonl"
        if wrong := world.unreadable(place):
            return problems + wrong
        lines = kept.read_text().splitlines() if kept.exists() else []
        listed = {fact["id"] for line in lines for fact in json.loads(line)["facts"]}
        new = {name for name in world.look(place.store).live if name.startswith(("live_new", "live_last"))}
        return problems + ([f"no digest lists {min(left)}"] if (left := new - listed) else [])


class Review(Job):
    """memory-review.service."""

    name = "review"

    def command(self, place: World) -> Command:
        """As its unit has it."""
        options = ("--name", "default", "--store", place.store, "--sql", place.sql, "--state", place.state)
        return Command("review.py", tuple(map(str, options)))


# Restore


class Restore(Job):
    """Putting a set back, as ``memops restore`` does it step by step; what fails is undone, also after a kill."""

    name, on = "restore", "store"
    steps = ("send", "prepare", "commit", "undo", "settle")

    def __init__(self) -> None:
        self.stamp, self.wanted, self.back = "2026-11-30T213159Z", "", False

    def choose(self, chance: random.Random) -> str:
        """The step that the fault strikes."""
        return chance.choice(self.steps)

    def task(self, place: World) -> str:
        """What root tells the owner's process."""
        pieces = [
            {
                "name": "memory",
                "kind": "sqlite",
                "directory": str(place.srv),
                "file": "memory.db",
                "default_mode": "wal",
            },
            {"name": "notes", "kind": "files", "directory": str(place.notes), "file": ""},
        ]
        return json.dumps({"stamp": self.stamp, "pieces": pieces, "served": []})

    def run(self, place: World, run: Run) -> Ran:
        """All steps; ``back`` says whether it was undone."""
        self.back, chosen = False, place.sets / place.sets_there()[0]
        sent = run("send", Command("setcopy.py", ("send", str(chosen), "memory", "notes"), agent=False))

        def step(name: str, stdin: bytes = b"") -> Ran:
            return run(name, Command("restore.py", (name, self.task(place)), stdin=stdin))

        ran = step("prepare", sent.out)
        if ran.code == 0:
            ran = step("commit")
        asked_back = self.wanted == "undo" and ran.code == 0
        if ran.code or asked_back:
            self.back = True
            undone = step("undo")
            if undone.code and asked_back:
                undone = strikes.start(place, Command("restore.py", ("undo", self.task(place))))
            return Ran(undone.code or ran.code or 1, undone.out, f"{ran.err}{undone.err}", ran.struck or undone.struck)
        settled = step("settle")
        if settled.code:
            settled = strikes.start(place, Command("restore.py", ("settle", self.task(place))))
        return settled

    def judge(self, place: World, before: State, after: State, ran: Ran) -> list[str]:
        """The set's state or the one before it, whole."""
        if self.back:
            return world.compare(before, after, set(), set())
        kept = world.look(place.sets / place.sets_there()[0] / "memory.db")
        problems = [*after.problems]
        if kept.facts != after.facts:
            problems.append("the store is not what the set has")
        if list(place.srv.glob("before-restore-*")):
            aside = world.look(next(place.srv.glob("before-restore-*")) / "memory.db")
            problems += [f"what was moved aside: {problem}" for problem in world.compare(before, aside, set(), set())]
        else:
            problems.append("what was there before is nowhere")
        return problems

    def again(self, place: World) -> list[str]:
        """Once more, to the end."""
        self.stamp, self.wanted = "2026-12-01T213159Z", ""
        problems = super().again(place)
        kept = world.look(place.sets / place.sets_there()[0] / "memory.db")
        if not problems and kept.facts != world.look(place.store).facts:
            problems.append("after the next run the store is not what the set has")
        return problems


class Extract(Job):
    """memops restore --to: a set into an empty directory."""

    name, on = "restore --to", "sets"

    def command(self, place: World) -> Command:
        """As the command starts it."""
        chosen = place.sets / place.sets_there()[0]
        return Command("setcopy.py", ("extract", str(chosen), str(place.out / chosen.name)), agent=False)

    def run(self, place: World, run: Run) -> Ran:
        """Into a directory that the command makes."""
        (place.out / place.sets_there()[0]).mkdir(mode=0o700, exist_ok=True)
        return super().run(place, run)

    def judge(self, place: World, before: State, after: State, ran: Ran) -> list[str]:
        """What has a manifest is whole."""
        target = place.out / place.sets_there()[0]
        problems = world.compare(before, after, set(), set())
        if (target / "manifest.json").exists() or ran.code == 0:
            problems += verify(place, place.out, [target.name])
        return problems

    def again(self, place: World) -> list[str]:
        """Into another directory, as somebody would who was told that this one is not empty."""
        for path in place.out.iterdir():
            path.rename(path.with_name(f"half {path.name}"))
        problems = super().again(place)
        return problems or verify(place, place.out, [place.sets_there()[0]])


def require(ran: Ran) -> None:
    """Raise RuntimeError unless it went well."""
    if ran.code:
        raise RuntimeError(f"ended with {ran.code}: {said(ran)}")


def sets_problems(place: World) -> list[str]:
    """Sets that are listed as good, and are not; or that cannot be listed."""
    options = ("--sets", str(place.sets), "--sets-record", str(place.sets_record))
    listed = strikes.start(place, Command("setdir.py", ("list", *options), agent=False))
    if listed.code:
        return [f"the sets cannot be listed: {said(listed)}"]
    good = [each["name"] for each in json.loads(listed.out) if each["ok"]]
    return verify(place, place.sets, good) if good else ["there is no good set any more"]


def verify(place: World, directory: Any, sets: list[str]) -> list[str]:
    """Which of these sets are not what their manifests say."""
    options = ("--sets", str(directory), "--sets-record", str(place.record / "tried.sets.json"))
    ran = strikes.start(place, Command("setdir.py", ("verify", *sets, *options), agent=False))
    lines = [json.loads(line) for line in ran.out.splitlines()]
    wrong = [
        f"the set {line['set']} is listed as good, and is not: {line['message']}" for line in lines if not line["ok"]
    ]
    return wrong or ([f"the sets cannot be verified: {said(ran)}"] if ran.code else [])
