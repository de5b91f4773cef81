"""When git says that the lines of a file were written. Standard library only.

What is in a repository is not trusted: its configuration can name programs (core.fsmonitor, the clean filter of a file,
a textconv), and git blame would run them. So git blame never reads it. It works in a git directory made here, with
nothing of its own but the commit to begin with, and borrows only the objects of the repository.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS: Final = 15.0
"""Seconds for one file."""

IN_ALL: Final = 90.0
"""Seconds for all files; those that come later have no date of git's."""

_LARGEST: Final = 32 << 20
_SHALLOW: Final = 1 << 20
_GROUP: Final = re.compile(rb"([0-9a-f]{40,64}) \d+ (\d{1,9}) (\d{1,9})")
_ENVIRONMENT: Final = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    # Of a partial clone git would fetch what is missing.
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
}
_GIT: Final = (
    "git",
    "--no-pager",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
)


@dataclass(frozen=True)
class _Repository:
    """objects and shallow: paths of the repository's own. prefix: the directory that was asked about, from its top."""

    format: str
    objects: str
    shallow: frozenset[str]
    commit: str
    prefix: str


@dataclass
class History:
    """Asks git, each repository's whereabouts once. ``late`` says that the time was over before the last file."""

    late: bool = False
    _end: float = field(default_factory=lambda: time.monotonic() + IN_ALL)
    _repositories: dict[str, _Repository | None] = field(default_factory=dict)

    def lines(self, path: str, content: bytes) -> dict[int, date]:
        """Line → the day its present text was written, as far as git knows.

        path: of a file that belongs to whoever runs this, who must not be root. content: what is in it now.
        """
        directory, name = os.path.split(os.path.abspath(path))
        if time.monotonic() > self._end:
            self.late = True
            return {}
        if directory not in self._repositories:
            self._repositories[directory] = self._find(directory)
        repository = self._repositories[directory]
        return {} if repository is None else self._blame(repository, name, content)

    def _find(self, directory: str) -> _Repository | None:
        # This reads the repository's configuration, and runs nothing of what may be named there.
        asked = ("--show-object-format", "--git-path", "objects", "--git-path", "shallow", "--show-prefix")
        said = _run((*_GIT, "rev-parse", *asked, "--verify", "HEAD"), directory, {}, b"")
        lines = os.fsdecode(said or b"").split("\n")
        if len(lines) != 6 or not re.fullmatch("[0-9a-f]{40,64}", lines[4]):
            return None
        own_format, objects, shallow, prefix, commit, _ = lines
        cut = frozenset(_small_file(os.path.join(directory, shallow)).split())
        return _Repository(own_format, os.path.join(directory, objects), cut, commit, prefix)

    def _blame(self, repository: _Repository, name: str, content: bytes) -> dict[int, date]:
        with tempfile.TemporaryDirectory(prefix="memops-") as place:
            ours = f"{place}/git"
            for made in ("objects", "refs"):
                os.makedirs(f"{ours}/{made}")
            os.mkdir(f"{place}/empty")
            plain = repository.format == "sha1"
            _write(f"{ours}/HEAD", f"{repository.commit}\n")
            version = "0\n" if plain else f"1\n[extensions]\nobjectFormat = {repository.format}\n"
            _write(f"{ours}/config", f"[core]\nbare = false\nrepositoryFormatVersion = {version}")
            if repository.shallow:
                _write(f"{ours}/shallow", "".join(f"{each}\n" for each in sorted(repository.shallow)))
            where = {
                "GIT_DIR": ours,
                "GIT_WORK_TREE": f"{place}/empty",
                "GIT_OBJECT_DIRECTORY": os.path.abspath(repository.objects),
            }
            # -w: a note that is only indented anew is not a newer one.
            words = (*_GIT, "blame", "--incremental", "-w", "--no-textconv", "--contents", "-", "--")
            said = _run((*words, repository.prefix + name), f"{place}/empty", where, content)
        return _dates(said or b"", repository.shallow)


def _dates(said: bytes, shallow: frozenset[str]) -> dict[int, date]:
    """What ``git blame --incremental`` said. Lines that are not committed have no date."""
    written: dict[bytes, date] = {}
    groups: list[tuple[bytes, int, int]] = []
    commit = b""
    for line in said.split(b"\n"):
        if match := _GROUP.fullmatch(line):
            commit = match[1]
            groups.append((commit, int(match[2]), int(match[3])))
        elif line.startswith(b"author-time "):
            # What a commit says of its time may be any number.
            with contextlib.suppress(ValueError, OverflowError, OSError):
                written[commit] = datetime.fromtimestamp(int(line[12:32]), UTC).date()
    # Of a line that is as old as the clone's first commit nobody knows how old it is.
    unknown = {each.encode() for each in shallow} | {commit for commit, *_ in groups if not commit.strip(b"0")}
    return {
        number: written[commit]
        for commit, first, count in groups
        if commit in written and commit not in unknown
        for number in range(first, first + min(count, 1_000_000))
    }


def _run(words: Sequence[str], directory: str, more: dict[str, str], given: bytes) -> bytes | None:
    """What git printed; None when it failed, took too long, or said too much."""
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as sink:
        source.write(given)
        source.seek(0)
        try:
            process = subprocess.Popen(
                words,
                cwd=directory,
                env=_ENVIRONMENT | more,
                stdin=source,
                stdout=sink,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:  # no git here, or a path that is too long
            return None
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it may have started
            code = process.wait()
        if code != 0 or os.fstat(sink.fileno()).st_size > _LARGEST:
            return None
        sink.seek(0)
        return sink.read(_LARGEST)


def _small_file(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return file.read(_SHALLOW).decode("ascii", "replace") if plain else ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
