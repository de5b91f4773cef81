"""Erasing words for good, root's half: which backup sets hold them, and removing those sets.

It runs as root without a capability, as the sealing job does, with the store out of sight. What is in a set is
untrusted and only read. A set cannot be rewritten, since it would not be what was verified any more; so it goes whole.
One request on standard input, one answer, both JSON; the words come that way only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import census
import job
import retention
import search
import setdir
import setstate
import traces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LARGEST: Final = 64 << 20


def look(given: Mapping[str, Any]) -> dict[str, Any]:
    """The sets (``sets``: ``name``, ``pinned``, ``ok``, ``latest``, ``holds``), and ``other``: what else has the words.

    ``holds`` is as traces.Words.of has it, or ``unread``. given: ``texts``, ``record`` (root's of the sets) and
    ``sets`` (a directory of root's, in which nobody else changes anything).
    """
    import time

    words = traces.Words(given["texts"])
    listed = setdir.list_sets(given["sets"], setstate.read(given["record"]))
    newest = setdir.newest(listed, time.time())
    found, known = [], {each.name for each in listed}
    unread: list[str] = []
    for each in listed:
        holds = search.holds(os.path.join(given["sets"], each.name), words, unread)
        found.append(
            {"name": each.name, "pinned": each.pinned, "ok": each.ok, "latest": each is newest, "holds": holds}
        )
    places = [os.path.join(given["sets"], name) for name in sorted(os.listdir(given["sets"])) if name not in known]
    other = [
        {"where": words.shown(path), "how": how}
        for path in (*places, given["record"])
        if (how := search.holds(path, words, unread)) in ("whole", "part")
    ]
    return {"sets": found, "other": other, "unread": [words.shown(each) for each in unread[:20]]}


def remove(given: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the sets ``names``, pinned ones too with ``pinned``: ``removed``, and ``left`` (why).

    None goes unless a newer good set stays, and it is the one named as ``stays``.
    """
    removed, left = [], []
    sets = census.open_directory(given["sets"])
    try:
        try:
            fcntl.flock(sets, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise job.JobError("a backup of this store is being sealed") from None
        listed = setdir.list_sets(sets, setstate.read(given["record"]))
        stays = next((each for each in listed if each.name == given["stays"] and each.ok), None)
        for name in given["names"]:
            if stays is None or setdir.order(stays.name) <= setdir.order(name):
                left.append(f"the set {store.printable(name)} stays: there is no newer good one")
                continue
            try:
                if given.get("pinned"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name + setdir.PINNED, dir_fd=sets)
                if retention.remove(sets, name):
                    removed.append(name)
                else:
                    left.append(f"the set {store.printable(name)} is pinned, or is being read")
            except (OSError, job.JobError) as error:
                left.append(f"the set {store.printable(name)}: {store.printable(error, 200)}")
    finally:
        os.close(sets)

    def change(state: dict[str, Any]) -> None:
        verified = setstate.section(state, "verified")
        state["verified"] = {name: entry for name, entry in verified.items() if name not in removed}

    if removed:
        setstate.update(given["record"], change)
    return {"removed": removed, "left": left}


OPS: Final[dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {"look": look, "remove": remove}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request, in any case."""
    try:
        return {"value": OPS[request["op"]](request["given"])}
    except store.Refused as error:
        return {"error": str(error), "hint": error.hint, "exit": job.REFUSED}
    except (job.JobError, store.StoreError, OSError) as error:
        return {"error": str(error), "hint": "", "exit": getattr(error, "exit_code", job.FAILED)}


def main() -> int:
    """Read the request, print the answer."""
    argparse.ArgumentParser(
        description="Erase words from backup sets; the request comes by standard input."
    ).parse_args()
    os.umask(0o077)
    print(json.dumps(answer(json.loads(sys.stdin.buffer.read(LARGEST)))), flush=True)
    return job.DONE


if __name__ == "__main__":
    sys.exit(main())
