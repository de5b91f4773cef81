"""The texts of mails, and of ``memops digest``: a failed job, a digest, the reminder of the review. Pure.

One file of the standard library; on a server the alarms have it beside them. What a digest and the queue hold was
written by the store's user: ``clean`` makes each piece fit for a terminal, whatever it is.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Clean = Callable[[object, int], str]
"""Text and the most characters in, text for a terminal out."""

MOST = 200
"""Facts and lines that are shown; a file that says more was not written by a job."""


@dataclass(frozen=True)
class Letter:
    """A mail: its subject, to which the machine's name is added, and its lines."""

    subject: str
    lines: tuple[str, ...]


def failure(unit: str, line: str, tail: Sequence[str], *, failed: bool = True) -> Letter:
    """A job's failure: what is so, and the last lines of the run."""
    look = f"What to type: memops status; journalctl -u {unit}"
    return Letter(f"{unit} {'failed' if failed else 'did not fail'}", (line, "", *tail, "", look))


def digest(found: Mapping[str, Any], name: str, clean: Clean) -> Letter:
    """A digest of the store ``name``."""
    new, marked = _number(found, "new"), _number(found, "marked")
    subject = f"{_count(new, 'new fact')}{_of(name)}, {marked} not from a person"
    look = f"What to type: memops show ID{_option(name)}; memops forget ID{_option(name)}"
    return Letter(subject, (*digest_lines(found, name, clean), "", look))


def digest_lines(found: Mapping[str, Any], name: str, clean: Clean, width: int = 78) -> list[str]:
    """A digest as lines: what is not from a person first, and marked."""
    new, marked, odd, left = (_number(found, key) for key in ("new", "marked", "odd", "left"))
    since, at = clean(found.get("since"), 20), clean(found.get("at"), 20)
    lines = [f"{_count(new, 'new fact')} from {since} UTC to {at}, {marked} not from a person (!)"]
    lines += _facts(found, clean, width, ())
    if left:
        lines += [
            "",
            f"... and {left} more. See them: memops digest --since {shlex.quote(f'{since} UTC')}{_option(name)}",
        ]
    if odd:
        lines += ["", f"{_count(odd, 'fact')} of the store: the date of creation is none, or lies ahead."]
    return lines


def review(found: Mapping[str, Any], name: str, clean: Clean) -> Letter:
    """The reminder of the review of the store ``name``."""
    waiting, live = _number(found, "waiting"), _number(found, "live")
    lines = [f"{waiting} of {_count(live, 'live fact')} wait for review, confirmed more than 90 days ago or never."]
    lines += _facts(found, clean, 78, ("confirmed_at",))
    notes = found.get("notes")
    if isinstance(notes, list) and notes:
        lines += ["", *(clean(note, 200) for note in notes[:MOST])]
    subject = f"{_count(waiting, 'fact')}{_of(name)} to review"
    if notes and not waiting:
        subject = f"Old notes{_of(name)} to read again"
    return Letter(subject, (*lines, "", f"What to type: memops review{_option(name)}"))


def _facts(found: Mapping[str, Any], clean: Clean, width: int, dates: Sequence[str]) -> list[str]:
    facts = found.get("facts")
    lines = []
    for fact in facts[:MOST] if isinstance(facts, list) else []:
        if not isinstance(fact, dict):
            continue
        kind, name, subject = (
            clean(fact.get(key), most) for key, most in (("class", 10), ("id", 100), ("subject", 100))
        )
        lines += ["", f"{'  ' if kind == 'person' else '! '}{name}  [{kind}] {subject}"]
        lines += _wrap(clean(fact.get("fact"), 1000), width)
        lines += _wrap(f"source: {clean(fact.get('source'), 300)}", width)
        lines += [f"    {key.removesuffix('_at')}: {clean(fact.get(key), 30)}" for key in dates]
    return lines


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=" " * 4, subsequent_indent=" " * 4, break_on_hyphens=False)


def _number(found: Mapping[str, Any], key: str) -> int:
    value = found.get(key)
    return value if type(value) is int and value >= 0 else 0


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _of(name: str) -> str:
    return "" if name == "default" else f" of {name}"


def _option(name: str) -> str:
    return "" if name == "default" else f" --name {shlex.quote(name)}"
