"""The command review."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memops import panels
from memops.cli_backups import Name  # noqa: TC001 - typer reads the annotations
from memops.cli_facts import Db, Json, print_json

if TYPE_CHECKING:
    from memops.settings import Store


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel=panels.REVIEW)(review)


def review(
    older_than: Annotated[
        str | None,
        typer.Option(metavar="DAYS", help="How long ago a fact was confirmed. [default: 90d, with --unused 182d]"),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Facts in one review.")] = 20,
    unused: Annotated[
        bool, typer.Option("--unused", help="Facts that nothing used in that time, and nobody confirmed.")
    ] = False,
    apply: Annotated[
        str | None, typer.Option(metavar="FILE", help="Carry out the verdicts in a file; - for standard input.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --apply: say what would be done, and change nothing.")
    ] = False,
    no_backup: Annotated[
        bool, typer.Option("--no-backup", help="With --apply as root: take no set before several are forgotten.")
    ] = False,
    name: Name = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Go through the live facts that nobody has confirmed for long: one key a fact, oldest confirmation first.

    First come those with no real date. Facts that no person told are marked, and asked about twice. Each decision is
    carried out at once, so that one may stop at any time. Twenty a week keep a store true.

    For an agent that can look at how things are: --json prints the queue, and --apply takes what it found, all or
    nothing, and nothing of what has changed since it was listed:

    \b
      {"version": 1, "by": "who checked", "verdicts": [
        {"id": "m_…", "seen": "…", "verdict": "confirm", "for": "90d"},
        {"id": "m_…", "seen": "…", "verdict": "replace",
         "fact": "…", "source": "…"},
        {"id": "m_…", "seen": "…", "verdict": "forget"},
        {"id": "m_…", "seen": "…", "verdict": "skip"}]}

    What looks like a credential is masked, and refused in a correction (exit code 3), unless that says why it opens
    nothing: "allow_secret": "…".

    \b
    Examples:
      memops review
      memops review --older-than 30d --limit 5
      memops review --unused
      memops review --json > queue.json
      memops review --apply verdicts.json --dry-run
    """
    from memops import facts, settings
    from memops.errors import UsageError

    if apply is not None:
        if unused or older_than is not None:
            raise UsageError("--apply takes the facts that the file names.", "Leave out --older-than and --unused.")
        _apply(facts.chosen(name, db), _read(apply), dry_run=dry_run, no_backup=no_backup, as_json=as_json)
        return
    if dry_run:
        raise UsageError("--dry-run is for --apply.", "See the queue without deciding: memops review --json")
    if not as_json and not facts.at_terminal():
        raise UsageError(
            "A review is for a person at a terminal.", "Elsewhere use memops review --json, and then --apply FILE."
        )
    days = None if older_than is None else settings.days(older_than, "--older-than")
    store = facts.chosen(name, db)
    queue = facts.ask(store, "queue", older_than=days, limit=limit, unused=unused)
    if as_json:
        print_json(store, **queue)
    elif queue["facts"]:
        _sit(store, queue, limit)
    else:
        print(_nothing(queue["live"], days, unused=unused))


def _sit(store: Store, queue: dict[str, Any], limit: int) -> None:
    """A person's review at the terminal, and the words at its end."""
    import functools
    import time

    from memops import facts, sitting, terminal
    from memops import review as reviewing

    interrupted = False
    with terminal.Terminal() as screen:
        ask = functools.partial(facts.ask, store)
        one = sitting.Sitting(
            screen, ask, facts.person(), time.strftime("%Y-%m-%d"), sitting.coloured, is_person=facts.is_person(store)
        )
        try:
            one.run(queue)
        except KeyboardInterrupt:
            interrupted = True
            print()
    print(f"\n{'Interrupted. ' if interrupted else ''}Done: {one.tally.words()}.")
    print(reviewing.left(queue["waiting"] - one.tally.settled, limit))
    if interrupted:
        raise typer.Exit(1)


def _nothing(live: int, days: int | None, *, unused: bool) -> str:
    since = f"the last {days or (182 if unused else 90)} days"
    which = "used or confirmed" if unused else "confirmed"
    return f"Nothing to review: each of the {live:,} live facts was {which} in {since}." if live else "No fact is live."


def _read(file: str) -> str:
    """The text of a file of verdicts. Raises UsageError."""
    from memops import verdict_file
    from memops.errors import UsageError

    try:
        if file == "-":
            data = sys.stdin.buffer.read(verdict_file.LARGEST + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(verdict_file.LARGEST + 1)
        text = data.decode()
    except OSError as error:
        raise UsageError(f"{file} could not be read: {error.strerror}.", "Name a file, or - for input.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text in UTF-8.", "Verdicts are JSON; see memops review --help") from None
    if len(data) > verdict_file.LARGEST:
        raise UsageError(
            f"{file} is larger than {verdict_file.LARGEST >> 20} MB.",
            f"Give at most {verdict_file.MOST} verdicts in one file.",
        )
    return text


def _apply(store: Store, text: str, *, dry_run: bool, no_backup: bool, as_json: bool) -> None:
    from memops import cli_backups, facts, report, safety, verdict_file
    from memops import review as reviewing

    batch = verdict_file.read(text)
    several = sum(verdict["verdict"] == "forget" for verdict in batch.verdicts) > 1
    if several and not dry_run:
        if safety.is_root() and not no_backup:
            # Whether all can be done is known before a set is made for it.
            facts.ask(store, "apply", given=batch.verdicts, by=batch.by, terminal=False, rehearse=True)
            report.say(safety.first(store, "done", report.say, cli_backups.progress()))
        elif not safety.is_root():
            report.say(safety.newest(store))
    done = []
    if batch.verdicts:
        arguments: dict[str, Any] = {"rehearse": True} if dry_run else {}
        done = facts.ask(store, "apply", given=batch.verdicts, by=batch.by, terminal=False, **arguments)
    if as_json:
        print_json(store, by=batch.by, dry_run=dry_run, done=done)
        return
    tally = reviewing.Tally()
    for each in done:
        tally.add(each["verdict"])
        print(reviewing.outcome(each, rehearsed=dry_run))
    print(f"{'Would be done, and was not' if dry_run else 'Done'}: {tally.words()}.")
