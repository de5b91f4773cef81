"""Taking over what somebody else wrote: copies by descriptor, no link followed, each file root's own at the end.

Whoever owns the incoming directory may swap anything in it at any time; what was opened is what is copied.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from store import printable

import census
import job

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK: Final = 1 << 17
"""Bytes that are copied at a time. Much more at once takes several times as long on some kernels (run: 6.18)."""

DEEPEST: Final = 32
"""Directories that a part's tree may have one inside the other."""

MOST: Final = 200_000
"""Files and directories that a part's tree may have."""


class Room:
    """Bytes and entries that may still be copied."""

    def __init__(self, directory: int) -> None:
        self.bytes, self.entries = census.free_bytes(directory), MOST

    def take(self, size: int) -> None:
        """Use ``size`` bytes and one entry. Raises JobError when they are not there."""
        self.entries -= 1
        if self.entries < 0:
            raise job.JobError(f"there are more than {MOST:,} files in it")
        census.require_free(self.bytes, size, "for the set")
        self.bytes -= size


def open_incoming(directory: int, name: str) -> tuple[int, int]:
    """Open a file that somebody else may swap at any time; return its descriptor and size."""
    shown = printable(name)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        raise job.JobError(f"there is no finished snapshot: {shown} is missing") from None
    except OSError as error:
        what = "is a link" if error.errno == errno.ELOOP else f"cannot be opened: {error.strerror}"
        raise job.JobError(f"{shown} {what}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise job.JobError(f"{shown} is not a file of its own")
    return descriptor, status.st_size


@contextlib.contextmanager
def create(directory: int, name: str) -> Iterator[BinaryIO]:
    """A new file ``name``, mode 0600, on the disk for good at the end."""
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(descriptor)


def copy_file(source: int, target: int, name: str, room: Room, limit: census.Limit, size: int | None = None) -> Any:
    """Copy one file between two directories; ``size`` is what it must have. Returns its ``size`` and ``sha256``."""
    descriptor, found = open_incoming(source, name)
    try:
        if size is not None and found != size:
            raise job.JobError(f"{printable(name)} has {found:,} bytes, and {census.CLAIM} says {size:,}")
        room.take(found)
        digest = hashlib.sha256()
        with create(target, name) as file:
            left = found
            while left and (chunk := os.read(descriptor, min(CHUNK, left))):
                digest.update(chunk)
                file.write(chunk)
                left -= len(chunk)
                limit.check()
        if left or os.fstat(descriptor).st_size != found:
            raise job.JobError(f"{printable(name)} changed while it was copied")
        return {"size": found, "sha256": digest.hexdigest()}
    finally:
        os.close(descriptor)


def copy_tree(source: int, target: int, name: str, room: Room, limit: census.Limit) -> tuple[dict[str, Any], list[str]]:
    """Copy the directory ``name``. Returns its files (path from ``source`` → size and sha256) and its directories."""
    files: dict[str, Any] = {}
    directories: list[str] = []

    def copy(outer: int, into: int, name: str, path: str, depth: int) -> None:
        limit.check()
        if depth > DEEPEST:
            raise job.JobError(f"{printable(path)} lies more than {DEEPEST} directories deep")
        room.take(0)
        os.mkdir(name, 0o700, dir_fd=into)
        directories.append(path)
        with opened(outer, name) as here, opened(into, name) as there:
            for entry in sorted(os.listdir(here)):
                inner = f"{path}/{entry}"
                if stat.S_ISDIR(os.stat(entry, dir_fd=here, follow_symlinks=False).st_mode):
                    copy(here, there, entry, inner, depth + 1)
                else:
                    files[inner] = copy_file(here, there, entry, room, limit)
            os.fsync(there)

    try:
        copy(source, target, name, name, 1)
    except FileNotFoundError as error:
        raise job.JobError(f"{printable(name)} changed while it was copied, or is missing") from error
    except NotADirectoryError:
        raise job.JobError(f"{printable(name)} is not a directory") from None
    return files, directories


@contextlib.contextmanager
def opened(directory: int, name: str) -> Iterator[int]:
    """A descriptor of the directory ``name`` in another one; no link is followed."""
    try:
        descriptor = census.open_directory(name, directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise job.JobError(f"{printable(name)} is not a directory") from None
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def listing(directory: str) -> set[str]:
    """Every file and directory below ``directory``, by its path from there."""
    found = set()
    for folder, folders, files in os.walk(directory):
        found |= {os.path.relpath(os.path.join(folder, name), directory) for name in (*folders, *files)}
    return found
