"""What processes tell of the memory they use: variables, working directory, open files, and whose file system they see.

Nothing is changed and no process is stopped. What a process calls itself is its own word, and is escaped where shown.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from memops import holders, owner
from memops.found import Holder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MOST = 4096
"""Files of one process that are looked at."""

_WRITE = re.compile(r"^flags:\s*0?(\d+)$", re.MULTILINE)
_PACKAGE = re.compile(r"(.+)-(\d[^-]*)\.dist-info")


@dataclass(frozen=True)
class Process:
    """One process as /proc shows it. ``files``: path as it sees it → whether it may write. ``deleted``: gone ones."""

    pid: int
    uid: int
    user: str
    unit: str
    command: str
    directory: str
    program: str
    own_files: bool
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bool] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """What comes before a path of this process's for us: nothing where it sees our file system."""
        return f"/proc/{self.pid}/root" if self.own_files else ""


def every() -> tuple[list[Process], int]:
    """The processes that may be looked into, kernel threads and this one left out, and how many others there are."""
    found, closed = [], 0
    ours = _namespace("self")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            uid = entry.stat().st_uid
            program = os.readlink(entry / "exe")
        except PermissionError:
            closed += 1
            continue
        except OSError:
            continue
        with contextlib.suppress(OSError):
            found.append(_read(entry, uid, program, ours))
    return sorted(found, key=lambda process: process.pid), closed


def _namespace(process: str) -> str:
    return os.readlink(f"/proc/{process}/ns/mnt")


def _read(entry: Path, uid: int, program: str, ours: str) -> Process:
    files, deleted = _open(entry)
    pid = int(entry.name)
    return Process(
        pid=pid,
        uid=uid,
        user=owner.name_of(uid),
        unit=next(iter(holders.units(entry)), ""),
        command=holders.command(entry),
        directory=os.readlink(entry / "cwd"),
        program=program,
        own_files=_namespace(entry.name) != ours,
        environment=dict(_environment(entry)),
        files=files,
        deleted=deleted,
    )


def _environment(entry: Path) -> Iterator[tuple[str, str]]:
    for word in (entry / "environ").read_bytes().split(b"\0"):
        name, sign, value = word.decode(errors="surrogateescape").partition("=")
        if sign:
            yield name, value


def _open(entry: Path) -> tuple[dict[str, bool], tuple[str, ...]]:
    files: dict[str, bool] = {}
    deleted = []
    for number, link in enumerate((entry / "fd").iterdir()):
        if number >= MOST:
            break
        with contextlib.suppress(OSError):
            path = os.readlink(link)
            if not path.startswith("/") or path.startswith(("/dev/", "/proc/", "/memfd:")):
                continue
            if path.endswith(holders.DELETED):
                deleted.append(path.removesuffix(holders.DELETED))
                continue
            flags = _WRITE.search((entry / "fdinfo" / link.name).read_text())
            files[path] = files.get(path, False) or bool(flags and int(flags[1], 8) & (os.O_WRONLY | os.O_RDWR))
    return files, tuple(deleted)


def holder(process: Process, places: Iterable[str]) -> Holder | None:
    """The process as one that uses a store with files at ``places`` (as it sees them); None where it does not."""
    tops = [place.rstrip("/") for place in places]

    def inside(path: str) -> bool:
        return any(path == top or path.startswith((f"{top}/", f"{top}-")) for top in tops)

    used = {path: writes for path, writes in process.files.items() if inside(path)}
    gone = tuple(path for path in process.deleted if inside(path))
    if not used and not gone:
        return None
    return user_of(process, gone, writes=any(used.values()) or bool(gone))


def user_of(process: Process, gone: tuple[str, ...] = (), *, writes: bool = True) -> Holder:
    """The process as one that uses a store, of which these files are gone from the disk."""
    python = process.program if "python" in Path(process.program).name else ""
    return Holder(
        pid=process.pid,
        uid=process.uid,
        user=process.user,
        unit=process.unit,
        command=process.command,
        python=_interpreter(process) if python else "",
        versions=packages(_interpreter(process), process.root) if python else {},
        sqlite="",
        deleted=gone,
        writes=writes,
        directory=process.directory,
    )


def _interpreter(process: Process) -> str:
    """The Python that a process was started with: that of its environment, which the program's link hides."""
    first = process.command.split(" ")[0]
    if first.startswith("/") and "python" in first.rpartition("/")[2]:
        return first
    environment = process.environment.get("VIRTUAL_ENV", "")
    return f"{environment}/bin/python" if environment.startswith("/") else process.program


@cache
def _listed(directory: str) -> tuple[str, ...]:
    try:
        return tuple(os.listdir(directory))
    except OSError:
        return ()


def packages(python: str, root: str = "") -> dict[str, str]:
    """Distribution → version of what is installed for a Python, by the names of directories; nothing is run."""
    found: dict[str, str] = defaultdict(str)
    top = Path(python).parent.parent
    for version in _listed(f"{root}{top}/lib"):
        if version.startswith("python3"):
            for folder in ("site-packages", "dist-packages"):
                for name in _listed(f"{root}{top}/lib/{version}/{folder}"):
                    if match := _PACKAGE.fullmatch(name):
                        found[match[1].lower().replace("_", "-")] = match[2]
    return dict(found)
