"""What a set on the disk is: its manifest, the list of sets, and whether one is still what it was when it was sealed.

A set is a directory of root's that nobody else reaches, but disks and people damage things: whatever is not as the
manifest says is an error that names the file. As a script it lists or verifies sets and prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import sqlite3
import stat
import sys
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from store import printable

import census
import job
import kinds
import manifests
import setstate
import takeover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

PARTIAL: Final = ".partial-"
"""What a set's name begins with while it is made, and while it is removed."""

PINNED: Final = ".pinned"
"""The file SET.pinned beside a set keeps it from being rotated."""

CLOCK: Final = 300
"""Seconds that a set may lie ahead of the clock before another one is taken for the newest."""

NAME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d{6}Z)(?:-([1-9]\d{0,5}))?", re.ASCII)

Damaged = manifests.Damaged


@dataclass(frozen=True)
class Set:
    """One set as a list shows it.

    ``rows`` are the store's in all its tables. ``parts`` have ``name``, ``kind``, ``bytes`` and ``count``: facts in the
    store, in another part what its kind counts. ``verified_at`` is when it was proven last, its sealing counted. A set
    that is not ``ok`` has a ``message`` that says why.
    """

    name: str
    sealed_at: str
    bytes: int
    rows: int
    parts: tuple[dict[str, Any], ...]
    pinned: bool
    verified_at: str
    ok: bool
    message: str


def moment(name: str) -> datetime | None:
    """The time that a set's name speaks of; None for the name of something else."""
    match = NAME.fullmatch(name)
    with contextlib.suppress(ValueError):
        return datetime.strptime(f"{match[1]}+0000", "%Y-%m-%dT%H%M%SZ%z") if match else None
    return None


def order(name: str) -> tuple[str, int]:
    """What sets are sorted by, oldest first: the second of the sealing, then the number within it."""
    match = NAME.fullmatch(name)
    return (match[1], int(match[2] or 1)) if match else (name, 0)


def read_manifest(directory: str) -> dict[str, Any]:
    """The manifest of the set in ``directory``. Raises Damaged, and JobError for one of a newer memops."""
    with reading(directory) as descriptor:
        return manifests.read(descriptor)


def listed(directory: int, pinned: bool, name: str, verified: Mapping[str, Any]) -> Set:
    """The set ``name``, open as ``directory``; ``verified`` is what root's record says of it."""
    at = str(verified.get("at") or "")
    try:
        manifest = manifests.read(directory)
        _require_own(manifest, name)
    except job.JobError as error:
        sealed = f"{name[:13]}:{name[13:15]}:{name[15:18]}"
        return Set(name, sealed, 0, 0, (), pinned, at or sealed, False, str(error))
    ok = verified.get("ok") is not False
    parts = tuple(map(entry, manifest["parts"]))
    rows = sum(manifests.counts(manifest["parts"][0]).values())
    message = "" if ok else printable(verified.get("message", ""), 300)
    sealed = manifest["sealed_at"]
    return Set(name, sealed, manifests.size(manifest), rows, parts, pinned, at or sealed, ok, message)


def entry(part: Mapping[str, Any]) -> dict[str, Any]:
    """What a list says of a part of a manifest."""
    size = sum(known["size"] for known in manifests.part_files(part).values())
    return {"name": manifests.label(part), "kind": part["kind"], "count": manifests.count(part), "bytes": size}


def _require_own(manifest: Mapping[str, Any], name: str) -> None:
    if moment(name) is not None and manifest["set"] != name:
        raise Damaged(f"{manifests.MANIFEST} is that of the set {printable(manifest['set'])}")


def list_sets(sets: str | int, state: Mapping[str, Any]) -> list[Set]:
    """The sets in the directory ``sets`` (its path, or a descriptor), oldest first, whole or not.

    state: root's record of the sets. What has no set's name is passed over. Raises OSError.
    """
    if isinstance(sets, str):
        descriptor = census.open_directory(sets)
        try:
            return list_sets(descriptor, state)
        finally:
            os.close(descriptor)
    names = os.listdir(sets)
    verified = setstate.section(state, "verified")
    found = []
    for name in sorted(filter(moment, names), key=order):
        pinned = name + PINNED in names
        try:
            with takeover.opened(sets, name) as directory:
                found.append(listed(directory, pinned, name, setstate.section(verified, name)))
        except FileNotFoundError:  # removed since
            continue
        except job.JobError:
            found.append(Set(name, "", 0, 0, (), pinned, "", False, "it is not a directory"))
    return found


