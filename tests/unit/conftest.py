"""What several unit tests need."""

from __future__ import annotations

import signal

import pytest

import census


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
