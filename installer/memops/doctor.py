"""Looking at every memory on the machine for ``memops doctor``: what discovery found, and what findings need besides.

Nothing is changed, and no file opened: the directories on a part's way are looked at, the room beside it, and how the
stores under care are.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memops import findings, products, settings, status
from memops.errors import MemopsError
from memops.finding_places import VAR_TMP
from memops.found import Care

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memops.found import Finding, Found, Machine, Part
    from memops.settings import Store

VERSION = 1

MOST = 2_000
"""Entries of a directory that are looked at for one which everybody may read."""


@dataclass(frozen=True)
class Seen:
    """All that was seen: stores, the machine, the stores under care by name, and the findings on them."""

    found: tuple[Found, ...]
    machine: Machine
    care: Mapping[str, Care]
    findings: tuple[Finding, ...]


def look(paths: Sequence[str]) -> Seen:
    """Look at these paths, or at everything. Raises MemopsError for a path that is not there."""
    from memops import gathering

    stores, machine = gathering.look(paths)
    found = tuple(replace(store, parts=tuple(_reached(store, part) for part in store.parts)) for store in stores)
    care, unread = _care(found, machine.now, every=not paths)
    free = {**_rooms(found), **machine.free}
    machine = replace(machine, free=free, unread=(*machine.unread, *unread))
    return Seen(found, machine, care, tuple(findings.findings(found, machine, care)))


# The way to a part


@dataclass(frozen=True)
class Step:
    """A directory or file on the way to a part: its mode and owners."""

    path: str
    mode: int
    uid: int
    gid: int


def is_exposed(way: Sequence[Step]) -> bool:
    """Whether every user can pass the directories of a way, and read what is at its end. Pure."""
    *directories, last = way
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(last.mode) else 0)
    return all(step.mode & stat.S_IXOTH for step in directories) and last.mode & needed == needed


def barred(way: Sequence[Step], uid: int, groups: Iterable[int]) -> str:
    """The first directory of a way, its end left out, that a user cannot pass; empty where there is none. Pure."""
    member = set(groups)
    for step in way[:-1] if uid else ():
        needed = (
            stat.S_IXUSR if step.uid == uid else stat.S_IXGRP if step.gid in member else stat.S_IXOTH
        )  # as the kernel: the first that fits decides
        if not step.mode & needed:
            return step.path
    return ""


def _way(path: str) -> list[Step]:
    """The steps to a path with its links resolved, from the root on. Raises OSError."""
    real = Path(os.path.realpath(path))
    steps = []
    for place in (*reversed(real.parents), real):
        found = os.lstat(place)
        steps.append(Step(str(place), found.st_mode, found.st_uid, found.st_gid))
    return steps


def _reached(store: Found, part: Part) -> Part:
    """The part with ``exposed`` and ``barred``, unless a unit alone sees it, or this user cannot look."""
    if store.namespace or not part.path.startswith("/"):
        return part
    try:
        way = _way(part.path)
        exposed = is_exposed(way) and (not stat.S_ISDIR(way[-1].mode) or _has_readable(part.path))
    except OSError:
        return part
    return replace(part, exposed=exposed, barred=barred(way, part.uid, _groups(part.uid)))


def _has_readable(top: str) -> bool:
    """Whether below a directory that all can read there is a file that all can read."""
    left = MOST
    for _, folders, names, here in os.fwalk(top):
        modes = {}
        for name in (*folders, *names):
            left -= 1
            with contextlib.suppress(OSError):
                modes[name] = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
        if any(stat.S_ISREG(modes.get(name, 0)) and modes[name] & stat.S_IROTH for name in names):
            return True
        folders[:] = [name for name in folders if modes.get(name, 0) & stat.S_IXOTH]
        if left < 0:
            break
    return False


def _groups(uid: int) -> list[int]:
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return []
    return os.getgrouplist(user.pw_name, user.pw_gid)


# Room, and the stores under care


def _rooms(found: Iterable[Found]) -> dict[str, int]:
    directories = {str(Path(part.path).parent) for store in found if not store.namespace for part in store.parts}
    rooms = {directory: _free(directory) for directory in (*directories, VAR_TMP)}
    return {directory: free for directory, free in rooms.items() if free is not None}


def _free(directory: str) -> int | None:
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _care(found: Sequence[Found], now: float, *, every: bool) -> tuple[dict[str, Care], list[str]]:
    """The stores under care (``every``, or those that were found) by name, and what could not be read of them."""
    try:
        stores = settings.load()
    except MemopsError as error:
        return {}, [error.message]
    named = {store.care for store in found}
    care, unread = {}, []
    for name, store in stores.items():
        if not every and name not in named:
            continue
        size = sum(part.size for each in found if each.care == name for part in each.parts)
        try:
            shown = status.look(store, now)
        except MemopsError as error:
            unread.append(f"how the store {name} is looked after: {error.message}")
            shown = {}
        else:
            unread += [each for each in shown["unreadable"] if ".sets.json" in each]
        care[name] = make_care(store, shown, size, _free(store.backup_dir))
    return care, unread


def make_care(store: Store, shown: Mapping[str, Any], size: int, free: int | None) -> Care:
    """What findings go by, from a store's settings and from what ``status.look`` says of it. Pure.

    size: bytes of all its parts, which a set takes if none tells.
    """
    newest = shown.get("newest_set")
    unseen = not shown or any(".sets.json" in each for each in shown["unreadable"])
    set_state, set_age = "unknown", None
    if newest:
        set_state, set_age = (newest.get("due") or {}).get("state", "unknown"), newest["age"]
        if newest.get("gone"):
            set_state, set_age = "overdue", None
    elif not unseen:
        set_state = "none"
    drill: Mapping[str, Any] = next((job for job in shown.get("jobs", ()) if job["job"] == "drill"), {})
    due = drill.get("due") or {}
    # Until the first one counts the time since its timer began, which is no age of a drill.
    ran = bool(drill.get("good"))
    return Care(
        name=store.name,
        db=store.db,
        user=store.user,
        backup_dir=store.sets,
        journal_mode=store.journal_mode,
        set_state=set_state,
        set_age=set_age,
        drill_state=due.get("state", "unknown"),
        drill_age=due.get("age") if ran else None,
        free=free,
        needs=max(size, newest["bytes"] if newest and type(newest["bytes"]) is int else 0) or None,
    )


# As data


def as_data(seen: Seen) -> dict[str, Any]:
    """What ``doctor --json`` prints; docs/findings.md describes each key. Pure."""
    return {
        "version": VERSION,
        "stores": [_store(store) for store in seen.found],
        "findings": [
            {
                "code": each.code,
                "level": each.level,
                "path": each.path,
                "what": each.what,
                "do": each.do,
                "mend": list(each.mend),
                "fix": each.fix,
            }
            for each in seen.findings
        ],
        "unread": list(seen.machine.unread),
    }


def _store(store: Found) -> dict[str, Any]:
    known = products.known().get(store.product)
    return {
        "product": store.product,
        "title": known.title if known else store.product,
        "version": store.version or None,
        "path": store.path,
        "how": store.how,
        "care": store.care,
        "namespace": store.namespace,
        "relative": store.relative,
        "lacking": list(store.lacking),
        "holders": [
            {name: getattr(each, name) for name in ("pid", "user", "unit", "command", "writes", "sqlite")}
            for each in store.holders
        ],
        "parts": list(_parts(store)),
    }


def _parts(store: Found) -> Iterator[dict[str, Any]]:
    for part in store.parts:
        same = ("what", "kind", "path", "size", "rows", "owner", "file_system")
        yield {
            **{name: getattr(part, name) for name in same},
            "mode": f"{part.mode & 0o7777:04o}",
            "journal_mode": part.database.journal_mode if part.database else None,
            "dates": part.database.dates if part.database else {},
            "unread": part.unread or None,
        }
