"""Forgotten facts leave the files that still show them: the digests that are kept, and the last reminder."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import records

import job

if TYPE_CHECKING:
    from collections.abc import Iterable

FILES = ("digests.jsonl", "review.json")


def drop(state: str, ids: Iterable[str]) -> None:
    """Take these facts out of what is kept in the directory ``state``. Raises OSError."""
    from shown import text

    gone = {text(name, 100) for name in ids}
    if not gone:
        return
    for name in FILES:
        path = os.path.join(state, name)
        with job.alone(state):
            before = records.objects(records.read(path) or "")
            after = [
                {**each, "facts": [fact for fact in each.get("facts") or [] if fact.get("id") not in gone]}
                for each in before
            ]
            if after != before:
                lines = [json.dumps(each) for each in after if each["facts"] or name != FILES[0]]
                job.replace_file(path, "".join(f"{line}\n" for line in lines), 0o600)
