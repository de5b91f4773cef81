"""Dates as people type them."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memops import dates
from memops.errors import UsageError
from memops.store import moment_of

NOW = datetime(2026, 12, 1, 10, 30, tzinfo=UTC)  # a Tuesday


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("2027-01-31", "2027-02-01 00:00:00"),  # the day is part of it
        ("2027-01-31 18:00", "2027-01-31 18:00:00"),
        ("2027-01-31T18:00:05Z", "2027-01-31 18:00:05"),
        ("2027-01-31 18:00 UTC", "2027-01-31 18:00:00"),
        ("2027-01-31 18:00+02:00", "2027-01-31 16:00:00"),
        ("today", "2026-12-02 00:00:00"),
        ("Tomorrow", "2026-12-03 00:00:00"),
        ("friday", "2026-12-05 00:00:00"),
        ("next tue", "2026-12-09 00:00:00"),
        ("31 jan", "2027-02-01 00:00:00"),
        ("Jan 31, 2028", "2028-02-01 00:00:00"),
        ("24. December", "2026-12-25 00:00:00"),
        ("31.01.2027", "2027-02-01 00:00:00"),
        ("never", None),
    ],
)
def test_until(typed: str, stored: str | None) -> None:
    assert dates.until(typed, NOW) == stored


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("yesterday", "is over"),
        ("2026-11-30", "is over"),
        ("1999-01-01", "is over"),
        ("2027-02-30", "is not a date that there is"),
        ("31 feb", "is not a date that there is"),
        ("2027-13-01", "is not a date that there is"),
        ("03/04/2027", "in one way only"),
        ("soon", "in one way only"),
        ("7d", "in one way only"),
        ("", "in one way only"),
        ("0000-01-01", "is not a date that there is"),
        ("9999-12-31T23:59:59-05:00", "too far"),
        ("0001-01-01 00:00+14:00", "too far"),
        ("5 marmalade", "in one way only"),
        ("Mayor 5", "in one way only"),
    ],
)
def test_what_until_refuses(typed: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        dates.until(typed, NOW)


@pytest.mark.parametrize(
    ("typed", "span"),
    [
        ("7d", timedelta(days=7)),
        ("12h", timedelta(hours=12)),
        ("2 weeks", timedelta(days=14)),
        ("3 Months", timedelta(days=90)),
        ("1 year", timedelta(days=365)),
    ],
)
def test_lengths(typed: str, span: timedelta) -> None:
    assert dates.length(typed) == span
    assert moment_of(dates.after(typed, NOW)) == NOW + span


@pytest.mark.parametrize("typed", ["", "7", "d", "0d", "-1d", "1.5d", "7 dayz", "999999d", "7m"])
def test_what_is_no_length(typed: str) -> None:
    with pytest.raises(UsageError, match="length of time"):
        dates.length(typed)


def test_a_length_past_the_end_of_dates() -> None:
    with pytest.raises(UsageError, match="too far"):
        dates.after("9999 years", NOW)


def test_since() -> None:
    assert dates.since("7d", NOW) == "2026-11-24 10:30:00"
    assert dates.since("2026-11-30", NOW) == "2026-11-30 00:00:00"


def test_shown() -> None:
    assert dates.shown("2026-12-08 10:30:00", NOW) == "2026-12-08 10:30 UTC (in 7 days)"
    assert dates.shown("2026-12-01 08:30:00", NOW) == "2026-12-01 08:30 UTC (2 hours ago)"
    assert dates.shown("2026-12-08 10:29:58", NOW).endswith("(in 7 days)")
    assert dates.shown("never", NOW) == "never"


@given(st.text())
def test_whatever_is_typed_is_a_date_or_refused(typed: str) -> None:
    for read in (dates.until, dates.since, dates.after):
        with contextlib.suppress(UsageError):
            found = read(typed, NOW)
            assert found is None or moment_of(found)


def test_the_offset_of_that_day_counts(monkeypatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert dates.until("2199-07-31") == "2199-08-01 04:00:00"
        assert ", here 2199-08-01 00:00 (" in dates.shown("2199-08-01 04:00:00")
        assert dates.until("2199-01-31 12:00") == "2199-01-31 17:00:00"
        for typed in ("2027-03-14 02:30", "2027-11-07 01:30"):
            with pytest.raises(UsageError, match="change of the clocks"):
                dates.until(typed)
        with pytest.raises(UsageError, match="too far"):
            dates.until("9999-12-31 23:00")
    finally:
        monkeypatch.undo()
        time.tzset()
