"""The command for the digest of new facts."""

from __future__ import annotations

from typing import Annotated

import typer

from memops import panels
from memops.cli_backups import Name  # noqa: TC001 - typer reads the annotations
from memops.cli_facts import Db, Json, print_json


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(rich_help_panel=panels.REVIEW)(digest)


def digest(
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Make one now, from then on: 7d, 2026-11-30, yesterday.")
    ] = None,
    name: Name = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Show which facts came in last, those not from a person first.

    A digest is made after every prune; the newest one that had new facts is shown. What looks like a credential is
    masked, wherever it stands.

    \b
    Examples:
      memops digest
      memops digest --since 7d
    """
    from memops import dates, fact_text, facts, letters
    from memops import digest as digests
    from memops.store import printable

    store = facts.chosen(name, db)
    found = digests.newest(store) if since is None else digests.since(store, dates.since(since))
    if as_json:
        print_json(store, digest=found)
    elif found is None:
        print("No digest has had a new fact yet. To look now: memops digest --since 1d")
    else:
        print("\n".join(letters.digest_lines(found, store.name, printable, fact_text.width())))
