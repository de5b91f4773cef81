"""Which sets stay and which go, and when none may go.

Of each of the last days, weeks and months that have a verified set, the newest one stays; so do the sets of the last 24
hours, since who makes one before a change wants it after that. A set that fails a later verification is neither counted
nor removed: somebody should look at it. When a part of the new set lost most of what it held in the set before, nothing
goes at all: a store replaced by an empty one must not push the good sets out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import health
from store import printable

import job
import setdir
import setstate
import takeover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

RECENT: Final = timedelta(hours=24)
"""How much older than the newest a set is at the most that stays without being counted."""

FEW: Final = 100
"""What a part may lose without being asked about, however little it held."""


@dataclass(frozen=True)
class Keep:
    """How many days, weeks and months with a set keep one; all 0: every set stays."""

    daily: int = 0
    weekly: int = 0
    monthly: int = 0


@dataclass(frozen=True)
class Rotated:
    """How it went: words for the job's line, and whether the guard held or removing failed."""

    words: str = ""
    held: bool = False
    failed: bool = False


@dataclass(frozen=True)
class Decision:
    """What becomes of a set, and why."""

    name: str
    keep: bool
    why: str


_NOT_WHOLE: Final = "not whole, so somebody should look at it"
_AHEAD: Final = "dated after the newest"

PERIODS: Final[tuple[tuple[str, Callable[[datetime], object]], ...]] = (
    ("daily", lambda at: at.date()),
    ("weekly", lambda at: at.isocalendar()[:2]),
    ("monthly", lambda at: (at.year, at.month)),
)


def decide(sets: Iterable[setdir.Set], keep: Keep, new: str | None = None) -> list[Decision]:
    """What is to become of each set, oldest first. Pure.

    new: the set that was just sealed. What is dated after it was sealed by a clock that was wrong; it stays, and is not
    counted. Days, weeks (of ISO 8601) and months are those of UTC, as in the sets' names.
    """
    every = sorted(sets, key=lambda each: setdir.order(each.name))
    reasons = {each.name: _own_reasons(each, new) for each in every}
    counted = [each for each in every if not {_NOT_WHOLE, _AHEAD} & set(reasons[each.name])]
    for each in counted:
        if each is counted[-1]:
            reasons[each.name].append("the newest")
        elif _at(counted[-1]) - _at(each) < RECENT:
            reasons[each.name].append("of the last 24 hours")
        if not any((keep.daily, keep.weekly, keep.monthly)):
            reasons[each.name].append("all sets are kept")
    for word, period in PERIODS:
        # Of sets in one period the newest comes last, and takes the place of those before it.
        last = {period(_at(each)): each.name for each in counted}
        for name in list(last.values())[len(last) - min(len(last), getattr(keep, word)) :]:
            reasons[name].append(word)
    return [Decision(name, bool(why), ", ".join(why) or "newer ones stand for it") for name, why in reasons.items()]


def _own_reasons(each: setdir.Set, new: str | None) -> list[str]:
    """Why a set stays whatever the others are."""
    ahead = new is not None and setdir.order(each.name) > setdir.order(new)
    why = (("pinned", each.pinned), (_NOT_WHOLE, not each.ok), (_AHEAD, ahead))
    return [words for words, so in why if so]


def _at(each: setdir.Set) -> datetime:
    return setdir.moment(each.name) or datetime.min.replace(tzinfo=UTC)


def loss(before: Mapping[str, int], new: Mapping[str, int]) -> str | None:
    """What a part lost that lost most, as a sentence about the new set, or None. Pure.

    Both: part → how much it holds. A part that only one of the two has was added or taken out by the owner.
    """
    for part in sorted(before.keys() & new.keys()):
        old, now = before[part], new[part]
        if (now == 0 and old > 0) or (now * 2 < old and old - now > FEW):
            return f"{printable(part)} holds {now:,}, where it held {old:,}"
    return None


