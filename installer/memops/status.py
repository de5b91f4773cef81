"""Gathering what ``memops status`` shows: from systemd, the run records, the sealing record and the journal.

Everything is looked at, nothing guessed: what this user may not read is named in ``unreadable``. What is wrong is
judged in health, for ``memops check`` too.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from memops import host, records, survey, systemd, vitals
from memops.health import problems
from memops.store import printable
from memops.survey import iso

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memops.settings import Store

VERSION = 1


def gather(stores: Iterable[Store], *, fresh: bool = False, now: float | None = None) -> dict[str, Any]:
    """The whole status as JSON carries it: ``{"version": 1, "stores": [...]}``; docs/status.md describes each key."""
    at = time.time() if now is None else now
    return {"version": VERSION, "stores": [_store(store, fresh, at) for store in stores]}


def look(store: Store, now: float) -> dict[str, Any]:
    """The part of a store's status that check judges."""
    return _look(store, now, records.read_files(store.name, printable))


def _look(store: Store, now: float, files: records.Files) -> dict[str, Any]:
    found = survey.look(store.name, lambda *words: host.run(*words).out, now, files)
    if newest := found["newest_set"]:
        # Only root sees the sets themselves; the others go by root's record.
        newest["gone"] = os.access(store.sets, os.X_OK) and host.look(f"{store.sets}/{newest['set']}") is None
    kept = {"product": store.product, "level": store.level}
    return {"name": store.name, "db": store.db, "user": store.user, "backup_dir": store.sets, **kept, **found}


def _store(store: Store, fresh: bool, now: float) -> dict[str, Any]:
    files = records.read_files(store.name, printable)
    result = {**_look(store, now, files), "health": vitals.newest(files.records or [], now)}
    # The jobs of a night; what the others said last is in their records.
    others = ("drill", "offsite", "review")
    result["journal"] = _journal([job["unit"] for job in result["jobs"] if job["job"] not in others])
    if None in result["journal"].values():
        result["unreadable"].append("the journal (needs root or the group systemd-journal)")
    if fresh:
        counts, figures = vitals.count(store)
        result["counts"] = {**counts, "at": iso(now), "age": 0}
        result["health"] = vitals.make(figures, iso(now), 0)
    return {**result, "problems": problems(result)}


_FROM_JOB = "_TRANSPORT=stdout"
"""What the job itself printed, not what systemd says of its unit."""


def _journal(services: list[str]) -> dict[str, list[str] | None]:
    """The last line of each job, in a list; None where this user may not read them."""
    entries = systemd.journal(services, 60, _FROM_JOB)
    if entries is None:
        return dict.fromkeys(services)
    last = {entry["_SYSTEMD_UNIT"]: entry for entry in entries}
    for unit in services:
        if unit not in last and (alone := systemd.journal([unit], 1, _FROM_JOB)):  # silent for long
            last[unit] = alone[-1]
    return {unit: [_line(last[unit])] if unit in last else [] for unit in services}


def _line(entry: dict[str, str]) -> str:
    return f"{iso(int(entry['__REALTIME_TIMESTAMP']) / 1e6)} {printable(entry.get('MESSAGE', ''), 200)}"
