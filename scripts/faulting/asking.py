"""The commands on facts that write: each is one request to the desk."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faulting import erasing, strikes, work, world
from faulting.strikes import Command, Ran

if TYPE_CHECKING:
    from collections.abc import Callable

    from faulting.world import State, World

# ruff: noqa: ARG001, ARG002 - every command is asked in the same way


@dataclass(frozen=True)
class Asked:
    """A request to the desk, what it takes and gives; ``done`` says whether a store shows it as carried out."""

    op: str
    arguments: dict[str, Any]
    done: Callable[[State], bool]
    undone: Callable[[State], bool]
    goes: frozenset[str] = field(default_factory=frozenset)
    text: str = ""


class Desk(work.Job):
    """A command on facts: all of it or nothing, and what was acknowledged stays."""

    writes = True

    def __init__(self, name: str, ask: Callable[[str, State], Asked], *, pieces: bool = False) -> None:
        self.name, self.ask, self.pieces = name, ask, pieces

    def command(self, place: World, end: str = "", state: State | None = None) -> Command:
        """As the command starts it."""
        options = ("--store", place.store, "--state", place.state, "--sql", place.sql)
        asked = self.ask(end, state or world.look(place.store))
        request = json.dumps({"op": asked.op, "arguments": asked.arguments}).encode()
        return Command("desk.py", tuple(map(str, options)), stdin=request)

    def judge(self, place: World, before: State, after: State, ran: Ran, end: str = "") -> list[str]:
        """All or nothing, and all where that was answered."""
        asked = self.ask(end, before)
        came = {
            n for n, fact in after.facts.items() if asked.text and fact["fact"] == asked.text and n not in before.facts
        }
        problems = world.compare(before, after, asked.goes, came)
        done, undone = asked.done(after), asked.undone(after)
        if not done and not undone and not self.pieces:
            problems.append("it is half done")
        if acknowledged(ran) and not done:
            problems.append("it was acknowledged, and is not done")
        return problems

    def again(self, place: World) -> list[str]:
        """The same about other facts."""
        before = world.look(place.store)
        ran = strikes.start(place, self.command(place, "2", before))
        if not acknowledged(ran):
            return [f"the next one was not done: {work.said(ran)}"]
        return self.judge(place, before, world.look(place.store), ran, "2")


def acknowledged(ran: Ran) -> bool:
    """Whether whoever asked was told that it is done."""
    try:
        return ran.code == 0 and "value" in json.loads(ran.out)
    except ValueError:
        return False


def _has(state: State, text: str) -> bool:
    return any(fact["fact"] == text for name, fact in state.facts.items() if name in state.live)


def _remember(end: str, before: State) -> Asked:
    text = f"A new fact that nobody has heard of {end}".strip()
    given = {"subject": "s", "fact": text, "source": "chat 2026-08-08", "expires_at": None, "replaces": None, **work.BY}
    return Asked("remember", given, lambda s: _has(s, text), lambda s: not _has(s, text), text=text)


def _replace(end: str, before: State) -> Asked:
    text, old = f"A corrected fact {end}".strip(), f"live_replace{end}"
    given = {"subject": "s", "fact": text, "source": "chat 2026-08-08", "expires_at": None, "replaces": old, **work.BY}
    return Asked(
        "remember",
        given,
        lambda s: _has(s, text) and old not in s.live and old in s.facts,
        lambda s: not _has(s, text) and (old in s.live or old not in before.live),
        frozenset([old]) - (frozenset(before.facts) - before.live),
        text,
    )


def _confirm(end: str, before: State) -> Asked:
    name = f"live_confirm{end}"
    given = {"given": [{"id": name, "verdict": "confirm"}], **work.BY}
    was = before.facts.get(name, {}).get("confirmed_at")
    return Asked(
        "apply",
        given,
        lambda s: name in s.facts and s.facts[name]["confirmed_at"] != was,
        lambda s: name not in s.facts or s.facts[name]["confirmed_at"] == was,
    )


def _apply(end: str, before: State) -> Asked:
    text, names = f"Another correction {end}".strip(), [f"live_a{n}{end}" for n in (1, 2, 3)]
    first, second, third = names
    given = [
        {"id": first, "verdict": "confirm"},
        {"id": second, "verdict": "replace", "fact": text, "source": "chat 2026-08-08"},
        {"id": third, "verdict": "forget"},
    ]
    was = before.facts.get(first, {}).get("confirmed_at")
    return Asked(
        "apply",
        {"given": given, **work.BY},
        lambda s: (
            _has(s, text) and second not in s.live and third not in s.facts and s.facts[first]["confirmed_at"] != was
        ),
        lambda s: (
            not _has(s, text) and {*names} & before.live <= s.live and s.facts.get(first, {}).get("confirmed_at") == was
        ),
        frozenset([second, third]),
        text,
    )


def _forget(end: str, before: State) -> Asked:
    gone = frozenset(n for n in before.facts if n == f"live_forget{end}" or n.startswith(f"kept_forget{end}_"))
    given = {"ids": [f"live_forget{end}"], "only": False, "token": None, **work.BY}
    return Asked("forget", given, lambda s: not gone & s.facts.keys(), lambda s: gone <= s.facts.keys(), gone)


def _forget_all(end: str, before: State) -> Asked:
    gone = frozenset(name for name in before.facts if name.startswith(f"live_all{end}_"))
    given = {"subject": f"all{end}", "user": None, "token": None, **work.BY}
    return Asked("forget_all", given, lambda s: not gone & s.facts.keys(), lambda s: gone <= s.facts.keys(), gone)


class Library(work.Job):
    """An agent that uses memops.store: a few facts, each acknowledged by its id."""

    name, writes = "store.Memory", True

    def command(self, place: World, name: str = "library") -> Command:
        """As the agent would be started."""
        return Command("../agents.py", ("once", name, str(place.store), "0"))

    def judge(self, place: World, before: State, after: State, ran: Ran) -> list[str]:
        """What was acknowledged is there."""
        came = {name for name, fact in after.facts.items() if fact["subject"].startswith("library")}
        return world.compare(before, after, set(), came) + broken_promises(ran.out.decode(), after, set())

    def again(self, place: World) -> list[str]:
        """Another agent."""
        ran = strikes.start(place, self.command(place, "library2"))
        problems = [f"the next run ended with {ran.code}: {work.said(ran)}"] if ran.code else []
        return problems + broken_promises(ran.out.decode(), world.look(place.store), set())


def broken_promises(told: str, after: State, live: set[str]) -> list[str]:
    """What an agent was told is there, besides what was ``live`` before, and is not; see agents.py for the lines."""
    problems, replaced = list(after.problems), set()
    for line in told.splitlines():
        if line.startswith("-"):
            old, new = line[1:].split(" ")
            live.discard(old)
            live.add(new)
            replaced.add(old)
        elif line.startswith("+"):
            live.add(line[1:])
    # Whoever was killed may have replaced a fact and not have come to say so.
    kept = after.live | {name for name, fact in after.facts.items() if fact["superseded_by"] in after.live}
    if lost := sorted(live - kept):
        problems.append(f"{len(lost)} acknowledged facts are not live: {', '.join(lost[:3])}")
    if lost := sorted(replaced - after.facts.keys()):
        problems.append(f"{len(lost)} replaced facts are gone: {', '.join(lost[:3])}")
    if back := sorted(replaced & after.live):
        problems.append(f"{len(back)} replaced facts live: {', '.join(back[:3])}")
    return problems


def jobs() -> dict[str, work.Job]:
    """All rows of the table, in its order; made anew for each run."""
    found: list[work.Job] = [work.Prune(), work.Snapshot(), work.Seal(), work.Drill(), work.Digest(), work.Review()]
    found += [
        Desk("remember", _remember),
        Desk("confirm", _confirm),
        Desk("replace", _replace),
        Desk("forget", _forget),
        Desk("forget --subject", _forget_all, pieces=True),
        Desk("review --apply", _apply),
    ]
    found += [Library(), erasing.Erase(), erasing.EraseSets(), work.Restore(), work.Extract()]
    return {job.name: job for job in found}
