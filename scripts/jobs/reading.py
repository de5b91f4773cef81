"""Reading a store for a while, beside its agent: only to be read, and given up in time or when told to stop."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT_SECONDS: Final = 30
"""How long to wait for the agent's lock."""

DEADLINE: Final = 900.0
"""Seconds that a job which only reads may take."""


class Watch:
    """SQLite's progress handler: interrupts a statement past its time, or once the job is told to stop if it may be."""

    def __init__(self, stop: job.Stop | None, until: float) -> None:
        self.stop, self.until = stop, until

    def __call__(self) -> bool:
        """Whether to interrupt."""
        return time.monotonic() > self.until or bool(self.stop)


def one_row(connection: sqlite3.Connection, statements: list[str]) -> dict[str, Any]:
    """Run a section that answers with one row."""
    cursor = connection.execute(*statements)
    return dict(zip((column[0] for column in cursor.description), cursor.fetchone(), strict=True))


@contextlib.contextmanager
def opened(path: str, watch: Watch) -> Iterator[sqlite3.Connection]:
    """The store, only to be read; temporary tables can be made. ``watch`` ends whatever is asked of it."""
    with contextlib.closing(store.connect(path, readonly=True, timeout=WAIT_SECONDS)) as connection:
        connection.execute("PRAGMA query_only = OFF")  # it would forbid temporary tables too
        connection.text_factory = lambda text: text.decode(errors="backslashreplace")
        connection.set_progress_handler(watch, 10_000)
        yield connection


def in_time(work: Callable[[Watch], job.Outcome]) -> job.Outcome:
    """Do ``work``, and put in words why it was interrupted. Raises JobError and what ``work`` raises."""
    watch = Watch(job.Stop(), time.monotonic() + DEADLINE)
    try:
        return work(watch)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        if watch.stop:
            return job.Outcome("told to stop before its end; the next run does what this one did not", {}, "stopped")
        raise job.JobError(f"the store could not be read within {DEADLINE / 60:.0f} minutes") from error
