"""What memops says when it cannot go on, and the exit codes.

    MemopsError         1  failed
    ├── UsageError      2  wrong usage: an option or a path that cannot be right
    ├── Refused         3  refused, nothing was changed
    ├── NotPermitted    4  this needs other rights
    └── NotProven       7  done, but a check afterwards did not hold

5 (the store was locked), 6 (the guard held) and 8 (no scheduled prune without a new backup) are a job's own exit codes,
passed on.
"""

from __future__ import annotations


class MemopsError(Exception):
    """A foreseeable failure: one sentence that says what is so, and one that says what to type."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "", exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code


class UsageError(MemopsError):
    """What was typed cannot be right."""

    exit_code = 2


class Refused(MemopsError):  # noqa: N818 - it is a word of the field, not a kind of bug
    """The machine is not as it must be; nothing was changed."""

    exit_code = 3


class NotPermitted(MemopsError):  # noqa: N818
    """This needs other rights."""

    exit_code = 4


class NotProven(MemopsError):  # noqa: N818
    """The work was done and stays, but a check afterwards did not hold."""

    exit_code = 7
