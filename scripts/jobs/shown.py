"""Facts as a digest, a mail or the journal gets them: escaped, and without what looks like a credential."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

if TYPE_CHECKING:
    from collections.abc import Mapping


ID = 100
"""Characters of an id in a digest and in the reminder."""


def text(value: object, limit: int) -> str:
    """The agent's text on one line; masked first, or half a key could be left."""
    return store.printable(store.mask(str(value)[:4000]), limit)


def name(fact: Mapping[str, Any]) -> str:
    """A fact's id, with its class where that is not a person."""
    return text(fact["id"], 40) + ("" if fact["class"] == "person" else f" ({fact['class']})")
