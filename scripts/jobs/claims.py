"""What the owner's half of a backup says of its copies: small JSON files, which root reads as untrusted."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from store import printable

import job
import takeover

T = TypeVar("T")

LIMIT: Final = 1 << 20
"""Bytes that a claim may have."""


def read(directory: int, name: str) -> dict[str, Any]:
    """The claim ``name`` in the incoming ``directory``, checked for form only. Raises JobError."""
    descriptor, size = takeover.open_incoming(directory, name)
    with os.fdopen(descriptor, "rb") as file:
        if size > LIMIT:
            raise job.JobError(f"{name} is larger than a snapshot writes it")
        text = file.read(LIMIT + 1)
    try:
        claim = json.loads(text)
        if field(claim, "version", int) != 1:
            raise job.JobError(f"{name} is of a version that this memops does not know")
        taken_at = field(claim, "taken_at", str)
        datetime.strptime(taken_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        if len(taken_at) != 20 or not taken_at.isascii():
            raise ValueError("taken_at is not a time as a snapshot writes it")
    except (ValueError, RecursionError) as error:
        raise unreadable(name, error) from error
    return dict(claim)


def unreadable(name: str, error: Exception) -> job.JobError:
    """The error for a claim, or an entry of a manifest, of another form."""
    return job.JobError(f"{name} cannot be read: {printable(error, 100)}")


def field(value: object, key: str, kind: type[T]) -> T:
    """The entry ``key`` of a JSON object, which must be of this type. Raises ValueError."""
    found = value.get(key) if isinstance(value, dict) else None
    if type(found) is not kind:  # isinstance would take true for a number
        raise ValueError(f"{key} is not of type {kind.__name__}")
    if isinstance(found, int) and abs(found) >= 1 << 63:
        raise ValueError(f"{key} is too large")
    return found
