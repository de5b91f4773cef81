"""``memops forget --erase`` and ``memops replace --redact``: asking, doing it, and saying whether it is gone."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from memops.errors import UsageError

if TYPE_CHECKING:
    from memops.erasing import Looked, Wanted
    from memops.settings import Store

LONGEST = 20_000
"""Characters of a text."""


def text_of(given: str | None) -> str | None:
    """The words that --matching names; ``-``: from standard input, unseen at a terminal. Raises UsageError."""
    from memops import report

    if given != "-":
        return given
    text = report.ask("The exact words") if sys.stdin.isatty() else sys.stdin.read(LONGEST + 1).removesuffix("\n")
    if not text or len(text) > LONGEST:
        raise UsageError("Standard input has no words, or too many.", f"Give up to {LONGEST:,} characters.")
    return text


def require_fitting(ids: list[str] | None, matching: str | None, *, erase: bool, other: bool, sets: bool) -> None:
    """Raise UsageError unless the options of ``memops forget`` go together; ``other``: those that --erase has not."""
    if erase and (other or bool(ids) == (matching is not None)):
        raise UsageError("--erase takes ids, or --matching.", "Type: memops forget --erase --matching -")
    if not erase and (matching is not None or sets):
        raise UsageError("--matching, --sets and --pinned belong to --erase.", "Type: memops forget --erase ID")


def erase(store: Store, wanted: Wanted, *, dry_run: bool, yes: bool, as_json: bool, from_input: bool) -> None:
    """Look, say, ask, erase, look again; exit code 7 where something is left. Raises MemopsError."""
    from memops import cli_facts, erasing, report

    if as_json and not (yes or dry_run):
        raise UsageError("With --json nobody is asked.", "If it is right, add --yes; to look first, --dry-run.")
    looked = erasing.look(store, wanted)
    if not as_json:
        print("\n".join(erasing.describe(store, wanted, looked)))
    if wanted.text is not None and not from_input and "SUDO_COMMAND" in os.environ:
        report.say("Note: sudo has written the words into the system's log. Next time: --matching -")
    if dry_run:
        if as_json:
            found = {"places": looked.places, "more": looked.more, "unread": looked.unread, "sets": looked.holding}
            cli_facts.print_json(store, ids=looked.ids, **found)
        return
    if not yes:
        if from_input or not sys.stdin.isatty():
            raise UsageError("Nobody is there to agree to that.", "If it is right, add --yes.")
        typer.confirm("Erase it for good?", abort=True, err=True)
        wanted = _ask_about_sets(wanted, looked)
    done = erasing.carry_out(store, wanted, looked, **cli_facts.who(store, as_json=as_json), say=report.say)
    if as_json:
        cli_facts.print_json(
            store, gone=done.gone, ids=done.ids, left=done.left, remarks=done.remarks, receipt=done.receipt
        )
    else:
        print("\n".join(erasing.conclude(store, done)))
    if not done.gone:
        raise typer.Exit(7)


def _ask_about_sets(wanted: Wanted, looked: Looked) -> Wanted:
    if wanted.sets or not looked.holding:
        return wanted
    what = f"Remove the {len(looked.holding)} sets that hold it, once a new one is made?"
    return replace(wanted, sets=typer.confirm(what, err=True))
