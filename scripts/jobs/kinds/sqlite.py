"""A SQLite database: the store itself, or a further one of the agent's (mem0's history.db, a sqlite-vec store).

The copy is made by ``VACUUM INTO``, which cannot run inside a transaction, so the database is counted before, and once
more after when somebody wrote meanwhile: then the copy's numbers lie between the two.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import stat
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import store

import census
import claims
import job

if TYPE_CHECKING:
    from collections.abc import Mapping

TRIES: Final = 3
QUICK: Final = 2.0
"""Seconds: a copy that took less is made again when the database changed meanwhile, for exact numbers."""

LOCK_WAIT: Final = 30.0

SLACK: Final = 100
"""Rows, besides one in a hundred, that a table may lie outside the two counts of a store that was written to."""

CHUNK: Final = 1 << 20


def snapshot(source: str, target: str, limit: census.Limit) -> dict[str, Any]:
    """See Kind.snapshot."""
    require_file(source)
    name = os.path.basename(source)
    return {"file": name, **copy_database(source, os.path.join(target, name), limit)}


def verify(directory: str, claim: Mapping[str, Any], limit: census.Limit) -> dict[str, Any]:
    """See Kind.verify. ``file`` of the claim names the database in ``directory``."""
    try:
        name = claims.field(claim, "file", str)
    except ValueError as error:
        raise claims.unreadable("the claim", error) from error
    if "/" in name or name in ("", ".", ".."):
        raise job.JobError("the claim names no file of the part")
    return {"file": name, **verify_database(os.path.join(directory, name), claim, limit)}


def ids(directory: str) -> tuple[str, set[str]] | None:
    """The live facts of a table ``memory``, or the memories that mem0's ``history`` has not deleted."""
    names = [name for name in os.listdir(directory) if os.path.isfile(os.path.join(directory, name))]
    name = census.DATABASE if census.DATABASE in names else names[0]
    with contextlib.closing(open_copy(os.path.join(directory, name))) as connection:
        kinds = dict(connection.execute("SELECT name, type FROM sqlite_schema WHERE name IN ('memory', 'history')"))
        columns = {
            table: {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
            for table, kind in kinds.items()
            if kind == "table"
        }
        if set(store.COLUMNS) <= columns.get("memory", set()):
            rows = connection.execute(
                "SELECT id FROM memory WHERE superseded_by IS NULL"
                " AND (expires_at IS NULL OR expires_at > datetime('now'))"
            )
        elif {"memory_id", "event"} <= columns.get("history", set()):
            rows = connection.execute(
                "SELECT memory_id FROM history GROUP BY memory_id HAVING max(event = 'DELETE') IS NOT 1"
            )
        else:
            return None
        return "facts", {str(row[0]) for row in rows}


def require_file(source: str) -> None:
    """Say what is wrong with ``source`` in plainer words than SQLite has. A pipe would make it wait for ever."""
    try:
        status = os.stat(source)
    except FileNotFoundError:
        raise job.JobError(f"there is no store at {source}") from None
    if not stat.S_ISREG(status.st_mode):
        raise job.JobError(f"{source} is not a file")
    # Its directory may be the agent's to replace by a link, which systemd follows as root.
    if os.geteuid() not in (0, status.st_uid):
        raise job.JobError(f"{source} belongs to another user")


def copy_database(source: str, target: str, limit: census.Limit) -> dict[str, Any]:
    """Copy the database ``source`` to the new file ``target``, and return the claim: size, counts and so on.

    Raises JobError, OSError, sqlite3.Error, and then leaves no ``target``.
    """
    directory = census.open_directory(os.path.dirname(target))
    try:
        return _copy(source, target, directory, limit)
    except BaseException:
        _remove(target)
        raise
    finally:
        os.close(directory)


def _remove(target: str) -> None:
    for suffix in ("", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target + suffix)


def _copy(source: str, target: str, directory: int, limit: census.Limit) -> dict[str, Any]:
    connection = store.connect(source, readonly=True, timeout=LOCK_WAIT)
    store.let_vacuum(connection)
    with contextlib.closing(connection), limit.on(connection):
        for _ in range(TRIES):
            _remove(target)
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
            "size": sync(directory, os.path.basename(target)),
            "page_size": _pragma(connection, "page_size"),
            "exact": exact,
            "counts": {"rows": sum(after.rows.values())},
            "before": dataclasses.asdict(before),
            "after": dataclasses.asdict(after),
            "foreign_key_violations": broken,
        }


