"""Further parts on their way into a set: a directory NAME and its claim NAME.json in the incoming directory."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store import printable

import census
import claims
import job
import kinds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


@dataclass(frozen=True)
class Part:
    """A part as the units name it: its name in the set, its kind, and where it is."""

    name: str
    kind: str
    source: str


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Let a job take further parts."""
    words = ("NAME", "KIND", "SOURCE")
    parser.add_argument("--part", nargs=3, action="append", default=[], metavar=words, help="a further part")


def chosen(options: argparse.Namespace) -> list[Part]:
    """The further parts that a job was given."""
    return [Part(*words) for words in options.part]


def copying(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """Read the command line of a job that copies into the incoming directory, and set the mask of its files."""
    parser.add_argument("--incoming", required=True, help="the directory for the copies")
    parser.add_argument("--state", required=True, help="the directory for the run record")
    parser.add_argument("--deadline", type=float, default=census.DEADLINE, help="seconds this may take")
    add_argument(parser)
    os.umask(0o007)  # the sealing half reads, and removes, as the directory's group
    return parser.parse_args(argv)


def empty(directory: int, name: str) -> None:
    """Remove what earlier runs left of a part in the incoming ``directory``."""
    for entry in os.listdir(directory):
        if entry == name or entry.startswith((f"{name}.json", f"{name}.db")):
            try:
                os.unlink(entry, dir_fd=directory)
            except IsADirectoryError:
                shutil.rmtree(entry, dir_fd=directory)


def require_own(source: str) -> None:
    """Raise JobError unless a part is what it was at install: the owner's own, and no link.

    The unit shows the job whatever lies at the part's path, and systemd follows links there as root: the agent must not
    get to read in this way what it could not reach by itself.
    """
    if "://" in source:
        return
    try:
        status = os.lstat(source.rstrip("/"))
    except FileNotFoundError:
        raise job.JobError("there is nothing at its path any more") from None
    if stat.S_ISLNK(status.st_mode):
        raise job.JobError("there is a link at its path now")
    if os.geteuid() not in (0, status.st_uid):
        raise job.JobError("what is at its path belongs to another user now")
    if stat.S_ISDIR(status.st_mode) != source.endswith("/"):
        raise job.JobError(f"there is a {'directory' if stat.S_ISDIR(status.st_mode) else 'file'} at its path now")


def take(incoming: str, directory: int, part: Part, limit: census.Limit) -> str:
    """Copy a part into ``incoming``, open as ``directory``, and leave its claim beside it; returns a word on it.

    Raises JobError, which names the part, and OSError.
    """
    os.mkdir(part.name, 0o770, dir_fd=directory)
    target = os.path.join(os.path.abspath(incoming), part.name)
    with naming(part.name):
        require_own(part.source)
        claim = {"version": 1, "kind": part.kind, **kinds.load(part.kind).snapshot(part.source, target, limit)}
        text = json.dumps(claim)
        if len(text) > claims.LIMIT:
            raise job.JobError("it has more in it than a backup can list")
    limit.check()
    job.replace_file(os.path.join(incoming, f"{part.name}.json"), text)
    os.fsync(directory)
    counts = ", ".join(f"{count:,} {what}" for what, count in list(claim.get("counts", {}).items())[:2])
    return f"{part.name} ({counts})" if counts else part.name


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Let what goes wrong inside name the part."""
    try:
        yield
    except job.JobError as error:
        raise job.JobError(f"{name}: {error}", error.exit_code, error.counts) from error
    except sqlite3.Error as error:
        failure = job.explain(error)
        raise job.JobError(f"{name}: {failure}", failure.exit_code) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # of the disk of the backups
        where = f" ({printable(error.filename, 200)})" if error.filename else ""
        raise job.JobError(f"{name}: {error.strerror or error}{where}") from error
