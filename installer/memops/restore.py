"""Before ``memops restore`` puts a set back: choosing the set, proving it, saying what will change. And ``--to``.

This process opens no database and writes nothing where the agent can: that is done in units without rights, or as the
store's owner. See putback.py for what comes then.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memops import changes, host, owner, places, safety, sets
from memops.errors import MemopsError, Refused, UsageError
from memops.settings import LIBRARY
from memops.store import printable

if TYPE_CHECKING:
    from memops.parts import Part
    from memops.settings import Store

SECONDS = 2 * 3600
"""How long a step may take."""

MAIN = "memory"


@dataclass(frozen=True)
class Chosen:
    """The set that is put back: what a list of sets says of it, and where it is below the directory of the sets."""

    entry: dict[str, Any]
    path: str
    fetched: str = ""
    """Where somebody brought it back to, if it was not here."""

    @property
    def name(self) -> str:
        """The set's name."""
        return str(self.entry["name"])

    @property
    def parts(self) -> dict[str, str]:
        """Its parts: name → kind."""
        return {part["name"]: part["kind"] for part in self.entry["parts"]}


@dataclass(frozen=True)
class Plan:
    """One restore: which parts of a set go where."""

    store: Store
    chosen: Chosen
    local: tuple[Part, ...]
    served: tuple[Part, ...]
    remarks: tuple[str, ...]
    """What the set has and the store has not, and the other way round."""

    @property
    def names(self) -> list[str]:
        """The parts that are put back."""
        return [MAIN, *(part.name for part in (*self.local, *self.served))]


# Choosing and proving


def choose(store: Store, wanted: str) -> Chosen:
    """The set that ``wanted`` means: a name, latest, a date, or a date and time. Raises UsageError.

    ``latest`` passes over the sets that restores took of what they were about to replace.
    """
    every = sets.listing(store)
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d)(?: ?UTC|Z)?", wanted, re.ASCII)
    if match:
        until = f"{match[1]}T{match[2]}{match[3]}59Z"
        found = next((each for each in reversed(every) if each["ok"] and each["name"][:18] <= until), None)
    else:
        found = sets.find(every, wanted)
    if wanted == "latest" and found is not None and found["name"] in (passed := safety.made_before_a_restore(store)):
        # Or a second restore, of somebody who is not content yet, would bring back what the first one replaced.
        older = (each for each in reversed(every) if each["ok"] and each["name"] < found["name"])
        found = next((each for each in older if each["name"] not in passed), found)
    if found is None:
        there = ", ".join(each["name"] for each in reversed(every[-5:])) or "none"
        raise UsageError(
            f"The store {store.name} has no such set: {wanted}. The newest are: {there}.",
            f"See all of them: sudo memops sets{sets.name_option(store)}",
        )
    return Chosen(found, found["name"])


def prove(store: Store, chosen: Chosen) -> None:
    """See that the set is to the byte what was proven when it was sealed.

    Its parts are opened when they wait to be put back, which is once, and on the files that will be in place.
    Raises Refused when it is not, naming the file and the next older good set.
    """
    ran = walled(store, ("check", f"{store.seen_sets}/{chosen.path}"), sets.bound(store))
    if ran.code:
        raise MemopsError(f"The set {chosen.name} could not be read: {printable(ran.said, 400)}.")
    result = json.loads(ran.out)
    if not result["ok"]:
        if not chosen.fetched:
            sets.verify(store, chosen.name)  # which notes for status what is wrong with it
        raise Refused(f"The set {chosen.name} is damaged: {printable(result['message'], 400)}.", older(store, chosen))


def older(store: Store, chosen: Chosen) -> str:
    """What to type to get the next older set that is good as far as is known."""
    names = [each["name"] for each in sets.listing(store) if each["ok"] and each["name"] < chosen.name]
    if not names:
        return "There is no older good set."
    return f"The next older good set: sudo memops restore {names[-1]}{sets.name_option(store)}"


def fetch(store: Store, path: str) -> Chosen:
    """Copy a set that somebody brought back to where only root is, and verify the copy. Raises Refused."""
    real = Path(path).absolute()
    if not real.is_dir() or real.is_symlink():
        raise Refused(f"{real} is not the directory of a set.", "Give the directory that holds its manifest.json.")
    seen = "/run/memops/fetched" if store.strict else str(real)
    binds = (sets.bound(store, writable=True), f'BindReadOnlyPaths="{real}":{seen}')
    # What was fetched may belong to anybody.
    ran = walled(store, ("fetch", seen, store.seen_sets), *binds, "CapabilityBoundingSet=CAP_DAC_READ_SEARCH")
    if ran.code:
        raise Refused(f"{real} cannot be put back: {printable(ran.said, 400)}.", "Fetch it anew, or another one.")
    entry = json.loads(ran.out)
    return Chosen(entry, entry["path"], str(real))


