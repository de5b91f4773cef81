"""Erasing words for good: where they are, taking them out everywhere, and looking at every byte again.

The owner's half (scripts/jobs/erase.py) has the store, its further databases, the records and what a restore moved
aside; root's half (erase_sets.py) has the sets. The words go to both by standard input. What comes back is the owner's
word, and is escaped. "Gone" is said only where everything was looked at and nothing was found.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memops import apply, backup, holders, host, searching, sets, systemd
from memops.errors import MemopsError, Refused
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memops.settings import Store

HOLD = 3 * searching.TIMEOUT
"""Seconds that the agent stands still at the most, also when this command is killed."""

SHOWN = 30


@dataclass(frozen=True)
class Wanted:
    """Facts by their ids, or a text, or the fact whose credential is to be blanked; and what may be done to sets."""

    ids: tuple[str, ...] = ()
    text: str | None = None
    redact: str | None = None
    sets: bool = False
    pinned: bool = False

    @property
    def given(self) -> dict[str, Any]:
        """As erase.py wants it."""
        if self.redact is not None:
            return {"redact": self.redact}
        return {"ids": list(self.ids)} if self.text is None else {"texts": [self.text], "matching": True}


@dataclass
class Looked:
    """Where the words are. ``sets`` and ``other`` are empty for the store's user, who cannot see them."""

    texts: list[str]
    ids: list[str]
    seen: dict[str, str]
    going: list[dict[str, Any]]
    places: list[dict[str, Any]]
    more: int
    unread: list[str]
    sets: list[dict[str, Any]] = field(default_factory=list)
    other: list[dict[str, Any]] = field(default_factory=list)

    @property
    def holding(self) -> list[str]:
        """The sets that have the words."""
        return [str(each["name"]) for each in self.sets if each["holds"] in ("whole", "part")]

    @property
    def anything(self) -> bool:
        """Whether there is anything to erase."""
        return bool(self.ids or self.places or self.holding or self.other)


@dataclass
class Done:
    """What came of it: whether nothing is left anywhere, how many facts went, and what is left and why."""

    gone: bool
    facts: int
    ids: list[str]
    left: list[str]
    remarks: list[str]
    receipt: str = ""


def is_root() -> bool:
    """Whether root types this."""
    return os.geteuid() == 0


def look(store: Store, wanted: Wanted) -> Looked:
    """Find the words. Raises MemopsError."""
    if store.has_ledger or store.table:
        raise Refused(
            "Another program keeps these facts, and its files are not written anew beside it.",
            "Let the product delete it, which names what remains: memops forget ID",
        )
    if host.look(store.restore_note) is not None:
        raise Refused(
            "A restore of this store has not come to its end.",
            f"First: sudo memops restore --undo{sets.name_option(store)}",
        )
    found = searching.ask_owner(store, "erase", "look", wanted.given)
    looked = Looked(
        [str(text) for text in found["texts"]],
        [str(name) for name in found["ids"]],
        dict(found["seen"]),
        list(found["going"]),
        list(found["places"]),
        int(found["more"]),
        [printable(each, 300) for each in found["unread"]],
    )
    if found["short"]:
        looked.unread.append(f"{found['short']} facts say too little to be looked for")
    if is_root():
        _look_at_sets(store, looked)
    return looked


def _look_at_sets(store: Store, looked: Looked) -> None:
    if host.look(store.sets) is None:
        return
    found = searching.ask_sets(store, "erase_sets", "look", {"texts": looked.texts})
    looked.sets, looked.other = list(found["sets"]), list(found["other"])
    looked.unread += [printable(each, 300) for each in found["unread"]]


