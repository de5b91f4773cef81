"""Starting the drill unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memops import backup
from memops.errors import MemopsError
from memops.sets import name_option

if TYPE_CHECKING:
    from memops.settings import Store


def run(store: Store) -> str:
    """Try the newest set now, and return what the job said. Raises MemopsError with the job's words and exit code."""
    record = backup.follow(store, "drill")
    if record is None:
        raise MemopsError("The drill left no record of a run.", f"See: sudo memops logs{name_option(store)}")
    return backup.message(store, "drill", record)
