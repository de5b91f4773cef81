"""Runs on a server, by the command's own Python: attempts.py in each unit by which root's commands do their work.

The very functions of the command make the units; only the program in them is another one. Prints in JSON: word →
attempt → why not.
"""

import contextlib
import dataclasses
import json
import os
import pwd
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from memops import erasing, facts, notes, owner, prune, putback, restore, scanning, sets, settings

PROBE = ("/usr/bin/python3", "-I", "/usr/local/lib/attempts/attempts.py")
words_of, now = owner.transient_words, threading.local()
found: dict[str, dict[str, str]] = {}


def probing(properties: Any, command: tuple[str, ...], timeout: float, unit: str = "") -> tuple[str, ...]:
    """The command line of a unit, after the attempts were made in that unit."""
    # What comes before the job's own program is part of its walls.
    command = (*command[: command.index("/usr/bin/python3")], *PROBE)
    ran = subprocess.run(words_of(properties, command, timeout, unit), capture_output=True, text=True, check=False)
    try:
        found[now.word] = json.loads(ran.stdout)
    except ValueError:
        found[now.word] = {"": f"{ran.returncode}: {ran.stderr}"}
    return ("false",)


def one(word: str, make: Any) -> None:
    """Do something up to its unit's end, which does not bring what was expected of it."""
    now.word = word
    with contextlib.suppress(Exception):
        make()


store = settings.load()["default"]
store = dataclasses.replace(
    store, notes=("/srv/agent/notes",), parts=("files=/srv/agent/notes/",), offsite_env="/etc/memops-offsite.env"
)
chosen = restore.choose(store, "latest")
note = putback.make_note(restore.plan(store, chosen))
served = restore.plan(dataclasses.replace(store, parts=("qdrant=http://127.0.0.1:9",)), chosen)
served = dataclasses.replace(served, served=served.store.server_parts)
place = notes.place("/srv/agent/notes")
os.makedirs("/srv/fetched", exist_ok=True)
owner.transient_words = probing
CASES = {
    "desk": lambda: facts.ask(store, "list"),
    "reading": lambda: prune.script(store, "prune.py"),
    "scan": lambda: scanning._in_unit(store, ["/usr/bin/python3"], notes=True),
    "erase": lambda: erasing._owner(store, "look", {}),
    "restore": lambda: putback._owners_words(store, note, "prepare"),
    "restore-servers": lambda: putback._owners_words(
        dataclasses.replace(store, name="served"), putback.make_note(served), "prepare"
    ),
    "notes": lambda: notes._in_unit(pwd.getpwnam("agent").pw_uid, [place], (), strict=store.strict),
    "number": lambda: owner.run(dataclasses.replace(store, user=sys.argv[1]), "/usr/bin/python3"),
    "verify": lambda: sets._script(store, "list"),
    "fetch": lambda: restore.fetch(store, "/srv/fetched"),
    "erase-sets": lambda: erasing._sets(store, "look", {}),
    "remove-sets": lambda: erasing._sets(store, "remove", {}),
}
with ThreadPoolExecutor(6) as pool:
    list(pool.map(one, CASES, CASES.values()))
print(json.dumps(found))
