"""Asking a store about its facts, as its owner: the one store that is meant, a request, the answer.

Root never opens a store: its request goes to desk.py in a unit of the owner's. The owner runs desk.py directly.
"""

from __future__ import annotations

import json
import os
import pwd
import sys
from typing import TYPE_CHECKING, Any

from memops import adopted, host, owner, settings
from memops.errors import MemopsError, NotPermitted, UsageError
from memops.settings import LIBRARY

if TYPE_CHECKING:
    from pathlib import Path

    from memops.settings import Store

TIMEOUT = 600
"""Seconds for one answer; a large store without the right index takes some."""


def chosen(name: str | None, db: Path | None) -> Store:
    """The installed store that is meant: by name, by its database, or the only one (of this user's, if there are more).

    Raises MemopsError.
    """
    stores = settings.chosen(name)
    if db is not None:
        wanted = os.path.realpath(db)
        found = [store for store in stores if os.path.realpath(store.db) == wanted]
        if not found:
            known = ", ".join(store.db for store in settings.chosen(None))
            raise UsageError(f"memops looks after no store {db}.", f"It looks after: {known}")
        return found[0]
    if len(stores) > 1:
        own = [store for store in stores if uid(store) == os.geteuid()]
        if len(own) != 1:
            names = ", --name ".join(store.name for store in own or stores)
            raise UsageError("There are several stores.", f"Say which one: --name {names}")
        stores = own
    return stores[0]


def uid(store: Store) -> int | None:
    """The user id of the store's owner; None where there is no such user."""
    if store.user.isdigit():
        return int(store.user)
    try:
        return pwd.getpwnam(store.user).pw_uid
    except KeyError:
        return None


def person() -> str:
    """Who types this: the login behind sudo, or the user."""
    if os.geteuid() == 0 and (login := os.environ.get("SUDO_USER")):
        return login
    return user_name()


def user_name() -> str:
    """The user that runs this; the number of one without a name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def denied(store: Store) -> NotPermitted:
    """What is said to a user who is neither root nor the store's owner."""
    return NotPermitted(
        f"The facts of this store are the user {store.user}'s, and you are {user_name()}.",
        "Type it again with sudo in front.",
    )


def at_terminal() -> bool:
    """Whether a person is there to be asked."""
    streams = (sys.stdin, sys.stdout)
    return all(stream is not None and stream.isatty() for stream in streams)


def is_person(store: Store) -> bool:
    """Whether it is a person who types at a terminal, and surely not the store's agent, which can open one, too."""
    behind = os.environ.get("SUDO_UID", "")
    agents = behind.isdigit() and int(behind) == uid(store)
    return os.geteuid() == 0 and not agents and at_terminal()


def _deletes(op: str, arguments: dict[str, Any]) -> bool:
    verdicts = arguments.get("given", ()) if op == "apply" else ()
    return op in ("forget", "forget_all") or any(each.get("verdict") == "forget" for each in verdicts)


def _desk(store: Store, *, deletes: bool) -> tuple[list[str], tuple[str, ...], list[str]]:
    """The program that answers, its options, and what its unit needs that is not every unit's."""
    if store.has_ledger and deletes:
        # What is forgotten goes out of the product, by the hand.
        words = ["/usr/bin/python3", "-I", f"{LIBRARY}/ledger.py", "--request"]
        return words, tuple(adopted.options(store)), list(adopted.walls(store))
    words = ["/usr/bin/python3", "-I", f"{LIBRARY}/desk.py"]
    kept = ("--adopted",) if store.has_ledger or store.table else ()
    paths = ("--state", store.state, "--sql", f"/etc/memops/{store.name}", *kept)
    return words, paths, [f"ReadWritePaths={store.state}"] if store.strict else []


def ask(store: Store, op: str, **arguments: Any) -> Any:
    """The answer of desk.py to a request (its OPS); all texts in it are the agent's.

    Raises MemopsError with the reason and what to type: exit code 3 for what was refused, 4 for another user, 5 for a
    store that is locked.
    """
    request = json.dumps({"op": op, "arguments": arguments})
    words, paths, more = _desk(store, deletes=_deletes(op, arguments))
    if os.geteuid() == 0:
        properties, command = owner.as_owner(store, (*words, "--store", store.seen_db, *paths), more)
        ran = owner.transient(properties, command, stdin=request, timeout=TIMEOUT)
    elif os.geteuid() == uid(store):
        ran = host.ask(*words, "--store", store.db, *paths, stdin=request, timeout=TIMEOUT)
    else:
        raise denied(store)
    try:
        answer = json.loads(ran.out)
    except ValueError:
        raise MemopsError(
            f"The user {store.user} got no answer about {store.db}: {ran.said}",
            "If memops was updated since it was installed: sudo memops install",
        ) from None
    if "error" in answer:
        message = str(answer["error"])
        hint = str(answer["hint"]) or _HINTS.get(answer["exit"], "")
        word = message.partition(" ")[0]
        said = word.capitalize() + message[len(word) :] if word.isalpha() and word.islower() else message
        raise MemopsError(f"{said}.", hint, answer["exit"])
    return answer["value"]


_HINTS = {5: "Try again; if it stays so: sudo fuser -v the database, to see who holds it."}
