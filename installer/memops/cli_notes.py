"""The command on notes in plain files."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from memops import panels


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel=panels.REVIEW)(notes)


def notes(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, or directories that are searched.")],
    older_than: Annotated[str, typer.Option(metavar="DAYS", help="What counts as old.")] = "31d",
    limit: Annotated[int, typer.Option(metavar="N", min=0, max=1000, help="Entries to list.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: see docs/notes.md.")] = False,
) -> None:
    """Say how old the notes are that an agent keeps in plain files. Reads them, and changes nothing.

    Markdown (each item of a list, or each paragraph), the MEMORY.md and USER.md of Hermes, memory folders of Claude
    Code, the JSON of the MCP server-memory. The date of an entry is the one written in it, or above it in a heading,
    the front matter or the file's name; else the one that git has for its lines; else unknown.

    \b
    Examples:
      memops notes ~/.claude ~/.hermes
      memops notes --older-than 90d /srv/agent/MEMORY.md
      sudo memops notes --json /srv/agent | jq '.listed[]'
    """
    from memops import notes as reading
    from memops import settings

    days = settings.days(older_than, "--older-than")
    places = [reading.place(path) for path in paths]
    found = reading.read(places, days, limit)
    reading.require_some(found, places)
    print(json.dumps({"version": 1, **found}, indent=1) if as_json else reading.text(found))
