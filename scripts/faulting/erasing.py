"""Erasing words for good, both halves: what ``memops forget --erase`` asks of the owner's process and of root's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from faulting import work, world
from faulting.strikes import Command, Ran

if TYPE_CHECKING:
    from faulting.work import Run
    from faulting.world import State, World


def answered(ran: Ran) -> dict[str, Any]:
    """What it answered; nothing where it refused, or did not come to answer."""
    try:
        found: dict[str, Any] = json.loads(ran.out).get("value", {}) if ran.code == 0 else {}
    except ValueError:
        return {}
    return found


class Erase(work.Job):
    """The owner's half: out of the rows, the databases written anew, every byte looked at."""

    name, writes = "erase", True
    steps = ("delete", "settle", "search")

    def __init__(self) -> None:
        self.gone: frozenset[str] = frozenset()
        self.texts: list[str] = []

    def prepare(self, place: World) -> None:
        """Remember what is to go, since a later run has to find it by its words alone."""
        facts = world.look(place.store).facts
        self.gone = frozenset(n for n in facts if n == "live_forget" or n.startswith("kept_forget_"))
        self.texts = [str(facts[name]["fact"]) for name in sorted(self.gone)]

    def ask(self, place: World, op: str, **given: Any) -> Command:
        """A request of the command's."""
        database = (str(place.store), str(place.store))
        beside = (str(place.srv), str(place.srv))
        incoming = (str(place.incoming), str(place.incoming))
        task = {"state": str(place.state), "databases": [database], "beside": [beside], "incoming": [incoming]}
        request = {"op": op, "task": task, "given": {"texts": self.texts, **given}}
        return Command("erase.py", (), stdin=json.dumps(request).encode())

    def run(self, place: World, run: Run) -> Ran:
        """Step by step, as the command does; what a step did not do is no reason to leave out the others."""
        deleted = run("delete", self.ask(place, "delete", matching=True, **work.BY))
        settled = run("settle", self.ask(place, "settle", held={}))
        searched = run("search", self.ask(place, "search"))
        shown = answered(searched)
        clean = bool(answered(deleted) and answered(settled) and shown) and not (
            answered(deleted)["left"] or answered(settled)["left"] or shown["places"] or shown["unread"]
        )
        struck = deleted.struck or settled.struck or searched.struck
        said = "".join(each.err or each.out.decode() for each in (deleted, settled, searched))
        return Ran(0 if clean else 1, b"", said, struck)

    def judge(self, place: World, before: State, after: State, ran: Ran) -> list[str]:
        """Nothing else goes; and "gone" is said only of what is in no byte."""
        problems = world.compare(before, after, self.gone, set())
        if ran.code == 0 and (left := self._left(place)):
            problems.append(f"it says that the words are gone, and they are in {left[0]}")
        return problems

    def again(self, place: World) -> list[str]:
        """The words alone are enough to go on."""
        problems = super().again(place)
        return problems + [f"after the next run the words are in {path}" for path in self._left(place)[:1]]

    def _left(self, place: World) -> list[str]:
        words = [text.encode() for text in self.texts]
        files = [path for top in (place.srv, place.state) for path in top.rglob("*") if path.is_file()]
        return [path.name for path in files if any(word in path.read_bytes() for word in words)]


class EraseSets(work.Job):
    """Root's half: a set goes, and a newer good one stays."""

    name, on = "erase sets", "sets"

    def __init__(self) -> None:
        self.known: list[str] = []
        self.wrong: set[str] = set()

    def command(self, place: World) -> Command:
        """As the command starts it."""
        given = {
            "texts": ["live_forget says"],
            "names": self.known[:1],
            "stays": self.known[-1],
            "sets": str(place.sets),
            "record": str(place.sets_record),
        }
        request = json.dumps({"op": "remove", "given": given}).encode()
        return Command("erase_sets.py", (), agent=False, stdin=request)

    def run(self, place: World, run: Run) -> Ran:
        """Once; what was wrong with the sets before is not its doing."""
        self.known, self.wrong = place.sets_there(), set(work.sets_problems(place))
        return super().run(place, run)

    def judge(self, place: World, before: State, after: State, ran: Ran) -> list[str]:
        """It went or it is whole; the newer one stays."""
        problems = world.compare(before, after, set(), set())
        problems += [problem for problem in work.sets_problems(place) if problem not in self.wrong]
        there, answer = place.sets_there(), answered(ran)
        if self.known[-1] not in there:
            problems.append("the newer set is gone")
        if self.known[0] in there if answer.get("removed") else answer and not answer["left"]:
            problems.append("what it says of the set that was to go is not so")
        return problems

    def again(self, place: World) -> list[str]:
        """The next backup clears what a killed run has left."""
        return [problem for problem in work.Seal().again(place) if problem not in self.wrong]
