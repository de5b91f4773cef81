"""The second half of a backup, run as root without a capability: a set out of what the store's owner left in incoming.

Nothing in the incoming directory is trusted. The copy is copied once more, into a file that only root can reach, and
that file is verified: a whole database (integrity_check) that holds what the store held (memory.json), since a copy
that broke off answers ``ok`` too. The manifest comes last, then one rename; until then there is no set.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import shutil
import sqlite3
import stat
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn, TypeVar
from urllib.parse import quote

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import census
import job

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

MANIFEST: Final = "manifest.json"
PARTIAL: Final = ".partial-"
CHUNK: Final = 1 << 20
ENDING: Final = ("start", "end", "result", "exit", "message", "invocation")
"""What the state file takes over from the record of a run."""

SLACK: Final = 100
"""Rows, besides one in a hundred, that a table may lie outside the two counts of a store that was written to."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """What memory.json says of the snapshot, checked for form only."""

    taken_at: str
    size: int
    exact: bool
    before: census.Census
    after: census.Census
    violations: int | None


def read_claim(directory: int) -> Claim:
    """Read memory.json in the incoming ``directory``. Raises JobError when it is not of the form snapshot.py writes."""
    descriptor, size = open_incoming(directory, census.CLAIM)
    with os.fdopen(descriptor, "rb") as file:
        if size > census.CLAIM_LIMIT:
            raise job.JobError(f"{census.CLAIM} is larger than a snapshot writes it")
        text = file.read(census.CLAIM_LIMIT + 1)
    try:
        claim = json.loads(text)
        if _field(claim, "version", int) != 1:
            raise job.JobError(f"{census.CLAIM} is of a version that this memops does not know")
        taken_at = _field(claim, "taken_at", str)
        datetime.strptime(taken_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        if len(taken_at) != 20 or not taken_at.isascii():
            raise ValueError("taken_at is not a time as a snapshot writes it")
        return Claim(
            taken_at,
            _field(claim, "size", int),
            _field(claim, "exact", bool),
            _census(_field(claim, "before", dict)),
            _census(_field(claim, "after", dict)),
            None if claim.get("foreign_key_violations") is None else _field(claim, "foreign_key_violations", int),
        )
    except (ValueError, RecursionError) as error:
        raise job.JobError(f"{census.CLAIM} cannot be read: {store.printable(error, 100)}") from error


def _field(value: object, key: str, kind: type[T]) -> T:
    found = value.get(key) if isinstance(value, dict) else None
    if type(found) is not kind:  # isinstance would take true for a number
        raise ValueError(f"{key} is not of type {kind.__name__}")
    if isinstance(found, int) and abs(found) >= 1 << 63:
        raise ValueError(f"{key} is too large")
    return found


def _census(value: dict[str, object]) -> census.Census:
    rows: dict[str, object] = _field(value, "rows", dict)
    uncounted: list[object] = _field(value, "uncounted", list)
    return census.Census(
        {name: _field(rows, name, int) for name in rows},
        [str(name) for name in uncounted],
        _field(value, "schema_sha256", str),
        _field(value, "user_version", int),
    )


def open_incoming(directory: int, name: str) -> tuple[int, int]:
    """Open a file that somebody else may swap at any time; return its descriptor and size."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        raise job.JobError(f"there is no finished snapshot: {name} is missing") from None
    except OSError as error:
        what = "is a link" if error.errno == errno.ELOOP else f"cannot be opened: {error.strerror}"
        raise job.JobError(f"{name} in the incoming directory {what}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise job.JobError(f"{name} in the incoming directory is not a file of its own")
    return descriptor, status.st_size


def take_over(incoming: int, staging: int, size: int, limit: census.Limit) -> str:
    """Copy memory.db, which must have ``size`` bytes, into ``staging``; return the copy's sha256."""
    for suffix in ("-journal", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.stat(census.DATABASE + suffix, dir_fd=incoming, follow_symlinks=False)
            raise job.JobError(f"the snapshot is unfinished: there is a {census.DATABASE}{suffix}")
    source, found = open_incoming(incoming, census.DATABASE)
    try:
        if found != size or size == 0:
            raise job.JobError(f"{census.DATABASE} has {found:,} bytes, and {census.CLAIM} says {size:,}")
        free = census.free_bytes(staging)
        if size > free:
            raise job.JobError(
                f"no room for the set: it needs {census.amount(size)},"
                f" and {census.amount(max(free, 0))} may be used on the disk of the backups"
            )
        digest = hashlib.sha256()
        with create(staging, census.DATABASE) as target:
            left = size
            while left and (chunk := os.read(source, min(CHUNK, left))):
                digest.update(chunk)
                target.write(chunk)
                left -= len(chunk)
                limit.check()
        if left or os.fstat(source).st_size != size:
            raise job.JobError(f"{census.DATABASE} changed while it was copied")
        return digest.hexdigest()
    finally:
        os.close(source)


@contextlib.contextmanager
def create(directory: int, name: str) -> Iterator[BinaryIO]:
    """A new file ``name``, mode 0600, on the disk for good at the end."""
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(descriptor)


def verify(path: str, claim: Claim, limit: census.Limit) -> tuple[census.Census, int | None]:
    """Verify the database ``path``, which nobody else can reach, against ``claim``.

    Returns its census and its foreign-key violations. Raises JobError with the first thing that is wrong.
    """
    with open(path, "rb") as file:
        header = file.read(20)
    # A copy by VACUUM INTO keeps a rollback journal; one in WAL mode (2, 2) would grow files beside it when opened.
    if header[:16] != b"SQLite format 3\0" or header[18:] != b"\1\1":
        raise job.JobError("the copy is not a database as VACUUM INTO writes it")
    try:
        with contextlib.closing(
            # Not mode=ro or immutable: of a database it cannot write, SQLite leaves the CHECK constraints unchecked.
            sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None)
        ) as connection:
            # No honest value is longer than the file, and no function may make one.
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(claim.size, CHUNK))
            for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON"):
                connection.execute(f"PRAGMA {pragma}")
            with limit.on(connection):
                return _verify(connection, claim)
    except (sqlite3.Error, MemoryError) as error:
        raise job.JobError(f"the copy cannot be verified (SQLite: {store.printable(error, 200)})") from error


