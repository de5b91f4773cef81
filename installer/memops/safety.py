"""A verified set before something that cannot be taken back, and the command that goes back to it.

Root's commands take one. The store's user cannot, and is told how old the newest one is before being asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING

from memops import backup, health, host, jobs, owner, sets, survey
from memops.errors import MemopsError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memops.settings import Store

    Say = Callable[[str], None]
    Progress = Callable[[str, int, int], None]


def first(store: Store, what: str, say: Say, progress: Progress | None = None) -> str:
    """Take a set as root before ``what`` (done in a word: deleted, say) is; returns how it is undone, in a sentence.

    Raises Refused when there is no new set.
    """
    say("A set is taken first")
    try:
        name = _take(store, progress)
    except MemopsError as error:
        raise Refused(
            f"No set could be taken first, so nothing was {what}. {error.message}",
            f"{error.hint}\nTo go on without one, add --no-backup".lstrip(),
        ) from error
    return f"To undo this: {command(store, name)}"


def before_restore(store: Store, chosen: str, say: Say, progress: Progress | None = None) -> str:
    """Take a set of what a restore replaces, if there is anything whole; returns its name, or nothing.

    chosen: the set that is put back, which must not be rotated away meanwhile; empty when it lies elsewhere. A failure
    is no reason to go no further: what is there now may be beyond saving, and is moved aside and kept anyhow.
    """
    try:
        kind = owner.call(store, "describe")["kind"]
        if kind != "store":
            raise MemopsError(f"What is there now is no whole store ({kind}).")
        say("A set is taken first")
        with _kept(store, chosen):
            name = _take(store, progress)
        _note(store, name)
    except (MemopsError, OSError) as error:
        why = error.message if isinstance(error, MemopsError) else f"{error}."
        say(f"Note: no set of what is there now could be taken. {why} It is kept beside the store.")
        return ""
    return name


def made_before_a_restore(store: Store) -> frozenset[str]:
    """The sets that restores have taken first: ``latest`` is none of them, or a second restore would undo the first."""
    try:
        found = json.loads(host.read(store.before_restore_file) or "[]")
        return frozenset(str(name) for name in found)
    except (ValueError, TypeError, RecursionError):
        return frozenset()


def command(store: Store, name: str) -> str:
    """The command that puts a set back."""
    return f"sudo memops restore {name}{sets.name_option(store)}"


def newest(store: Store, now: float | None = None) -> str:
    """How old the newest set is, for whoever cannot make one; a sentence."""
    why = f"Only root can take one: sudo memops backup{sets.name_option(store)}"
    try:
        found = (jobs.sets_record(store) or {}).get("newest")
    except jobs.NotAllowed:
        return f"How old the newest set is, root alone can see. {why}"
    sealed = survey.seconds(str(found.get("sealed_at", ""))) if isinstance(found, dict) else None
    if sealed is None:
        return f"There is no set to go back to. {why}"
    age = (time.time() if now is None else now) - sealed
    return f"The newest set is {health.span(int(age))} old; what came since is in none. {why}"


def is_root() -> bool:
    """Whether a set can be taken."""
    return os.geteuid() == 0


def _take(store: Store, progress: Progress | None) -> str:
    before = _newest_name(store)
    try:
        backup.run(store, progress=progress)
    except MemopsError as error:
        # Where the guard held, the set is there, and it is older ones that were kept.
        if error.exit_code != 6:
            raise
    name = _newest_name(store)
    if not name or name == before:
        raise MemopsError("The backup left no new set.", f"See: sudo memops logs{sets.name_option(store)}")
    return name


def _newest_name(store: Store) -> str:
    found = (jobs.sets_record(store) or {}).get("newest")
    return str(found.get("set", "")) if isinstance(found, dict) else ""


@contextlib.contextmanager
def _kept(store: Store, name: str) -> Iterator[None]:
    """Keep a set from rotation for as long as this lasts; one that was pinned before stays so."""
    if not name or host.look(f"{store.sets}/{name}.pinned") is not None:
        yield
        return
    sets.pin(store, name)
    try:
        yield
    finally:
        sets.unpin(store, name)


def _note(store: Store, name: str) -> None:
    there = [each for each in sorted(made_before_a_restore(store)) if host.look(f"{store.sets}/{each}") is not None]
    host.write(store.before_restore_file, json.dumps([*there, name]) + "\n")
