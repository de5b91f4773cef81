"""Dates and lengths of time as people type them, and as a store has them: UTC ``YYYY-MM-DD HH:MM:SS``.

What can be read in two ways is refused: 03/04/2027 is another day on each side of the ocean.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from memops import health
from memops.errors import UsageError
from memops.store import moment_of, text_of

_UNITS = {"h": 1 / 24, "hour": 1 / 24, "d": 1, "day": 1, "w": 7, "week": 7, "month": 30, "y": 365, "year": 365}
_LENGTH = re.compile(rf"([0-9]{{1,5}}) ?({'|'.join(_UNITS)})s?", re.IGNORECASE)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WRITTEN = re.compile(r"([0-9]{1,2})\.? ([a-z]{3})[a-z]*\.?(?:,? ([0-9]{4}))?")
_WRITTEN_US = re.compile(r"([a-z]{3})[a-z]*\.? ([0-9]{1,2})(?:,? ([0-9]{4}))?")
_DOTTED = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})")
_FORMS = "Type for example 2027-01-31, '2027-01-31 18:00', 'tomorrow', 'friday', '31 jan 2027', or never."


def length(text: str) -> timedelta:
    """``7d``, ``12 hours``, ``2 weeks``, ``3 months`` (30 days each), ``1y``. Raises UsageError."""
    match = _LENGTH.fullmatch(text.strip())
    if not match or int(match[1]) == 0:
        raise UsageError(f"{text!r} is not a length of time.", "Type for example 7d, 12h, '2 weeks' or '3 months'.")
    return timedelta(days=int(match[1]) * _UNITS[match[2].lower()])


def after(text: str, now: datetime | None = None) -> str:
    """The time after a length of time, for a store. Raises UsageError."""
    return text_of(_plus(now or datetime.now(UTC), length(text), text))


def until(text: str, now: datetime | None = None) -> str | None:
    """The end that a person types, for a store: a day means to its end, here. None for ``never``.

    now: this moment with its time zone. Raises UsageError for what is no date, or is over.
    """
    here = now or datetime.now().astimezone()
    if text.strip().lower() in ("never", "none", "no end"):
        return None
    end = _parse(text, here, end_of_day=True)
    if end <= here:
        raise UsageError(f"{text!r} is over: {shown(text_of(end), here)}.", "Give a time to come, or never.")
    return text_of(end)


def since(text: str, now: datetime | None = None) -> str:
    """The beginning that a person types, for a store: a length of time back (``7d``) or a date. Raises UsageError."""
    here = now or datetime.now().astimezone()
    if _LENGTH.fullmatch(text.strip()):
        return text_of(_plus(here, -length(text), text))
    return text_of(_parse(text, here, end_of_day=False))


def shown(text: str, now: datetime | None = None) -> str:
    """A store's date for a person: ``2027-01-31 22:59 UTC (in 61 days)``; as it is where it is no real date."""
    moment = moment_of(text)
    if moment is None:
        return text
    here = now or datetime.now().astimezone()
    seconds = round((moment - here).total_seconds())
    span = health.span(seconds)
    local = moment.astimezone(here.tzinfo)
    there = "" if not local.utcoffset() else f", here {local:%Y-%m-%d %H:%M}"
    return f"{text[:16]} UTC{there} ({f'in {span}' if seconds >= 0 else f'{span} ago'})"


def _plus(moment: datetime, span: timedelta, typed: str) -> datetime:
    try:
        return moment + span
    except OverflowError:
        raise UsageError(f"{typed!r} is too far away for a date.", "Type never for no end.") from None


def _parse(text: str, here: datetime, *, end_of_day: bool) -> datetime:
    words = " ".join(text.lower().split())
    day = _day(words, here)
    if day is not None:
        return _plus(day, timedelta(days=1), text) if end_of_day else day
    if re.match(r"[0-9]{4}-", words):
        try:
            moment = datetime.fromisoformat(
                words.upper().removesuffix(" UTC") + ("+00:00" if words.endswith(" utc") else "")
            )
        except ValueError:
            raise UsageError(f"{text!r} is not a date that there is.", _FORMS) from None
        return _local(moment, here)
    raise UsageError(f"{text!r} is not a date that can be read in one way only.", _FORMS)


def _day(words: str, here: datetime) -> datetime | None:
    """The beginning of the day that these words mean; None where they mean no whole day."""
    today = here.replace(hour=0, minute=0, second=0, microsecond=0)
    if words in ("today", "tomorrow", "yesterday"):
        return _local_day(today, {"today": 0, "tomorrow": 1, "yesterday": -1}[words], here)
    name = words.removeprefix("next ").removeprefix("on ")
    if (
        len(name) >= 3
        and (weekday := next((i for i, day in enumerate(_DAYS) if day.startswith(name)), None)) is not None
    ):
        return _local_day(today, (weekday - today.weekday() - 1) % 7 + 1, here)
    if match := re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", words):
        return _made(words, int(match[1]), int(match[2]), int(match[3]), here)
    if match := _DOTTED.fullmatch(words):
        return _made(words, int(match[3]), int(match[2]), int(match[1]), here)
    match = _WRITTEN.fullmatch(words)
    number, month, year = match.groups() if match else (None, None, None)
    if match is None and (match := _WRITTEN_US.fullmatch(words)):
        month, number, year = match.groups()
    if month in _MONTHS and number is not None:
        found = _made(words, int(year or here.year), _MONTHS.index(month) + 1, int(number), here)
        # Without a year the next such day is meant.
        later = found.date() >= here.date() or year is not None
        return found if later else _made(words, here.year + 1, _MONTHS.index(month) + 1, int(number), here)
    return None


def _made(words: str, year: int, month: int, day: int, here: datetime) -> datetime:
    try:
        return _local(datetime(year, month, day), here)
    except ValueError:
        raise UsageError(f"{words!r} is not a date that there is.", _FORMS) from None


def _local_day(today: datetime, days: int, here: datetime) -> datetime:
    day = today + timedelta(days=days)
    return _local(datetime(day.year, day.month, day.day), here)


def _local(moment: datetime, here: datetime) -> datetime:
    """A moment without a zone is of this machine's, or of the test's."""
    if moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=here.tzinfo) if here.tzinfo is UTC else moment.astimezone()
