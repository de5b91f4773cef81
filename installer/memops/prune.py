"""Running the prune unit and listing what it would delete."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from memops import jobs, owner, systemd
from memops.errors import MemopsError
from memops.settings import LIBRARY
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memops.settings import Store

MODE_LIFETIME = 600
"""Seconds that root's word to a run of the prune unit is valid."""


def run(store: Store, mode: str | None, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Start the prune unit, follow it to its end and return its run record.

    mode: ``report`` (delete nothing), ``allow-large`` (the guard steps aside once) or None.
    progress: called now and then with rows done and rows in all.
    Raises MemopsError with the job's own words and exit code.
    """
    unit = store.unit("prune")
    systemd.wait(unit)
    before = jobs.last_run(jobs.run_records(store), "prune")

    def look() -> None:
        if progress and (at := jobs.progress(store)):
            progress(*at)

    if mode:
        jobs.write_mode(store, mode, int(time.time()) + MODE_LIFETIME)
    try:
        systemd.follow(unit, look)
    finally:
        if mode:
            jobs.clear_mode(store)
    record = jobs.last_run(jobs.run_records(store), "prune")
    shown = systemd.show([unit], "ActiveState", "Result")[unit]
    if record is None or record == before:
        raise MemopsError(f"{unit} left no record of a run ({shown['Result']}).", f"See: journalctl -u {unit}")
    if shown["ActiveState"] == "failed":
        code = record.get("exit")
        raise MemopsError(
            f"The prune did not finish: {record['message']}",
            f"See: journalctl -u {unit}",
            code if code in (5, 6, 8) else 1,
        )
    return record


def doomed(store: Store) -> Iterator[dict[str, str]]:
    """What a run would delete now, and why: id, reason and the date that decided, ready to be printed.

    Raises MemopsError when the store cannot be read.
    """
    answer = script(store, "prune.py", "--list", "--sql", f"/etc/memops/{store.name}/prune.sql")
    for line in answer.splitlines():
        row = json.loads(line)
        yield {key: printable(value) for key, value in row.items()}


def script(store: Store, *words: str) -> str:
    """What a script of the jobs prints that only reads the store, run as its owner; ``words``: its name and options."""
    name, *options = words
    ran = owner.run(
        store, "/usr/bin/python3", "-I", f"{LIBRARY}/{name}", "--store", store.seen_db, *options, timeout=1800
    )
    if ran.code:
        raise MemopsError(
            f"{store.db} could not be read as user {store.user}: {ran.said}", exit_code=5 if ran.code == 5 else 1
        )
    return ran.out