def newest(sets: Iterable[Set], now: float) -> Set | None:
    """The newest set that is whole as far as is known; one dated ahead of the clock only where there is no other."""
    good = [each for each in sets if each.ok]
    past = [each for each in good if (at := moment(each.name)) and at.timestamp() <= now + CLOCK]
    return max(past or good, key=lambda each: order(each.name), default=None)


@contextlib.contextmanager
def reading(path: str) -> Iterator[int]:
    """The directory of the set ``path``, open; a rotation leaves the set alone meanwhile. Raises JobError."""
    name = printable(os.path.basename(os.path.normpath(path)))
    try:
        descriptor = census.open_directory(path)
    except FileNotFoundError:
        raise job.JobError(f"there is no set {name}") from None
    except NotADirectoryError:
        raise Damaged(f"{name} is not a directory") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise job.JobError(f"the set {name} is being removed") from None
        yield descriptor
    finally:
        os.close(descriptor)


def verify_set(path: str, limit: census.Limit) -> dict[str, Any]:
    """Prove that the set in the directory ``path`` is what its manifest says, and return the manifest.

    Every file is there with its size and sha256 and none is extra; each part is opened and verified by its kind.
    Nothing of the set is altered. Raises Damaged, and JobError where it could not be found out.
    """
    with reading(path) as directory:
        manifest = manifests.read(directory)
        _require_own(manifest, os.path.basename(os.path.normpath(path)))
        before = require_tree(directory, manifest)
        for file, known in sorted(manifests.all_files(manifest).items()):
            read_file(directory, file, known, limit)
        for part in manifest["parts"]:
            open_part(path, part, limit)
        if _tree(directory) != before:
            raise job.JobError("opening the parts altered the set, which must not be; please report this")
        return manifest


Tree = tuple[dict[str, tuple[int, ...]], set[str]]
"""The files of a set (path → what would tell of a change) and its directories."""


def _tree(directory: int) -> Tree:
    files: dict[str, tuple[int, ...]] = {}
    directories: set[str] = set()
    waiting = [""]
    while waiting:
        outer = waiting.pop()
        try:
            inner = census.open_directory(outer or ".", directory)
        except OSError as error:
            raise Damaged(f"{printable(outer, 200)} cannot be opened: {error.strerror}") from error
        try:
            for name in os.listdir(inner):
                path = f"{outer}/{name}" if outer else name
                status = os.stat(name, dir_fd=inner, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    directories.add(path)
                    waiting.append(path)
                elif stat.S_ISREG(status.st_mode):
                    files[path] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                else:
                    raise Damaged(f"{printable(path, 200)} is neither a file nor a directory")
        finally:
            os.close(inner)
    return files, directories


def require_tree(directory: int, manifest: Mapping[str, Any]) -> Tree:
    """Raise Damaged unless a set has the files and directories of its manifest and no others; returns what it has."""
    found = files, directories = _tree(directory)
    known = {path: entry["size"] for path, entry in manifests.all_files(manifest).items()}
    meant = {path for part in manifest["parts"] for path in manifests.part_directories(part)}
    if missing := sorted((known.keys() - files.keys()) | (meant - directories)):
        raise Damaged(f"{printable(missing[0], 200)} is missing")
    if extra := sorted((files.keys() - known.keys() - {manifests.MANIFEST}) | (directories - meant)):
        raise Damaged(f"{printable(extra[0], 200)} is in the set, and not in its manifest")
    for path in sorted(known):
        if files[path][1] != known[path]:
            raise Damaged(f"{printable(path, 200)} has {files[path][1]:,} bytes and had {known[path]:,}")
    return found


def read_file(
    directory: int,
    path: str,
    known: Mapping[str, Any],
    limit: census.Limit,
    sink: Callable[[bytes], object] = lambda _: None,
) -> None:
    """Read a file of a set to its end, by way of ``sink``. Raises Damaged unless it is the one in the manifest."""
    descriptor, _ = manifests.open_file(directory, path)
    digest, length = hashlib.sha256(), 0
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while chunk := _read(file.fileno(), path):
            digest.update(chunk)
            length += len(chunk)
            if length > known["size"]:
                break
            sink(chunk)
            limit.check()
    if length != known["size"] or digest.hexdigest() != known["sha256"]:
        raise Damaged(f"{printable(path, 200)} has changed: its sha256 is another one than in the manifest")


def _read(descriptor: int, path: str) -> bytes:
    try:
        return os.read(descriptor, takeover.CHUNK)
    except OSError as error:
        raise Damaged(f"{printable(path, 200)} cannot be read: {error.strerror}") from error


def open_part(directory: str, part: Mapping[str, Any], limit: census.Limit) -> None:
    """Let its kind verify one part of the set in ``directory``. Raises Damaged, and JobError when the time is over."""
    where = directory if manifests.is_main(part) else os.path.join(directory, part["name"])
    # A copy that was taken while somebody wrote is known exactly all the same, since it was counted.
    kind, claim = kinds.load(part["kind"]), {**part, "exact": True}
    try:
        limit.run(lambda: kind.verify(where, claim, limit))
    except job.JobError as error:
        limit.check()
        if error.exit_code != job.FAILED:
            raise
        raise Damaged(f"{manifests.label(part)}: {error}") from error
    except (MemoryError, sqlite3.Error) as error:
        raise Damaged(f"{manifests.label(part)} cannot be opened: {job.said(error)}") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"{manifests.label(part)} cannot be opened: {printable(error, 200)}") from error


