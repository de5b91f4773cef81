"""Dates as people and agents write them into notes. Standard library only."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

EARLIEST: Final = date(2015, 1, 1)
"""Older dates are what a note is about (a birthday, a founding), not when an agent wrote it."""

LONGEST: Final = 1 << 16
"""Characters of one text in which dates are looked for."""

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH: Final = (
    "(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?)"
)
_FLAGS: Final = re.ASCII | re.IGNORECASE
# 2026-05-02, with a time of day or another number behind it too; 2026/5/2; 2026.05.02
_YEAR_FIRST: Final = re.compile(
    r"(?<!\d)(?:(?<!\d-)(20\d\d)-(\d\d?)-(\d\d?)(?!\d)|(?<!\d/)(20\d\d)/(\d\d?)/(\d\d?)(?!/?\d)"
    r"|(?<!\d\.)(20\d\d)\.(\d\d?)\.(\d\d?)(?!\.?\d))",
    _FLAGS,
)
_COMPACT: Final = re.compile(r"(?<!\w)(20\d\d)(\d\d)(\d\d)(?=T\d{4})", _FLAGS)
_COMPACT_NAME: Final = re.compile(r"(?<!\d)(20\d\d)(\d\d)(\d\d)(?!\d)", _FLAGS)
_YEAR_MONTH: Final = re.compile(r"(?<!\d)(?<!\d-)(20\d\d)-(\d\d)(?![\d-])", _FLAGS)
_IDEOGRAPHS: Final = re.compile(r"(?<!\d)(20\d\d)年(\d\d?)月(\d\d?)日", _FLAGS)
# 2 May 2026, 2nd of May 2026, 02-May-2026, May 2, 2026, May 2026
_NAMED: Final = re.compile(
    rf"(?<!\w)(?:(\d\d?)(?:st|nd|rd|th)?\.?[ -](?:of )?)?{_MONTH}\.?"
    r"(?:[ -](\d\d?)(?:st|nd|rd|th)?)?,?[ -](20\d\d)(?!\d)",
    _FLAGS,
)
_DOTTED: Final = re.compile(r"(?<![\d.])(\d\d?)\. ?(\d\d?)\. ?(20\d\d)(?!\.?\d)", _FLAGS)
_YEAR_LAST: Final = re.compile(r"(?<![\d/-])(\d\d?)([/-])(\d\d?)\2(20\d\d)(?![/-]?\d)", _FLAGS)
# A date in an address is the page's, not the note's.
_ADDRESS: Final = re.compile(r"https?://\S+", _FLAGS)


def today(now: float) -> date:
    """The newest date that is not in the future anywhere on earth (UTC+14), ``now`` being seconds since 1970."""
    return (datetime.fromtimestamp(now, UTC) + timedelta(hours=14)).date()


def newest(text: str, latest: date) -> date | None:
    """The newest date in ``text`` that is not after ``latest``; None where there is none."""
    return _newest(_in_text(_ADDRESS.sub(" ", text[:LONGEST])), latest)


def in_name(name: str, latest: date) -> date | None:
    """The same for the name of a file, as of a daily note."""
    words = name.replace("_", " ")
    return _newest(
        (*_in_text(words), *(_numbers(match[1], match[2], match[3]) for match in _COMPACT_NAME.finditer(words))), latest
    )


def _newest(found: Iterator[date | None] | tuple[date | None, ...], latest: date) -> date | None:
    return max((each for each in found if each is not None and EARLIEST <= each <= latest), default=None)


def _in_text(text: str) -> Iterator[date | None]:
    for match in _YEAR_FIRST.finditer(text):
        year, month, day = (group for group in match.groups() if group is not None)
        yield _numbers(year, month, day)
    for pattern in (_COMPACT, _IDEOGRAPHS):
        for match in pattern.finditer(text):
            yield _numbers(match[1], match[2], match[3])
    for match in _YEAR_MONTH.finditer(text):
        # The first day: what is only known to the month is taken for old rather than for new.
        yield _numbers(match[1], match[2], "1")
    for match in _NAMED.finditer(text):
        before, month, behind, year = match.groups()
        yield _numbers(year, str(_MONTHS.index(month[:3].lower()) + 1), behind or before or "1")
    for match in _DOTTED.finditer(text):
        yield _numbers(match[3], match[2], match[1])
    for match in _YEAR_LAST.finditer(text):
        yield _either_way(int(match[1]), int(match[3]), match[4])


def _either_way(first: int, second: int, year: str) -> date | None:
    """Day and month in an order that differs by country: a date only where both orders are not possible, or one."""
    if first > 12 or first == second:
        return _numbers(year, str(second), str(first))
    return _numbers(year, str(first), str(second)) if second > 12 else None


def _numbers(year: str, month: str, day: str) -> date | None:
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        return None
