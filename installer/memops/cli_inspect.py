"""The command inspect."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from memops import panels
from memops.cli_facts import Json  # noqa: TC001 - typer reads the annotations


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel=panels.SEE)(inspect)


def inspect(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Any SQLite file, as its owner or as root.")],
    as_json: Json = False,
) -> None:
    """Show what is in a SQLite file: its tables, how much is in each, and what was changed last.

    It is read by its owner and not changed. The last five changes come one field a line, and events by their number
    where the file is a log of them. What looks like a credential is masked.

    Exit codes: 0 shown, 3 it is empty or no SQLite file, so probably the wrong one.

    \b
    Examples:
      memops inspect ~/.mem0/history.db
      sudo memops inspect /srv/agent/memory.db --json | jq '.tables[].name'
    """
    from memops import inspecting, report

    found = inspecting.look(str(path))
    print(json.dumps({"version": 1, **found}, indent=1) if as_json else inspecting.text(found, report.screen()))
