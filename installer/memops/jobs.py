"""What the jobs left about their runs; untrusted where the agent's user can write: run records, progress."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memops import host
from memops.store import printable

if TYPE_CHECKING:
    from memops.settings import Store

_LARGEST = 1_000_000


class NotAllowed(Exception):  # noqa: N818 - an answer, not a bug
    """This user may not read it."""


def _read(path: str) -> str | None:
    """A small plain file's text, no link followed; None when there is none. Raises NotAllowed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError:
        raise NotAllowed(path) from None
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return file.read(_LARGEST).decode(errors="replace")


def run_records(store: Store) -> list[dict[str, Any]]:
    """The records of the jobs that run as the store's user, oldest first. Raises NotAllowed."""
    records = []
    for line in (_read(f"{store.state}/runs.jsonl") or "").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("job"), str) and isinstance(record.get("end"), str):
            record["counts"] = {
                k: v
                for k, v in _mapping(record.get("counts")).items()
                if isinstance(v, int | str) and not isinstance(v, bool)
            }
            record["message"] = printable(record.get("message", ""), 300)
            record["result"] = printable(record.get("result", ""), 20)
            records.append(record)
    return records


def last_run(records: list[dict[str, Any]], job: str) -> dict[str, Any] | None:
    """The newest record of a job."""
    return next((record for record in reversed(records) if record["job"] == job), None)


def seal_record(store: Store) -> dict[str, Any] | None:
    """The sealing job's record: ``seal`` (its last run) and ``newest`` (the newest verified set, or None)."""
    text = _read(store.seal_record)
    try:
        record = json.loads(text) if text is not None else None
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    return {"seal": _mapping(record.get("seal")), "newest": record.get("newest")}


def progress(store: Store) -> tuple[int, int] | None:
    """How far the running job is: done, total."""
    try:
        found = json.loads(_read(f"{store.state}/progress.json") or "")
        return int(found["done"]), int(found["total"])
    except (ValueError, KeyError, TypeError, NotAllowed):
        return None


def last_words(store: Store, names: tuple[str, ...]) -> str:
    """What the first failed job of ``names`` said of its last run; empty when none failed."""
    for name in names:
        if name == "backup":
            seal = (seal_record(store) or {"seal": {}})["seal"]
            if seal.get("result") == "failed":
                return printable(seal.get("message", ""), 300)
        else:
            record = last_run(run_records(store), name)
            if record and record.get("exit"):
                return str(record["message"])
    return ""


def write_mode(store: Store, mode: str, until: int) -> None:
    """Tell the next run of the prune unit what it may do: ``report`` or ``allow-large``; until: seconds since 1970."""
    host.write(store.mode_file, json.dumps({"mode": mode, "until": until}) + "\n")


def clear_mode(store: Store) -> None:
    """Take the word to the prune unit back."""
    host.remove(store.mode_file)


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
