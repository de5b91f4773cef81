"""How the facts of a store are, as ``memops status`` shows it: of the figures that scripts/jobs/vitals.py counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memops import prune, survey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memops.settings import Store

REASONS = ("expired", "superseded", "chain")
CONFIRMED = ("month", "quarter", "half", "year", "older", "never")
"""Ages of a confirmation: up to 30, 90, 180 and 365 days, more, and no date that can be so."""

WEEKLY = 20
"""Facts of a review that a person keeps up every week."""


def newest(records: Sequence[Mapping[str, Any]], now: float) -> dict[str, Any] | None:
    """The figures of the newest digest that got as far as counting; None where there is none."""
    for record in reversed(records):
        if record["job"] == "digest" and "waiting" in record["counts"]:
            at = survey.seconds(record["end"])
            return make(record["counts"], record["end"], None if at is None else int(now - at))
    return None


def make(counts: Mapping[str, Any], at: str, age: int | None) -> dict[str, Any]:
    """The figures as status has them, a figure that is missing as 0. Pure.

    counts: they are the store's user's to forge; records.run_records has seen to it that they are numbers.
    """
    waiting = counts.get("waiting", 0)
    prefix = "source_"
    return {
        "dead": {reason: counts.get(f"dead_{reason}", 0) for reason in REASONS},
        "confirmed": {each: counts.get(f"confirmed_{each}", 0) for each in CONFIRMED},
        "sources": {key.removeprefix(prefix): n for key, n in counts.items() if key.startswith(prefix) and n},
        "waiting": waiting,
        "weeks": -(-waiting // WEEKLY),
        "at": at,
        "age": age,
    }


def count(store: Store) -> tuple[dict[str, Any], dict[str, Any]]:
    """The counts of the prune and the figures, made now as the store's owner. Raises MemopsError."""
    found = json.loads(prune.script(store, "digest.py", "--count", "--sql", f"/etc/memops/{store.name}"))
    return found["counts"], found["health"]
