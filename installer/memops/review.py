"""A review's words: about a fact for whoever decides on it, about what was done, and about what is left."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memops import dates, fact_text
from memops.errors import UsageError
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

WHOLE = 40_000
"""Characters of a fact that are shown. What is longer is a document."""


def end(typed: str, now: datetime | None = None) -> str | None:
    """The end that a person types at a review: a date, a length of time, or ``never`` (None). Raises UsageError."""
    try:
        return dates.until(typed, now)
    except UsageError as error:
        try:
            return dates.after(typed, now)
        except UsageError:
            raise error from None


def outcome(done: Mapping[str, Any], *, rehearsed: bool = False) -> str:
    """One line about a verdict that was carried out, or with ``rehearsed`` would be."""
    name, new = printable(done["id"]), done["new"]
    would = "would be " if rehearsed else ""
    if done["verdict"] == "confirm":
        return f"{name}: {would}confirmed, " + ("without an end" if new["expires_at"] is None else f"until {_end(new)}")
    if done["verdict"] == "replace":
        return f"{name}: {would}replaced" + ("" if rehearsed else f" by {printable(new['id'])}")
    if done["verdict"] == "forget":
        behind = [printable(each) for each in done["gone"] if each != done["id"]]
        more = f" and {len(behind) - 10} more" if len(behind) > 10 else ""
        return f"{name}: {would}forgotten" + (f", with {', '.join(behind[:10])}{more} behind it" if behind else "")
    return f"{name}: {would}skipped"


_WORDS = {"confirm": "confirmed", "replace": "replaced", "forget": "forgotten", "skip": "skipped"}


@dataclass
class Tally:
    """What was done in a review: verdict → how often."""

    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_WORDS.values(), 0))

    def add(self, verdict: str) -> None:
        """Count one verdict."""
        self.done[_WORDS[verdict]] += 1

    @property
    def settled(self) -> int:
        """Facts that need no review any more."""
        return sum(self.done.values()) - self.done["skipped"]

    def words(self) -> str:
        """``3 confirmed, 1 forgotten``."""
        return ", ".join(f"{count} {word}" for word, count in self.done.items() if count) or "nothing"


def left(waiting: int, a_week: int) -> str:
    """How much is left in the queue, and how long that is."""
    if waiting <= 0:
        return "Nothing is left in the queue."
    weeks = -(-waiting // a_week)
    which = "1 fact is" if waiting == 1 else f"{waiting:,} facts are"
    return f"{which} left in the queue: {'one week' if weeks == 1 else f'{weeks:,} weeks'} at {a_week} a week."


def is_from_person(fact: Mapping[str, Any]) -> bool:
    """Whether a person said so."""
    return bool(fact["class"] == "person")


def about(fact: fact_text.Fact, width: int) -> list[tuple[str, str]]:
    """A fact for whoever decides on it: lines, each with its tint, which may be empty."""
    lines = [(f"{printable(fact['id'], 200)}  {printable(fact['subject'], 300)}", "bold")]
    text = fact["fact"]
    shown = printable(text[:WHOLE], WHOLE * 10)
    # With a bar, since a fact may be written so that it looks like the lines below it.
    lines += [(line, "") for line in _wrapped(shown, width, "  | ")]
    if len(text) > WHOLE:
        lines.append((f"  … and {len(text) - WHOLE:,} characters more, see: memops show", "yellow"))
    tint, mark = ("", "") if is_from_person(fact) else ("red", f"NOT A PERSON ({fact['class']}): ")
    lines += _labelled("source", mark + printable(fact["source"], 6000), width, tint)
    if fact["origin"] is not None:
        lines += _labelled("first from", printable(fact["origin"], 6000), width, tint)
    when = fact_text.confirmed(fact)
    lines += _labelled("confirmed", when.removeprefix("confirmed "), width, "" if fact["age"] is not None else "yellow")
    lines += _labelled("until", _end(fact), width, "")
    return lines


def _end(fact: Mapping[str, Any]) -> str:
    return "no end" if fact["expires_at"] is None else printable(dates.shown(fact["expires_at"]), 200)


def _labelled(label: str, text: str, width: int, tint: str) -> list[tuple[str, str]]:
    first = f"  {label:<11}"
    lines = _wrapped(text, width, " " * len(first))
    return [(first + lines[0][len(first) :], tint), *((line, tint) for line in lines[1:])]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True
    ) or [indent]
