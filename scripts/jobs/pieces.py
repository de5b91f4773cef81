"""What is put back where: the parts of a restore, the directories they lie in, and its own directories there.

In each directory that is concerned, for one restore:

    .restore-STAMP/         the new files, a directory for each part, until they are moved in; what undo needs to know
    before-restore-STAMP/   the present files, moved aside; it stays when all went well
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import stat
from dataclasses import dataclass
from typing import Any, Final

from store import printable

import job

SIDECARS: Final = ("-wal", "-shm", "-journal")
STAGING: Final = ".restore-"
ASIDE: Final = "before-restore-"

_HERE: Final = -100
_NO_REPLACE: Final = 1
"""AT_FDCWD and RENAME_NOREPLACE."""


def is_agents(name: str) -> bool:
    """Whether a name at the top of a part's directory is the agent's own, and not what a restore has put there."""
    return not name.startswith((STAGING, ASIDE))


@dataclass(frozen=True)
class Piece:
    """One part and where it goes: ``directory`` is all of it, unless ``file`` names one file in there.

    ``default_mode`` is the journal mode of a database where there was none before; empty: as it was copied.
    """

    name: str
    kind: str
    directory: str
    file: str
    default_mode: str = ""

    def holds(self, name: str) -> bool:
        """Whether an entry of the directory belongs to the part."""
        if not self.file:
            return is_agents(name)
        return name == self.file or (self.kind == "sqlite" and name in [self.file + end for end in SIDECARS])


@dataclass(frozen=True)
class Served:
    """A part that a server keeps."""

    name: str
    kind: str
    source: str

    @property
    def aside(self) -> str:
        """The directory, among what is moved aside, with what the server had."""
        return f"{self.name}.server"


@dataclass(frozen=True)
class Place:
    """A directory in which one or several parts lie, and this restore's own directories in it."""

    directory: str
    stamp: str
    pieces: tuple[Piece, ...]

    @property
    def staging(self) -> str:
        """Where the new files wait."""
        return os.path.join(self.directory, STAGING + self.stamp)

    @property
    def aside(self) -> str:
        """Where the present files go."""
        return os.path.join(self.directory, ASIDE + self.stamp)

    @property
    def strays(self) -> str:
        """Where goes what somebody made in the place of a part while its files were being changed."""
        return os.path.join(self.directory, f"{STAGING}{self.stamp}.stray")

    def staged(self, piece: Piece | Served) -> str:
        """Where a part's new files wait."""
        return os.path.join(self.staging, piece.name)

    def note(self, name: str) -> str:
        """A file of the restore's own among what waits; no part's name has a dot in it."""
        return os.path.join(self.staging, f"{name}.json")

    def write_note(self, name: str, content: object) -> None:
        """Write such a file, on the disk for good."""
        job.replace_file(self.note(name), json.dumps(content), 0o600)
        sync(self.staging)

    def read_note(self, name: str) -> dict[str, Any]:
        """What it says. Raises JobError."""
        path = self.note(name)
        try:
            with open(path, encoding="utf-8", opener=_no_follow) as file:
                return dict(json.load(file))
        except (OSError, ValueError, TypeError) as error:
            raise job.JobError(f"{path} cannot be read: {printable(error, 100)}") from error

    def present(self) -> list[str]:
        """The entries that belong to the parts."""
        return sorted(name for name in os.listdir(self.directory) if any(piece.holds(name) for piece in self.pieces))


@dataclass(frozen=True)
class Task:
    """What is put back where, as root says it on the command line."""

    stamp: str
    pieces: tuple[Piece, ...]
    served: tuple[Served, ...]

    @classmethod
    def read(cls, text: str) -> Task:
        """From JSON."""
        data = json.loads(text)
        pieces = tuple(Piece(**piece) for piece in data["pieces"])
        return cls(data["stamp"], pieces, tuple(Served(**part) for part in data["served"]))

    @property
    def places(self) -> list[Place]:
        """The directories, the store's own first."""
        directories = dict.fromkeys(piece.directory for piece in self.pieces)
        return [
            Place(directory, self.stamp, tuple(piece for piece in self.pieces if piece.directory == directory))
            for directory in directories
        ]


def _no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def sync(*paths: str) -> None:
    """Put these files and directories on the disk for good."""
    for path in paths:
        descriptor = _no_follow(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def tree(top: str) -> list[str]:
    """Every file and directory below ``top``, which has no link in it."""
    return [os.path.join(folder, name) for folder, inner, files in os.walk(top) for name in (*inner, *files)]


def move(source: str, target: str) -> None:
    """Rename, and take no other's place. Raises OSError, FileExistsError where something is there."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    code = errno.ENOSYS
    if rename is not None and rename(_HERE, os.fsencode(source), _HERE, os.fsencode(target), _NO_REPLACE) == 0:
        return
    if rename is not None:
        code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(code, os.strerror(code), source, None, target)
    # A file system that cannot do it at once.
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), source, None, target)
    os.rename(source, target)


def imprint(path: str) -> str:
    """What tells a file, or all of a directory, from another one in its place; it is the same after a rename.

    Size and time of the last change, not the inode: a memory may be copied whole between a kill and the undoing. Empty
    where nothing is there.
    """
    found = []
    for each in (path, *sorted(tree(path))):
        try:
            status = os.lstat(each)
        except FileNotFoundError:
            continue
        rest = (0, 0) if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_mtime_ns)
        found.append((os.path.relpath(each, path), stat.S_IFMT(status.st_mode), *rest))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest() if found else ""
