"""Plain files under a directory: listed, copied and told apart by descriptor; no link in there is ever followed.

The owner of the tree may change it at any moment, so a copy counts only where the listing is the same before and after.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from store import printable

import census
import job
import takeover

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TRIES: Final = 4
PAUSE: Final = 0.5
"""Seconds between two tries."""

TICK: Final = 50_000_000
"""Nanoseconds: two changes closer together than the kernel's clock ticks bear the same time."""

NAMED: Final = 20
"""Left-out files that are named; the others are only counted."""

Stamp = tuple[int, ...]


@dataclass
class Listing:
    """What a directory holds: plain files with what changes when they do, directories, and what is left out."""

    files: dict[str, Stamp] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    special: set[str] = field(default_factory=set)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(stamp[0] for stamp in self.files.values())

    def left_out(self) -> dict[str, Any]:
        """What a claim says of links, sockets, pipes and devices."""
        names = sorted(self.links | self.special)
        return {"links": len(self.links), "special": len(self.special), "named": names[:NAMED]}


def stamp(status: os.stat_result) -> Stamp:
    """What tells one content of a file from another; ctime, unlike mtime, cannot be set."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


def require_name(path: str) -> str:
    """``path``, if a manifest can hold it and a line of the journal too. Raises JobError."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise job.JobError(f"the name of {printable(path, 200)} is not UTF-8; rename it") from None
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in path):
        raise job.JobError(f"the name of {printable(path, 200)} holds a control character; rename it")
    return path


