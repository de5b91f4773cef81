"""The first step of putting a set back, as the store's owner: its files are laid ready beside the present ones.

It may run beside the agent, since nothing looks there. What can fail for want of room, of a right or of a byte fails
here, before anything of the present state is touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import store

import census
import job
import kinds
import parts
import shape
import takeover
from pieces import ASIDE, STAGING, Piece, Place, Task, sync, tree

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER_LIMIT: Final = 256 << 20
"""Bytes that the list of a set's files may have."""


def prepare(task: Task, stream: BinaryIO, limit: census.Limit) -> list[str]:
    """Write the files that ``stream`` brings into the directories of this restore, and check them there.

    The stream is what setcopy.py sends: a line of JSON that lists the parts and their files, then all files' bytes.
    Returns remarks. Raises JobError, OSError; then nothing is left of it.
    """
    places = task.places
    sent = _read_header(stream)
    targets = {piece.name: place.staged(piece) for place in places for piece in place.pieces}
    targets |= {part.name: places[0].staged(part) for part in task.served}
    if different := sorted(targets.keys() ^ sent.keys()):
        raise job.JobError(f"the set and the restore disagree about the part {different[0]}")
    for place in places:
        _require_free_names(place)
    _require_room(places, targets, sent)
    try:
        for place in places:
            os.mkdir(place.staging, 0o700)
        for name, part in sent.items():
            os.mkdir(targets[name], 0o700)
            _receive(part, targets[name], stream, limit)
        if stream.read(1):
            raise job.JobError("more arrived than the set's list of files says")
        for served in task.served:
            with parts.naming(served.name):
                kinds.load(served.kind).verify(targets[served.name], sent[served.name]["claim"], limit)
        return [remark for place in places for remark in _make_place_ready(place, sent, limit)]
    except BaseException:
        for place in places:
            shutil.rmtree(place.staging, ignore_errors=True)
        raise


def _read_header(stream: BinaryIO) -> dict[str, dict[str, Any]]:
    try:
        return {part["name"]: part for part in json.loads(stream.readline(HEADER_LIMIT))["parts"]}
    except (ValueError, KeyError, TypeError):
        raise job.JobError("the set's list of files did not arrive") from None


def _require_free_names(place: Place) -> None:
    status = os.lstat(place.directory)
    if not stat.S_ISDIR(status.st_mode):
        raise job.JobError(f"{place.directory} is not a directory")
    # A directory that is a part may be the agent's to replace by a link, which systemd follows as root.
    if any(not piece.file for piece in place.pieces) and os.geteuid() not in (0, status.st_uid):
        raise job.JobError(f"{place.directory} belongs to another user")
    if any(os.path.lexists(path) for path in (place.staging, place.aside)):
        raise job.JobError(f"there is a {STAGING}{place.stamp} or {ASIDE}{place.stamp} already")


def _require_room(places: list[Place], targets: Mapping[str, str], sent: Mapping[str, dict[str, Any]]) -> None:
    needed: dict[int, int] = {}
    free: dict[int, int] = {}
    for place in places:
        descriptor = census.open_directory(place.directory)
        try:
            device = os.fstat(descriptor).st_dev
            free[device] = census.free_bytes(descriptor)
        finally:
            os.close(descriptor)
        here = [name for name, path in targets.items() if os.path.dirname(path) == place.staging]
        needed[device] = needed.get(device, 0) + sum(size for name in here for _, size, _ in sent[name]["files"])
    for device, size in needed.items():
        census.require_free(free[device], size, "beside the present files for the set", "on that disk")


