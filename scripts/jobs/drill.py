"""A test restore: the newest set is put back into a private directory, opened, asked and removed again.

Run as root with one capability, to read the run records of the store's user. The set's content is the agent's and not
trusted; no part of it is obeyed, and what it may cost is bounded.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import sqlite3
import sys
import time
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import health
import records
import survey
from store import printable

import census
import job
import manifests
import retention
import setdir
import setstate
from kinds import sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PRIVATE: Final = ".drill-"
VIEW: Final = "live_memory"
PATIENCE: Final = 60.0
"""Seconds that the agent's view may take to answer."""

HEAP: Final = 256 << 20
"""Bytes that SQLite may use for that."""


def drill(name: str, sets_path: str, sets_record: str, runs: str, limit: census.Limit) -> job.Outcome:
    """Try the newest set that is whole as far as is known. Raises JobError, which says what was wrong, and OSError.

    name: the store's. runs: the directory of the run records, to compare with. The counts, a JobError's too, name the
    ``set``, and say under ``problem`` what is wrong with it ("": nothing; None: that could not be found out).
    """
    clock = time.monotonic()
    sets = census.open_directory(sets_path)
    try:
        remove_leftovers(sets)
        chosen = setdir.newest(setdir.list_sets(sets, setstate.read(sets_record)), time.time())
        if chosen is None:
            command = f"sudo memops backup{health.name_option(name)}"
            raise job.JobError(f"there is no verified set to try; make one with: {command}")
        counts: dict[str, Any] = {"set": chosen.name, "problem": None}
        try:
            live = rehearse(sets_path, sets, chosen, limit)
            counts |= {"problem": "", "live": live}
            note = compare(chosen, newest_count(runs))
        except setdir.Damaged as error:
            raise job.JobError(f"set {chosen.name}: {error}", job.FAILED, {**counts, "problem": str(error)}) from error
        except job.JobError as error:
            raise job.JobError(f"set {chosen.name}: {error}", error.exit_code, counts) from error
    finally:
        os.close(sets)
    parts = f" in {len(chosen.parts)} parts" if len(chosen.parts) > 1 else ""
    return job.Outcome(
        f"set {chosen.name} restored and opened: {chosen.rows:,} rows, {live:,} live facts,"
        f" {census.amount(chosen.bytes)}{parts}, {time.monotonic() - clock:.1f} s{note}",
        counts,
    )


def rehearse(sets_path: str, sets: int, chosen: setdir.Set, limit: census.Limit) -> int:
    """Restore a set beside itself, open all of it and remove that again; returns the live facts. Raises JobError."""
    census.require_room(sets, chosen.bytes, "to try it")
    with setdir.reading(os.path.join(sets_path, chosen.name)) as source:
        manifest = manifests.read(source)
        setdir.require_tree(source, manifest)
        with private_directory(sets_path, sets) as (path, target):
            setdir.copy_set(source, manifest, target, limit)
            for part in manifest["parts"]:
                setdir.open_part(path, part, limit)
            main = manifest["parts"][0]
            return ask(os.path.join(path, main["file"]), main, limit.within(PATIENCE))


@contextlib.contextmanager
def private_directory(sets_path: str, sets: int) -> Iterator[tuple[str, int]]:
    """A new directory of root's among the sets, its path and descriptor; gone afterwards with all that is in it."""
    name = PRIVATE + os.urandom(8).hex()
    os.mkdir(name, 0o700, dir_fd=sets)
    path = os.path.join(os.path.abspath(sets_path), name)
    try:
        descriptor = census.open_directory(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield path, descriptor
        finally:
            os.close(descriptor)
    finally:
        shutil.rmtree(name, dir_fd=sets)


def remove_leftovers(sets: int) -> None:
    """Remove what killed drills left, but not what another one works in."""
    for name in os.listdir(sets):
        if not name.startswith(PRIVATE):
            continue
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=sets)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(name, dir_fd=sets)
            except BlockingIOError:
                pass
            finally:
                os.close(descriptor)


def ask(path: str, part: Mapping[str, Any], limit: census.Limit) -> int:
    """How many facts are live in the database ``path``, as its own view says. Raises JobError.

    The view may be the agent's: it gets its time and no more memory than the job has, and no place on a disk.
    """

    def query() -> int:
        with contextlib.closing(sqlite.open_copy(path)) as connection, limit.on(connection):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(part["size"], sqlite.CHUNK))
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA hard_heap_limit = {HEAP}")
            return int(connection.execute(f'SELECT count(*) FROM "{VIEW}"').fetchone()[0])

    try:
        return limit.run(query)
    except (sqlite3.Error, MemoryError) as error:
        raise job.JobError(f"{VIEW} cannot be read (SQLite: {job.said(error)})") from error


def newest_count(runs: str) -> tuple[str, int] | None:
    """When the store's facts were counted last, and how many there were; the store's user could have forged it."""
    try:
        found = records.run_records(os.path.join(runs, "runs.jsonl"), printable)
    except records.NotAllowed:
        return None
    counts = survey.counts(found, time.time())
    return (counts["at"], counts["rows"]) if counts else None


def compare(chosen: setdir.Set, live: tuple[str, int] | None) -> str:
    """Compare a set roughly with the store as it was at its last prune; returns a remark for the job's line.

    Raises JobError when the store held much more before the set was made: then the set is not a copy of it.
    """
    if live is None:
        return ""
    (counted_at, rows), held = live, chosen.parts[0]["count"]
    if retention.loss({"memory": rows}, {"memory": held}) is None:
        return ""
    words = f"it holds {held:,} facts, and the store had {rows:,} at its prune of {printable(counted_at, 20)}"
    if counted_at <= chosen.sealed_at:
        raise job.JobError(words)
    return f"; {words}"


def write_state(path: str, record: dict[str, Any]) -> None:
    """Note the end of a drill, and what it found out about the set."""

    def change(state: dict[str, Any]) -> None:
        counts = record["counts"]
        good = record["end"] if record["exit"] == job.DONE else setstate.section(state, "drill").get("good")
        state["drill"] = {**setstate.ended(record), "good": good}
        if counts.get("problem") is not None:
            setdir.note(state, counts["set"], counts["problem"])

    setstate.update(path, change)


def main(argv: list[str] | None = None) -> int:
    """Read the command line, try the newest set, return the exit code."""
    parser = argparse.ArgumentParser(description="Restore the newest backup set into a private directory and prove it.")
    parser.add_argument("--name", required=True, help="the store's name")
    parser.add_argument("--sets", required=True, help="the directory of the sets")
    parser.add_argument("--sets-record", required=True, help="root's record of them")
    parser.add_argument("--runs", required=True, help="the directory of the run records")
    parser.add_argument("--deadline", type=float, default=census.DEADLINE, help="seconds this may take")
    options = parser.parse_args(argv)
    os.umask(0o077)
    limit = census.Limit(options.deadline)
    return job.run_recorded(
        "drill",
        lambda: drill(options.name, options.sets, options.sets_record, options.runs, limit),
        lambda record: write_state(options.sets_record, record),
    )


if __name__ == "__main__":
    sys.exit(main())