def require_room(connection: sqlite3.Connection, directory: int) -> None:
    """Raise JobError when the copy, which leaves free pages out, will not fit."""
    pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    census.require_room(directory, pages * _pragma(connection, "page_size"))


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
            raise job.JobError(
                f"the copy cannot be written to the incoming directory (SQLite: {job.said(error)})"
            ) from error
        if code == sqlite3.SQLITE_FULL:
            raise job.JobError(f"the disk of the backups is full (SQLite: {job.said(error)})") from error
        raise
    finally:
        connection.execute("PRAGMA query_only = ON")


def sync(directory: int, name: str) -> int:
    """Put the copy on the disk for good; return its size."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a snapshot, or a manifest, says of a database, checked for form only."""

    size: int
    exact: bool
    before: census.Census
    after: census.Census
    violations: int | None


def read_claim(claim: Mapping[str, Any]) -> Claim:
    """Read a snapshot's claim, or a manifest's entry, which has one count where the claim has two. Raises JobError."""
    try:
        noted = "before" not in claim
        broken = claim.get("foreign_key_violations")
        return Claim(
            claims.field(claim, "size", int),
            noted or claims.field(claim, "exact", bool),
            _census(claim if noted else claims.field(claim, "before", dict)),
            _census(claim if noted else claims.field(claim, "after", dict)),
            None if broken is None else claims.field(claim, "foreign_key_violations", int),
        )
    except (ValueError, RecursionError) as error:
        raise claims.unreadable("the claim", error) from error


def _census(value: Mapping[str, Any]) -> census.Census:
    rows: dict[str, object] = claims.field(value, "rows", dict)
    uncounted: list[object] = claims.field(value, "uncounted", list)
    return census.Census(
        {name: claims.field(rows, name, int) for name in rows},
        [str(name) for name in uncounted],
        claims.field(value, "schema_sha256", str),
        claims.field(value, "user_version", int),
    )


def open_copy(path: str) -> sqlite3.Connection:
    """Open a copy that nobody else can reach and nobody vouches for; nothing is written to it."""
    # Not mode=ro or immutable: of a database it cannot write, SQLite leaves the CHECK constraints unchecked.
    connection = sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None)
    connection.execute("PRAGMA query_only = ON")
    store.protect(connection, writes=False)
    return connection


def verify_database(path: str, raw: Mapping[str, Any], limit: census.Limit) -> dict[str, Any]:
    """Verify the database ``path``, which nobody else can reach, against a claim.

    Returns what the manifest says of it. Raises JobError with the first thing that is wrong.
    """
    claim = read_claim(raw)
    with open(path, "rb") as file:
        header = file.read(20)
    # A copy by VACUUM INTO keeps a rollback journal; one in WAL mode (2, 2) would grow files beside it when opened.
    if header[:16] != b"SQLite format 3\0" or header[18:] != b"\1\1":
        raise job.JobError("the copy is not a database as VACUUM INTO writes it")
    try:
        with contextlib.closing(open_copy(path)) as connection:
            # No honest value is longer than the file, and no function may make one.
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(claim.size, CHUNK))
            with limit.on(connection):
                found, violations = _verify(connection, claim)
    except (sqlite3.Error, MemoryError) as error:
        raise job.JobError(f"the copy cannot be verified (SQLite: {job.said(error)})") from error
    return {
        "size": claim.size,
        **dataclasses.asdict(found),
        "counts": {"rows": sum(found.rows.values())},
        "foreign_key_violations": violations,
    }


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
    claimed = {name for end in ends for name in end.rows}
    # Earlier versions counted the tables of a full-text index, too.
    for table in sorted({*found.rows, *claimed} - set(found.uncounted)):
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
