"""``memops doctor --fix``: what is wrong and has a safe mend, planned, done, and looked at again.

Nothing here removes a file. What changes rows or a database comes after a verified set.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memops import backup, doctor, drill, facts, forgetting, holders, host, owner, prune, safety, settings
from memops.errors import MemopsError, NotProven, Refused, UsageError
from memops.finding_text import quoted
from memops.findings import CODES
from memops.sets import name_option
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from memops.found import Finding, Part
    from memops.settings import Store

    Say = Callable[[str], None]
    Progress = Callable[[str, int, int], None]

BESIDE: Final = ("-wal", "-shm", "-journal")


@dataclass(frozen=True)
class Mend:
    """A safe mend of a finding: what it does, as lines; whether a set comes first (``must``, ``try``, or empty).

    ``back`` is how it is undone, a sentence, where that is not by a set. ``act`` does it, and returns what to say.
    """

    finding: Finding
    lines: tuple[str, ...]
    act: Callable[[], str]
    store: Store | None = None
    set_first: str = ""
    back: str = ""


def plan(seen: doctor.Seen, code: str) -> list[Mend]:
    """The mends of what was found under this code. Raises UsageError, Refused."""
    if code not in CODES:
        raise UsageError(f"There is no finding {printable(code)}.", f"Type one of: --fix {', '.join(_MENDS)}")
    wanted = [each for each in seen.findings if each.code == code]
    if wanted and not any(each.fix for each in wanted):
        raise Refused(f"For {code} there is no safe mend that memops could do.", f"Type: {wanted[0].do}")
    return [_MENDS[code](seen, each) for each in wanted if each.fix]


def carry_out(mend: Mend, say: Say, progress: Progress | None, *, no_backup: bool) -> None:
    """Take the set, and do it. Raises MemopsError."""
    if mend.store is not None and mend.set_first and not no_backup:
        try:
            say(safety.first(mend.store, "changed", say, progress))
        except Refused:
            if mend.set_first == "must":
                raise
            say("Note: no set could be taken, maybe for this very fault. Nothing in the database is changed.")
    if done := mend.act():
        say(done)
    if mend.back:
        say(mend.back)


def require_mended(mend: Mend, paths: Sequence[str]) -> None:
    """Look again. Raises NotProven where the finding is still there, or something can no more be read."""
    code, path = mend.finding.code, mend.finding.path
    for each in doctor.look(paths).findings:
        if each.path == path and each.code in (code, "unread"):
            raise NotProven(f"It was done, and {path} is still found: {each.code}. {each.what}", f"Type: {each.do}")


def _store_of(seen: doctor.Seen, path: str) -> Store:
    name = next((care.name for care in seen.care.values() if care.db == path), None)
    if name is None:
        raise Refused(f"{printable(path, 200)} is no store of memops.", f"Type: sudo memops adopt {quoted(path)}")
    return settings.load()[name]


def _part_of(seen: doctor.Seen, path: str) -> tuple[Part, Store | None]:
    """A part, and the store under care that it belongs to."""
    for found in seen.found:
        for part in found.parts:
            if part.path == path:
                return part, settings.load().get(found.care)
    raise Refused(f"{printable(path, 200)} is not there any more.", "Look again: sudo memops doctor")


# Through the owner, or by a job


def _wal(seen: doctor.Seen, finding: Finding) -> Mend:
    store = _store_of(seen, finding.path)

    def act() -> str:
        mode = owner.call(store, "set_journal_mode", "wal")
        if mode != "wal":
            what = f"{store.db} stays in journal mode {printable(mode)}: another process has it open and busy."
            raise MemopsError(what, "Stop the agent for a moment, and type it again.")
        return ""

    line = f"PRAGMA journal_mode = WAL on {quoted(store.db)}, as user {store.user}"
    return Mend(finding, (line,), act, store, "must")


def _chains(seen: doctor.Seen, finding: Finding) -> Mend:
    store = _store_of(seen, finding.path)
    ids = [str(name) for name in owner.call(store, "pointing_nowhere")]
    if not ids:
        raise Refused("No memory leads into nothing any more.", "Look again: sudo memops doctor")
    wanted = forgetting.Wanted(tuple(ids))
    going = forgetting.going(store, wanted)

    def act() -> str:
        # What is deleted is what was shown: the desk refuses where something changed meanwhile.
        terminal = facts.is_person(store)
        done = forgetting.carry_out(store, wanted, going, by=facts.person(), terminal=terminal)
        return f"Deleted: {done['count']:,}."

    lines = ("Their successors are gone, so they are dead, and go too:", *forgetting.describe(going, only=False))
    return Mend(finding, lines, act, store, "must")


def _prune(seen: doctor.Seen, finding: Finding) -> Mend:
    store = _store_of(seen, finding.path)
    start = f"systemctl start {store.unit('prune')}"
    line = f"{start}: deletes what is dead; each is listed by: sudo memops prune --dry-run{name_option(store)}"
    return Mend(finding, (line,), lambda: str(prune.run(store, None)["message"]), store, "must")


def _backup(seen: doctor.Seen, finding: Finding) -> Mend:
    store = _store_of(seen, finding.path)
    return Mend(finding, (f"systemctl start {store.unit('backup')}",), lambda: backup.run(store), store)


def _drill(seen: doctor.Seen, finding: Finding) -> Mend:
    store = _store_of(seen, finding.path)
    return Mend(finding, (f"systemctl start {store.unit('drill')}",), lambda: drill.run(store), store)


# Modes and owners, by descriptor: whoever owns the directory may swap what is in it


def _hide(seen: doctor.Seen, finding: Finding) -> Mend:
    part, store = _part_of(seen, finding.path)
    ends = ("", *BESIDE) if part.kind == "sqlite" else ("",)
    paths = [f"{part.path}{end}" for end in ends if host.look(f"{part.path}{end}") is not None]
    modes = {path: _mode(path, part.uid) for path in paths}
    wrong = {path: mode for path, mode in modes.items() if mode & stat.S_IRWXO}

    def act() -> str:
        for path in wrong:
            with host.reached(path) as descriptor:
                mode = _own_mode(path, os.fstat(descriptor), part.uid)
                Path(f"/proc/self/fd/{descriptor}").chmod(mode & ~stat.S_IRWXO)
        return ""

    lines = tuple(f"chmod {mode & ~stat.S_IRWXO:04o} {quoted(path)} (is {mode:04o})" for path, mode in wrong.items())
    back = "; ".join(f"sudo chmod {mode:04o} {quoted(path)}" for path, mode in wrong.items())
    return Mend(finding, lines, _guarded(act), store, "try", f"To undo the modes: {back}")


def _mode(path: str, uid: int) -> int:
    try:
        with host.reached(path) as descriptor:
            return _own_mode(path, os.fstat(descriptor), uid)
    except OSError as error:
        raise _unreached(path, error) from error


def _own_mode(path: str, found: os.stat_result, uid: int) -> int:
    """The permission bits. Raises Refused unless it is a directory, or a file of its own, and this user's."""
    plain = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
    if not plain or found.st_uid != uid:
        raise Refused(f"{printable(path, 200)} is not a file of its owner's alone.", f"Look: ls -la {quoted(path)}")
    return stat.S_IMODE(found.st_mode)


