"""How old the notes are that agents keep in plain files: read, and never written.

Run as a script it prints JSON (see ``Summary``). Standard library only; ``memops notes`` runs it too, where nothing of
memops is installed. No link is followed, only plain files are opened, and everything has a limit: the directories are
the agent's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import stat
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import blame
import note_dates
import note_forms

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import date

OLD: Final = 31
"""Days after which a note is old."""

SHOWN: Final = 20
"""Entries that are shown."""

LARGEST: Final = 2 << 20
"""Bytes that a file may have; one of an agent's memory has some thousand."""

BYTES: Final = 32 << 20
FILES: Final = 2000
NAMES: Final = 50_000
ENTRIES: Final = 100_000
DEPTH: Final = 32
PROBLEMS: Final = 100
_HEAD: Final = 1 << 16

SKIPPED: Final = ("node_modules", "__pycache__")
MEMORIES: Final[Mapping[str, tuple[str, ...]]] = {
    ".claude": ("CLAUDE.md", "rules", "projects/*/memory", "agent-memory", "agent-memory-local"),
    ".hermes": ("memories",),
    ".openclaw": ("workspace*/MEMORY.md", "workspace*/USER.md", "workspace*/memory"),
}
"""Directories of products, in which only these places hold memory. Other hidden directories are passed over."""


@dataclass(frozen=True)
class Listed:
    """An entry as it is shown: date ``YYYY-MM-DD`` or None, ``by`` as in note_forms.Entry, and the text's beginning."""

    file: str
    line: int
    date: str | None
    by: str
    text: str


@dataclass
class Counts:
    """A file's entries: all, those with a date, those without one, and those with a date that is old."""

    file: str
    form: str
    entries: int = 0
    dated: int = 0
    undated: int = 0
    old: int = 0


@dataclass
class Summary:
    """What was found. ``listed``: first the old entries, the oldest first, then those without a date.

    problems: what was not read, or not all of it, each with the reason; ``unsaid`` more of them are not in the list.
    """

    older_than: int
    entries: int = 0
    dated: int = 0
    undated: int = 0
    old: int = 0
    files: list[Counts] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)
    problems: list[dict[str, str]] = field(default_factory=list)
    unsaid: int = 0

    def as_json(self) -> dict[str, Any]:
        """The same in lists and dictionaries."""
        return asdict(self)


class _Full(Exception):  # noqa: N818 - an answer, not a bug
    """A limit of all files together was met; the text says which."""


def look(
    paths: Sequence[str],
    now: float,
    *,
    older_than: int = OLD,
    limit: int = SHOWN,
    git: bool = True,
    names: Mapping[str, str] | None = None,
) -> Summary:
    """Read the notes at ``paths``, files or directories. Raises nothing: what cannot be read is among the problems.

    now: seconds since 1970. older_than: days. limit: the most entries that are listed. git: ask it for dates.
    names: a path → what it is called in the answer, where it is not seen at its own place.
    """
    reader = _Reader(now, older_than, git=git)
    try:
        for path in paths:
            reader.top(path, (names or {}).get(path, path))
    except _Full as full:
        reader.problem(str(full), "the rest was not read")
    if reader.history.late:
        reader.problem("git", "it took too long: some entries have no date though git may know one")
    return reader.summary(limit)


def entries(path: str, now: float) -> tuple[list[tuple[str, note_forms.Entry]], list[dict[str, str]]]:
    """Every entry at ``path`` with its file, and the problems as Summary has them. Raises ValueError where a limit of
    all files together was met, so that nobody knows what else there is."""
    reader = _Reader(now, OLD, git=True)
    reader.every = []
    try:
        reader.top(path, path)
    except _Full as full:
        raise ValueError(str(full)) from None
    found = reader.summary(0)
    if found.unsaid:
        raise ValueError(f"more than {PROBLEMS:,} files or lines cannot be read")
    return reader.every, found.problems


