"""What putting a set back would change, found out before anybody is asked.

The owner's process lists the facts that are there, and one without rights compares them with the set's: neither list
passes through this process, only what came out. Ids are the agent's text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memops import host, owner, sets
from memops.errors import MemopsError
from memops.settings import LIBRARY
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memops.parts import Part
    from memops.settings import Store

SECONDS = 1800
NAMED = 10
"""Ids that are named of each sort."""

_COUNTED = ("sqlite", "files")
"""Kinds of which the same thing is counted in a set as where they are."""


@dataclass(frozen=True)
class Change:
    """Facts of one sort: how many, and the first ids."""

    count: int
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Changes:
    """What would be another than now."""

    facts: int
    """Facts in the set."""
    trouble: str = ""
    """Why the present facts cannot be compared: missing, or what is damaged."""
    lost: Change = Change(0, ())
    back: Change = Change(0, ())
    differ: Change = Change(0, ())
    """Looked for only where all of it is asked for."""
    parts: tuple[tuple[str, int | None, int], ...] = ()
    """Further parts: name, how much is there now (None: not known), how much in the set."""


def find(store: Store, seen_set: str, entry: Mapping[str, Any], local: Iterable[Part], *, whole: bool) -> Changes:
    """Compare a set, which the walled unit sees at ``seen_set``, with what is there. Raises MemopsError.

    whole: name every id, and look at what the facts say too, which takes longer.
    """
    script = f"{LIBRARY}/comparison.py"
    more = ("--content",) if whole else ()
    listing = owner.as_owner(store, ("/usr/bin/python3", "-I", script, "list", store.seen_db, *more))
    most = () if whole else ("--most", str(NAMED))
    comparing = ("/usr/bin/python3", "-I", script, "compare", f"{seen_set}/memory.db", *most, *more)
    walls = sets.walls(store, sets.bound(store))
    listed, compared = host.pipe(
        owner.transient_words(*listing, SECONDS), owner.transient_words(walls, comparing, SECONDS), SECONDS + 60
    )
    try:
        found = json.loads(compared.out)
    except ValueError:
        why = printable(compared.said if compared.code else listed.said, 300)
        raise MemopsError(f"The set could not be compared with the store: {why}") from None
    parts = tuple(_parts(store, entry, local))
    if "trouble" in found:
        return Changes(found["chosen"], printable(found["trouble"], 300), parts=parts)
    sorts = {word: Change(found[word]["count"], tuple(found[word]["ids"])) for word in ("lost", "back", "differ")}
    return Changes(found["chosen"], "", **sorts, parts=parts)


def _parts(store: Store, entry: Mapping[str, Any], local: Iterable[Part]) -> Iterable[tuple[str, int | None, int]]:
    known = {part["name"]: part["count"] for part in entry["parts"]}
    counted = [part for part in local if part.kind in _COUNTED and part.name in known]
    now: list[int | None] = [None] * len(counted)
    if counted:
        script = ("/usr/bin/python3", "-I", f"{LIBRARY}/comparison.py", "count")
        paths = (store.seen_part(part) for part in counted)
        ran = owner.transient(*owner.as_owner(store, (*script, *paths), binds(store, counted)), timeout=SECONDS)
        try:
            answers = json.loads(ran.out)
            now = [each if type(each) is int and each >= 0 else None for each in answers]
        except (ValueError, TypeError, RecursionError):
            now = []
    counts = dict(zip([part.name for part in counted], now, strict=False))
    return [(name, counts.get(name), known[name]) for name in known if name != "memory"]


def binds(store: Store, local: Iterable[Part]) -> list[str]:
    """The properties that let an owner's unit see the directories of these parts as the jobs do."""
    if not store.strict:
        return []
    return [f'BindPaths="{part.directory}":/run/memops/parts/{part.name}' for part in local]


def describe(changes: Changes, *, whole: bool) -> list[str]:
    """Lines for a person; with ``whole`` every id."""
    if changes.trouble == "missing":
        lines = [f"The store is missing. The set has {changes.facts:,} facts."]
    elif changes.trouble:
        lines = [
            f"What the store holds cannot be compared: {changes.trouble}. The set has {changes.facts:,} facts.",
            "It is moved aside as it is, and nothing of it is lost.",
        ]
    else:
        lines = [
            _line("facts that will be lost (stored since then)", changes.lost, whole=whole),
            _line("deletions that will be undone", changes.back, whole=whole),
        ]
        if whole:
            lines.append(_line("facts that will say again what they said then", changes.differ, whole=True))
    for name, now, then in changes.parts:
        lines.append(f"{name}: {'?' if now is None else f'{now:,}'} now, {then:,} in the set")
    return lines


def _line(what: str, change: Change, *, whole: bool) -> str:
    shown = [printable(each) for each in change.ids]
    if whole:
        return "\n".join([f"{what}: {change.count:,}", *(f"      {each}" for each in shown)])
    more = f" and {change.count - len(shown):,} more" if change.count > len(shown) else ""
    return f"{what}: {change.count:,}" + (f": {', '.join(shown)}{more}" if shown else "")
