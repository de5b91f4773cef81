"""The SQL files of a store, ``/etc/memops/STORE/NAME.sql``, read by section.

A section begins at a line ``-- [name]``. Lines that begin with a dot are for the sqlite3 shell and left out.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from typing import TYPE_CHECKING

import job

if TYPE_CHECKING:
    from collections.abc import Collection


def read_sections(path: str, wanted: Collection[str]) -> dict[str, list[str]]:
    """The statements of the file by section. Raises JobError when a ``wanted`` one or the file is missing, OSError."""
    found: dict[str, list[str]] = {}
    section = statement = ""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        for line in file:
            if marker := re.fullmatch(r"-- \[(\w+)\]\n", line):
                section, statement = marker[1], ""
            elif not line.startswith("."):
                statement += line
                if sqlite3.complete_statement(statement):
                    found.setdefault(section, []).append(statement)
                    statement = ""
    if not set(wanted) <= set(found):
        raise job.JobError(f"{path} is not whole, or not there; write it again with: memops install")
    return found