def carry_out(
    store: Store, wanted: Wanted, looked: Looked, *, by: str, terminal: bool, say: Callable[[str], None]
) -> Done:
    """Take the words out everywhere that may be, and look again. Raises MemopsError where nothing was done."""
    remarks: list[str] = []
    say("take the words out of rows, records and copies")
    given = {**wanted.given, "texts": looked.texts, "seen": looked.seen, "by": by, "terminal": terminal}
    done = searching.ask_owner(store, "erase", "delete", given)
    left = [printable(each, 300) for each in done["left"]]
    gone = [str(name) for name in done["gone"]]
    with _standing_still(store, say, remarks):
        held = _held(store)
        say("write the databases anew" if not held else "the databases cannot be written anew")
        left += [printable(each, 300) for each in searching.ask_owner(store, "erase", "settle", {"held": held})["left"]]
        say("look at every byte again")
        again = searching.ask_owner(store, "erase", "search", {"texts": looked.texts})
    left += _places(again["places"], again["more"])
    left += [f"not read: {printable(each, 300)}" for each in again["unread"]]
    if is_root():
        left += _clear_sets(store, wanted, looked, say)
        left += searching.away(store)
    else:
        left.append(f"the sets in {store.sets}/, which only root can look at and remove")
    finished = Done(not left, len(gone), gone, left, remarks)
    receipt = {
        "by": by,
        "terminal": terminal,
        "what": "redact" if wanted.redact else "matching" if wanted.text is not None else "ids",
        "ids": [wanted.redact] if wanted.redact else gone,
        "blanked": int(done["blanked"]),
        "gone": finished.gone,
        "left": left,
    }
    try:
        found = searching.ask_owner(store, "erase", "receipt", {"texts": looked.texts, "receipt": receipt})
        finished.receipt = printable(found["path"], 300)
    except MemopsError as error:
        remarks.append(f"the receipt could not be written: {error.message}")
    return finished


# The sets


def _clear_sets(store: Store, wanted: Wanted, looked: Looked, say: Callable[[str], None]) -> list[str]:
    """Let the sets that have the words go, once there is a new one; what is left, and why."""
    left: list[str] = []
    if looked.holding and wanted.sets:
        say("make a new set, which takes the place of those that go")
        try:
            backup.run(store)
        except MemopsError as error:
            if error.exit_code != 6:  # then the set is there
                left.append(f"no new set could be made, so the old ones stay: {error.message}")
    now = Looked(looked.texts, [], {}, [], [], 0, [])
    _look_at_sets(store, now)
    latest = next((each for each in now.sets if each["latest"]), None)
    names = [
        str(each["name"])
        for each in now.sets
        if each["holds"] in ("whole", "part") and (wanted.pinned or not each["pinned"])
    ]
    if names and wanted.sets and latest and latest["holds"] == "":
        say(f"remove {len(names)} sets" if len(names) > 1 else "remove one set")
        given = {"names": names, "stays": latest["name"], "pinned": wanted.pinned}
        done = searching.ask_sets(store, "erase_sets", "remove", given, writable=True)
        left += [printable(each, 300) for each in done["left"]]
        now = Looked(looked.texts, [], {}, [], [], 0, [])
        _look_at_sets(store, now)
    for each in now.sets:
        if each["holds"] in ("whole", "part"):
            pinned = ", which is pinned (--pinned)" if each["pinned"] else ""
            left.append(f"the set {each['name']}{pinned}" + ("" if wanted.sets else " (--sets lets it go)"))
    left += [f"{printable(each['where'], 300)} (sudo memops backup clears it)" for each in now.other]
    return left + [f"not read: {each}" for each in now.unread]


# Standing still


@contextlib.contextmanager
def _standing_still(store: Store, say: Callable[[str], None], remarks: list[str]) -> Iterator[None]:
    """With the agent paused, where it has a unit and root types this; it goes on afterwards, also after a kill."""
    if not is_root() or not store.agent_unit:
        yield
        return
    pause = store.unit("pause")
    unit = f"memory-erasing{store.suffix}.service"
    say(f"stop {store.agent_unit}")
    before = systemd.show([store.agent_unit], "ActiveState")[store.agent_unit]["ActiveState"]
    host.run("systemctl", "stop", "--", unit, timeout=600, ok=None)
    properties = (f"Requires={pause}", f"After={pause}", f"RuntimeMaxSec={HOLD}")
    words = ("systemd-run", "--quiet", "--collect", f"--unit={unit}", *(f"--property={each}" for each in properties))
    # It ends with this process, whatever ends that, and then the agent goes on.
    host.run(*words, "--", "tail", f"--pid={os.getpid()}", "-f", "/dev/null", timeout=600)
    try:
        with apply.signals_raise():
            yield
    finally:
        host.run("systemctl", "stop", "--", unit, timeout=600, ok=None)
        # systemd stops the pause, which starts the agent again.
        end = time.monotonic() + 600
        while time.monotonic() < end:
            if systemd.show([pause], "ActiveState")[pause]["ActiveState"] in ("inactive", "failed"):
                break
            time.sleep(0.1)
        now = systemd.show([store.agent_unit], "ActiveState")[store.agent_unit]["ActiveState"]
        if before == "active" and now != "active":
            remarks.append(f"{store.agent_unit} does not run again: systemctl status {store.agent_unit}")


