"""The command scan."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from memops import panels
from memops.cli_backups import Name  # noqa: TC001 - typer reads the annotations
from memops.cli_facts import Db, Json  # noqa: TC001 - typer reads the annotations


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel=panels.REVIEW)(scan)


def scan(
    notes: Annotated[
        bool, typer.Option("--notes", help="Also the notes in plain files that memops install --notes named.")
    ] = False,
    name: Name = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Say where in the store something looks like a credential.

    Of what kind it is is said too, and never the text itself. Every table and every column with text or JSON is
    looked at, and so are the further SQLite files that are backed up with the store (--with sqlite=PATH). Shapes
    are known, not meanings: keys of services, private keys, JSON web tokens, passwords in addresses, values after
    words such as password or token, and long random words. A pass phrase of plain words is not found. Facts that
    were stored with --allow-secret are left out.

    Exit codes: 0 nothing was found, 7 something was, or not everything could be read.

    \b
    Examples:
      memops scan
      memops scan --notes
      memops scan --json | jq '.found[] | .id, .kind'
    """
    from memops import facts, report, scanning

    store = facts.chosen(name, db)
    found = scanning.scan(store, notes=notes, progress=report.progress())
    if as_json:
        print(json.dumps({"version": 1, "store": store.name, **found}, indent=1))
    else:
        print("\n".join(scanning.describe(found)))
    if not scanning.is_clean(found):
        raise typer.Exit(7)
