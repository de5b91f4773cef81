"""Root's record of a store's sets, STORE.sets.json: who changes it changes it here.

Keys: version, seal (the sealing job's last run), newest (the newest set), drill and offsite (their last runs, and
``good``: when the last good one ended), verified (set → when it was verified again, and how that went), loss (the set
that a much smaller one is compared with until somebody accepts that), handed (place → the sets that were handed there).
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Final

import job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ENDING: Final = ("start", "end", "result", "exit", "message", "invocation")
"""What is taken over from the record of a run, besides the set that it was about."""


def read(path: str) -> dict[str, Any]:
    """The record; empty where there is none, or a damaged one."""
    with contextlib.suppress(FileNotFoundError, ValueError, RecursionError), open(path, encoding="utf-8") as file:
        found = json.load(file)
        return found if isinstance(found, dict) else {}
    return {}


def section(state: Mapping[str, Any], key: str) -> dict[str, Any]:
    """What the record has under ``key``; empty where that is nothing, or not an object."""
    found = state.get(key)
    return found if isinstance(found, dict) else {}


def ended(record: Mapping[str, Any]) -> dict[str, Any]:
    """The end of a run, as the record keeps it."""
    return {"set": record["counts"].get("set"), **{key: record[key] for key in ENDING}}


def update(path: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Let ``change`` alter the record, while no other job of root's does."""
    with job.alone(os.path.dirname(path), patience=60):
        state = read(path)
        change(state)
        state["version"] = 1
        job.replace_file(path, json.dumps(state, indent=1) + "\n", 0o644)
