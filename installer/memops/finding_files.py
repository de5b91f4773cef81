"""Findings on files: halves, sidecars, modes, links, and the processes that use a store. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memops import health
from memops.finding_text import as_owner, counted, doctor_fix, listed, quoted, stop, title, user_of, who
from memops.found import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memops.found import Found, Machine, Part

DAY = 86400

WIPES_UNTIL = (1, 0, 7)
"""The last mem0 that removes a local Qdrant directory when it starts (mem0ai/mem0#4473; seen in the releases)."""


def judge(found: Found, machine: Machine) -> Iterator[Finding]:
    """What is wrong about a store's files."""
    yield from _halves(found)
    yield from _wipes(found)
    yield from _deleted(found)
    for part in found.parts:
        yield from _sidecars(found, part, machine.now)
        yield from _reach(found, part)
        if part.kind == "sqlite" and part.links > 1:
            what = f"The file has {part.links} names, and its journal only one: opened by another name it may be lost."
            do = f"Find the other names, and remove them: sudo find / -xdev -samefile {quoted(part.path)}"
            yield Finding("hard-links", "warning", part.path, what, do)
    yield from _writers(found)
    yield from _engine(found, machine)


def _halves(found: Found) -> Iterator[Finding]:
    if not found.lacking:
        return
    there = listed([part.what for part in found.parts]) or "nothing"
    what = f"Half of a pair is missing: {title(found.product)} has {there} here, and no {listed(list(found.lacking))}."
    do = "Look where it went, or put both back from one set: sudo memops doctor; sudo memops sets"
    yield Finding("half-missing", "error", found.path, what, do)


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers, to compare it; empty where it is none."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(each) for each in match[0].split(".")) if match else ()


def _wipes(found: Found) -> Iterator[Finding]:
    if not any(part.kind == "qdrant" for part in found.parts):
        return
    versions = {holder.versions.get("mem0ai", "") for holder in found.holders}
    versions |= {found.version} if found.product == "mem0" else set()
    old = sorted(version for version in versions if numbers(version) and numbers(version) <= WIPES_UNTIL)
    if old:
        python = next((holder.python for holder in found.holders if holder.versions.get("mem0ai") in old), "")
        what = f"mem0 {old[0]} removes this directory at its next start, unless it is configured with on_disk."
        pip = f"{quoted(python or 'python3')} -m pip install 'mem0ai>=2'"
        do = f"Copy it away first, with the agent stopped; then: {pip}"
        path = next(part.path for part in found.parts if part.kind == "qdrant")
        yield Finding("mem0-wipes", "error", path, what, do, tuple(stop(found)))


def _deleted(found: Found) -> Iterator[Finding]:
    for holder in found.holders:
        if holder.deleted:
            files = listed([quoted(path) for path in holder.deleted])
            what = f"{_capital(who(holder))} writes to files that were deleted, and are gone when it ends: {files}."
            pid = holder.pid
            do = f"Save what it has before it ends: sudo ls -l /proc/{pid}/fd, sudo cp -L /proc/{pid}/fd/NUMBER FILE"
            yield Finding("deleted-open", "error", found.path, what, do)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sidecars(found: Found, part: Part, now: float) -> Iterator[Finding]:
    foreign = [f"{part.path}{end}" for end, (uid, _, _) in part.sidecars.items() if uid != part.uid]
    if foreign:
        names = listed([quoted(path) for path in foreign])
        what = f"{names}: not the property of {user_of(part)}, who cannot write the database as long as that is so."
        yield _fixed("foreign-sidecar", "error", found, part, what, "With the agent stopped")
    if "-wal" not in part.sidecars:
        return
    _, size, modified = part.sidecars["-wal"]
    if size > health.WAL_MOST or (size > health.WAL_LEAST and size > part.size):
        sizes = f"{size / 1e6:,.1f} MB beside a store of {part.size / 1e6:,.1f} MB"
        what = f"The -wal has {sizes}: somebody reads, and does not end."
        yield Finding("wal-large", "warning", part.path, what, f"See who: sudo fuser -v {quoted(part.path)}")
    if size and not found.holders and now - modified > DAY:
        age = health.span(int(now - modified))
        what = (
            f"A -wal of {age} ago waits, and no process that can be seen has the store open: its last one was killed."
        )
        do = f"Never remove it: it holds memories. To take it in: {as_owner(part)} sqlite3 {quoted(part.path)} .tables"
        yield Finding("wal-stale", "warning", part.path, what, do)


def _fixed(code: str, level: str, found: Found, part: Part, what: str, first: str = "") -> Finding:
    """A finding on a file that ``doctor --fix`` mends where root sees it by its own path."""
    if found.namespace:
        return Finding(code, level, part.path, what, f"Mend it inside {quoted(found.namespace)}: {quoted(part.seen)}")
    command = doctor_fix(code, part.path)
    return Finding(code, level, part.path, what, f"{first}: {command}" if first else command, fix=True)


def _reach(found: Found, part: Part) -> Iterator[Finding]:
    if part.barred:
        what = f"User {user_of(part)} cannot pass {quoted(part.barred)}, and so reaches none of it."
        do = f"Let others pass, not look: sudo chmod o+x {quoted(part.barred)}"
        yield Finding("not-passable", "error", part.path, what, do)
    if part.exposed:
        what = f"Every user of this machine can read the {part.what} (mode {part.mode & 0o7777:04o})."
        yield _fixed("readable-by-others", "warning", found, part, what)


def _writers(found: Found) -> Iterator[Finding]:
    if not found.parts:
        return
    part = found.parts[0]
    others = [holder for holder in found.holders if holder.writes and holder.uid != part.uid]
    if others:
        what = f"{_capital(who(others[0]))} has it open for writing, and it is {user_of(part)}'s: what SQLite makes"
        what += " beside it may lock its owner out."
        named = next((holder.unit for holder in others if holder.unit.endswith(".service")), "")
        do = f"Run it as {user_of(part)}"
        do += f": sudo systemctl edit {quoted(named)}, and add [Service] User={user_of(part)}" if named else "."
        yield Finding("other-writer", "warning", part.path, what, do)


def has_wal_reset(version: str) -> bool | None:
    """Whether a SQLite of this version may lose commits in WAL mode (https://www.sqlite.org/wal.html#walresetbug).

    So are 3.7.0 to 3.51.2, but for the branches 3.44 from .6 and 3.50 from .7 on. None: it cannot be told.
    """
    at = numbers(version)
    if len(at) < 2:
        return None
    if (at[:2] == (3, 44) and at >= (3, 44, 6)) or (at[:2] == (3, 50) and at >= (3, 50, 7)):
        return False
    return (3, 7) <= at < (3, 51, 3)


def _engine(found: Found, machine: Machine) -> Iterator[Finding]:
    part = next((part for part in found.parts if _is_wal(part)), None)
    if part is None:
        return
    writers = [holder for holder in found.holders if holder.writes]
    affected = [holder for holder in writers if has_wal_reset(holder.sqlite)]
    own = bool(found.care) and has_wal_reset(machine.system_sqlite)
    if not affected and not own:
        return
    versions = sorted({holder.sqlite for holder in affected} | ({machine.system_sqlite} if own else set()))
    several = len({holder.pid for holder in writers}) > 1
    who_else = f"{counted(len(writers), 'process writes', 'processes write')} here" if several else "one alone is safe"
    what = f"SQLite {listed(versions)} has the WAL-reset fault, by which two that write at once may lose commits;"
    what += f" {who_else}."
    do = "Take one of 3.51.3, 3.50.7 or 3.44.6 on for the agent; until then run no checkpoint of your own beside it."
    yield Finding("wal-reset", "warning" if several and affected else "note", part.path, what, do)


def _is_wal(part: Part) -> bool:
    return (part.database is not None and part.database.journal_mode == "wal") or "-wal" in part.sidecars
