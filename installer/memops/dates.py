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
_NAMES = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WRITTEN = re.compile(r"([0-9]{1,2})\.? ([a-z]{3,9})\.?(?:,? ([0-9]{4}))?")
_WRITTEN_US = re.compile(r"([a-z]{3,9})\.? ([0-9]{1,2})(?:,? ([0-9]{4}))?")
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
    end = _stored(_parse(text, here, end_of_day=True), text)
    if end <= text_of(here):
        raise UsageError(f"{text!r} is over: {shown(end, now)}.", "Give a time to come, or never.")
    return end


def since(text: str, now: datetime | None = None) -> str:
    """The beginning that a person types, for a store: a length of time back (``7d``) or a date. Raises UsageError."""
    here = now or datetime.now().astimezone()
    if _LENGTH.fullmatch(text.strip()):
        return text_of(_plus(here, -length(text), text))
    return _stored(_parse(text, here, end_of_day=False), text)


def shown(text: str, now: datetime | None = None) -> str:
    """A store's date for a person: ``2027-01-31 22:59 UTC (in 61 days)``; as it is where it is no real date."""
    moment = moment_of(text)
    if moment is None:
        return text
    here = now or datetime.now().astimezone()
    seconds = round((moment - here).total_seconds() / 60) * 60  # what was 7d a moment ago is in 7 days
    span = health.span(seconds)
    local = moment.astimezone(now.tzinfo if now else None)  # with the offset of that day, not of today
    there = "" if not local.utcoffset() else f", here {local:%Y-%m-%d %H:%M}"
    return f"{text[:16]} UTC{there} ({f'in {span}' if seconds >= 0 else f'{span} ago'})"


def _stored(moment: datetime, typed: str) -> str:
    try:
        return text_of(moment)
    except OverflowError:
        raise UsageError(f"{typed!r} is too far away for a date.", "Type never for no end.") from None


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
        return _local(moment, here, text)
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
    which = next((at for at, name in enumerate(_NAMES, 1) if month and name.startswith(month)), None)
    if which is not None and number is not None:
        found = _made(words, int(year or here.year), which, int(number), here)
        # Without a year the next such day is meant.
        later = found.date() >= here.date() or year is not None
        return found if later else _made(words, here.year + 1, which, int(number), here)
    return None


def _made(words: str, year: int, month: int, day: int, here: datetime) -> datetime:
    try:
        return _local(datetime(year, month, day), here)
    except ValueError:
        raise UsageError(f"{words!r} is not a date that there is.", _FORMS) from None


def _local_day(today: datetime, days: int, here: datetime) -> datetime:
    day = today + timedelta(days=days)
    return _local(datetime(day.year, day.month, day.day), here)


def _local(moment: datetime, here: datetime, typed: str = "") -> datetime:
    """A moment without a zone is of this machine's, or of the test's. Raises UsageError for a time ``typed`` that a
    change of the clocks leaves out, or makes come twice."""
    if moment.tzinfo is not None:
        return moment
    if here.tzinfo is UTC:
        return moment.replace(tzinfo=UTC)
    try:
        first, second = (moment.replace(fold=fold).astimezone() for fold in (0, 1))
    except (OverflowError, ValueError):
        raise UsageError(f"{typed or moment} is too far away for a date.", "Type never for no end.") from None
    if typed and first.utcoffset() != second.utcoffset():
        raise UsageError(
            f"{typed!r} falls into a change of the clocks here.", "Give it in UTC: '2027-03-14 02:30 UTC'."
        )
    return first
