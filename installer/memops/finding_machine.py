"""Findings on the machine, on how a store is looked after, and on what could not be read. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memops import health
from memops.finding_places import VAR_TMP, is_lost
from memops.finding_text import doctor_fix, listed, parent, quoted
from memops.found import Finding
from memops.health import name_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memops.found import Care, Found, Machine, Part

UTC = ("UTC", "Etc/UTC", "Universal", "Etc/Universal", "Zulu", "Etc/Zulu")


def judge(found: Iterable[Found], machine: Machine) -> Iterator[Finding]:
    """What is wrong about the machine."""
    there = list(found)
    if machine.clock_synchronised is False:
        what = "The clock of this machine is not synchronised: what ends or is pruned goes by it."
        yield Finding("clock", "warning", "", what, "sudo timedatectl set-ntp true")
    if not machine.timezone:
        what = "The time zone of this machine cannot be told: calendars and local dates go by it."
        yield Finding("time-zone", "warning", "", what, "sudo timedatectl set-timezone Europe/Berlin")
    elif machine.timezone not in UTC and (local := _local(there)):
        what = f"Dates without a zone, which are local time here ({quoted(machine.timezone)}): {listed(local)}."
        do = "Nothing, while the zone stays: sudo timedatectl set-timezone moves them all."
        yield Finding("time-zone", "note", "", what, do)
    paths = {part.path for store in there for part in store.parts}
    for copied in machine.litestream:
        what = f"Litestream copies this: {quoted(copied)}. A checkpoint or VACUUM by hand breaks its chain."
        do = "Leave both to Litestream; a restore begins with it stopped: sudo systemctl stop litestream"
        yield Finding("litestream", "note", copied if copied in paths else "", what, do)


def _local(found: Iterable[Found]) -> list[str]:
    return sorted(
        quoted(f"{part.path}, {column}")
        for store in found
        for part in store.parts
        if part.database
        for column, forms in part.database.dates.items()
        if forms.get("naive")
    )


def judge_store(found: Found, machine: Machine, care: Care | None) -> Iterator[Finding]:
    """What is wrong about how a store is looked after, and about the room that it has."""
    for part in found.parts:
        yield from _room(part, machine)
        if part.unread:
            what = f"The {part.what} could not be read: {part.unread}."
            yield Finding("unread", "warning", part.path, what, f"sudo memops doctor {quoted(part.path)}")
    if found.care:
        if care is not None:
            yield from _sets(care)
    elif found.parts and not is_lost(found) and not found.lacking:
        what = "Nobody backs it up or looks after it."
        do = f"sudo memops adopt {quoted(found.path)}"
        yield Finding("not-under-care", "note", found.path, what, do)


def _room(part: Part, machine: Machine) -> Iterator[Finding]:
    if part.kind not in ("sqlite", "chroma", "qdrant"):
        return
    for directory in (parent(part.path), VAR_TMP):
        free = machine.free.get(directory)
        if free is not None and free < part.size:
            have = f"{free / 1e6:,.1f} MB are free in {quoted(directory)}, and the store has {part.size / 1e6:,.1f} MB"
            what = f"There is no room for a VACUUM: {have}."
            yield Finding("no-space-vacuum", "warning", part.path, what, f"Make room: df -h {quoted(directory)}")
            return


def _sets(care: Care) -> Iterator[Finding]:
    name = name_option(care.name)
    if care.free is not None and care.needs is not None and care.free < care.needs:
        needs = f"a set takes {care.needs / 1e6:,.1f} MB"
        have = f"{care.free / 1e6:,.1f} MB are free in {quoted(care.backup_dir)}, and {needs}"
        do = f"Make room, or give another place: sudo memops install{name} --backup-dir DIR"
        yield Finding("no-space-backup", "error", care.db, f"There is no room for the next set: {have}.", do)
    if care.set_state == "none":
        what = "There is no verified set: what is lost is lost for good."
        yield Finding("no-set", "error", care.db, what, doctor_fix("no-set", care.db), fix=True)
    elif care.set_state in ("late", "overdue"):
        old = "is gone" if care.set_age is None else f"is {health.span(care.set_age)} old"
        what = f"The newest verified set {old}: what came since is in none."
        level = "warning" if care.set_state == "late" else "error"
        yield Finding("old-set", level, care.db, what, doctor_fix("old-set", care.db), fix=True)
    if care.drill_state in ("late", "overdue"):
        last = "No test restore ever went well"
        if care.drill_age is not None:
            last = f"The last test restore that went well was {health.span(care.drill_age)} ago"
        what = f"{last}: nobody knows whether the sets can be put back."
        yield Finding("old-drill", "warning", care.db, what, doctor_fix("old-drill", care.db), fix=True)
    if "future" in (care.set_state, care.drill_state):
        what = "A set or a drill of this store carries a time that lies ahead of the clock."
        yield Finding("clock", "warning", care.db, what, "Look at the clock: timedatectl")