def holds(parts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How much each part of a set holds, by its name. Pure.

    Of plain files the size counts, too, which is all that tells an index from an emptied one.
    """
    found = {}
    for part in parts:
        found[part["name"]] = part["count"]
        if part["kind"] == "files":
            found[f"{part['name']} (kB)"] = -(-part["bytes"] // 1000)
    return found


def after_seal(
    sets: int, manifest: Mapping[str, Any], keep: Keep, sets_record: str, *, accept_loss: bool = False
) -> Rotated:
    """Let old sets go now that the one of ``manifest`` is there. ``sets`` is the directory, locked by the caller.

    The guard compares with the set before. Once it held, it goes on comparing with that one, which the record's
    ``loss`` names, until what was lost is back or root accepts it.
    """
    try:
        return _after_seal(sets, manifest, keep, sets_record, accept_loss=accept_loss)
    except OSError as error:  # the new set is there all the same
        return Rotated(f"; older sets could not be rotated: {error}", failed=True)


def _after_seal(sets: int, manifest: Mapping[str, Any], keep: Keep, sets_record: str, *, accept_loss: bool) -> Rotated:
    state = setstate.read(sets_record)
    found = setdir.list_sets(sets, state)
    before = _compared(found, state, manifest["set"])
    held = holds(map(setdir.entry, manifest["parts"]))
    lost = before and loss(before["rows"], held)
    if before and lost and not accept_loss:
        setstate.update(sets_record, lambda state: state.update(loss=before))
        command = f"memops backup{health.name_option(manifest['store'])}"
        return Rotated(
            f". Older sets were left alone: {lost} in the set {before['set']}."
            f" If that is right: sudo {command} --accept-loss",
            held=True,
        )
    removed, problems = rotate(sets, decide(found, keep, manifest["set"]))

    def change(state: dict[str, Any]) -> None:
        state.pop("loss", None)
        if verified := setstate.section(state, "verified"):
            there = os.listdir(sets)
            state["verified"] = {name: entry for name, entry in verified.items() if name in there}

    setstate.update(sets_record, change)
    words = f"; {removed:,} older set{'s' * (removed != 1)} removed" if removed else ""
    words += "; the loss is accepted" if lost else ""
    return Rotated(words + "".join(f"; {problem}" for problem in problems), failed=bool(problems))


def _compared(sets: Iterable[setdir.Set], state: Mapping[str, Any], new: str) -> dict[str, Any] | None:
    """The set to compare ``new`` with: its name and what its parts hold; None where there is no other."""
    kept = setstate.section(state, "loss")
    if isinstance(kept.get("set"), str) and isinstance(kept.get("rows"), dict):
        rows = {part: count for part, count in kept["rows"].items() if type(count) is int}
        return {"set": kept["set"], "rows": rows}
    good = {each.name: each for each in sets if each.ok and each.name != new}
    before = good.get(str(setstate.section(state, "newest").get("set")))
    # By its name where the record does not say: not by a date after the new one's, which a wrong clock made.
    earlier = [name for name in good if setdir.order(name) < setdir.order(new)] or list(good)
    if before is None and earlier:
        before = good[max(earlier, key=setdir.order)]
    if before is None:
        return None
    return {"set": before.name, "rows": holds(before.parts)}


def rotate(sets: int, decisions: Iterable[Decision]) -> tuple[int, list[str]]:
    """Remove the sets that are to go from the directory ``sets``; returns how many went, and what could not be done."""
    removed, problems = 0, []
    for decision in decisions:
        if decision.keep:
            continue
        try:
            removed += remove(sets, decision.name)
        except (OSError, job.JobError) as error:
            problems.append(f"the set {decision.name} could not be removed: {error}")
    return removed, problems


def remove(sets: int, name: str) -> bool:
    """Remove a set unless it is being read, or was pinned meanwhile; says whether it is gone. Raises OSError.

    It loses its name first, so that a set with a name is always whole; the next sealing clears away what a kill left.
    """
    with takeover.opened(sets, name) as directory:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        with contextlib.suppress(FileNotFoundError):
            os.stat(name + setdir.PINNED, dir_fd=sets, follow_symlinks=False)
            return False
        partial = setdir.PARTIAL + os.urandom(8).hex()
        os.rename(name, partial, src_dir_fd=sets, dst_dir_fd=sets)
        os.fsync(sets)
        shutil.rmtree(partial, dir_fd=sets)
        os.fsync(sets)
    return True
