"""A file of verdicts, as somebody or something wrote it: valid as a whole, or every mistake named."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memops import dates
from memops.errors import UsageError
from memops.store import Refused, printable, require_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

LARGEST = 4 << 20
"""Bytes of a file of verdicts."""

MOST = 1000
"""Verdicts in a file: fifty weeks of reviews."""

MISTAKES = 40
"""Mistakes that are named; who made more made the same one again."""

ALLOWED = {
    "confirm": {"until", "for"},
    "replace": {"fact", "source", "until", "for", "allow_secret"},
    "forget": set[str](),
    "skip": set[str](),
}
"""What may be said with each verdict, besides id, seen and verdict."""

_FORM = 'Its form: {"version": 1, "by": "who checked", "verdicts": [{"id": …, "seen": …, "verdict": "confirm"}, …]}'


@dataclass(frozen=True)
class Batch:
    """A valid file of verdicts: who gave them, and each as desk.py takes it."""

    by: str
    verdicts: list[dict[str, Any]]


def read(text: str, now: datetime | None = None) -> Batch:
    """The verdicts in a file's text. Raises UsageError, with every mistake in it and the verdict it is in."""
    data = _json(text)
    if not isinstance(data, dict):
        raise UsageError("The file is no JSON object.", _FORM)
    mistakes = list(_around(data))
    verdicts: list[dict[str, Any]] = []
    given = data.get("verdicts")
    first: dict[str, int] = {}
    for number, each in enumerate(given if isinstance(given, list) and len(given) <= MOST else [], 1):
        found = list(_mistakes(each))
        name = each.get("id") if isinstance(each, dict) else None
        where = f"verdict {number}"
        if isinstance(name, str):
            where += f" ({printable(name)})"
            if first.setdefault(name, number) != number:
                found.append(f"verdict {first[name]} is about the same fact")
        if not found:
            try:
                verdicts.append(_verdict(each, now))
            except UsageError as error:
                found.append(error.message.rstrip("."))
        mistakes += [f"{where}: {mistake}" for mistake in found]
    if mistakes:
        shown = [f"  {mistake}" for mistake in mistakes[:MISTAKES]]
        shown += [f"  and {len(mistakes) - MISTAKES} more"] if len(mistakes) > MISTAKES else []
        count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise UsageError("\n".join([f"The file has {count}, so nothing was applied:", *shown]), _FORM)
    return Batch(data["by"].strip(), verdicts)


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise UsageError("The file is nested too deeply.", _FORM) from None
    except ValueError as error:
        raise UsageError(f"The file is no JSON: {printable(error, 200)}.", _FORM) from None


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _around(data: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong around the verdicts."""
    for key in data:
        if key not in ("version", "by", "verdicts"):
            yield f"{_quoted(key)} is no key of the file"
    if type(data.get("version")) is not int or data["version"] != 1:
        yield "version must be 1"
    by = data.get("by")
    if not isinstance(by, str) or not by.strip() or len(by) > 100 or not by.isprintable():
        yield "by must say who checked, in at most 100 characters"
    given = data.get("verdicts")
    if not isinstance(given, list):
        yield "verdicts must be a list"
    elif len(given) > MOST:
        yield f"it holds {len(given)} verdicts, and {MOST} is the most"


def _mistakes(each: object) -> Iterator[str]:
    """What is wrong with one verdict, its dates aside."""
    if not isinstance(each, dict):
        yield "it is no object"
        return
    for key in ("id", "seen"):
        if not _is_token(each.get(key)):
            yield f"{key} is missing or no text; memops review --json says it"
    word = each.get("verdict")
    if not isinstance(word, str) or word not in ALLOWED:
        yield "verdict must be confirm, replace, forget or skip"
        return
    for key in each:
        if key not in {"id", "seen", "verdict"} | ALLOWED[word]:
            yield f"{_quoted(key)} has no meaning with {word}"
    if not isinstance(each.get("allow_secret", ""), str):
        yield "allow_secret must say, as text, why what looks like a credential opens nothing"
    yield from _end_mistakes({key: each[key] for key in ("until", "for") if key in each and key in ALLOWED[word]})
    for key in ("fact", "source") if word == "replace" else ():
        try:
            require_texts(**{key: each.get(key)})
        except Refused as error:
            yield str(error)


def _end_mistakes(ends: Mapping[str, object]) -> Iterator[str]:
    for key, value in ends.items():
        if not isinstance(value, str) or len(value) > 100:
            yield f"{key} must be a date or a length of time, as text"
    if len(ends) > 1:
        yield "until and for say the same; leave one out"


def _is_token(value: object) -> bool:
    """Whether it is a text that a store can hold, and a short one: from JSON it may be half of a surrogate pair."""
    if not isinstance(value, str) or not value or len(value) > 1000:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _quoted(key: str) -> str:
    return f"“{printable(key, 40)}”"


def _verdict(each: Mapping[str, str], now: datetime | None) -> dict[str, Any]:
    verdict: dict[str, Any] = {
        key: each[key] for key in ("id", "seen", "verdict", "fact", "source", "allow_secret") if key in each
    }
    if "until" in each:
        verdict["expires_at"] = dates.until(each["until"], now)
    if "for" in each:
        verdict["expires_at"] = dates.after(each["for"], now)
    return verdict
