"""The first half of a backup, run as the store's owner: a consistent copy of the store, and what the store held.

Writes memory.db and then memory.json into the incoming directory, where seal.py takes them over. The copy is made by
``VACUUM INTO``, which cannot run inside a transaction, so the store is counted before, and once more after when
somebody wrote meanwhile: then the copy's numbers lie between the two.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sqlite3
import stat
import sys
import time
from typing import Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import census
import job

TRIES: Final = 3
QUICK: Final = 2.0
"""Seconds: a copy that took less is made again when the store changed meanwhile, for exact numbers."""

LOCK_WAIT: Final = 30.0


def snapshot(source: str, incoming: str, limit: census.Limit) -> job.Outcome:
    """Copy the store ``source`` into the directory ``incoming``. Raises JobError, sqlite3.Error, OSError."""
    clock = time.monotonic()
    directory = census.open_directory(incoming)
    try:
        empty(directory)
        require_file(source)
        try:
            claim = {"version": 1, "source": os.path.basename(source), **copy(source, incoming, directory, limit)}
            text = json.dumps(claim)
            if len(text) > census.CLAIM_LIMIT:
                raise job.JobError("the store has more tables than a backup can list")
            limit.check()
            # Last, since the sealing half takes a snapshot without it for an unfinished one.
            job.replace_file(os.path.join(incoming, census.CLAIM), text)
            os.fsync(directory)
        except BaseException:
            empty(directory)
            raise
    finally:
        os.close(directory)
    rows = claim["before"]["rows"]
    total, seconds = sum(rows.values()), time.monotonic() - clock
    note = "" if claim["exact"] else ", written to meanwhile"
    return job.Outcome(
        f"{total:,} rows in {len(rows)} tables, {census.amount(claim['size'])}, {seconds:.1f} s{note}",
        {"rows": total, "tables": len(rows), "bytes": claim["size"], "exact": claim["exact"]},
    )


def empty(directory: int) -> None:
    """Remove the leftovers of earlier runs."""
    for name in os.listdir(directory):
        try:
            os.unlink(name, dir_fd=directory)
        except IsADirectoryError:
            raise job.JobError(f"{store.printable(name)} in the incoming directory is a directory") from None


def require_file(source: str) -> None:
    """Say what is wrong with ``source`` in plainer words than SQLite has. A pipe would make it wait for ever."""
    try:
        status = os.stat(source)
    except FileNotFoundError:
        raise job.JobError(f"there is no store at {source}") from None
    if not stat.S_ISREG(status.st_mode):
        raise job.JobError(f"{source} is not a file")


def copy(source: str, incoming: str, directory: int, limit: census.Limit) -> dict[str, Any]:
    """Copy the store into ``incoming``, open as ``directory``, and return what memory.json says about it."""
    target = os.path.join(os.path.abspath(incoming), census.DATABASE)
    connection = store.connect(source, readonly=True, timeout=LOCK_WAIT)
    with contextlib.closing(connection), limit.on(connection):
        for _ in range(TRIES):
            empty(directory)
            clock = time.monotonic()
            version = _pragma(connection, "data_version")
            before = after = census.take(connection)
            if not before.rows and not before.uncounted:
                raise job.JobError("the store is empty: it has no table")
            broken = census.violations(connection)
            require_room(connection, directory)
            vacuum_into(connection, target)
            taken_at = job.now()
            exact = _pragma(connection, "data_version") == version
            if exact or time.monotonic() - clock > QUICK:
                break
            limit.check()
        if not exact:
            after = census.take(connection)
        return {
            "taken_at": taken_at,
            "sqlite_version": sqlite3.sqlite_version,
            "size": sync(directory),
            "page_size": _pragma(connection, "page_size"),
            "exact": exact,
            "before": dataclasses.asdict(before),
            "after": dataclasses.asdict(after),
            "foreign_key_violations": broken,
        }


def require_room(connection: sqlite3.Connection, directory: int) -> None:
    """Raise JobError when the copy, which leaves free pages out, will not fit."""
    pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    needed, free = pages * _pragma(connection, "page_size"), census.free_bytes(directory)
    if needed > free:
        raise job.JobError(
            f"no room for the copy: it needs {census.amount(needed)},"
            f" and {census.amount(max(free, 0))} may be used on the disk of the backups"
        )


def vacuum_into(connection: sqlite3.Connection, target: str) -> None:
    """Write the store's content to ``target``, an absolute path (which SQLite never takes for a URI)."""
    # The connection may only read; this switch would forbid writing the new file too.
    connection.execute("PRAGMA query_only = OFF")
    connection.execute("PRAGMA synchronous = OFF")  # for the new file, which is synced as a whole when it is there
    try:
        connection.execute("VACUUM INTO ?", (target,))
    except sqlite3.OperationalError as error:
        # The store could be read until now, so these speak of the copy.
        code = error.sqlite_errorcode & 0xFF
        if code == sqlite3.SQLITE_CANTOPEN:
            raise job.JobError(f"the copy cannot be written to the incoming directory (SQLite: {error})") from error
        if code == sqlite3.SQLITE_FULL:
            raise job.JobError(f"the disk of the backups is full (SQLite: {error})") from error
        raise
    finally:
        connection.execute("PRAGMA query_only = ON")


def sync(directory: int) -> int:
    """Put the copy on the disk for good; return its size."""
    descriptor = os.open(census.DATABASE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def main(argv: list[str] | None = None) -> int:
    """Read the command line, take the snapshot, return the exit code."""
    parser = argparse.ArgumentParser(description="Copy a memory store into the incoming directory of its backups.")
    parser.add_argument("--store", required=True, help="the database file")
    parser.add_argument("--incoming", required=True, help="the directory for the copy; emptied first")
    parser.add_argument("--state", required=True, help="the directory for the run record")
    parser.add_argument("--deadline", type=float, default=census.DEADLINE, help="seconds this may take")
    options = parser.parse_args(argv)
    os.umask(0o027)  # the sealing half reads as the directory's group
    limit = census.Limit(options.deadline)
    return job.run("snapshot", options.state, lambda: snapshot(options.store, options.incoming, limit))


if __name__ == "__main__":
    sys.exit(main())