def copy_set(directory: int, manifest: Mapping[str, Any], target: int, limit: census.Limit) -> None:
    """Copy a set's files into the empty directory ``target``, each as the manifest has it. Raises Damaged, OSError."""
    for path in sorted(path for part in manifest["parts"] for path in manifests.part_directories(part)):
        os.mkdir(path, 0o700, dir_fd=target)
    for path, known in sorted(manifests.all_files(manifest).items()):
        with takeover.create(target, path) as file:
            read_file(directory, path, known, limit, file.write)


def note(state: dict[str, Any], name: str, message: str = "") -> None:
    """Note in the state that the set ``name`` was verified now; ``message`` is what was wrong with it."""
    entry = {"at": job.now(), "ok": not message, "message": message}
    state["verified"] = {**setstate.section(state, "verified"), name: entry}


def _print_list(options: argparse.Namespace) -> int:
    sets = list_sets(options.sets, setstate.read(options.sets_record))
    latest = newest(sets, time.time())
    print(json.dumps([{**asdict(each), "latest": each is latest} for each in sets]))
    return job.DONE


def _verify_each(options: argparse.Namespace, limit: census.Limit) -> int:
    """Verify the sets that were named; a JSON object for each: set, ok (null: it could not be found out), message."""
    code = job.DONE
    for name in options.set:
        ok: bool | None = True
        message = ""
        try:
            if moment(name) is None:
                raise job.JobError(f"{printable(name)} is not the name of a set")
            verify_set(os.path.join(options.sets, name), limit)
        except Damaged as error:
            ok, message = False, str(error)
        except (job.JobError, OSError) as error:
            ok, message = None, str(error)
        if ok is not None:
            setstate.update(options.sets_record, lambda state, n=name, m=message: note(state, n, m))  # type: ignore[misc]
        print(json.dumps({"set": name, "ok": ok, "message": message}), flush=True)
        code = code or (job.DONE if ok else job.FAILED)
    return code


def main(argv: list[str] | None = None) -> int:
    """Read the command line, list or verify, return the exit code."""
    parser = argparse.ArgumentParser(description="List the backup sets of a store, or verify some; prints JSON.")
    parser.add_argument("what", choices=("list", "verify"))
    parser.add_argument("set", nargs="*", help="the sets to verify")
    parser.add_argument("--sets", required=True, help="the directory of the sets")
    parser.add_argument("--sets-record", required=True, help="root's record of them")
    parser.add_argument("--deadline", type=float, default=census.DEADLINE, help="seconds this may take")
    options = parser.parse_intermixed_args(argv)  # sets may follow the options
    os.umask(0o077)
    limit = census.Limit(options.deadline)
    try:
        if options.what == "list":
            return _print_list(options)
        return _verify_each(options, limit)
    except OSError as error:
        job.say(f"sets: {error}", error=True)
        return job.FAILED


if __name__ == "__main__":
    sys.exit(main())