def _verify(connection: sqlite3.Connection, claim: Claim) -> tuple[census.Census, int | None]:
    pages, page_size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    if pages * page_size != claim.size:
        raise job.JobError(f"the copy is cut off: {pages:,} pages of {page_size:,} bytes in {claim.size:,} bytes")
    answers = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if answers != [("ok",)]:
        raise job.JobError(f"the copy is damaged (integrity_check: {store.printable(answers[0][0], 200)})")
    found, violations = census.take(connection), census.violations(connection)
    if reason := difference(claim, found, violations):
        raise job.JobError(f"the copy is not what the store was: {reason}")
    return found, violations


def difference(claim: Claim, found: census.Census, violations: int | None) -> str | None:
    """What speaks against ``found`` being a copy of the store that ``claim`` describes, or None."""
    ends = (claim.before,) if claim.exact else (claim.before, claim.after)
    if found.schema_sha256 not in [end.schema_sha256 for end in ends]:
        return f"another schema, with {len(found.rows)} tables where the store had {len(claim.before.rows)}"
    if found.user_version not in [end.user_version for end in ends]:
        return f"user_version {found.user_version}, where the store had {claim.before.user_version}"
    for table in sorted({*found.rows, *(name for end in ends for name in end.rows)}):
        counts = [end.rows.get(table, 0) for end in ends]
        low, high = min(counts), max(counts)
        if not claim.exact:
            slack = SLACK + high // 100
            low, high = max(low - slack, min(low, 1)), high + slack
        rows = found.rows.get(table, 0)
        if not low <= rows <= high:
            span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            return f"{rows:,} rows in {store.printable(table)}, where the store had {span}"
    if claim.exact and violations != claim.violations:
        return f"{violations} foreign-key violations, where the store had {claim.violations}"
    return None


