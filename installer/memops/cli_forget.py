"""The command forget."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from memops import panels
from memops.cli_backups import Name  # noqa: TC001 - typer reads the annotations
from memops.cli_facts import Db, Json, Pinned, WithSets, print_json, who

if TYPE_CHECKING:
    from memops.settings import Store


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel=panels.FACTS)(forget)


def forget(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="As list and recall --json show them.")
    ] = None,
    only: Annotated[
        bool, typer.Option("--only", help="Delete only these; what they replaced takes their place, and lives again.")
    ] = False,
    subject: Annotated[str | None, typer.Option(metavar="SUBJECT", help="All facts about exactly this.")] = None,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="All facts of one user, in a store that knows users.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="As root: take no set before several go.")] = False,
    erase: Annotated[bool, typer.Option("--erase", help="Out of every file, with proof.")] = False,
    matching: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="With --erase: all that has these exact words; - reads standard input."),
    ] = None,
    with_sets: WithSets = False,
    pinned: Pinned = False,
    name: Name = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Delete facts, with all that they replaced.

    A correction that goes must not bring the old fact back. Backups keep them until they rotate. When several go, root
    takes a set first; the store's user cannot, and is told how old the newest one is.

    With --erase the words go out of all files, and no set is taken first: every place is named, rows, change logs,
    indexes and records are rid of them, the databases written anew with the agent stopped (--agent-unit), with --sets
    the sets that hold them removed once there is a new one, and every byte is looked at again. Exit codes: 0 gone, 7
    something is left, which is listed. Give the words by standard input: a command line is seen by others, and sudo
    logs it.

    \b
    Examples:
      memops forget m_0maf28d10a
      memops forget m_0maf28d10a --only
      memops forget --subject availability --dry-run
      sudo memops forget --erase --matching - --sets
    """
    from memops import cli_erase, erasing, facts, forgetting
    from memops.errors import UsageError

    everything = subject is not None or user is not None
    cli_erase.require_fitting(ids, matching, erase=erase, other=only or everything, sets=with_sets or pinned)
    if erase:
        text = cli_erase.text_of(matching)
        meant = erasing.Wanted(tuple(dict.fromkeys(ids or ())), text, sets=with_sets, pinned=pinned)
        chosen = facts.chosen(name, db)
        cli_erase.erase(chosen, meant, dry_run=dry_run, yes=yes, as_json=as_json, from_input=matching == "-")
        return
    if bool(ids) == everything:
        raise UsageError(
            "Name facts by their ids, or all by --subject or --user.", "Type for example: memops forget m_0maf28d10a"
        )
    if only and everything:
        raise UsageError("--only is for single facts.", "Name them by their ids.")
    if as_json and not (yes or dry_run):
        raise UsageError("With --json nobody is asked.", "If it is right, add --yes; to look first, --dry-run.")
    store = facts.chosen(name, db)
    wanted = forgetting.Wanted(tuple(dict.fromkeys(ids or ())), only, subject, user)
    going = forgetting.going(store, wanted)
    if as_json and dry_run:
        print_json(store, **going)
        return
    if not as_json:
        print("\n".join(forgetting.describe(going, only=only)))
    if dry_run:
        return
    _agree(store, going["count"], yes=yes, no_backup=no_backup)
    done = forgetting.carry_out(store, wanted, going, **who(store, as_json=as_json))
    if as_json:
        print_json(store, **done)
    else:
        print(f"Deleted: {done['count']:,}.{forgetting.remainder(done)}")


def _agree(store: Store, count: int, *, yes: bool, no_backup: bool) -> None:
    """Ask before facts are deleted; of several, root takes a set first, and others hear of the newest. Raises."""
    from memops import cli_backups, report, safety
    from memops.errors import UsageError

    if count > 1 and not safety.is_root():
        report.say(safety.newest(store))
    if count and not yes:
        if not (sys.stdin and sys.stdin.isatty()):
            raise UsageError("Nobody is there to agree to that.", "If it is right, add --yes.")
        typer.confirm("Delete them?" if count > 1 else "Delete it?", abort=True, err=True)
    if count > 1 and safety.is_root() and not no_backup:
        report.say(safety.first(store, "deleted", report.say, cli_backups.progress()))
