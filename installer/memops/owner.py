"""Doing something with a store as its owner, who alone may open it.

Root opening a WAL store leaves files that lock its owner out. So root starts the system's python3 as the owner, with
the store's directory bound to the same place and inside the same walls as the nightly jobs. What runs is store.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memops import host
from memops.errors import MemopsError

if TYPE_CHECKING:
    from memops.settings import Store

_BOUND = "/run/memops/store"

_DRIVER = """
import json as _json
try:
    _answer = {{"value": {function}(*_json.loads({arguments!r}))}}
except (sqlite3.Error, OSError, StoreError) as _error:
    _answer = {{"error": str(_error)}}
print(_json.dumps(_answer))
"""


def call(store: Store, function: str, *arguments: str) -> Any:
    """Call a function of store.py with the database's path and ``arguments``, and return its answer.

    Raises MemopsError with the reason when the function or the start of the process fails.
    """
    source = Path(__file__).with_name("store.py").read_text(encoding="utf-8")
    path = f"{_BOUND}/{store.file}"
    script = source + _DRIVER.format(function=function, arguments=json.dumps([path, *arguments]))
    ran = run(store, "/usr/bin/python3", "-I", "-", stdin=script)
    try:
        answer = json.loads(ran.out)
    except ValueError:
        raise MemopsError(f"{store.db} could not be opened as user {store.user}: {ran.said}") from None
    if "error" in answer:
        raise MemopsError(f"{store.db}: {answer['error']}")
    return answer["value"]


def run(store: Store, *command: str, stdin: str = "", timeout: float = 120) -> host.Ran:
    """Run a command as the store's owner in a unit of its own; it sees the store's directory at /run/memops/store."""
    properties = (
        f"User={store.user}",
        f'BindPaths="{store.directory}":{_BOUND}',
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "PrivateNetwork=yes",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "UMask=0077",
    )
    return host.run(
        "systemd-run",
        "--quiet",
        "--pipe",
        "--wait",
        "--collect",
        *(f"--property={text}" for text in properties),
        "--",
        # The manager expands variables in a command line.
        *(word.replace("$", "$$") for word in command),
        stdin=stdin,
        timeout=timeout,
        ok=None,
    )
