"""What the jobs left about their runs; untrusted where the agent's user can write: run records, progress."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memops import host, records
from memops.store import printable

if TYPE_CHECKING:
    from memops.settings import Store

NotAllowed = records.NotAllowed
last_run = records.last_run


def run_records(store: Store) -> list[dict[str, Any]]:
    """The records of the jobs that run as the store's user, oldest first. Raises NotAllowed."""
    return records.run_records(f"{store.state}/runs.jsonl", printable)


def sets_record(store: Store) -> dict[str, Any] | None:
    """Root's record of the sets, see ``records.sets_record``; None where there is none, or a damaged one.

    Raises NotAllowed.
    """
    try:
        return records.sets_record(store.sets_record, printable)
    except (ValueError, RecursionError):
        return None


def progress(store: Store) -> tuple[int, int] | None:
    """How far the running job is: done, total."""
    try:
        found = json.loads(records.read(f"{store.state}/progress.json") or "")
        done, total = found["done"], found["total"]
    except (ValueError, KeyError, TypeError, RecursionError, NotAllowed):
        return None
    return (done, total) if type(done) is type(total) is int and 0 <= done <= total else None


def last_words(store: Store, names: tuple[str, ...]) -> str:
    """What the first failed job of ``names`` said of its last run; empty when none failed."""
    for name in names:
        if name == "backup":
            seal = (sets_record(store) or {"seal": {}})["seal"]
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
