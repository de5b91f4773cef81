"""The command doctor."""

from __future__ import annotations

import json
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from memops import panels


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel=panels.SEE)(doctor)


def doctor(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH...]", help="Only these; else every memory on the machine.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: see docs/findings.md.")] = False,
    fix: Annotated[
        str | None,
        typer.Option("--fix", metavar="CODE", help="As root: mend what was found under this code, where safe."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --fix: say what would be done, and do nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --fix: do not ask.")] = False,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="With --fix: take no set first.")] = False,
) -> None:
    """Find every memory on this machine, and say what is wrong with it, the most harmful first.

    It looks where products put theirs, at units, processes and their open files, and changes nothing. What could not
    be read is said at the end: as root, all can be. docs/findings.md explains each code.

    Exit codes: 0 nothing is above a note, 1 an error is the worst, 7 a warning is. With --fix: 0 mended, or nothing was
    to be mended, 3 there is no safe mend, 7 done, and still found.

    \b
    Examples:
      sudo memops doctor
      memops doctor ~/.mem0
      memops doctor --json | jq -r '.findings[] | .code, .path'
      sudo memops doctor --fix readable-by-others --dry-run
    """
    from memops import doctor as looking
    from memops import doctor_text, findings, report
    from memops.errors import UsageError

    places = [str(path.absolute()) for path in paths or ()]
    if fix is not None:
        if as_json:
            raise UsageError("--json is for looking.", "Leave it out, or --fix.")
        _mend(fix, places, dry_run=dry_run, yes=yes, no_backup=no_backup)
        return
    if dry_run or yes or no_backup:
        raise UsageError("--dry-run, --yes and --no-backup are for --fix.", "Leave them out: memops doctor")
    seen = looking.look(places)
    print(json.dumps(looking.as_data(seen), indent=1) if as_json else doctor_text.text(seen, report.screen()))
    raise typer.Exit(findings.exit_code(seen.findings))


def _mend(code: str, places: list[str], *, dry_run: bool, yes: bool, no_backup: bool) -> None:
    from memops import cli_backups, look, mending, report
    from memops import doctor as looking
    from memops.errors import UsageError
    from memops.store import printable

    look.require_root(f"memops doctor --fix {code}")
    mends = mending.plan(looking.look(places), code)
    if not mends:
        print(f"Nothing to mend: {code} was not found.")
        return
    print("\n".join(mending.describe(mends)))
    if dry_run:
        return
    if not yes:
        if not (sys.stdin and sys.stdin.isatty()):
            raise UsageError("Nobody is there to agree to that.", "If it is right, add --yes.")
        typer.confirm("Do it?", abort=True, err=True)
    for mend in mends:
        mending.carry_out(mend, report.say, cli_backups.progress(), no_backup=no_backup)
        mending.require_mended(mend, places)
        print(f"Mended: {mend.finding.code}, {printable(mend.finding.path, 500)}")