class _Reader:
    def __init__(self, now: float, older_than: int, *, git: bool) -> None:
        self.every: list[tuple[str, note_forms.Entry]] | None = None
        self._git = git
        self._latest = note_dates.today(now)
        self._old = self._latest - timedelta(days=min(older_than, 300_000))
        self._summary = Summary(older_than)
        self._listed: list[Listed] = []
        self._seen: set[tuple[int, int]] = set()
        self._bytes = self._names = 0
        self.history = blame.History()

    def problem(self, where: str, what: str) -> None:
        if len(self._summary.problems) < PROBLEMS:
            self._summary.problems.append({"where": where, "what": what})
        else:
            self._summary.unsaid += 1

    def summary(self, limit: int) -> Summary:
        found = self._summary
        # A note without a date may be the oldest of all, but of one with a date it is known.
        found.listed = sorted(self._listed, key=lambda each: (each.date is None, each.date, each.file, each.line))[
            :limit
        ]
        for count in found.files:
            found.entries += count.entries
            found.dated += count.dated
            found.undated += count.undated
            found.old += count.old
        return found

    def top(self, path: str, shown: str) -> None:
        """One of the paths that were named."""
        try:
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                inside = MEMORIES.get(os.path.basename(os.path.abspath(shown)))
                self._directory(descriptor, path, shown, 0, _patterns(inside))
            elif stat.S_ISREG(status.st_mode):
                self._file(None, path, path, shown, (), named=True)
            else:
                self.problem(
                    shown, "a link, which is not followed" if stat.S_ISLNK(status.st_mode) else "no plain file"
                )
        except (OSError, ValueError) as error:
            self.problem(shown, f"not read: {_reason(error)}")

    def _directory(self, descriptor: int, path: str, shown: str, depth: int, inside: _Patterns) -> None:
        """Look through an open directory, and close it. inside: as ``_patterns`` makes them; None for all."""
        try:
            entries = sorted(self._entries(descriptor), key=lambda entry: entry.name)
            beside = {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
            for entry in entries:
                below, here = _below(inside, entry.name)
                if not here:
                    continue
                place, name = f"{path}/{entry.name}", f"{shown.rstrip('/')}/{entry.name}"
                try:
                    if entry.is_dir(follow_symlinks=False):
                        self._subdirectory(descriptor, entry.name, place, name, depth, below)
                    elif below or not _is_candidate(entry.name):
                        continue
                    elif entry.name in beside:
                        self._file(descriptor, entry.name, place, name, beside)
                    else:
                        self.problem(name, "a link, which is not followed" if entry.is_symlink() else "no plain file")
                except OSError as error:
                    self.problem(name, f"not read: {_reason(error)}")
        finally:
            os.close(descriptor)

    def _entries(self, descriptor: int) -> list[os.DirEntry[str]]:
        entries: list[os.DirEntry[str]] = []
        with os.scandir(descriptor) as found:
            for entry in found:
                self._names += 1
                if self._names > NAMES:
                    raise _Full(f"more than {NAMES:,} names")
                entries.append(entry)
        return entries

    def _subdirectory(self, parent: int, entry: str, path: str, shown: str, depth: int, below: _Patterns) -> None:
        if below is None and (entry in SKIPPED or (entry.startswith(".") and entry not in MEMORIES)):
            return
        if depth >= DEPTH:
            self.problem(shown, f"not read: it is more than {DEPTH} directories deep")
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        inside = _patterns(MEMORIES.get(entry)) if below is None else below
        self._directory(os.open(entry, flags, dir_fd=parent), path, shown, depth + 1, inside)

    def _file(
        self, parent: int | None, entry: str, path: str, shown: str, beside: Collection[str], *, named: bool = False
    ) -> None:
        # Not waiting for the other end, should it have become a pipe.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with os.fdopen(os.open(entry, flags, dir_fd=parent), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                self.problem(shown, "no plain file")
                return
            if (status.st_dev, status.st_ino) in self._seen:
                return
            self._seen.add((status.st_dev, status.st_ino))
            head = _read(file, _HEAD)
            if not named and note_forms.is_json(entry) and not note_forms.is_server_memory(head, entry):
                return
            content = head + _read(file, LARGEST + 1 - len(head))
        self._bytes += len(content)
        if len(content) > LARGEST:
            size = f"{status.st_size / 1e6:,.1f} MB, and more than {LARGEST / 1e6:.1f} MB of one file"
            self.problem(shown, f"not read: {size} is no memory")
            return
        if self._bytes > BYTES:
            raise _Full(f"more than {BYTES / 1e6:.0f} MB of notes")
        try:
            found = note_forms.read(content, os.path.basename(shown), self._latest, beside)
        except ValueError as error:
            self.problem(shown, f"not read: {error}")
            return
        if not found.form:
            self.problem(shown, "not read: it is not the JSON of the MCP server-memory")
            return
        self._count(found, path, shown, content, status.st_uid)

    def _count(self, found: note_forms.Notes, path: str, shown: str, content: bytes, owner: int) -> None:
        for line, what in found.bad[: note_forms.BAD_LINES]:
            self.problem(f"{shown}:{line}", what)
        self._summary.unsaid += max(0, len(found.bad) - note_forms.BAD_LINES)
        if not found.entries:
            return
        if len(self._summary.files) >= FILES:
            raise _Full(f"more than {FILES:,} files")
        entries = found.entries
        # git is for the owner alone: whoever else started it would read, as themselves, what the owner configured.
        if self._git and os.geteuid() == owner != 0 and any(entry.date is None for entry in entries):
            entries = self._dated(entries, self.history.lines(path, content))
        if self.every is not None:
            self.every += [(shown, entry) for entry in entries]
        counts = Counts(shown, found.form, len(entries))
        for entry in entries:
            # That the file was changed dates nothing: an agent that adds a line writes the whole file anew, so its
            # time of change (mtime) says of no single entry how old it is.
            if entry.date is None:
                counts.undated += 1
            else:
                counts.dated += 1
                counts.old += entry.date < self._old
            if entry.date is None or entry.date < self._old:
                written = entry.date.isoformat() if entry.date else None
                self._listed.append(Listed(shown, entry.line, written, entry.by, entry.text))
        self._summary.files.append(counts)
        if len(self._listed) > ENTRIES:
            raise _Full(f"more than {ENTRIES:,} old entries")

    def _dated(self, entries: list[note_forms.Entry], lines: Mapping[int, date]) -> list[note_forms.Entry]:
        dated = []
        for entry in entries:
            written = None
            if entry.date is None:
                known = [lines.get(number) for number in range(entry.line, entry.last + 1)]
                # A line that is not committed is newer than all, and nobody knows how much.
                written = None if None in known else max(each for each in known if each)
            if written and note_dates.EARLIEST <= written <= self._latest:
                dated.append(note_forms.dated_by_git(entry, written))
            else:
                dated.append(entry)
        return dated


_Patterns = tuple[tuple[str, ...], ...] | None


def _patterns(places: Sequence[str] | None) -> _Patterns:
    return None if places is None else tuple(tuple(place.split("/")) for place in places)


def _below(inside: _Patterns, name: str) -> tuple[_Patterns, bool]:
    """The patterns for what is below ``name``, and whether it is to be looked at."""
    if inside is None:
        return None, True
    rest = [pattern[1:] for pattern in inside if fnmatchcase(name, pattern[0])]
    return (None if () in rest else tuple(rest)), bool(rest)


def _is_candidate(name: str) -> bool:
    return note_forms.is_json(name) or name.lower().endswith((".md", ".markdown"))


def _read(file: Any, most: int) -> bytes:
    """Up to ``most`` bytes; a file that is being written may give fewer at a time."""
    content = b""
    while len(content) < most and (more := file.read(most - len(content))):
        content += more
    return content


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def main(argv: list[str] | None = None) -> int:
    """Read the command line, look, print JSON."""
    parser = argparse.ArgumentParser(description="Say how old the notes in plain files are, as JSON.")
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--older-than", type=int, default=OLD, metavar="DAYS")
    parser.add_argument("--limit", type=int, default=SHOWN, metavar="N", help="entries that are listed")
    parser.add_argument("--no-git", action="store_false", dest="git", help="do not ask git for dates")
    parser.add_argument("--name", action="append", default=[], help="what each path is called in the answer")
    options = parser.parse_args(argv)
    names = dict(zip(options.paths, options.name, strict=False))
    wanted = {name: getattr(options, name) for name in ("older_than", "limit", "git")}
    found = look(options.paths, time.time(), names=names, **wanted)
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(found.as_json()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
