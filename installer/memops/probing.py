"""Asking owners: root opens nobody's database and reads nobody's file; scripts/jobs/probe.py does, as who they are."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from memops import host, owner, products
from memops.errors import MemopsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memops.processes import Process

SECONDS = 300
"""That one owner may take for all of theirs."""

_END = 'print(json.dumps(module.answer(given["request"])))\n'


def ask(
    uid: int, databases: Iterable[str], configurations: Iterable[str] = (), names: Iterable[str] = (),
    process: Process | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What probe.answer says, with the owner's rights and where ``process`` is, if that sees another file system.

    Raises MemopsError.
    """
    known = [
        {"name": product.name, "what": part.what, "file": part.file, "tables": part.tables, "rows": product.rows}
        for product in products.known().values()
        for part in product.parts
    ]
    request = {"databases": [*databases], "configurations": [*configurations], "names": [*names], "known": known}
    words = owner.given(("store", "traces", "probe"), request=request)
    command = ["/usr/bin/python3", "-I", "-c", owner.LOADER + _END]
    if os.geteuid() == 0:
        command = [*owner.stepping_down(uid), *command]
        if process is not None:
            command = ["nsenter", f"--target={process.pid}", "--mount", "--", *command]
    ran = host.run(*command, stdin=words, timeout=SECONDS, ok=None)
    try:
        answer = json.loads(ran.out)
    except (ValueError, RecursionError):
        raise MemopsError(f"{owner.name_of(uid)} could not be asked: {ran.said}") from None
    if not isinstance(answer, dict):
        raise MemopsError(f"{owner.name_of(uid)} gave no answer.")
    return answer