def _held(store: Store) -> dict[str, str]:
    """Which databases somebody has open, and who."""
    found = {}
    for path in searching.databases(store):
        who = holders.find(holders.Wanted((path,)))
        if who:
            unit = next((unit for each in who for unit in each.units if unit.endswith(".service")), "")
            stop = f"sudo systemctl stop {unit}" if unit else "stop it"
            found[path] = f"{who[0].text}; {stop}, and erase again"
    return found


# For people


_KINDS = {
    "fact": "fact",
    "row": "row",
    "schema": "schema",
    "pages": "file",
    "record": "record",
    "copy": "kept by a restore",
    "incoming": "on its way into a set",
    "part": "kept by a program of its own",
    "file": "file that is not memops' own",
}


def _places(found: Sequence[dict[str, Any]], more: int) -> list[str]:
    lines = []
    for each in found[:SHOWN]:
        part = ", a piece of them" if each.get("how") == "part" else ""
        lines.append(f"{_KINDS.get(str(each.get('kind')), '?')}: {printable(each.get('where'), 300)}{part}")
    count = len(found) - len(lines) + more
    return lines + ([f"and {count:,} more places"] if count else [])


def describe(store: Store, wanted: Wanted, looked: Looked) -> list[str]:
    """What was found, before anybody is asked. Pure, but for looking who has the databases open."""
    lines = ["The words are in:" if looked.anything else "The words are nowhere that could be looked at."]
    lines += [f"  {each}" for each in _places(looked.places, looked.more)]
    for each in looked.sets:
        if each["holds"] in ("whole", "part"):
            lines.append(f"  set: {each['name']}" + (" (pinned)" if each["pinned"] else ""))
    lines += [f"  left of a backup: {printable(each['where'], 300)}" for each in looked.other]
    lines += [f"  ! not read: {each}" for each in looked.unread]
    if looked.ids:
        lines.append(f"Facts that go, with all that they replaced: {len(looked.ids):,}")
    if wanted.redact:
        lines.append(f"{printable(wanted.redact)} stays, with its dates; what looks like a credential becomes […].")
    lines.append("No set is taken first: it would keep the words.")
    if is_root() and store.agent_unit:
        lines.append(f"{store.agent_unit} is stopped meanwhile.")
    elif held := _held(store):
        lines += [f"! {path} cannot be written anew: {why}" for path, why in held.items()]
    if not is_root():
        lines.append("Sets cannot be looked at by you: root types memops forget --erase --matching - afterwards.")
    return lines + [f"! {each}" for each in searching.away(store) if is_root()]


def conclude(store: Store, done: Done) -> list[str]:
    """What came of it."""
    lines = [f"Facts deleted: {done.facts:,}."] if done.facts else []
    lines += [f"Note: {each}" for each in done.remarks]
    if done.gone:
        lines.append("Gone: no byte of the store, its parts, records and sets has the words any more.")
    else:
        lines += ["Not gone, or not shown to be:", *(f"  {each}" for each in done.left)]
        again = f"memops forget --erase --matching - --sets{sets.name_option(store)}"
        lines.append(f"When that is seen to, give the words again, by standard input: sudo {again}")
    return [*lines, f"Receipt, without the words: {done.receipt}"] if done.receipt else lines
