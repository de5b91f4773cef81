"""The MCP server-memory's file of JSON lines: each observation of an entity is a memory. Read, and never changed.

The server writes the whole file anew at each change, and drops what it does not know: nothing can be added in there,
and a line taken out beside it comes back with its next write.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.sort(key=os.path.dirname(os.path.abspath(__file__)).__eq__)

from typing import TYPE_CHECKING, Any

import note_forms
from hands import _hand

if TYPE_CHECKING:
    from hands._hand import Request

TITLE = "MCP server-memory"
LARGEST = 64 << 20


def _facts(request: Request) -> list[dict[str, str | None]]:
    path = request.file("path")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _hand.Refused(f"{path} is no plain file")
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise _hand.Refused(f"{path} is larger than {LARGEST >> 20} MB")
        found = list(note_forms.observations(content))
    except (OSError, ValueError) as error:
        raise _hand.Refused(f"{path} cannot be read: {error}", "The server cannot read it either") from None
    facts: dict[str, dict[str, str | None]] = {}
    for name, text in found:
        identity = f"{name}#{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:12]}"
        facts[identity] = _hand.fact(identity, text, subject=name, source=f"{TITLE}, entity {name}")
    return list(facts.values())


def list_(request: Request) -> dict[str, Any]:
    """All observations."""
    return {"facts": _facts(request), "product": ""}


def delete(request: Request) -> dict[str, Any]:
    """Refused."""
    raise _hand.Refused(
        f"{request.need('path')} is written by the server alone", "Let the agent call its tool delete_observations"
    )


def places(request: Request) -> dict[str, Any]:
    """Where observations are, by id and by what they say."""
    return _hand.listed_places(_facts(request), request, "observations")


if __name__ == "__main__":
    _hand.serve({"list": list_, "delete": delete, "places": places})
