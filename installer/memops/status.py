"""Gathering what ``memops status`` shows: from systemd, the run records, the sealing record and the journal.

Everything is looked at, nothing guessed: what this user may not read is named in ``unreadable``. What is wrong is
judged in health, for ``memops check`` too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from memops import host, prune, survey, systemd
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
    """The part of a store's status that everybody sees."""
    found = survey.look(store.name, lambda *words: host.run(*words).out, now, survey.read_files(store.name, printable))
    return {"name": store.name, "db": store.db, "user": store.user, "backup_dir": store.sets, **found}


def _store(store: Store, fresh: bool, now: float) -> dict[str, Any]:
    result = look(store, now)
    result["journal"] = _journal([store.unit(job) for job in store.jobs], result["unreadable"])
    if fresh:
        result["counts"] = {**prune.count(store), "at": iso(now), "age": 0}
    return {**result, "problems": problems(result)}


def _journal(services: list[str], unreadable: list[str]) -> dict[str, list[str] | None]:
    lines: dict[str, list[str] | None] = {}
    for unit in services:
        entries = systemd.journal(unit, 1, "_TRANSPORT=stdout")
        lines[unit] = (
            None
            if entries is None
            else [
                f"{iso(int(e['__REALTIME_TIMESTAMP']) / 1e6)} {printable(e.get('MESSAGE', ''), 200)}" for e in entries
            ]
        )
    if None in lines.values():
        unreadable.append("the journal (needs root or the group systemd-journal)")
    return lines