def _give_back(seen: doctor.Seen, finding: Finding) -> Mend:
    part, store = _part_of(seen, finding.path)
    _require_unused(part.path)
    wrong = [f"{part.path}{end}" for end, (uid, _, _) in part.sidecars.items() if uid != part.uid]
    was = {path: _sidecar(path) for path in wrong}

    def act() -> str:
        _require_unused(part.path)
        with host.reached(part.path) as main:
            found = os.fstat(main)
            _own_mode(part.path, found, part.uid)
            for path in wrong:
                with host.reached(path) as descriptor:
                    _require_sidecar(path, descriptor)
                    os.chown(f"/proc/self/fd/{descriptor}", found.st_uid, found.st_gid)
        return ""

    owner_name = part.owner or str(part.uid)
    lines = tuple(f"chown {owner_name}: {quoted(path)} (is of user {uid})" for path, (uid, _) in was.items())
    back = "; ".join(f"sudo chown {uid}:{gid} {quoted(path)}" for path, (uid, gid) in was.items())
    return Mend(finding, lines, _guarded(act), store, "try", f"To undo the owners: {back}")


def _require_unused(path: str) -> None:
    found = holders.find(holders.Wanted((path,)))
    if found:
        unit = next((unit for holder in found for unit in holder.units if unit.endswith(".service")), "")
        hint = f"Stop it: sudo systemctl stop {unit}" if unit else "Stop it, and type it again."
        raise Refused(f"The memory is in use: {found[0].text}.", hint)


def _sidecar(path: str) -> tuple[int, int]:
    """Its user and group. Raises Refused."""
    try:
        with host.reached(path) as descriptor:
            _require_sidecar(path, descriptor)
            found = os.fstat(descriptor)
            return found.st_uid, found.st_gid
    except OSError as error:
        raise _unreached(path, error) from error


_BEGINNINGS: Final = {
    "-wal": (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"),
    "-shm": ((3007000).to_bytes(4, "little"), (3007000).to_bytes(4, "big")),
    "-journal": (b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", bytes(8)),
}
"""How SQLite's files begin (https://www.sqlite.org/fileformat2.html, walformat.html); a journal done with has zeros."""


def _require_sidecar(path: str, descriptor: int) -> None:
    """Raise Refused unless it is one of SQLite's files: whatever else lies there under its name is given to nobody."""
    found = os.fstat(descriptor)
    begins = _BEGINNINGS[next(end for end in BESIDE if path.endswith(end))]
    fits = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
    if fits and found.st_size:
        # No lock of SQLite's is lost by this: the command itself has no database open.
        with Path(f"/proc/self/fd/{descriptor}").open("rb") as file:
            fits = file.read(8).startswith(begins)
    if not fits:
        raise Refused(f"{printable(path, 200)} is no file that SQLite made.", f"Look: ls -la {quoted(path)}")


def _guarded(act: Callable[[], str]) -> Callable[[], str]:
    """The same, with a link or a file that went told as what it is."""

    def guarded() -> str:
        try:
            return act()
        except OSError as error:
            raise _unreached(error.filename or "", error) from error

    return guarded


def _unreached(path: str, error: OSError) -> Refused:
    shown = printable(path, 200)
    hint = "Links are not followed here: name the real path, as realpath has it."
    return Refused(f"{shown} cannot be reached: {error.strerror}.", hint)


_MENDS: Final[dict[str, Callable[[doctor.Seen, Finding], Mend]]] = {
    "foreign-sidecar": _give_back,
    "no-set": _backup,
    "old-set": _backup,
    "chain-into-nothing": _chains,
    "readable-by-others": _hide,
    "old-drill": _drill,
    "gap": _prune,
    "wal-off": _wal,
}


def describe(mends: Iterable[Mend]) -> list[str]:
    """What would be done, as lines for a person."""
    lines = []
    for mend in mends:
        lines.append(f"{mend.finding.code}, {printable(mend.finding.path, 500)}:")
        if mend.store is not None and mend.set_first:
            lines.append(f"  a verified set first: {mend.store.unit('backup')}")
        lines += [f"  {line}" for line in mend.lines]
    return lines
