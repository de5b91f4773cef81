"""Plain files: a directory of them (FAISS, Markdown notes), or one. Copied until nothing changed meanwhile.

Links are left out and counted, as sockets, pipes and devices are: a link may point to what is not the agent's. A SQLite
database is refused, since a plain copy of one in use is none.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Final

from store import printable

import census
import claims
import job
import pieces
from kinds import _tree

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC: Final = b"SQLite format 3\0"


def snapshot(source: str, target: str, limit: census.Limit) -> dict[str, Any]:
    """See Kind.snapshot. ``source`` is a directory or a plain file."""
    directory, only = _open(source)
    into = census.open_directory(target)
    try:

        def listed() -> _tree.Listing:
            return _tree.listing(directory, limit, (lambda name: name == only) if only else pieces.is_agents)

        found, digest, _ = _tree.until_still(directory, into, target, listed, _refuse_database, limit)
        if only and not found.files:
            raise job.JobError(f"{printable(only)} is not a plain file, or is gone")
        return {
            "taken_at": job.now(),
            "exact": True,
            "counts": {"files": len(found.files)},
            "bytes": found.size,
            "digest": digest,
            "left_out": found.left_out(),
        }
    finally:
        os.close(directory)
        os.close(into)


def _open(source: str) -> tuple[int, str]:
    """A descriptor of the directory, and the name of the one file that is meant in there, if it is not all."""
    try:
        status = os.lstat(source.rstrip("/") or "/")
    except FileNotFoundError:
        raise job.JobError(f"there is nothing at {printable(source, 200)}") from None
    if stat.S_ISDIR(status.st_mode):
        return census.open_directory(source.rstrip("/") or "/"), ""
    if not stat.S_ISREG(status.st_mode):
        raise job.JobError(f"{printable(source, 200)} is neither a plain file nor a directory")
    return os.open(os.path.dirname(source), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), os.path.basename(source)


def _refuse_database(path: str, head: bytes) -> None:
    if head == MAGIC:
        raise job.JobError(
            f"{printable(path, 200)} is a SQLite database, of which a plain copy may be none: give it with"
            " --with sqlite=PATH, and keep it out of the directory of plain files"
        )


def verify(directory: str, claim: Mapping[str, Any], limit: census.Limit) -> dict[str, Any]:
    """See Kind.verify. The files must be those of the claim, to the byte."""
    try:
        count = claims.field(claims.field(claim, "counts", dict), "files", int)
        size, digest = claims.field(claim, "bytes", int), claims.field(claim, "digest", str)
        left_out = _tree.require_left_out(claim)
    except ValueError as error:
        raise claims.unreadable("the claim", error) from error
    top = census.open_directory(directory)
    try:
        found = _tree.listing(top, limit)
        if found.links or found.special:
            raise job.JobError(f"{min(found.links | found.special)} in the copy is no plain file")
        if (len(found.files), found.size) != (count, size):
            raise job.JobError(
                f"{len(found.files):,} files of {found.size:,} bytes, where {count:,} of {size:,} bytes were copied"
            )
        if _tree.digest(top, found, limit) != digest:
            raise job.JobError("the files are not those that were copied: a name or a content differs")
    finally:
        os.close(top)
    return {"exact": True, "counts": {"files": count}, "bytes": size, "digest": digest, "left_out": left_out}


def ids(directory: str) -> tuple[str, set[str]] | None:
    """See Kind.ids. Plain files have none."""
    del directory
    return None
