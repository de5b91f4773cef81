"""Delete what prune.sql calls dead, in transactions so short that the agent hardly notices.

The policy is in prune.sql alone; its statements are run here as they stand, [batch] once for each range of doomed
rows. Killed at any moment it leaves a sound store, at most with chains short of their oldest rows, and the next run
goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import sys
import time
from typing import Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import full_text
import gate
import guard
import job
import reading
import wal
from sections import read_sections

LOCK_SECONDS: Final = 0.02
"""How long a transaction should hold the write lock."""

FIRST_BATCH: Final = 16
"""Rows in the first transaction; how fast this machine is shows only then."""

BATCH_SECONDS: Final = 60
"""A transaction that takes longer is given up: the store has a trigger that does not end."""

SECTIONS: Final = ("prepare", "guard", "batch", "report")
"""Those of prune.sql."""

Counts = dict[str, Any]


def prepare(connection: sqlite3.Connection, sections: dict[str, list[str]]) -> Counts:
    """List the doomed rows in temporary tables; returns the row of [guard]."""
    for statement in sections["prepare"]:
        connection.execute(statement)
    return reading.one_row(connection, sections["guard"])


def delete_range(connection: sqlite3.Connection, batch: list[str], first: int, last: int) -> tuple[float, float]:
    """Delete doomed rows ``first`` to ``last``; returns how long the lock was held, and how long deleting took."""
    begin, *recheck, step, commit = batch
    span = {"first": first, "last": last}
    connection.execute(begin)
    locked = time.monotonic()
    for statement in recheck:
        connection.execute(statement, span)
    checked = time.monotonic()
    connection.execute(step, span)
    connection.execute(commit)
    done = time.monotonic()
    return done - locked, done - checked


def delete_all(connection: sqlite3.Connection, batch: list[str], total: int, watch: reading.Watch, state: str) -> str:
    """Delete every doomed row, range by range. Returns ``done``, or ``stopped`` when the job was told to stop.

    watch: carries the request to stop, and the deadline for the whole.
    """
    stop, deadline = watch.stop, watch.until
    watch.stop = None  # a transaction once begun is finished
    first, size = 1, FIRST_BATCH
    with job.Progress("prune", state, total) as progress:
        while first <= total:
            if stop:
                return "stopped"
            if time.monotonic() > deadline:
                raise job.JobError(
                    f"the time was up with {total - first + 1} rows left, which the next run goes on with"
                )
            last = min(first + size - 1, total)
            watch.until = time.monotonic() + BATCH_SECONDS
            held, spent = delete_range(connection, batch, first, last)
            progress.at(last)
            first = last + 1
            # The re-check of a long chain takes its time however few rows are deleted, so it does not count here.
            size = max(FIRST_BATCH, int(size * min(2.0, max(0.5, LOCK_SECONDS / spent))))
            time.sleep(held + LOCK_SECONDS / 2)  # the agent's turn, somewhat longer than ours

    def going_on() -> bool:
        watch.until = time.monotonic() + BATCH_SECONDS
        return not stop and time.monotonic() < deadline

    # In every run: agents delete facts, too.
    full_text.settle(connection, going_on)
    return "done"


def make_failure(error: Exception) -> job.JobError:
    """What went wrong, in words and with the exit code for it."""
    if isinstance(error, job.JobError):
        return error
    if not isinstance(error, sqlite3.Error):
        return job.JobError(str(error))
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
        return job.JobError("a statement took too long and was given up: a trigger of the store may never end")
    failure = job.explain(error)
    locked = failure.exit_code == job.LOCKED
    return job.JobError(f"{failure} ({reading.WAIT_SECONDS} s)", job.LOCKED) if locked else failure


def take_counts(connection: sqlite3.Connection, sections: dict[str, list[str]], doomed: int) -> Counts:
    """How the store is now: the row of [report], rows still dead, foreign-key violations, journal mode."""
    counts = reading.one_row(connection, sections["report"])
    counts["dead"] = doomed - counts["expired"] - counts["superseded"] - counts["chain"]
    with contextlib.suppress(sqlite3.OperationalError):  # another table's keys may be beyond checking
        (counts["violations"],) = connection.execute("SELECT count(*) FROM pragma_foreign_key_check").fetchone()
    (counts["journal_mode"],) = connection.execute("PRAGMA journal_mode").fetchone()
    return counts


def make_forecast(connection: sqlite3.Connection, sections: dict[str, list[str]], doomed: int) -> Counts:
    """The same before anything is deleted, with what would go by reason."""
    counts = take_counts(connection, sections, doomed)
    del counts["refused"]
    return counts | dict(connection.execute("SELECT reason, count(*) FROM doomed GROUP BY reason").fetchall())


def work(
    connection: sqlite3.Connection, sections: dict[str, list[str]], watch: reading.Watch, mode: str, state: str
) -> job.Outcome:
    """List, ask the guard, delete and count. Raises JobError and sqlite3.Error."""
    clock = time.monotonic()
    facts = prepare(connection, sections)
    doomed = facts["doomed"]
    objection = guard.make_objection(facts, guard.last_run(state))
    if mode == "report":
        held = f"; the guard would hold: {objection}" if objection else ""
        forecast = make_forecast(connection, sections, doomed)
        return job.Outcome(f"would delete {doomed} of {facts['rows']} rows{held}", forecast, mode)
    if objection and mode != "allow-large":
        forecast = make_forecast(connection, sections, doomed)
        advice = "If that is right: memops prune --allow-large"
        raise job.JobError(f"nothing deleted: {objection}. {advice}", job.GUARD, forecast)
    failure, result = None, "failed"
    try:
        result = delete_all(connection, sections["batch"], doomed, watch, state)
    except (sqlite3.Error, job.JobError, OSError) as error:
        failure = make_failure(error)
        connection.rollback()
    watch.until = max(watch.until, time.monotonic() + BATCH_SECONDS)
    counts = take_counts(connection, sections, doomed) | wal.measure(connection)
    line = (
        "{expired} expired, {superseded} superseded, {chain} in chains, {doubtful} kept as doubtful; "
        "{rows} rows, {live} live, gap {gap}, {seconds:.1f} s"
    ).format(seconds=time.monotonic() - clock, **counts)
    if result == "done" and counts["refused"]:
        failure = job.JobError(f"a trigger of the store kept {counts['refused']} dead rows, or put them back")
    if failure:
        raise job.JobError(f"{failure}; {line}", failure.exit_code, counts)
    if result == "stopped":
        line = f"told to stop with {counts['dead']} dead rows left; {line}"
    return job.Outcome(line, counts, result)


def prune(arguments: argparse.Namespace) -> job.Outcome:
    """One run of the service: what a timer starts wants a new backup, and a person is told when there is none."""
    watch = reading.Watch(job.Stop(), time.monotonic() + arguments.deadline)
    objection = arguments.sets_record and gate.make_objection(arguments.sets_record, time.time())
    if objection and job.scheduled("prune", arguments.state):
        raise job.JobError(f"nothing deleted: {objection}. {gate.advice(arguments.sets_record)}", job.NO_BACKUP)
    outcome = prune_store(arguments, watch)
    if objection:
        outcome.message += f"; {objection}"
    return outcome


def prune_store(arguments: argparse.Namespace, watch: reading.Watch) -> job.Outcome:
    """Open the store and do it. Raises JobError, sqlite3.Error, OSError."""
    sections = read_sections(arguments.sql, SECTIONS)
    mode = guard.read_mode(arguments.mode_file, time.time())
    try:
        with contextlib.closing(store.connect(arguments.store, timeout=reading.WAIT_SECONDS)) as connection:
            connection.set_progress_handler(watch, 10_000)
            if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
                # No sync while the lock is held. A power cut may bring rows back, which the next run deletes again.
                connection.execute("PRAGMA synchronous = NORMAL")
            return work(connection, sections, watch, mode, arguments.state)
    except sqlite3.Error as error:
        if watch.stop and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return job.Outcome("told to stop before anything was deleted", {}, "stopped")
        raise make_failure(error) from error


def show(arguments: argparse.Namespace) -> int:
    """Print what a run would do as JSON, from a store opened read-only: each doomed or kept row."""
    try:
        sections = read_sections(arguments.sql, SECTIONS)
        with contextlib.closing(store.connect(arguments.store, readonly=True)) as connection:
            connection.execute("PRAGMA query_only = OFF")  # it would forbid temporary tables too
            connection.text_factory = lambda text: text.decode(errors="backslashreplace")
            prepare(connection, sections)
            for name, reason, date, cause in connection.execute(
                "SELECT doomed.id, doomed.reason, iif(dead.reason = 'expired', dead.expires_at, dead.since), dead.id"
                " FROM doomed JOIN doomed AS dead ON dead.row = doomed.because ORDER BY doomed.n"
            ):
                shown = {"id": store.printable(name), "reason": reason, "date": date}
                print(json.dumps(shown | ({"behind": store.printable(cause)} if reason == "chain" else {})))
            for name, created, expires in connection.execute("SELECT id, created_at, expires_at FROM kept_fact"):
                dates = f"created_at {created!r}, expires_at {expires!r}"
                print(json.dumps({"id": store.printable(name), "reason": "doubtful", "date": store.printable(dates)}))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (sqlite3.Error, job.JobError, store.StoreError, OSError) as error:
        failure = make_failure(error)
        job.say(f"prune: {failure}", error=True)
        return failure.exit_code
    return job.DONE


def main() -> int:
    """Parse the command line, run, return the exit code."""
    parser = argparse.ArgumentParser(description="Delete the dead rows of a memory store, as prune.sql defines them.")
    parser.add_argument("--store", required=True, help="the database")
    parser.add_argument("--sql", required=True, help="prune.sql, as rendered for this store")
    parser.add_argument("--state", help="the directory for run records")
    parser.add_argument("--mode-file", help="where root may ask for a report only, or for a large run")
    parser.add_argument("--sets-record", help="root's record of the sets: a timer's run wants a new backup in it")
    parser.add_argument("--deadline", type=float, default=1800, metavar="SECONDS", help="stop after this (%(default)s)")
    parser.add_argument(
        "--list", action="store_true", help="delete nothing: print each doomed row, and each kept as doubtful, as JSON"
    )
    arguments = parser.parse_args()
    if arguments.list:
        return show(arguments)
    if arguments.state is None:
        parser.error("--state is needed")
    return job.run("prune", arguments.state, lambda: prune(arguments))


if __name__ == "__main__":
    sys.exit(main())
