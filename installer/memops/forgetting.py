"""Deleting facts for good: what would go, said before anybody is asked, and then that."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memops import fact_text, facts
from memops.errors import Refused
from memops.report import colour
from memops.store import printable

if TYPE_CHECKING:
    from memops.settings import Store


@dataclass(frozen=True)
class Wanted:
    """Facts by their ids, or all of a subject or user."""

    ids: tuple[str, ...]
    only: bool = False
    subject: str | None = None
    user: str | None = None

    @property
    def everything(self) -> bool:
        """Whether all of a subject or user are meant."""
        return not self.ids


def going(store: Store, wanted: Wanted) -> dict[str, Any]:
    """What would go: ``count``, ``going`` (the first facts), ``back`` (facts that would live again) and a
    ``token`` of all of it. Raises Refused where there is none."""
    found: dict[str, Any] = facts.ask(
        store, "going", ids=wanted.ids, only=wanted.only, subject=wanted.subject, user=wanted.user
    )
    if not found["count"]:
        raise Refused("There is no such fact.", "See what there is: memops list all")
    return found


def describe(found: dict[str, Any], *, only: bool) -> list[str]:
    """That, for a person."""
    room = fact_text.width()
    alone = " and nothing else" if only else ", with all that it replaced" if found["count"] > 1 else ""
    lines = [colour(f"{found['count']:,} would go{alone}:", "bold", sys.stdout), *fact_text.table(found["going"], room)]
    if found["count"] > len(found["going"]):
        lines.append(f"and {found['count'] - len(found['going']):,} more")
    lines += [
        f"{printable(fact['id'])} would live again, and the agent be told: {fact_text.cut(fact['fact'], 200)}"
        for fact in found["back"]
    ]
    if only and not found["back"]:
        lines.append("Nothing would live again.")
    return lines


def remainder(done: dict[str, Any]) -> str:
    """Where the texts of what another program has deleted still lie, as the end of a sentence; often empty."""
    places: dict[str, None] = {}
    for where in (done.get("remains") or {}).values():
        places |= dict.fromkeys(printable(each, 200) for each in where)
    named = "; ".join(list(places)[:5])
    return f" The words remain in: {named}." if named else ""


def carry_out(store: Store, wanted: Wanted, found: dict[str, Any], *, by: str, terminal: bool) -> dict[str, Any]:
    """Delete it: ``count`` and, of single facts, the ids ``gone`` and ``back``. Raises MemopsError."""
    if wanted.everything:
        every = {"subject": wanted.subject, "user": wanted.user}
        done: dict[str, Any] = facts.ask(store, "forget_all", **every, token=found["token"], by=by, terminal=terminal)
        return done
    done = facts.ask(store, "forget", ids=wanted.ids, only=wanted.only, token=found["token"], by=by, terminal=terminal)
    return {"count": len(done["gone"]), **done}