def _receive(part: Mapping[str, Any], target: str, stream: BinaryIO, limit: census.Limit) -> None:
    for path in part["directories"]:
        os.makedirs(os.path.join(target, path), 0o700, exist_ok=True)
    for path, size, sha256 in part["files"]:
        digest = hashlib.sha256()
        with open(os.path.join(target, path), "xb") as file:
            left = size
            while left:
                if not (chunk := stream.read(min(takeover.CHUNK, left))):
                    raise job.JobError("the set's files broke off on their way")
                digest.update(chunk)
                file.write(chunk)
                left -= len(chunk)
                limit.check()
        if digest.hexdigest() != sha256:
            raise job.JobError(f"{store.printable(path)} did not arrive as the set has it")


def _make_place_ready(place: Place, sent: Mapping[str, dict[str, Any]], limit: census.Limit) -> list[str]:
    remarks: list[str] = []
    for piece in place.pieces:
        with parts.naming(piece.name):
            remarks += _make_ready(place, piece, sent[piece.name]["claim"], limit)
    databases = {
        piece.name: {"mode": header_mode(os.path.join(place.staged(piece), piece.file)), "rows": rows}
        for piece in place.pieces
        if piece.kind == "sqlite" and (rows := sent[piece.name]["claim"].get("rows")) is not None
    }
    new = {piece.name: sorted(os.listdir(place.staged(piece))) for piece in place.pieces}
    place.write_note("ready", {"new": new, "databases": databases})
    sync(place.directory)
    return remarks


def _make_ready(place: Place, piece: Piece, claim: Mapping[str, Any], limit: census.Limit) -> list[str]:
    """Check a part's new files, and give them the names, modes and journal modes that they will have."""
    staged = place.staged(piece)
    kinds.load(piece.kind).verify(staged, claim, limit)
    new_file, new_directory = 0o600, 0o700
    if piece.file:
        (arrived,) = os.listdir(staged)
        os.rename(os.path.join(staged, arrived), os.path.join(staged, piece.file))
    else:
        mode = stat.S_IMODE(os.stat(place.directory).st_mode)
        new_file, new_directory = mode & 0o666 | 0o600, mode & 0o2777 | 0o700
    remarks: list[str] = []
    paths = tree(staged)
    for path in paths:
        old = os.path.join(place.directory, os.path.relpath(path, staged))
        if piece.kind != "files" and os.path.isfile(path):
            _set_journal_mode(path, header_mode(old) or piece.default_mode)
        remarks += _dress(path, old, new_file, new_directory)
    sync(staged, *paths)
    return remarks


def header_mode(path: str) -> str:
    """``wal`` or ``delete``, as a database's header says; empty where there is none."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            header = file.read(20)
    except OSError:
        return ""
    if header[:16] != b"SQLite format 3\0":
        return ""
    return "wal" if header[18:] == b"\2\2" else "delete"


def _set_journal_mode(path: str, wanted: str) -> None:
    if wanted == "wal" and header_mode(path) == "delete" and shape.set_journal_mode(path, "wal") != "wal":
        raise job.JobError(f"{os.path.basename(path)} could not be switched to WAL, in which it was")


def _dress(path: str, old: str, new_file: int, new_directory: int) -> list[str]:
    """Give a new file or directory what its predecessor ``old`` has: mode, group, extended attributes."""
    directory = os.path.isdir(path)
    try:
        before = os.lstat(old)
    except OSError:
        before = None
    if before is None or stat.S_IFMT(before.st_mode) != stat.S_IFMT(os.lstat(path).st_mode):
        os.chmod(path, new_directory if directory else new_file)
        return []
    remarks = []
    if before.st_gid != os.lstat(path).st_gid:
        try:
            os.chown(path, -1, before.st_gid)
        except OSError:
            remarks.append(f"{os.path.basename(path)} belonged to group {before.st_gid}, and its owner is not in it")
    os.chmod(path, stat.S_IMODE(before.st_mode) & (0o2777 if directory else 0o777))
    for name in os.listxattr(old, follow_symlinks=False):
        with contextlib.suppress(OSError):  # a label of the system's is not the owner's to set
            os.setxattr(path, name, os.getxattr(old, name, follow_symlinks=False), follow_symlinks=False)
    return remarks
