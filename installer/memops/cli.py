"""The command line: each command reads its options, calls one function and hands the result to report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from memops import (
    cli_adopt,
    cli_backups,
    cli_digest,
    cli_doctor,
    cli_facts,
    cli_forget,
    cli_inspect,
    cli_notes,
    cli_restore,
    cli_review,
    cli_scan,
    cli_trace,
    panels,
)
from memops.cli_backups import Name  # noqa: TC001 - typer reads the annotations

app = typer.Typer(
    name="memops",
    cls=panels.Grouped,
    help="Look after the memory of AI agents: facts with an end or a review, a nightly prune, proven backups.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused and nothing changed, 4 not permitted,"
    " 5 the store was locked, 6 the guard held, 7 done but not proven, 8 not pruned for want of a backup.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from memops import __version__

        print(f"memops {__version__}")
        raise typer.Exit


@app.command(rich_help_panel=panels.SET_UP)
def install(
    name: Name = None,
    db: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The agent's database. [default: /srv/agent/memory.db]")
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Who owns it. [default: the database's owner, else agent]")
    ] = None,
    backup_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where backups go. [default: /srv/backup]")
    ] = None,
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
    full_text: Annotated[
        bool | None,
        typer.Option(
            "--full-text/--no-full-text",
            help="Give recall an index to rank by, for two fifths more on the disk. [default: not]",
        ),
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="KIND=PATH",
            help="Back this up with the store: sqlite, qdrant, chroma or files at a PATH, qdrant or postgres at a URL."
            " Once for each part, all of them together; '' for none.",
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART=FILE", help="The key of a part that a server keeps; - reads it from standard input."
        ),
    ] = None,
    agent_unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="Stop this unit while the parts are copied; '' for not.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(metavar="PYTHON", help="Of an adopted store: the agent's own Python.")
    ] = None,
    keep_daily: Annotated[
        int | None, typer.Option(metavar="N", help="Days of which a set is kept. [default: 7]")
    ] = None,
    keep_weekly: Annotated[
        int | None, typer.Option(metavar="N", help="Weeks of which one is kept. [default: 4]")
    ] = None,
    keep_monthly: Annotated[
        int | None, typer.Option(metavar="N", help="Months of which one is kept. [default: 6]")
    ] = None,
    offsite: Annotated[
        str | None,
        typer.Option(metavar="TOOL=PLACE", help="Hand each good set to restic=REPOSITORY or rclone=REMOTE:PATH."),
    ] = None,
    offsite_env: Annotated[
        str | None, typer.Option(metavar="FILE", help="Root's file with the secrets for that, NAME=VALUE a line.")
    ] = None,
    notes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="Notes in plain files, for a look once a month: what memops notes says of them. Once for each; '' for"
            " none.",
        ),
    ] = None,
    prune_without_backup: Annotated[
        bool | None,
        typer.Option(
            "--prune-without-backup/--prune-with-backup",
            help="Prune on schedule though the newest set is older than two days. [default: not]",
        ),
    ] = None,
    mail_to: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Mail why a job failed, the digest of new facts, and the reminder of the review; '' for none.",
        ),
    ] = None,
    ping_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ping a check, healthchecks style, when a backup starts and ends; with {job} in the URL the prune has"
            " one too. - takes it from standard input, '' stops it.",
        ),
    ] = None,
    textfile: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the figures to FILE.prom every five minutes, for node_exporter; '' stops it.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a store's views or indexes change.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files of memops that somebody edited.")] = False,
) -> None:
    """Put memory under care: timers for prune, backup, drill and review.

    Options given once are remembered. A second run changes only what differs.

    \b
    Examples:
      sudo memops install
      sudo memops install --db /home/ada/agent/memory.db --prune-at 04:00
      sudo memops install --name work --db /srv/work/memory.db
      sudo memops install --with /srv/agent/history.db --with /srv/agent/qdrant
      sudo memops install --dry-run
    """
    from memops import install as installing
    from memops import keys, look, parts, report, settings
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
        "full_text": full_text,
        "parts": None if with_ is None else tuple(parts.absolute(text) for text in with_ if text),
        "secrets": keys.typed(secret or (), report.ask) or None,
        "agent_unit": agent_unit,
        "python": str(Path(python).absolute()) if python else python,
        "keep_daily": keep_daily,
        "keep_weekly": keep_weekly,
        "keep_monthly": keep_monthly,
        "offsite": offsite,
        "offsite_env": str(Path(offsite_env).absolute()) if offsite_env else offsite_env,
        "notes": None if notes is None else tuple(str(Path(text).absolute()) for text in notes if text),
        "prune_without_backup": prune_without_backup,
        "mail_to": mail_to,
        "textfile": str(Path(textfile).absolute()) if textfile else textfile,
        "ping_url": report.ask("URL to ping") if ping_url == "-" else ping_url,
    }
    for store in installing.chosen(name, options):
        prepared = installing.prepare(options, store, force=force)
        for note in prepared.notes:
            report.say(note)
        if dry_run or not prepared.steps:
            print(installing.describe(prepared.steps) or f"Nothing to do: {store} is as it should be.")
            continue
        if (changes := installing.changes_a_store(prepared.steps)) and not yes:
            report.say("This store was there before. It needs:\n" + "\n".join(changes))
            if not sys.stdin.isatty():
                raise UsageError("Nobody is there to agree to that.", "If it is right, add --yes.")
            typer.confirm("Do it?", abort=True, err=True)
        remarks = installing.carry_out(prepared, report.step)
        print(report.installed(prepared.facts.store, remarks))


@app.command(rich_help_panel=panels.SEE)
def status(
    name: Name = None,
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

    from memops import report, settings
    from memops import status as looking

    if fresh:
        from memops import look

        look.require_root("memops status --fresh")
    data = looking.gather(settings.chosen(name), fresh=fresh)
    print(json.dumps(data, indent=1) if as_json else report.status(data))


@app.command(rich_help_panel=panels.SEE)
def check(
    name: Name = None,
    prometheus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the figures to FILE.prom, for node_exporter.")
    ] = None,
) -> None:
    """Say in one line whether all is well, for a monitoring system. Needs no rights.

    Exit codes: 0 ok, 1 warning, 2 critical, 3 unknown (it could not look, or wrong usage). After the | comes
    performance data, as Nagios and Icinga read it. docs/metrics.md lists the figures of --prometheus.

    \b
    Examples:
      memops check
      memops check --name work
      sudo memops check --prometheus /var/lib/prometheus/node-exporter/memops.prom
    """
    from memops import check as checking
    from memops import settings

    checking.run(settings.chosen(name), None if prometheus is None else str(prometheus.absolute()))


@app.command(rich_help_panel=panels.UPKEEP)
def prune(
    name: Name = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would go and why, and delete nothing.")] = False,
    allow_large: Annotated[
        bool,
        typer.Option("--allow-large", help="Let the guard step aside for this run. Asks, and takes a set first."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --allow-large: do not ask.")] = False,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="With --allow-large: take no set first.")] = False,
) -> None:
    """Delete dead facts now, as memory-prune.service does every night.

    \b
    Examples:
      sudo memops prune --dry-run
      sudo memops prune
      sudo memops prune --allow-large
    """
    from memops import look, report, safety, settings
    from memops import prune as pruning
    from memops.errors import UsageError

    look.require_root("memops prune")
    if dry_run and allow_large:
        raise UsageError("--dry-run deletes nothing, so there is nothing to allow.", "Leave one of them out.")
    if (yes or no_backup) and not allow_large:
        raise UsageError("--yes and --no-backup are for --allow-large.", "Leave them out: sudo memops prune")
    for store in settings.chosen(name):
        if dry_run or (allow_large and not yes):
            rows = list(pruning.doomed(store))
            print(report.doomed(rows, deletes=store.level != "observe"))
        if allow_large and not yes:
            if not sys.stdin.isatty():
                raise UsageError("Nobody is there to agree to that.", "If it is right, add --yes.")
            typer.confirm("Delete them?", abort=True, err=True)
        if not dry_run:
            if allow_large and not no_backup:
                print(safety.first(store, "deleted", report.say, cli_backups.progress()))
            record = pruning.run(store, "allow-large" if allow_large else None, report.progress())
            print(record["message"])


cli_adopt.register(app)
cli_doctor.register(app)
cli_inspect.register(app)
cli_facts.register(app)
cli_forget.register(app)
cli_review.register(app)
cli_scan.register(app)
cli_trace.register(app)
cli_digest.register(app)
cli_backups.register(app)
cli_restore.register(app)
cli_notes.register(app)


@app.command(rich_help_panel=panels.SEE)
def logs(
    name: Name = None,
    lines: Annotated[int, typer.Option("--lines", "-n", metavar="N", min=0, help="How many lines to begin with.")] = 40,
    follow: Annotated[
        bool | None, typer.Option("--follow/--no-follow", help="Go on with new lines. [default: at a terminal]")
    ] = None,
) -> None:
    """Show the journal of the jobs, oldest line first.

    \b
    Examples:
      sudo memops logs
      sudo memops logs --no-follow -n 200
    """
    from memops import host, settings

    units = [f"--unit={unit}" for store in settings.chosen(name) for unit in store.services]
    going_on = ["--follow"] if follow or (follow is None and sys.stdout.isatty()) else ["--no-pager"]
    host.become("journalctl", f"--lines={lines}", *going_on, *units)


@app.command(rich_help_panel=panels.SET_UP)
def render(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="An empty or new directory.")],
    db: Annotated[Path, typer.Option(metavar="PATH", help="The agent's database.")] = Path("/srv/agent/memory.db"),
    user: Annotated[str, typer.Option(metavar="USER", help="Who owns it.")] = "agent",
    backup_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where backups go.")] = Path("/srv/backup"),
) -> None:
    """Write every file of an installation below DIR, to deploy it your own way.

    \b
    Example:
      memops render ./bundle && find ./bundle -type f
    """
    from memops import export
    from memops.settings import Store

    store = Store(db=str(db.absolute()), user=user, backup_dir=str(backup_dir.absolute()))
    for path in export.write(directory, store):
        print(path)


@app.command(rich_help_panel=panels.SET_UP)
def uninstall(
    name: Name = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and change nothing.")] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete the stores, their backups and the users memops made, too.")
    ] = False,
    confirm: Annotated[
        list[str] | None,
        typer.Option("--confirm", metavar="PATH", help="Agree to --purge of this store off a terminal."),
    ] = None,
) -> None:
    """Take the bundle away again; stores, backups and users stay.

    The same without this command: /usr/local/lib/memops/uninstall

    \b
    Examples:
      sudo memops uninstall --dry-run
      sudo memops uninstall
      sudo memops uninstall --name work
      sudo memops uninstall --purge
    """
    from memops import look, remove, report, settings
    from memops.errors import UsageError

    look.require_root("memops uninstall")
    if name is None or (len(settings.load()) == 1 and settings.chosen(name)):
        flags = [*(["--dry-run"] if dry_run else []), *(["--purge"] if purge else [])]
        remove.everything([*flags, *(f"--confirm={path}" for path in confirm or [])])
    store = settings.chosen(name)[0]
    if purge:
        raise UsageError(
            "--purge is for the whole bundle.", f"Take the store out first: memops uninstall --name {name}"
        )
    steps = remove.one_store_plan(store)
    if dry_run:
        print("\n".join(step.title for step in steps))
        return
    for left in remove.one_store(store, steps, report.step):
        report.say(left)
    print(f"memops no longer looks after the store {name}. Kept: {store.db} and {store.sets}/")
