"""What mem0 keeps beside the memories, in collections or tables of its own."""

from __future__ import annotations


def bookkeeping(name: str) -> bool:
    """Whether a collection or table holds no memories: the entities that were found in them, or telemetry's own."""
    return name.endswith("_entities") or name == "mem0migrations"
