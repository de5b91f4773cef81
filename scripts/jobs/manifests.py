"""What is in a set, as its manifest says: how that is read, and what it must be like.

A set is root's, but disks and people damage things, and one may have been fetched back from elsewhere: nothing is taken
from a manifest that has not the form that a sealing gives it, now or in earlier versions.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from typing import TYPE_CHECKING, Any, Final

from store import printable

import claims
import job

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MANIFEST: Final = "manifest.json"
LARGEST: Final = 128 << 20
"""Bytes that a manifest may have."""

_PART: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,40}", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)

Files = dict[str, dict[str, Any]]
"""Path from the set's directory → size and sha256."""


CHECKSUM: Final = "checksum"
"""The key of the sha256 of all the others, which manifests of earlier versions have not."""


class Damaged(job.JobError):
    """A set is not what its manifest says; the sentence names the file. Other JobErrors leave open whether it is."""


def write(manifest: Mapping[str, Any]) -> bytes:
    """A manifest as it lies in its set, with its own checksum."""
    return (json.dumps({**manifest, CHECKSUM: _checksum(manifest)}, indent=1) + "\n").encode()


def _checksum(manifest: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != CHECKSUM}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read(directory: int) -> dict[str, Any]:
    """The manifest in the open ``directory``. Raises Damaged, and JobError for one of a newer memops."""
    try:
        descriptor, size = open_file(directory, MANIFEST)
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise Damaged(f"{MANIFEST} cannot be read: {error.strerror}") from error
    if max(size, len(text)) > LARGEST:
        raise Damaged(f"{MANIFEST} is larger than a backup writes it")
    try:
        manifest = json.loads(text)
        version = claims.field(manifest, "version", int)
        if version == 1:
            _check(manifest)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{MANIFEST} cannot be read: {printable(error, 100)}") from error
    if version != 1:
        raise job.JobError(f"{MANIFEST} is of version {version}, which this memops does not know")
    return dict(manifest)


def _check(manifest: Mapping[str, Any]) -> None:
    """Raise ValueError unless the manifest has the form that a sealing gives it, now or in earlier versions."""
    if CHECKSUM in manifest and manifest[CHECKSUM] != _checksum(manifest):
        raise ValueError("it has changed: its checksum is another one")
    for key in ("store", "set", "sealed_at"):
        claims.field(manifest, key, str)
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", manifest["sealed_at"], re.ASCII):
        raise ValueError("sealed_at is not a time")
    parts: list[Any] = claims.field(manifest, "parts", list)
    names = [claims.field(part, "name", str) for part in parts]
    if not parts or "files" in parts[0] or any("files" not in part for part in parts[1:]):
        raise ValueError("its parts are not one store and what belongs to it")
    if len(set(names)) < len(names) or not all(_PART.fullmatch(name) for name in names[1:]):
        raise ValueError("its parts have no names of their own")
    for part in parts:
        claims.field(part, "kind", str)
        counts(part)
        part_files(part)
        part_directories(part)


def is_main(part: Mapping[str, Any]) -> bool:
    """Whether an entry of a manifest's parts is the store itself, which is one file at the top of the set."""
    return "files" not in part


def label(part: Mapping[str, Any]) -> str:
    """The name of a part as people read it."""
    return "memory" if is_main(part) else str(part["name"])


def counts(part: Mapping[str, Any]) -> dict[str, int]:
    """What a part holds, by what it is: rows of each table, points of each collection. Raises ValueError."""
    key = "rows" if is_main(part) else "counts"
    found: dict[str, Any] = claims.field(part, key, dict)
    if any(claims.field(found, what, int) < 0 for what in found):
        raise ValueError(f"{key} has a number below 0")
    return found


def count(part: Mapping[str, Any]) -> int:
    """One number for a part: the store's facts, where it has a table of them, else all that is counted."""
    found = counts(part)
    return found["memory"] if is_main(part) and "memory" in found else sum(found.values())


def part_files(part: Mapping[str, Any]) -> Files:
    """The files of a part: path from the set's directory → ``size`` and ``sha256``. Raises ValueError."""
    if is_main(part):
        files: dict[str, Any] = {claims.field(part, "file", str): part}
        if any("/" in path or path in ("", ".", "..", MANIFEST) or "\0" in path for path in files):
            raise ValueError("file is not the name of a database")
    else:
        files = claims.field(part, "files", dict)
        _require_inside(part, files)
    for path in files:
        size, digest = claims.field(files[path], "size", int), claims.field(files[path], "sha256", str)
        if size < 0 or not _SHA256.fullmatch(digest):
            raise ValueError(f"size or sha256 of {path} cannot be right")
    return {path: {key: files[path][key] for key in ("size", "sha256")} for path in files}


def part_directories(part: Mapping[str, Any]) -> set[str]:
    """The directories of a part, by their path from the set's directory. Raises ValueError."""
    if is_main(part):
        return set()
    directories: list[Any] = claims.field(part, "directories", list)
    if not all(isinstance(path, str) for path in directories):
        raise ValueError("directories are not names")
    _require_inside(part, directories)
    outer = {path[:end] for path in (*directories, *part["files"]) for end in _slashes(path)}
    return {part["name"], *directories, *outer}


def _require_inside(part: Mapping[str, Any], paths: Iterable[str]) -> None:
    for path in paths:
        words = path.split("/")
        if words[0] != part["name"] or {"", ".", ".."} & set(words) or "\0" in path:
            raise ValueError(f"{path} does not lie in {part['name']}")


def _slashes(path: str) -> Iterator[int]:
    return (at for at, letter in enumerate(path) if letter == "/")


def all_files(manifest: Mapping[str, Any]) -> Files:
    """The files of all parts."""
    return {path: known for part in manifest["parts"] for path, known in part_files(part).items()}


def size(manifest: Mapping[str, Any]) -> int:
    """Bytes of all files of a set but the manifest."""
    return sum(known["size"] for known in all_files(manifest).values())


def open_file(directory: int, path: str) -> tuple[int, int]:
    """Open a plain file of a set; its descriptor and size. Raises Damaged."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        raise Damaged(f"{printable(path, 200)} is missing") from None
    except OSError as error:
        raise Damaged(f"{printable(path, 200)} cannot be opened: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Damaged(f"{printable(path, 200)} is not a plain file")
    return descriptor, status.st_size
