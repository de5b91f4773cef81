"""Facts as text for people. They are the agent's, so every one goes through ``printable`` before a terminal sees it."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from typing import TYPE_CHECKING, Any

from memops import dates
from memops.report import colour
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Fact = dict[str, Any]
"""As scripts/jobs/rows.py describes it."""

WHOLE = 200_000
"""More characters than any text has, escaped."""


def width() -> int:
    """Columns of the terminal; where the output goes elsewhere nothing is cut."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return WHOLE
    return shutil.get_terminal_size((80, 24)).columns


def columns(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: object, room: int) -> str:
    """A text of the agent's in at most ``room`` columns, with … where it was cut."""
    shown = printable(text, WHOLE)
    if columns(shown) <= room:
        return shown
    while columns(shown) > max(room - 1, 0):
        # Wide characters apart, one cut is enough.
        shown = shown[: min(len(shown) - 1, max(room - 1, 0))]
    return shown + "…"


def days(seconds: int | None) -> str:
    """A fact's age in a few characters."""
    if seconds is None:
        return "never"
    return f"{seconds // 86400}d" if seconds >= 0 else "ahead"


def confirmed(fact: Fact) -> str:
    """When it was confirmed last: ``2026-05-02, 213 days ago``."""
    if fact["age"] is None:
        return f"never ({printable(fact['confirmed_at'])} is no date)"
    age = fact["age"] // 86400
    ago = "in the future" if age < 0 else "today" if age == 0 else "yesterday" if age == 1 else f"{age} days ago"
    return f"{fact['confirmed_at'][:10]}, {ago}"


def origin(fact: Fact) -> str:
    """Where it is from; what is not a person's stands out."""
    words = printable(fact["source"], WHOLE)
    if fact["class"] == "person":
        return words
    if fact["origin"] and fact["origin"] != fact["source"]:
        words += f"; first from: {printable(fact['origin'], WHOLE)}"
    return colour(f"{words} (not from a person: {fact['class']})", "yellow", sys.stdout)


def warning(fact: Fact) -> str:
    """That a fact holds what looks like a credential: where and what, and what to do about it."""
    found = ", ".join(f"{each['column']}: {each['kind']}" for each in fact["secrets"])
    name = printable(fact["id"])
    todo = f"Change it where it opens something, then type: memops replace {name} --redact"
    return f"Warning: {name} holds what looks like a credential ({found}). {todo}"


def state(fact: Fact) -> str:
    """``live``, ``expired``, ``replaced``, or that a date is doubtful."""
    return f"{fact['state']}?" if fact["doubtful"] else str(fact["state"])


def table(facts: Sequence[Fact], room: int) -> list[str]:
    """A line for each fact, in ``room`` columns: id, state, ages of confirmation and use, subject, fact, source."""
    if not facts:
        return []
    rows = [
        (
            printable(fact["id"], 64),
            state(fact),
            days(fact["age"]),
            days(_age(fact["last_used_at"])) if fact["last_used_at"] else "-",
            printable(fact["subject"], 200),
            printable(fact["fact"], WHOLE),
            ("" if fact["class"] == "person" else "! ") + printable(fact["source"], 500),
        )
        for fact in facts
    ]
    heads = ("id", "state", "age", "used", "subject", "fact", "source")
    natural = [max(columns(row[i]) for row in [heads, *rows]) for i in range(7)]
    left = room - sum(natural[:4]) - 12
    subject = min(natural[4], max(7, left * 2 // 10))
    source = min(natural[6], max(8, left * 3 // 10))
    widths = [*natural[:4], subject, min(natural[5], max(10, left - subject - source)), source]
    lines = []
    for row in [heads, *rows]:
        cells = [cut(text, size) for text, size in zip(row, widths, strict=True)]
        line = "  ".join(cell + " " * (size - columns(cell)) for cell, size in zip(cells, widths, strict=True)).rstrip()
        tint = "bold" if row is heads else "yellow" if row[6].startswith("! ") else ""
        lines.append(colour(line, tint, sys.stdout) if tint else line)
    return lines


def _age(text: str) -> int | None:
    from datetime import UTC, datetime

    from memops.store import moment_of

    moment = moment_of(text)
    return None if moment is None else int((datetime.now(UTC) - moment).total_seconds())


def about(fact: Fact, room: int) -> list[str]:
    """All about a fact, a line or more each."""
    ends = (
        "no end, so it goes to review" if fact["expires_at"] is None else dates.shown(printable(fact["expires_at"], 40))
    )
    if fact["state"] == "expired":
        ends = f"over: {ends}"
    lines = [
        ("subject", printable(fact["subject"], WHOLE)),
        ("fact", printable(fact["fact"], WHOLE)),
        ("source", origin(fact)),
        ("stored", f"{printable(fact['created_at'], 40)} UTC"),
        ("confirmed", confirmed(fact)),
        ("until", ends),
    ]
    if fact["last_used_at"]:
        lines.append(("last used", f"{printable(fact['last_used_at'], 40)} UTC"))
    if fact["superseded_by"] is not None:
        when = f" at {printable(fact['superseded_at'], 40)} UTC" if fact["superseded_at"] else ""
        lines.append(("replaced", f"by {printable(fact['superseded_by'])}{when}"))
    title = f"{printable(fact['id'])}: {fact['state']}" + (", a date of it is doubtful" if fact["doubtful"] else "")
    return [colour(title, "bold", sys.stdout), *(line for label, text in lines for line in field(label, text, room))]


def field(label: str, text: str, room: int) -> list[str]:
    """A labelled text, wrapped."""
    first = f"  {label:<10} "
    return textwrap.wrap(
        text, max(room, 40), initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    ) or [first.rstrip()]


def tree(chain: Iterable[Mapping[str, Any]], room: int) -> list[str]:
    """A chain from its newest fact on, what a fact replaced right below it."""
    lines = []
    for each in chain:
        fact, depth = each["fact"], min(each["depth"], 10)
        stem = "  " * depth + ("└ " if depth else "")
        head = f"{stem}{printable(fact['id'])}  {printable(fact['created_at'], 19)[:10]}  "
        source = f"  ({printable(fact['source'], 40)})"
        lines.append(head + cut(fact["fact"], max(10, room - 2 - columns(head) - columns(source))) + source)
    return [f"  {line}" for line in lines]