def require_plain(path: str) -> None:
    """Raise JobError unless ``path`` is a plain file: a link may lead to what is not the part's."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        raise job.JobError(f"{printable(os.path.basename(path))} is not there") from None
    if not stat.S_ISREG(mode):
        raise job.JobError(f"{printable(os.path.basename(path))} is a link, or no plain file")


def listing(directory: int, limit: census.Limit, wanted: Callable[[str], bool] = lambda _: True) -> Listing:
    """List ``directory``; ``wanted`` is asked about each name at the top. Raises JobError, OSError."""
    found = Listing()
    _list(directory, "", found, limit, wanted)
    return found


def _list(directory: int, prefix: str, found: Listing, limit: census.Limit, wanted: Callable[[str], bool]) -> None:
    if prefix.count("/") >= takeover.DEEPEST:
        raise job.JobError(f"{printable(prefix, 200)} lies more than {takeover.DEEPEST} directories deep")
    for name in os.listdir(directory):
        if not wanted(name):
            continue
        limit.check()
        path = require_name(prefix + name)
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found.files[path] = stamp(status)
            elif stat.S_ISLNK(status.st_mode):
                found.links.add(path)
            elif not stat.S_ISDIR(status.st_mode):
                found.special.add(path)
            else:
                below = census.open_directory(name, directory)
                try:
                    found.directories.add(path)
                    _list(below, path + "/", found, limit, lambda _: True)
                finally:
                    os.close(below)
        except FileNotFoundError:
            continue  # removed since, which the next listing shows


def steady(listed: Callable[[], Listing], limit: census.Limit) -> Listing:
    """A listing in which nothing bears the present tick of the clock: a change from now on shows in the next one."""
    for _ in range(TRIES):
        found, now = listed(), time.time_ns()
        if all(now - each[2] > TICK or each[2] > now for each in found.files.values()):
            break
        limit.check()
        time.sleep(2 * TICK / 1e9)
    return found


def copy(
    source: int, target: int, listed: Listing, limit: census.Limit, refuse: Callable[[str, bytes], None]
) -> tuple[str, str]:
    """Copy the files of ``listed`` from directory ``source`` to directory ``target``.

    ``refuse`` gets each path and the file's first bytes, and may raise. Returns the first path that changed meanwhile,
    which ends the copy, or "", and what ``digest`` will say of the copy. Raises JobError, OSError.
    """
    census.require_room(target, listed.size)
    sums: dict[str, str] = {}
    with census.full_disk_named():
        for path in sorted(listed.directories):
            os.mkdir(path, 0o770, dir_fd=target)
        for path in listed.files:
            found = _copy_file(source, target, path, listed.files[path], limit, refuse)
            if not found:
                return path, ""
            sums[path] = found
    return "", _whole(listed, sums)


def _copy_file(
    source: int, target: int, path: str, seen: Stamp, limit: census.Limit, refuse: Callable[[str, bytes], None]
) -> str:
    """Copy one file; its sha256, or "" when it is not what it was when it was listed."""
    descriptor = open_below(source, path)
    if descriptor is None:
        return ""
    try:
        if stamp(os.fstat(descriptor)) != seen:
            return ""
        out = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o640, dir_fd=target)
        content, left = hashlib.sha256(), seen[0]
        with os.fdopen(out, "wb") as file:
            while left and (chunk := os.read(descriptor, min(takeover.CHUNK, left))):
                if left == seen[0]:
                    refuse(path, chunk[:16])
                file.write(chunk)
                content.update(chunk)
                left -= len(chunk)
                limit.check()
        return content.hexdigest() if not left and stamp(os.fstat(descriptor)) == seen else ""
    finally:
        os.close(descriptor)


def empty(directory: int, path: str) -> None:
    """Remove everything in the directory ``path``, which is open as ``directory``."""
    for name in os.listdir(directory):
        below = os.path.join(path, name)
        if os.path.isdir(below) and not os.path.islink(below):
            shutil.rmtree(below)
        else:
            os.unlink(below)


def until_still(
    source: int,
    into: int,
    target: str,
    listed: Callable[[], Listing],
    refuse: Callable[[str, bytes], None],
    limit: census.Limit,
    first: Callable[[], Any] = lambda: None,
) -> tuple[Listing, str, Any]:
    """Copy what ``listed`` finds below ``source`` until nothing of it changed meanwhile.

    ``first`` runs before each copy, with ``target`` (opened as ``into``) empty. Returns what was copied, its sum, and
    what ``first`` returned. Raises JobError where it never keeps still, or where ``refuse`` does.
    """
    changed = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE)
            empty(into, target)
        before = steady(listed, limit)
        other = first()
        changed, whole = copy(source, into, before, limit, refuse)
        after = listed()
        if not changed and before == after:
            return before, whole, other
        changed = changed or different(before, after)
        limit.check()
    raise restless(changed)


def nothing_refused(_path: str, _head: bytes) -> None:
    """Take every file."""


def different(before: Listing, after: Listing) -> str:
    """A file that is in one listing as it is not in the other, or what else differs."""
    return min((path for path, _ in before.files.items() ^ after.files.items()), default="the list of directories")


def restless(changed: str) -> job.JobError:
    """The error for what was written to all the time."""
    return job.JobError(
        f"{printable(changed, 200)} changed while it was copied, {TRIES} times; --agent-unit UNIT pauses the agent"
    )


def open_below(directory: int, path: str) -> int | None:
    """Open the plain file ``path`` below ``directory`` without following a link; None when it is none any more."""
    *above, name = path.split("/")
    opened: list[int] = []
    try:
        for part in above:
            opened.append(census.open_directory(part, opened[-1] if opened else directory))
        # Not O_RDONLY alone: a pipe in the file's place would wait for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=opened[-1] if opened else directory)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise
    finally:
        for each in opened:
            os.close(each)
    return None


def digest(directory: int, listed: Listing, limit: census.Limit) -> str:
    """One sum over the names of a private tree and all that its files hold."""
    sums = {}
    for path in listed.files:
        descriptor = open_below(directory, path)
        if descriptor is None:
            raise job.JobError(f"{path} changed while it was read")
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            content = hashlib.sha256()
            while chunk := file.read(takeover.CHUNK):
                content.update(chunk)
                limit.check()
        sums[path] = content.hexdigest()
    return _whole(listed, sums)


def _whole(listed: Listing, sums: Mapping[str, str]) -> str:
    lines = [*(f"{path}/" for path in listed.directories), *(f"{path}\0{found}" for path, found in sums.items())]
    return hashlib.sha256("\0".join(sorted(lines)).encode()).hexdigest()


def require_left_out(claim: Mapping[str, Any]) -> dict[str, Any]:
    """The claim's word on what was left out, checked for form. Raises ValueError."""
    found = claim.get("left_out")
    names = found.get("named") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("left_out is not of the form that a snapshot writes")
    return {
        **{key: found[key] for key in ("links", "special") if type(found.get(key)) is int},
        "named": [printable(name, 200) for name in names[:NAMED]],
    }
