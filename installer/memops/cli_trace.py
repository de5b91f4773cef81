"""The command trace."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from memops import panels
from memops.cli_backups import Name  # noqa: TC001 - typer reads the annotations
from memops.cli_facts import Db, Json  # noqa: TC001 - typer reads the annotations


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel=panels.REVIEW)(trace)


def trace(
    what: Annotated[str, typer.Argument(metavar="TEXT|ID", help="Words of a memory, or a fact's id.")],
    name: Name = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Say everywhere one memory lives, and why it came back.

    Rows and chains, change logs, vectors, queues, full-text indexes, notes, digests, what restores kept, and as root
    every backup set. For each it is said whether an agent recalls it from there. Nothing is changed. To take it out
    of all of them: memops forget --erase.

    Exit codes: 0 it is somewhere, 1 it is nowhere that could be looked at.

    \b
    Examples:
      sudo memops trace m_01JE3K
      sudo memops trace 'likes green tea'
    """
    from memops import facts, report, tracing

    store = facts.chosen(name, db)
    found = tracing.look(store, what)
    data = tracing.as_data(store, found)
    print(json.dumps(data, indent=1) if as_json else tracing.describe(store, found, report.screen()))
    if not data["places"]:
        raise typer.Exit(1)
