"""What the jobs left on the disk about their runs: root's record of the sets, and the run records.

Root's record is open to all. The run records are of the store's user, untrusted, and read where they may be. One file
of the standard library: ``status`` and ``check`` use it, and on a server the jobs, which have it beside them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Clean = Callable[[object, int], str]
"""Makes a job's words fit for a terminal: text and the most characters in, text out."""

STATE = "/var/lib/memops"
KEYS = {"backup": "seal", "drill": "drill", "offsite": "offsite"}
"""The jobs whose last run is in root's record, and under which key; the others have run records."""

_LARGEST = 1_000_000


class NotAllowed(Exception):  # noqa: N818 - an answer, not a bug
    """This user may not read it."""


def read(path: str) -> str | None:
    """A small plain file's text, no link followed; None when there is none. Raises NotAllowed.

    It must belong to whom its directory does: a hard link to another's file is none of its owner's records.
    """
    above, slash, name = path.rpartition("/")
    try:
        directory = os.open(f"{above}{slash}" or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            owner = os.fstat(directory).st_uid
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=directory)
        finally:
            os.close(directory)
    except PermissionError:
        raise NotAllowed(path) from None
    except OSError:
        return None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_LARGEST).decode(errors="replace")


def objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects in a text that has one a line; what is none is passed over."""
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def run_records(path: str, clean: Clean) -> list[dict[str, Any]]:
    """The run records that the store's user keeps, oldest first; untrusted. Raises NotAllowed."""
    records = []
    for record in objects(read(path) or ""):
        if isinstance(record.get("job"), str) and isinstance(record.get("end"), str):
            counts = _mapping(record.get("counts"))
            record["counts"] = {key: value for key, value in counts.items() if _plausible(key, value)}
            record["exit"] = record["exit"] if type(record.get("exit")) is int else None
            record["message"] = clean(record.get("message", ""), 300)
            record["result"] = clean(record.get("result", ""), 20)
            records.append(record)
    return records


_JOURNAL_MODES = ("delete", "truncate", "persist", "memory", "wal", "off")


def _plausible(key: object, value: object) -> bool:
    """Whether a count is one: these words are the agent's to forge, and go to root's terminal."""
    if key == "journal_mode":
        return value in _JOURNAL_MODES
    return str(key).isidentifier() and type(value) is int and 0 <= value < 2**63


def last_run(records: Sequence[dict[str, Any]], job: str) -> dict[str, Any] | None:
    """The newest record of a job."""
    return next((record for record in reversed(records) if record["job"] == job), None)


def sets_record(path: str, clean: Clean) -> dict[str, Any] | None:
    """Root's record of the sets; None where there is none. Raises NotAllowed, and ValueError when it is damaged.

    Under each of KEYS the last run of a job, empty where it never ran; ``newest``: the newest verified set, or None;
    ``failed``: the sets that did not pass a later verification; ``loss``: what holds the rotation, or None.
    """
    text = read(path)
    if text is None:
        if os.path.lexists(path):
            raise ValueError("it is not a plain file")
        return None
    record = json.loads(text)
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    runs = {key: _mapping(record.get(key)) for key in KEYS.values()}
    for run in runs.values():
        run["message"] = clean(run.get("message", ""), 300)
    verified = {name: _mapping(value) for name, value in _mapping(record.get("verified")).items()}
    failed = [
        {"set": clean(name, 40), "at": clean(found.get("at", ""), 20), "message": clean(found.get("message", ""), 300)}
        for name, found in verified.items()
        if found.get("ok") is False
    ]
    return {**runs, "newest": record.get("newest"), "failed": failed, "loss": _mapping(record.get("loss")) or None}


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


@dataclass(frozen=True)
class Files:
    """What was read: run records, root's record of the sets (None: not readable, or none), what could not be read.

    restoring: whether there is the note of a restore that has not come to its end.
    """

    records: list[dict[str, Any]] | None
    sets: dict[str, Any] | None
    unreadable: tuple[str, ...] = ()
    restoring: bool = False

    def last(self, job: str) -> dict[str, Any]:
        """The record of a job's last run; empty where there is none."""
        if job in KEYS:
            run: dict[str, Any] = (self.sets or {}).get(KEYS[job], {})
            return run
        return last_run(self.records or [], job) or {}

    def good(self, job: str) -> str | None:
        """When a job's last good run ended, as far as the records tell."""
        if job in KEYS:
            run = self.last(job)
            end = run.get("end" if run.get("exit") == 0 else "good")
        else:
            ends = (r["end"] for r in reversed(self.records or []) if r["job"] == job and r.get("exit") == 0)
            end = next(ends, None)
        return end if isinstance(end, str) else None

    def known(self, job: str) -> bool:
        """Whether the place where a job leaves its record could be read."""
        if job in KEYS:
            return not any(".sets.json (" in what for what in self.unreadable)
        return self.records is not None


def read_files(name: str, clean: Clean) -> Files:
    """Read a store's records, as far as this user may."""
    unreadable = []
    records: list[dict[str, Any]] | None = None
    sets = None
    try:
        records = run_records(f"{STATE}/{name}/runs.jsonl", clean)
    except NotAllowed:
        unreadable.append(f"{STATE}/{name}/runs.jsonl (needs root or the store's user)")
    try:
        sets = sets_record(sets_path(name), clean)
    except NotAllowed:
        unreadable.append(f"{sets_path(name)} (it should be 0644)")
    except (ValueError, RecursionError):
        unreadable.append(f"{sets_path(name)} (it is damaged)")
    return Files(records, sets, tuple(unreadable), os.path.lexists(restore_path(name)))


def sets_path(name: str) -> str:
    """Where root keeps its record of a store's sets."""
    return f"{STATE}/{name}.sets.json"


def before_restore_path(name: str) -> str:
    """Root's list of the sets of a store that restores have taken before they put one back."""
    return f"{STATE}/{name}.before-restore.json"


def restore_path(name: str) -> str:
    """Where root keeps its note of a restore under way."""
    return f"{STATE}/{name}.restore.json"
