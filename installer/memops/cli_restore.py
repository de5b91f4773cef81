"""The command restore."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from memops import panels
from memops.cli_backups import Name  # noqa: TC001 - typer reads the annotations

if TYPE_CHECKING:
    from memops.restore import Plan
    from memops.settings import Store


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel=panels.UPKEEP)(restore)


def restore(
    wanted: Annotated[
        str | None,
        typer.Argument(metavar="SET", help="latest, a set's name, YYYY-MM-DD [HH:MM] (UTC), or the path of a set."),
    ] = None,
    name: Name = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Write the set into DIR, and touch nothing else.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Verify the set, say all that would change, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not compare and do not ask.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo a restore that was killed, and do nothing else.")] = False,
) -> None:
    """Put a set back: all of its parts, or none.

    The set is verified first. Then it is said what is lost and what comes back, and a set of what is there now is
    taken, which another restore puts back. Timers and the agent's unit
    (memops install --agent-unit) are stopped and started again. The files that are there now are moved to
    before-restore-DATE beside them and kept. A failure undoes everything; after a kill the next restore does.

    Latest is the newest good set but for those that restores took. With a date the newest good set of that day is
    meant, with a time the newest good one not after it.

    \b
    Examples:
      sudo memops restore latest
      sudo memops restore 2026-11-30 --dry-run
      sudo memops restore '2026-11-30 14:00' --yes
      sudo memops restore latest --to /root/look
      sudo memops restore /root/fetched/2026-11-30T213159Z
    """
    from memops import look, putback, report, settings
    from memops.errors import UsageError

    look.require_root(f"memops restore {wanted or '--undo'}")
    stores = settings.chosen(name)
    if undo:
        if wanted or to or dry_run:
            raise UsageError("--undo does nothing else.", "Type: sudo memops restore --undo")
        for store in stores:
            with putback.alone(store):
                state = putback.recover(store, report.say)
            print(f"{store.name}: {state or 'no restore was interrupted, so there is nothing to undo.'}")
        return
    if not wanted:
        raise UsageError("Which set?", "See them: sudo memops sets. The newest: sudo memops restore latest")
    if len(stores) > 1:
        names = ", --name ".join(store.name for store in stores)
        raise UsageError("There are several stores.", f"Say which one: --name {names}")
    with putback.alone(stores[0]):
        putback.recover(stores[0], report.say)
        _restore(stores[0], wanted, to, dry_run=dry_run, yes=yes)


def _restore(store: Store, wanted: str, to: Path | None, *, dry_run: bool, yes: bool) -> None:
    from memops import report
    from memops import restore as restoring

    restoring.discard_fetched(store)
    try:
        if "/" in wanted:
            report.say(f"Copying and verifying {wanted}")
            chosen = restoring.fetch(store, wanted)
        else:
            chosen = restoring.choose(store, wanted)
            report.say(f"Verifying the set {chosen.name}, {report.size(chosen.entry['bytes'])}")
            restoring.prove(store, chosen)
        if to is None:
            _put_back(restoring.plan(store, chosen), dry_run=dry_run, yes=yes)
        else:
            restoring.extract(store, chosen, to.absolute())
            print(f"The set {chosen.name} is in {to.absolute()}/, with all its facts in plain text.")
    finally:
        restoring.discard_fetched(store)


def _put_back(plan: Plan, *, dry_run: bool, yes: bool) -> None:
    from memops import cli_backups, putback, report, safety
    from memops import restore as restoring
    from memops.errors import UsageError

    if not dry_run:
        putback.early_refusal(plan)
    title = f"Putting back the set {plan.chosen.name} of the store {plan.store.name}:"
    # The comparison is for whoever decides. On a large store it takes as long as all the rest.
    changes = list(plan.remarks) if yes and not dry_run else restoring.look(plan, whole=dry_run)
    lines = "\n".join([title, *(f"  {line}" for line in changes)])
    if dry_run:
        print(lines)
        return
    report.say(lines)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("Nobody is there to agree to that.", "If it is right, add --yes.")
        typer.confirm("Put it back?", abort=True, err=True)
    chosen = "" if plan.chosen.fetched else plan.chosen.name
    before = safety.before_restore(plan.store, chosen, report.say, cli_backups.progress())
    aside = putback.carry_out(plan, report.step)
    if before:
        print(f"To undo this: {safety.command(plan.store, before)}")
    print(f"The set {plan.chosen.name} is back in {plan.store.db}. What was there before is kept:")
    for path in aside:
        print(f"  {path}/")
    print("When nobody needs that any more: sudo rm -r " + " ".join(shlex.quote(path) for path in aside))
