"""The command line: each command reads its options, calls one function and hands the result to report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="memops",
    help="Look after the memory of AI agents: a nightly prune, proven backups, one screen to see it all.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused and nothing changed, 4 not permitted,"
    " 5 the store was locked, 6 the guard held, 7 done but not proven.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

Name = Annotated[str, typer.Option("--name", metavar="STORE", help="Which store, where there are several.")]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from memops import __version__

        print(f"memops {__version__}")
        raise typer.Exit


@app.command()
def install(
    db: Annotated[Path | None, typer.Option(help="The agent's database. [default: /srv/agent/memory.db]")] = None,
    user: Annotated[str | None, typer.Option(help="Who owns it. [default: the database's owner, else agent]")] = None,
    backup_dir: Annotated[Path | None, typer.Option(help="Where backups go. [default: /srv/backup]")] = None,
    prune_at: Annotated[str | None, typer.Option(metavar="CALENDAR", help="When to prune. [default: daily]")] = None,
    backup_at: Annotated[
        str | None, typer.Option(metavar="CALENDAR", help="When to back up. [default: *-*-* 23:30:00]")
    ] = None,
    journal_mode: Annotated[
        str | None,
        typer.Option(metavar="wal|keep", help="Switch the store to WAL, or leave its mode. [default: wal]"),
    ] = None,
    keep_superseded: Annotated[
        str | None, typer.Option(metavar="DAYS", help="How long superseded facts stay. [default: 180d]")
    ] = None,
    history_from: Annotated[
        str | None,
        typer.Option(metavar="created|superseded", help="The date those days count from. [default: created]"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a view or index is added to a store.")] = False,
) -> None:
    """Put memory under care: timers for the prune and the backup.

    Options given once are remembered. A second run changes only what differs.

    \b
    Examples:
      sudo memops install
      sudo memops install --db /home/ada/agent/memory.db --prune-at 03:30
      sudo memops install --dry-run
    """
    from memops import install as installing
    from memops import look, report, settings
    from memops.errors import UsageError

    look.require_root("memops install")
    look.machine()
    options: dict[str, Any] = {
        "db": None if db is None else str(db.absolute()),
        "user": user,
        "backup_dir": None if backup_dir is None else str(backup_dir.absolute()),
        "prune_at": prune_at,
        "backup_at": backup_at,
        "journal_mode": journal_mode,
        "keep_superseded": None if keep_superseded is None else settings.days(keep_superseded),
        "history_from": history_from,
    }
    facts, steps = installing.prepare(options, "default")
    for note in facts.notes:
        report.say(note)
    if dry_run:
        print(installing.describe(steps) or "Nothing to do: everything is as it should be.")
        return
    if not steps:
        print("Nothing to do: everything is as it should be. See it with: memops status")
        return
    if (changes := installing.changes_a_store(steps)) and not yes:
        report.say("This store was there before. It needs:\n" + "\n".join(changes))
        if not sys.stdin.isatty():
            raise UsageError("Nobody is there to agree to that.", "If it is right, add --yes.")
        typer.confirm("Add it?", abort=True, err=True)
    remarks = installing.carry_out(facts, steps, report.step)
    print(report.installed(facts.store, remarks))


@app.command()
def status(
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Count the rows now instead of showing the last count.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: see docs/status.md.")] = False,
) -> None:
    """Show whether all is well, in one screen.

    \b
    Examples:
      memops status
      sudo memops status --fresh
      memops status --json | jq '.stores[0].problems'
    """
    import json

    from memops import look, report, settings
    from memops import status as looking

    stores = settings.load()
    if not stores:
        raise looking.not_installed()
    if fresh:
        look.require_root("memops status --fresh")
    data = looking.gather(stores.values(), fresh=fresh)
    print(json.dumps(data, indent=1) if as_json else report.status(data))


@app.command()
def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would go and why, and delete nothing.")] = False,
    allow_large: Annotated[bool, typer.Option("--allow-large", help="Let the guard step aside for this run.")] = False,
) -> None:
    """Delete dead facts now: starts memory-prune.service and follows it.

    \b
    Examples:
      sudo memops prune --dry-run
      sudo memops prune
    """
    from memops import look, report
    from memops import prune as pruning
    from memops import status as looking
    from memops.settings import load

    look.require_root("memops prune")
    stores = load()
    if not stores:
        raise looking.not_installed()
    for store in stores.values():
        if dry_run:
            rows = list(pruning.doomed(store))
            print(report.doomed(rows))
        else:
            record = pruning.run(store, "allow-large" if allow_large else None, report.progress())
            print(record["message"])


@app.command()
def render(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="An empty or new directory.")],
    db: Annotated[Path, typer.Option(help="The agent's database.")] = Path("/srv/agent/memory.db"),
    user: Annotated[str, typer.Option(help="Who owns it.")] = "agent",
    backup_dir: Annotated[Path, typer.Option(help="Where backups go.")] = Path("/srv/backup"),
) -> None:
    """Write every file that install would, below DIR, for people who deploy their own way.

    \b
    Example:
      memops render ./bundle && find ./bundle -type f
    """
    from memops import export
    from memops.settings import Store

    store = Store(db=str(db.absolute()), user=user, backup_dir=str(backup_dir.absolute()))
    for path in export.write(directory, store):
        print(path)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def uninstall(ctx: typer.Context) -> None:
    """Take the bundle away again; the store, the sets and the user stay.

    \b
    Examples:
      sudo memops uninstall --dry-run
      sudo memops uninstall
      sudo memops uninstall --purge        (the data goes too)
    """
    import os

    from memops import assets

    # The same script is installed as /usr/local/lib/memops/uninstall, for when this command is broken.
    script = str(assets.folder("jobs") / "uninstall.py")
    os.execv("/usr/bin/python3", ["python3", "-I", script, *ctx.args])  # noqa: S606
