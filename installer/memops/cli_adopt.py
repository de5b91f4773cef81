"""The commands adopt and release."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from memops import panels


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(rich_help_panel=panels.SET_UP)(adopt)
    app.command(rich_help_panel=panels.SET_UP)(release)


def adopt(
    places: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Its file or directory, or its server's URL; both of a pair.")
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="What to call the store. [default: by its product]")] = "",
    level: Annotated[
        str, typer.Option(metavar="LEVEL", help="own, ledger or observe. [default: as the product needs it]")
    ] = "",
    python: Annotated[
        str, typer.Option(metavar="PYTHON", help="The agent's own Python. [default: that of --agent-unit]")
    ] = "",
    agent_unit: Annotated[
        str, typer.Option(metavar="UNIT", help="Stop this unit while the product's files are copied or deleted from.")
    ] = "",
    collection: Annotated[str, typer.Option(metavar="NAME", help="Which collection, where there are several.")] = "",
    table: Annotated[str, typer.Option(metavar="TABLE", help="Of a plain SQLite file: which table.")] = "",
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=COLUMN", help="And which column is the text, created, updated or subject."),
    ] = None,
    user: Annotated[str, typer.Option(metavar="USER", help="Of a server: who asks it. [default: agent]")] = "",
    secret: Annotated[
        list[str] | None,
        typer.Option(metavar="server=FILE", help="The server's key, or qdrant=FILE; - reads it from standard input."),
    ] = None,
    backup_dir: Annotated[str, typer.Option(metavar="DIR", help="Where sets go. [default: /srv/backup]")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Take a memory under care that another program keeps, without hurting that program.

    Its product decides the level: own (a plain table gets columns), ledger (dates are kept beside it, and the product
    itself deletes) or observe (nothing is changed). docs/adopting.md says what each does.

    \b
    Examples:
      sudo memops adopt /srv/agent/.mem0 --agent-unit agent.service
      sudo memops adopt /srv/agent/history.db http://127.0.0.1:6333
      sudo memops adopt /home/ada/.claude --dry-run
      sudo memops adopt /srv/agent/facts.db --table facts --column text=body
    """
    from memops import adopting, look, report
    from memops.adopting import Wish

    look.require_root("memops adopt")
    look.machine()
    wish = Wish(
        tuple(_absolute(place) for place in places), name, level, _absolute(python), agent_unit, collection, table,
        user, _absolute(backup_dir), *_read(column or (), secret or ()),
    )  # fmt: skip
    adoption = adopting.prepare(wish)
    print(adopting.describe(adoption), flush=True)
    if dry_run:
        return
    _agree("Do it?", yes=yes)
    for remark in adopting.carry_out(adoption, report.step):
        print(f"Note: {remark}")
    print(adopting.done(adoption))


def release(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The store, as memops status calls it.")],
    drop_columns: Annotated[
        bool, typer.Option("--drop-columns", help="Level own: also drop the columns it added, with their dates.")
    ] = False,
    delete_ledger: Annotated[
        bool, typer.Option("--delete-ledger", help="Also delete the ledger, with its dates. Sets stay.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Undo adopt: the product keeps its memory as it is, and memops looks after it no more.

    \b
    Examples:
      sudo memops release mem0 --dry-run
      sudo memops release facts --drop-columns
    """
    from memops import adopting, look, report, settings

    look.require_root(f"memops release {name}")
    kept = settings.chosen(name)[0]
    steps = adopting.release_plan(kept, drop_columns=drop_columns, delete_ledger=delete_ledger)
    print(adopting.describe_release(kept, steps), flush=True)
    if dry_run:
        return
    _agree("Do it?", yes=yes)
    for left in adopting.release(kept, steps, report.step):
        report.say(left)
    print(f"memops no longer looks after the store {kept.name}.")


def _agree(question: str, *, yes: bool) -> None:
    from memops.errors import UsageError

    if yes:
        return
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError("Nobody is there to agree to that.", "If it is right, add --yes.")
    typer.confirm(question, abort=True, err=True)


def _absolute(text: str) -> str:
    return text if "://" in text or not text else str(Path(text).absolute())


def _read(columns: list[str] | tuple[()], secrets: list[str] | tuple[()]) -> tuple[dict[str, str], dict[str, str]]:
    from memops import keys, report
    from memops.errors import UsageError

    if wrong := [text for text in columns if "=" not in text]:
        raise UsageError(f"--column {wrong[0]!r} is not ROLE=COLUMN.", "Type for example --column text=body")
    return dict(text.split("=", 1) for text in columns), keys.typed(secrets, report.ask)
