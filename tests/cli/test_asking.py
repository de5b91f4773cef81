"""No command takes anything away unasked: that each of them is known, and has the options for it."""

from __future__ import annotations

import typer.main

from destructive import ADDS, DESTROYS, LOOKS
from memops.cli import app


def commands() -> dict[str, set[str]]:
    """Every command with its options, from the command line itself."""
    found: dict[str, set[str]] = {}
    left = [("", typer.main.get_command(app))]
    while left:
        name, command = left.pop()
        if name:
            found[name] = {option for each in command.params for option in each.opts}
        left += [(f"{name} {word}".strip(), each) for word, each in getattr(command, "commands", {}).items()]
    return found


def test_every_command_is_known_by_what_it_may_take_away() -> None:
    assert sorted(commands()) == sorted([*LOOKS, *ADDS, *DESTROYS])


def test_what_destroys_has_a_dry_run_and_a_word_of_agreement() -> None:
    every = commands()
    for name, case in DESTROYS.items():
        assert {"--dry-run", case.agreed[0], *(word for word in case.words if word.startswith("--"))} <= every[name]
    # And the other way round: --yes and --dry-run are no decoration.
    assert {name for name, options in every.items() if "--yes" in options} == {
        # replace asks when it erases: --redact; doctor when it mends: --fix
        *("adopt", "doctor", "forget", "install", "prune", "release", "replace", "restore")
    }
