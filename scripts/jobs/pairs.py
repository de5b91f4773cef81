"""Whether the two halves of a memory belong together: facts in one part, their vectors in another. Pure.

A ghost is a vector whose fact is dead or gone: the agent may still find it. An orphan is a live fact without a vector:
the agent will not find it by meaning.
"""

from __future__ import annotations

from typing import Any, Final

LISTED: Final = 1000
"""Ids of either kind that a manifest names; the count is of all."""


def compare(found: dict[str, tuple[str, set[str]]]) -> dict[str, Any] | None:
    """What the manifest says under ``pairs``; None where there are not both halves.

    found: part → ``facts`` or ``vectors``, and their ids. Facts are paired with the vectors when they share an id, or
    when nothing else could be the other half: a plain store beside mem0's history has facts of its own.
    """
    vectors = {name: ids for name, (role, ids) in found.items() if role == "vectors"}
    facts = {name: ids for name, (role, ids) in found.items() if role == "facts"}
    if not vectors or not facts:
        return None
    all_vectors = set().union(*vectors.values())
    paired = {name: ids for name, ids in facts.items() if ids & all_vectors}
    if not paired:
        # Nothing in common: a history is the vectors' other half, else the store itself.
        paired = {name: ids for name, ids in facts.items() if name != "memory.db"} or facts
    all_facts = set().union(*paired.values())
    return {
        "facts": sorted(paired),
        "vectors": sorted(vectors),
        "ghosts": _listed(all_vectors - all_facts),
        "orphans": _listed(all_facts - all_vectors),
    }


def _listed(ids: set[str]) -> dict[str, Any]:
    return {"count": len(ids), "ids": sorted(ids)[:LISTED]}


def words(pairs: dict[str, Any] | None) -> str:
    """One-sided ids for the job's line; empty when there are none."""
    if pairs is None:
        return ""
    counts = {"ghosts": pairs["ghosts"]["count"], "orphans": pairs["orphans"]["count"]}
    return "".join(f", {count:,} {what}" for what, count in counts.items() if count)
