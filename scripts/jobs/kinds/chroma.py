"""ChromaDB: chroma.sqlite3 through SQLite, and the directories of its vector segments as plain files.

A vector lies in the database's queue until enough of them are there; then they go to the segment's files, and the queue
is emptied up to there. So the database is copied while the segments' files stay as they are, from before it until all
of them are copied: what the database then holds fits to them, even when it was written to meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from typing import TYPE_CHECKING, Any, Final

import store

import census
import claims
import job
from kinds import _mem0, _tree, sqlite

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

DATABASE: Final = "chroma.sqlite3"
SEGMENT: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
INDEX: Final = ("header.bin", "data_level0.bin", "length.bin", "link_lists.bin")
"""What a segment that was written to files cannot be opened without."""

MAY_BE_EMPTY: Final = "link_lists.bin"
COUNTED: Final = ("collections", "embeddings", "embeddings_queue")


def snapshot(source: str, target: str, limit: census.Limit) -> dict[str, Any]:
    """See Kind.snapshot. ``source`` is the directory with chroma.sqlite3."""
    path = os.path.join(source, DATABASE)
    if not os.path.lexists(path):
        raise job.JobError(f"there is no {DATABASE} in the directory, so it is not Chroma's")
    _tree.require_plain(path)
    top, into = census.open_directory(source.rstrip("/")), census.open_directory(target)
    try:

        def listed() -> _tree.Listing:
            return _tree.listing(top, limit, lambda name: SEGMENT.fullmatch(name) is not None)

        def first() -> dict[str, Any]:
            return sqlite.copy_database(path, os.path.join(target, DATABASE), limit)

        before, digest, database = _tree.until_still(top, into, target, listed, _tree.nothing_refused, limit, first)
    finally:
        os.close(top)
        os.close(into)
    rows = database["before"]["rows"]
    return {
        "taken_at": database["taken_at"],
        "exact": database["exact"],
        "counts": {**{table: rows.get(table, 0) for table in COUNTED}, "files": len(before.files)},
        "database": database,
        "digest": digest,
        "left_out": before.left_out(),
    }


def verify(directory: str, claim: Mapping[str, Any], limit: census.Limit) -> dict[str, Any]:
    """See Kind.verify: the database whole, the segments' files those of the claim, and those it needs there."""
    try:
        database: dict[str, Any] = claims.field(claim, "database", dict)
        count = claims.field(claims.field(claim, "counts", dict), "files", int)
        digest, left_out = claims.field(claim, "digest", str), _tree.require_left_out(claim)
    except ValueError as error:
        raise claims.unreadable("the claim", error) from error
    path = os.path.join(directory, DATABASE)
    if not os.path.isfile(path):
        raise job.JobError(f"{DATABASE} is missing from the copy")
    found = sqlite.verify_database(path, database, limit)
    if missing := {"collections", "segments", "embeddings", "max_seq_id"} - set(found["rows"]):
        raise job.JobError(f"{DATABASE} has no table {min(missing)}, so it is not Chroma's, or of another version")
    top = census.open_directory(directory)
    try:
        listed = _tree.listing(top, limit, lambda name: name != DATABASE)
        if listed.links or listed.special:
            raise job.JobError(f"{min(listed.links | listed.special)} in the copy is no plain file")
        if len(listed.files) != count or _tree.digest(top, listed, limit) != digest:
            raise job.JobError("the segments' files are not those that were copied")
    finally:
        os.close(top)
    # A segment was written to files once the queue was emptied for it; without them its vectors are nowhere.
    query = "SELECT id FROM segments JOIN max_seq_id ON segment_id = id WHERE scope = 'VECTOR'"
    for (segment,) in _rows(path, query):
        if not any(file.startswith(f"{segment}/") for file in listed.files):
            raise job.JobError(f"the directory of segment {store.printable(segment)} is missing from the copy")
        _require_index(directory, segment, listed.files)
    return {
        "exact": True,
        "counts": {**{table: found["rows"].get(table, 0) for table in COUNTED}, "files": count},
        "database": found,
        "digest": digest,
        "left_out": left_out,
    }


def _require_index(directory: str, segment: str, files: Collection[str]) -> None:
    for file in (f"{segment}/{name}" for name in INDEX):
        if file not in files:
            raise job.JobError(f"{store.printable(file)} is missing from the copy")
        if not file.endswith(MAY_BE_EMPTY) and not os.path.getsize(os.path.join(directory, file)):
            raise job.JobError(f"{store.printable(file)} is empty, so its vectors are lost")


def ids(directory: str) -> tuple[str, set[str]] | None:
    """See Kind.ids: what lies in any collection but mem0's bookkeeping."""
    query = (
        "SELECT name, embedding_id FROM embeddings JOIN segments ON segments.id = segment_id"
        " JOIN collections ON collections.id = segments.collection"
    )
    rows = _rows(os.path.join(directory, DATABASE), query)
    return "vectors", {str(found) for name, found in rows if not _mem0.bookkeeping(str(name))}


def _rows(path: str, query: str) -> list[tuple[Any, ...]]:
    """What a query finds in a copy. Raises JobError where its tables are not Chroma's."""
    with contextlib.closing(sqlite.open_copy(path)) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(os.path.getsize(path), sqlite.CHUNK))
        connection.text_factory = lambda text: text.decode(errors="replace")
        try:
            return connection.execute(query).fetchall()
        except sqlite3.Error as error:
            raise job.JobError(f"{DATABASE} cannot be read (SQLite: {job.said(error)})") from error
