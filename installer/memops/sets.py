"""The sets of a store: listing, verifying, pinning.

What is in a set is the agent's, so this process opens none of it: the installed setdir.py does, inside the walls of the
sealing job. What it prints is data about files that only root can write.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from typing import TYPE_CHECKING, Any

from memops import health, host, owner, records, report, survey
from memops.errors import MemopsError, UsageError
from memops.settings import LIBRARY
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memops.settings import Store

VERIFY_SECONDS = 1800
"""Seconds that verifying one set may take."""

_DENIED = (*owner.DENIED, "CapabilityBoundingSet=", "MemoryMax=1G", "Nice=10", "IOSchedulingClass=idle")
# What is others' lies there, and root's keys beside the settings. What a unit may see is bound in from outside.
_ROOM = (*owner.ROOM, f"ReadWritePaths={records.STATE}", "InaccessiblePaths=/etc/memops -/srv -/mnt -/media -/opt")


def listing(store: Store) -> list[dict[str, Any]]:
    """The store's sets, oldest first, as setdir.py describes them; one has ``latest``. Raises MemopsError."""
    found: list[dict[str, Any]] = json.loads(_script(store, "list"))
    return found


def verify(store: Store, name: str) -> dict[str, Any]:
    """Verify one set: ``set``, ``ok`` (None: that could not be found out) and a ``message``. Raises MemopsError."""
    answer: dict[str, Any] = json.loads(_script(store, "verify", name))
    return answer


def walls(store: Store, *more: str) -> list[str]:
    """The properties of a transient unit that has the sealing job's walls; ``more``: what it sees beyond them."""
    if not store.strict:
        return [*_DENIED, *(each for each in more if not each.startswith("Bind"))]
    closed = (store.directory, store.backup_dir, *store.keys, *(part.directory for part in store.local_parts))
    return [*_DENIED, *_ROOM, *more, *(f'InaccessiblePaths="-{path}"' for path in dict.fromkeys(closed))]


def bound(store: Store, *, writable: bool = False) -> str:
    """The property that shows the sets to a unit with these walls."""
    return f'Bind{"" if writable else "ReadOnly"}Paths="{store.sets}":{store.seen_sets}'


def _script(store: Store, *words: str) -> str:
    """What the installed setdir.py prints."""
    # Read-only: nothing that a hostile file does to whoever opens it can alter a set.
    properties = walls(store, bound(store))
    where = ("--sets", store.seen_sets, "--sets-record", store.sets_record, "--deadline", str(VERIFY_SECONDS))
    ran = owner.transient(
        properties, ("/usr/bin/python3", "-I", f"{LIBRARY}/setdir.py", *words, *where), timeout=VERIFY_SECONDS + 300
    )
    if not ran.out.startswith(("[", "{")):
        why = survey.STATUS.get(str(ran.code)) or printable(ran.said, 300)
        hint = f"See whether these are there: ls -d {store.sets} {LIBRARY}/setdir.py"
        raise MemopsError(f"The sets in {store.sets}/ could not be read: {why}", hint)
    return ran.out


def find(sets: Sequence[dict[str, Any]], wanted: str) -> dict[str, Any] | None:
    """The set that is meant by ``latest``, a name or a date; None when there is no such set. Raises UsageError.

    For a date it is the newest whole set of that day (in UTC, as the names are), else the newest of that day.
    """
    if wanted == "latest":
        return next((each for each in sets if each["latest"]), None)
    if not re.fullmatch(r"\d{4}-\d\d-\d\d(T\d{6}Z(-\d+)?)?", wanted, re.ASCII):
        raise UsageError(
            f"{wanted!r} is neither a set nor a date.", "Type latest, a name that memops sets lists, or YYYY-MM-DD."
        )
    named = [each for each in sets if each["name"] == wanted or each["name"].startswith(f"{wanted}T")]
    whole = [each for each in named if each["ok"]]
    return next(reversed(whole or named), None)


def choose(stores: Iterable[Store], wanted: str) -> tuple[Store, dict[str, Any]]:
    """The one set that ``wanted`` names in these stores. Raises UsageError when there is none, or more than one."""
    every = list(stores)
    found = [(store, each) for store in every if (each := find(listing(store), wanted)) is not None]
    if not found:
        raise UsageError(f"There is no set {wanted}.", "See which there are: sudo memops sets")
    if len(found) > 1:
        names = ", --name ".join(store.name for store, _ in found)
        raise UsageError(f"More than one store has a set {wanted}.", f"Say which is meant: --name {names}")
    return found[0]


def pin(store: Store, name: str) -> None:
    """Keep a set from being rotated away."""
    with _writing(store):
        host.write(f"{store.sets}/{name}.pinned", "", 0o600)


def unpin(store: Store, name: str) -> None:
    """Let a set be rotated away again."""
    with _writing(store):
        host.remove(f"{store.sets}/{name}.pinned")
        host.sync_directory(store.sets)


@contextlib.contextmanager
def _writing(store: Store) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MemopsError(
            f"{store.sets}/ cannot be written: {error.strerror}.", "Look at the disk: mount, df"
        ) from error


def make_table(sets: Sequence[dict[str, Any]], now: float) -> Iterator[str]:
    """The list of sets as text, newest first, in lines of at most 80 characters. Pure."""
    yield f"{'SET':<20}  {'AGE':<8}  {'SIZE':>8}  {'ROWS':>12}  {'VERIFIED':<9}  {'PINNED':<6}  PARTS"
    for each in reversed(sets):
        size = report.size(each["bytes"]) if each["parts"] else "?"
        rows = f"{each['rows']:,}" if each["parts"] else "?"
        verified = _age(each["verified_at"], now) if each["ok"] else "FAILED"
        pinned = "pinned" if each["pinned"] else ""
        parts = str(len(each["parts"]) or "?")
        age = _age(each["sealed_at"], now)
        yield f"{each['name']:<20}  {age:<8}  {size:>8}  {rows:>12}  {verified:<9}  {pinned:<6}  {parts}"


def _age(text: str, now: float) -> str:
    at = survey.seconds(text)
    return "?" if at is None else "future" if at > now + survey.CLOCK else report.age(max(0, int(now - at)))


def describe(store: Store, sets: Sequence[dict[str, Any]], now: float | None = None) -> str:
    """What ``memops sets`` prints of one store."""
    if not sets:
        return f"{store.name}: no set yet. Make one: sudo memops backup{name_option(store)}"
    lines = [f"{store.name}: {store.sets}/", *make_table(sets, time.time() if now is None else now)]
    lines += [f"! {each['name']}: {printable(each['message'], 300)}" for each in sets if not each["ok"]]
    return "\n".join(lines)


def name_option(store: Store) -> str:
    """What a command needs to mean this store and no other one."""
    return health.name_option(store.name)
