"""Who has files of a memory open: a restore under a process that goes on writing to the old file would be lost on it.

Looked at are all processes' descriptors and mappings in /proc, by device and inode, which holds in containers too, and
for what was deleted meanwhile by its name, since SQLite goes on using a -wal that somebody removed. No file is opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memops import trees
from memops.errors import Refused
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SIDECARS = ("", "-wal", "-shm", "-journal")
DELETED = " (deleted)"

_Inode = tuple[int, int]


@dataclass(frozen=True)
class Holder:
    """A process, its command line, and one of the files that it has open."""

    pid: int
    command: str
    file: str
    units: tuple[str, ...] = ()
    """The units of systemd that it belongs to, outermost first."""

    @property
    def text(self) -> str:
        """In a few words; command and file are the agent's text."""
        return f"process {self.pid} ({self.command}) has {self.file} open"


@dataclass(frozen=True)
class Wanted:
    """What is looked for: files with what SQLite makes beside them, and directories with all that is in them."""

    files: tuple[str, ...]
    directories: tuple[str, ...] = ()

    def inodes(self) -> dict[_Inode, str]:
        """Device and inode of all that is there → its path. Raises Refused where others decide what that is."""
        found: dict[_Inode, str] = {}
        for file in self.files:
            with _missing_is_fine(file), trees.around(file) as (directory, name):
                for end in SIDECARS:
                    with contextlib.suppress(FileNotFoundError):
                        status = os.stat(f"{name}{end}", dir_fd=directory, follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            found[status.st_dev, status.st_ino] = f"{file}{end}"
        for top in self.directories:
            with _missing_is_fine(top), trees.reach(top) as descriptor:
                found |= {
                    (status.st_dev, status.st_ino): path
                    for path, status in trees.below(descriptor, top)
                    if stat.S_ISREG(status.st_mode)
                }
        return found

    def names(self, path: str) -> bool:
        """Whether a path is one of them."""
        return any(path in (f"{file}{end}" for end in SIDECARS) for file in self.files) or any(
            path.startswith(f"{directory.rstrip('/')}/") for directory in self.directories
        )


@contextlib.contextmanager
def _missing_is_fine(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(
                f"A link that others than root can change lies on the way to {printable(path, 300)}.",
                "Say where it really is: memops install --db PATH, or --with KIND=PATH",
            ) from None


def find(wanted: Wanted) -> list[Holder]:
    """The processes that have something of ``wanted`` open, each with the first such file. This one is left out."""
    inodes, places = wanted.inodes(), _mounts("self")
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        file = next(_held(entry, wanted, inodes, places), None)
        if file is not None:
            found.append(Holder(int(entry.name), _command(entry), printable(file, 200), _units(entry)))
    return sorted(found, key=lambda holder: holder.pid)


def _held(process: Path, wanted: Wanted, inodes: dict[_Inode, str], places: list[_Mount]) -> Iterator[str]:
    theirs: list[_Mount] | None = None
    for link, path in _open_files(process):
        try:
            status = link.stat()
        except OSError:
            status = None
        if status is not None and (status.st_dev, status.st_ino) in inodes:
            yield inodes[status.st_dev, status.st_ino]
        if path.endswith(DELETED):
            name = path.removesuffix(DELETED)
            if theirs is None:
                theirs = _mounts(process.name)
            if wanted.names(name) or any(wanted.names(each) for each in _translate(name, theirs, places)):
                yield path
    yield from _mapped(process, wanted, inodes)


def _open_files(process: Path) -> Iterator[tuple[Path, str]]:
    try:
        for link in (process / "fd").iterdir():
            try:
                path = os.readlink(link)  # noqa: PTH115 - the text, of whatever form
            except OSError:
                continue
            if path.startswith("/"):
                yield link, path
    except OSError:  # it has ended
        return


def _mapped(process: Path, wanted: Wanted, inodes: dict[_Inode, str]) -> Iterator[str]:
    try:
        lines = (process / "maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split(None, 5)
        if len(words) < 6 or words[4] == "0":
            continue
        major, _, minor = words[3].partition(":")
        at = (os.makedev(int(major, 16), int(minor, 16)), int(words[4]))
        path = words[5].replace("\\012", "\n")
        if at in inodes:
            yield inodes[at]
        elif path.endswith(DELETED) and wanted.names(path.removesuffix(DELETED)):
            yield path


# A container sees a directory at another place; its mounts and ours say which is which.

_Mount = tuple[str, str, str]
"""Device, the directory of its file system that is shown, and where."""


def _mounts(process: str) -> list[_Mount]:
    try:
        text = Path(f"/proc/{process}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    rows = [line.split(" ") for line in text.splitlines()]
    return [(row[2], _plain(row[3]), _plain(row[4])) for row in rows if len(row) > 5]


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _translate(path: str, theirs: Iterable[_Mount], ours: Iterable[_Mount]) -> Iterator[str]:
    """Where ``path`` of a process with the mounts ``theirs`` is in ``ours``."""
    inside = [mount for mount in theirs if _below(path, mount[2]) is not None]
    if not inside:
        return
    device, root, point = max(inside, key=lambda mount: len(mount[2]))
    whole = _join(root, _below(path, point) or "")
    for other, shown, place in ours:
        if other == device and (rest := _below(whole, shown)) is not None:
            yield _join(place, rest)


def _below(path: str, top: str) -> str | None:
    """What comes after ``top`` in ``path``; None where it does not lie in there."""
    top = top.rstrip("/")
    return path[len(top) + 1 :] if path == top or path.startswith(f"{top}/") else None


def _join(top: str, rest: str) -> str:
    return f"{top.rstrip('/')}/{rest}" if rest else top


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().replace(b"\0", b" ").strip()
        return printable((words or (process / "comm").read_bytes().strip()).decode(errors="replace"), 80)
    except OSError:
        return "?"


def _units(process: Path) -> tuple[str, ...]:
    try:
        lines = (process / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    words = [word for line in lines for word in line.rpartition(":")[2].split("/")]
    return tuple(dict.fromkeys(word for word in words if word.endswith((".service", ".scope"))))
