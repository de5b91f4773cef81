"""Directories in which somebody else may swap anything at any moment: reaching one, looking below it, removing it.

All by descriptor. No link is followed that others could have put there, and nothing is opened but directories, since
opening a FIFO or a device may hang, or do something. One file of the standard library: ``host`` uses it, and on a
server the jobs and ``uninstall``, which have it beside them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DEEPEST = 64
"""Directories one inside the other that are looked below; a backup refuses half as many."""

PASSES = 5
"""How often a directory is emptied to which somebody goes on adding."""

_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_directory(name: str, inside: int | None = None) -> int:
    """A descriptor of a directory. Raises OSError, NotADirectoryError for a link."""
    return os.open(name, _DIRECTORY, dir_fd=inside)


@contextlib.contextmanager
def reach(path: str) -> Iterator[int]:
    """A descriptor of the directory at an absolute path; it may be written to by its owner all the same.

    A link is followed only where root, or whoever runs this, alone decides where it leads. Raises OSError.
    """
    here = os.open("/", _PLACE)
    try:
        left, links = path.split("/")[::-1], 0
        while left:
            name = left.pop()
            if name in ("", "."):
                continue
            deeper = os.open(name, _PLACE, dir_fd=here)
            status = os.fstat(deeper)
            if not stat.S_ISLNK(status.st_mode):
                os.close(here)
                here = deeper
                continue
            links += 1
            text = os.readlink("", dir_fd=deeper)
            os.close(deeper)
            if links > 40 or not _is_ours(os.fstat(here), status):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            left += text.split("/")[::-1]
            if text.startswith("/"):
                os.close(here)
                here = os.open("/", _PLACE)
        descriptor = open_directory(".", here)
    finally:
        os.close(here)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_ours(directory: os.stat_result, entry: os.stat_result) -> bool:
    """Whether nobody but root, or whoever runs this, can have put an entry into a directory."""
    ours = (0, os.geteuid())
    if directory.st_uid not in ours:
        return False
    return not directory.st_mode & 0o022 or bool(directory.st_mode & stat.S_ISVTX and entry.st_uid in ours)


@contextlib.contextmanager
def around(path: str) -> Iterator[tuple[int, str]]:
    """The directory in which a path lies, as ``reach`` has it, and its name there. Raises OSError."""
    above, _, name = os.path.abspath(path).rpartition("/")  # noqa: PTH100 - links are for ``reach`` to see
    with reach(above) as directory:
        yield directory, name


def below(top: int, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """What lies below the directory ``top``, but for directories: its path, beginning with ``path``, and its status.

    What somebody takes away or swaps meanwhile is passed over.
    """
    levels = [(os.dup(top), path, iter(_names(top)))]
    try:
        while levels:
            here, path, names = levels[-1]
            name = next(names, None)
            if name is None:
                os.close(levels.pop()[0])
                continue
            with contextlib.suppress(OSError):
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    yield f"{path}/{name}", status
                elif len(levels) < DEEPEST:
                    inner = open_directory(name, here)
                    levels.append((inner, f"{path}/{name}", iter(_names(inner))))
    finally:
        for descriptor, _, _ in levels:
            os.close(descriptor)


def _names(directory: int) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(directory)
    return []


def remove(name: str, inside: int | None = None) -> None:
    """Remove a directory with all that is in it, however deep, but for what is mounted below it.

    Goes on where something cannot be removed, and raises the OSError then.
    """
    top = open_directory(name, inside)
    try:
        empty(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=inside)


def empty(top: int) -> None:
    """Remove all that is in a directory, as ``remove`` does."""
    problem: OSError | None = None
    _close_to_others(top)
    for _ in range(PASSES):
        problem = None
        waiting = os.listdir(top)
        if not waiting:
            return
        while waiting:
            try:
                _remove_entry(top, waiting.pop(), waiting)
            except FileNotFoundError:  # somebody was faster
                pass
            except OSError as error:
                problem = error
    if left := os.listdir(top):
        raise problem or OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), left[0])


def _remove_entry(top: int, name: str, waiting: list[str]) -> None:
    """Remove what has this name, but of a directory's directories: those are moved to ``top``, and wait there.

    So it takes two descriptors and no depth, whatever somebody has built.
    """
    if _unlinked(top, name):
        return
    try:
        os.rmdir(name, dir_fd=top)  # which fails for what something is mounted on, too, and then it is left alone
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
    else:
        return
    problem: OSError | None = None
    directory = open_directory(name, top)
    try:
        _close_to_others(directory)
        for inner in _names(directory):
            try:
                if not _unlinked(directory, inner):
                    moved = f".going-{os.urandom(8).hex()}"
                    os.rename(inner, moved, src_dir_fd=directory, dst_dir_fd=top)
                    waiting.append(moved)
            except OSError as error:
                problem = error
    finally:
        os.close(directory)
    if problem:
        raise problem
    os.rmdir(name, dir_fd=top)


def _unlinked(directory: int, name: str) -> bool:
    """Remove what has this name, unless it is a directory. Says whether nothing is there any more."""
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        return False
    except FileNotFoundError:  # somebody was faster
        pass
    return True


def _close_to_others(directory: int) -> None:
    """Let nobody else add to a directory that goes, as far as one has the right to do that."""
    with contextlib.suppress(PermissionError):
        if os.geteuid() == 0:
            os.fchown(directory, 0, 0)
        os.fchmod(directory, 0o700)
