"""What several unit tests need."""

from __future__ import annotations

import signal

import pytest

import census
from unit.fact_store import Case


@pytest.fixture
def limit():
    """A minute for whatever takes a limit, which is also told to stop by a signal; the handlers are put back."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield census.Limit(60)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def target(tmp_path):
    """An empty directory for a copy."""
    (tmp_path / "copy").mkdir()
    return tmp_path / "copy"


@pytest.fixture
def case(tmp_path):
    """A store as memops makes it, and the desk in front of it."""
    return Case(tmp_path)


@pytest.fixture
def eight(tmp_path):
    """The same with a store of eight columns."""
    return Case(tmp_path, eight=True)
