"""Forgotten facts leave the files that still show them: the digests that are kept, and the last reminder."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import job
import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

FILES = ("digests.jsonl", "review.json")


def drop(state: str, ids: Iterable[str]) -> None:
    """Take these facts out of what is kept in ``state``, which the agent may have spoilt. Raises OSError."""
    gone = {shown.text(name, shown.ID) for name in ids}
    if not gone:
        return
    for name in FILES:
        with job.alone(state):
            before = job.read_lines(state, name)
            after = [_without(each, gone) for each in before]
            if after != before:
                job.replace_file(os.path.join(state, name), "".join(f"{json.dumps(each)}\n" for each in after), 0o600)


def _without(found: dict[str, Any], gone: Collection[str]) -> dict[str, Any]:
    facts = found.get("facts")
    there = [fact for fact in facts if isinstance(fact, dict)] if isinstance(facts, list) else []
    return {**found, "facts": [fact for fact in there if str(fact.get("id")) not in gone]}