def discard_fetched(store: Store) -> None:
    """Remove copies of fetched sets, of this run or of one that was killed."""
    if any(path.name.startswith(".fetched-") for path in Path(store.sets).glob(".*")):
        walled(store, ("discard", store.seen_sets), sets.bound(store, writable=True))


def walled(store: Store, words: tuple[str, ...], *more: str) -> host.Ran:
    """Run a step of setcopy.py as root without rights, but for ``more``."""
    command = ("/usr/bin/python3", "-I", f"{LIBRARY}/setcopy.py", *words)
    return owner.transient(sets.walls(store, *more), command, timeout=SECONDS)


def plan(store: Store, chosen: Chosen) -> Plan:
    """Match the parts of the set with those of the store. Raises Refused."""
    there = chosen.parts
    matched = [part for part in store.all_parts if part.name in there]
    for part in matched:
        if part.kind != there[part.name]:
            raise Refused(
                f"The part {part.name} is of kind {part.kind}, and in the set of kind {there[part.name]}.",
                f"Take the set apart by hand: sudo memops restore {chosen.name} --to DIR",
            )
    known = {MAIN, *(part.name for part in matched)}
    remarks = [f"The set has no {part.name}: that stays as it is." for part in store.all_parts if part not in matched]
    remarks += [f"The store has no {name} any more: that stays in the set." for name in there if name not in known]
    if chosen.fetched and chosen.entry["store"] != store.name:
        remarks.append(f"The set is of a store that was called {printable(chosen.entry['store'])}.")
    local = tuple(part for part in matched if not part.server)
    _require_places(store, local)
    return Plan(store, chosen, local, tuple(part for part in matched if part.server), tuple(remarks))


def _require_places(store: Store, local: tuple[Part, ...]) -> None:
    lying = [(store.directory, MAIN), *((part.directory, part.name) for part in local)]
    for directory, _ in lying:
        entry = host.look(directory)
        if entry is None or entry.kind != "directory":
            raise Refused(
                f"{directory} is not a directory, and what belongs there cannot be put back.",
                f"Make it: sudo install -d -o {store.user} -m 700 {shlex.quote(directory)}",
            )
    for part in local:
        for directory, name in lying:
            if not part.file and name != part.name and f"{directory}/".startswith(f"{part.directory}/"):
                raise Refused(f"The parts {part.name} and {name} lie one in the other.", "Keep them apart.")


def look(plan: Plan, *, whole: bool = False) -> list[str]:
    """What would change, as lines for a person. Raises MemopsError."""
    seen = f"{plan.store.seen_sets}/{plan.chosen.path}"
    found = changes.find(plan.store, seen, plan.chosen.entry, plan.local, whole=whole)
    return [*changes.describe(found, whole=whole), *plan.remarks]


def extract(store: Store, chosen: Chosen, target: Path) -> None:
    """Copy the set into ``target``, which is new or empty, and touch nothing else. Raises MemopsError."""
    real = Path(os.path.realpath(target.parent)) / target.name
    closed = [store.directory, store.backup_dir, *(part.directory for part in store.local_parts)]
    if any(Path(place) in (real, *real.parents) for place in closed):
        raise Refused(f"{real} lies in a place of the store or its backups.", "Name another directory, in /root say.")
    if above := places.others_place(str(real.parent)):
        raise Refused(
            f"Others may change {above}, so what is put there might land elsewhere.",
            "Name a directory in a place of root's own, in /root say.",
        )
    entry = host.look(str(real))
    if entry is not None and (entry.kind != "directory" or entry.uid != 0 or os.listdir(real)):  # noqa: PTH208
        raise Refused(f"{real} is there, and not an empty directory of root's.", "Name a new one.")
    host.make_directory(str(real), 0o700, 0, 0)
    seen = "/run/memops/target" if store.strict else str(real)
    binds = (sets.bound(store), f'BindPaths="{real}":{seen}')
    ran = walled(store, ("extract", f"{store.seen_sets}/{chosen.path}", seen), *binds)
    if ran.code:
        if entry is None:
            host.remove_directory(str(real))
        raise MemopsError(f"The set could not be written to {real}: {printable(ran.said, 400)}.")
