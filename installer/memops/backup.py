"""Starting the backup unit, and following a oneshot unit of a store to its end."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from memops import host, jobs, records, survey, systemd
from memops.errors import MemopsError
from memops.sets import name_option
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from memops.settings import Store

WORD_LIFETIME = 600
"""Seconds that root's word to a run is valid; it is given anew while the run goes on."""


def run(store: Store, *, accept_loss: bool = False, progress: Callable[[str, int, int], None] | None = None) -> str:
    """Back up now, and return what the sealing job said. A run under way is waited for first.

    accept_loss: let older sets be rotated though the new one holds much less. progress: called now and then with what
    is done, the bytes of it so far, and about how many it will be. Raises MemopsError with the job's words and exit
    code.
    """
    records_before = jobs.run_records(store)
    valid_until = 0.0

    def look() -> None:
        nonlocal valid_until
        if accept_loss and time.time() > valid_until - WORD_LIFETIME / 2:
            # The copy may take longer than any word is valid, and is made before the word is read.
            valid_until = time.time() + WORD_LIFETIME - 1
            host.write(store.backup_mode_file, json.dumps({"mode": "accept-loss", "until": int(valid_until)}) + "\n")
        if progress and (at := _done(store)):
            progress(*at)

    try:
        record = follow(store, "backup", look)
    finally:
        if accept_loss:
            host.remove(store.backup_mode_file)
    if record is not None:
        return message(store, "backup", record)
    # The sealing did not begin: one of the jobs before it failed.
    failed = [each for each in jobs.run_records(store) if each not in records_before and each["exit"]]
    raise _failure(store, failed[-1] if failed else {}, "backup")


def follow(store: Store, job: str, look: Callable[[], None] = lambda: None) -> dict[str, Any] | None:
    """Start a job's unit and stay until its end; its new entry in root's record, None where it left none.

    A run under way is waited for first. look: called now and then meanwhile.
    """
    systemd.wait(store.unit(job))
    before = last(store, job)
    systemd.follow(store.unit(job), look)
    record = last(store, job)
    return record if record and record != before else None


def last(store: Store, job: str) -> dict[str, Any]:
    """A job's last run as root's record has it; empty where it has none."""
    found = jobs.sets_record(store) or {}
    entry = found.get(records.KEYS[job])
    return entry if isinstance(entry, dict) else {}


def message(store: Store, job: str, record: dict[str, Any]) -> str:
    """What a job said at its end. Raises MemopsError when it did not do all its work."""
    if record.get("exit"):
        raise _failure(store, record, job)
    return printable(record.get("message", ""), 300)


def _failure(store: Store, record: dict[str, Any], job: str) -> MemopsError:
    unit = store.unit(job)
    if not record:
        shown = systemd.show([unit], "Result", "ExecMainStatus")[unit]
        return MemopsError(f"The {job} did not begin: {_why(shown)}", f"See: sudo memops logs{name_option(store)}")
    code = record.get("exit")
    words = printable(record.get("message", ""), 600)
    lead = "The set is sealed, and the guard held" if code == 6 else f"The {job} failed"
    return MemopsError(f"{lead}: {words}", f"See: sudo memops logs{name_option(store)}", code if code in (5, 6) else 1)


def _why(shown: dict[str, str]) -> str:
    if shown.get("Result") == "success":
        return "a unit that it needs failed."
    return survey.explain(shown) + "."


def _done(store: Store) -> tuple[str, int, int] | None:
    """How far the two copies of the store itself are, as far as can be seen from outside."""
    total = _size(store.db)
    try:
        partial = [entry.path for entry in os.scandir(store.sets) if entry.name.startswith(".partial-")]
    except OSError:
        partial = []
    for path, what in (
        (f"{partial[0]}/memory.db" if partial else "", "sealed"),
        (f"{store.incoming}/memory.db", "copied"),
    ):
        if path and (size := _size(path)):
            return what, size, max(size, total)
    return None


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
