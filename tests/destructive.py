"""Every command of memops by what it may take away, and how those that may are kept from doing so unasked.

tests/cli/test_asking.py sees that no command is missing here, tests/system/test_safety.py that it is so on a server.
"""

from __future__ import annotations

from dataclasses import dataclass

LOOKS = {
    "check",
    "digest",
    "doctor",
    "inspect",
    "list",
    "logs",
    "notes",
    "recall",
    "scan",
    "sets",
    "sets verify",
    "show",
    "status",
    "trace",
}
"""They change nothing but memops' own records."""

ADDS = {
    "adopt": "adds what it shows and asks for: tests/system/test_adopt.py",
    "backup": "old sets go by the rotation that was asked for at installation; none while the guard holds",
    "confirm": "moves a date",
    "drill": "works on a copy",
    "install": "test_a_store_that_was_there_is_changed_only_with_consent",
    "release": "what memops added goes, with dates only where that is asked for: tests/system/test_adopt.py",
    "remember": "adds a row",
    "render": "writes into an empty directory",
    "replace": "the old fact is kept behind the new one",
    "review": "one key a fact; --apply is given decisions, has a dry run, and takes a set before several go",
    "sets pin": "keeps a set",
    "sets unpin": "what goes then goes by the rotation",
}
"""They add or move something, and take no memory away, or only what a person decided one by one."""


@dataclass(frozen=True)
class Case:
    """A command line that destroys; SET in it stands for a set's name."""

    words: tuple[str, ...]
    dry: tuple[str, ...]
    agreed: tuple[str, ...]
    """What makes it go on off a terminal."""
    code: int = 2
    """The exit code off a terminal without that."""
    says: str = "To undo this: sudo memops restore"
    """What it says of a way back."""


DESTROYS = {
    "forget": Case(("forget", "a", "b"), ("forget", "a", "b", "--dry-run"), ("--yes",)),
    "prune": Case(("prune", "--allow-large"), ("prune", "--dry-run"), ("--yes",)),
    "restore": Case(("restore", "SET"), ("restore", "SET", "--dry-run"), ("--yes",)),
    "uninstall": Case(
        ("uninstall", "--purge"),
        ("uninstall", "--purge", "--dry-run"),
        ("--confirm", "/srv/agent/memory.db"),
        code=3,
        says="there is no way back",
    ),
}

FURTHER = {
    "doctor --fix": Case(("doctor", "--fix", "gap"), ("doctor", "--fix", "gap", "--dry-run"), ("--yes",)),
    "forget --erase": Case(
        ("forget", "--erase", "a"),
        ("forget", "--erase", "a", "--dry-run"),
        ("--yes",),
        says="No set is taken first",
    ),
}
"""Other ways of the same commands, with a rule of their own."""