def seal(name: str, incoming_path: str, sets_path: str, limit: census.Limit) -> job.Outcome:
    """Make a set of the snapshot in ``incoming_path``. Raises JobError, OSError; then there is no new set."""
    clock = time.monotonic()
    with contextlib.ExitStack() as stack:
        sets = _opened(stack, sets_path)
        status = os.fstat(sets)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise job.JobError("others may write to the directory of the sets, so nothing in it would be proof")
        try:
            fcntl.flock(sets, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise job.JobError("another backup of this store is being sealed") from None
        remove_leftovers(sets)
        incoming = _opened(stack, incoming_path)
        claim = read_claim(incoming)
        partial = PARTIAL + os.urandom(8).hex()
        os.mkdir(partial, 0o700, dir_fd=sets)
        try:
            path = os.path.join(os.path.abspath(sets_path), partial)
            staging = _opened(stack, path)
            digest = take_over(incoming, staging, claim.size, limit)
            database = os.path.join(path, census.DATABASE)
            found, violations = limit.run(lambda: verify(database, claim, limit))
            if os.listdir(staging) != [census.DATABASE]:
                raise job.JobError("verifying the copy left files beside it")
            new, sealed_at = next_name(sets)
            part = {
                "kind": "sqlite",
                "name": census.DATABASE,
                "file": census.DATABASE,
                "size": claim.size,
                "sha256": digest,
                "taken_at": claim.taken_at,
                "exact": claim.exact,
                **dataclasses.asdict(found),
                "foreign_key_violations": violations,
            }
            manifest = {
                "version": 1,
                "store": name,
                "set": new,
                "sealed_at": sealed_at,
                "sqlite": sqlite3.sqlite_version,
                "parts": [part],
            }
            with create(staging, MANIFEST) as file:
                file.write((json.dumps(manifest, indent=1) + "\n").encode())
            os.fsync(staging)
            limit.check()
            os.rename(partial, new, src_dir_fd=sets, dst_dir_fd=sets)
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True, dir_fd=sets)
            if isinstance(error, OSError):
                _explain(error)
            raise
        os.fsync(sets)
        for taken in (census.CLAIM, census.DATABASE):
            with contextlib.suppress(OSError):
                os.unlink(taken, dir_fd=incoming)
    rows = sum(found.rows.values())
    note = f", {violations:,} foreign-key violations{' as in the store' * claim.exact}" if violations else ""
    return job.Outcome(
        f"set {new} sealed: {rows:,} rows, {census.amount(claim.size)}, verified,"
        f" {time.monotonic() - clock:.1f} s{note}",
        {"set": new, "sealed_at": sealed_at, "bytes": claim.size, "rows": rows},
    )


def _opened(stack: contextlib.ExitStack, path: str) -> int:
    descriptor = census.open_directory(path)
    stack.callback(os.close, descriptor)
    return descriptor


def _explain(error: OSError) -> NoReturn:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise job.JobError("the disk of the backups is full") from error
    raise error


def remove_leftovers(sets: int) -> None:
    """Remove what killed runs left in the directory of the sets."""
    for name in os.listdir(sets):
        if name.startswith(PARTIAL):
            shutil.rmtree(name, dir_fd=sets)


def next_name(sets: int) -> tuple[str, str]:
    """The name of a set that is sealed now, and this moment as the manifest writes it."""
    moment = datetime.now(UTC)
    name = first = moment.strftime("%Y-%m-%dT%H%M%SZ")
    taken, number = set(os.listdir(sets)), 1
    while name in taken:
        number += 1
        name = f"{first}-{number}"
    return name, moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def write_state(path: str, record: dict[str, Any]) -> None:
    """Note the end of a run in the state file, which also names the newest set; the rest of it stays as it is."""
    state: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError, ValueError), open(path, encoding="utf-8") as file:
        found = json.load(file)
        state = found if isinstance(found, dict) else {}
    done = record["counts"]
    state["version"] = 1
    state["seal"] = {"set": done.get("set"), **{key: record[key] for key in ENDING}}
    state["newest"] = done or state.get("newest")
    job.replace_file(path, json.dumps(state, indent=1) + "\n", 0o644)


def main(argv: list[str] | None = None) -> int:
    """Read the command line, seal a set, return the exit code."""
    parser = argparse.ArgumentParser(description="Make a verified backup set of a snapshot.")
    parser.add_argument("--name", required=True, help="the store's name")
    parser.add_argument("--incoming", required=True, help="the directory with the snapshot")
    parser.add_argument("--sets", required=True, help="the directory of the sets")
    parser.add_argument("--state-file", required=True, help="the file that names the newest set")
    parser.add_argument("--deadline", type=float, default=census.DEADLINE, help="seconds this may take")
    options = parser.parse_args(argv)
    os.umask(0o077)
    limit = census.Limit(options.deadline)
    return job.run_recorded(
        "backup",
        lambda: seal(options.name, options.incoming, options.sets, limit),
        lambda record: write_state(options.state_file, record),
    )


if __name__ == "__main__":
    sys.exit(main())
