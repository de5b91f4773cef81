"""The commands on backups: backup, sets and drill."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from memops import panels

if TYPE_CHECKING:
    from collections.abc import Callable

    from memops.settings import Store

Name = Annotated[
    str | None, typer.Option("--name", metavar="STORE", help="One store; the first one has the name default.")
]
Chosen = Annotated[str, typer.Argument(metavar="SET", help="latest, a set's name, or a date: YYYY-MM-DD (UTC).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON: the same, with the size of each part's content.")]

sets_app = typer.Typer(
    name="sets",
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(rich_help_panel=panels.UPKEEP)(backup)
    app.add_typer(sets_app, rich_help_panel=panels.UPKEEP)
    app.command(rich_help_panel=panels.UPKEEP)(drill)


def backup(
    name: Name = None,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Let old sets go though the new one holds much less than the one before."),
    ] = False,
) -> None:
    """Back up now, as memory-backup.service does every night.

    The set is verified before it gets its name. Where a part of it lost most of what it held in the set before, it is
    kept, no older set is removed, and the exit code is 6: look at the store first, then say --accept-loss.

    \b
    Examples:
      sudo memops backup
      sudo memops backup --accept-loss
    """
    from memops import backup as backing_up
    from memops import look

    look.require_root("memops backup")
    _each(name, lambda store: backing_up.run(store, accept_loss=accept_loss, progress=progress()))


@sets_app.callback()
def sets(context: typer.Context, name: Name = None, as_json: Json = False) -> None:
    """List the backup sets; verify them, or pin them so that they stay.

    Columns: AGE since it was sealed; SIZE of its files; ROWS of the store in all tables; VERIFIED how long ago it was
    proven last (sealing proves it, sets verify and the drill prove it again), FAILED when it did not pass or cannot be
    read; PINNED sets are never rotated; PARTS in it, the store counted. Root only: sets are root's.

    \b
    Examples:
      sudo memops sets
      sudo memops sets --json | jq '.stores[].sets[] | select(.ok | not)'
      sudo memops sets verify --all
      sudo memops sets pin 2026-11-30
    """
    context.obj = name
    if context.invoked_subcommand is not None:
        return
    import json

    from memops import look, settings
    from memops import sets as listing

    look.require_root("memops sets")
    found = {store: listing.listing(store) for store in settings.chosen(name)}
    if as_json:
        stores = [{"name": store.name, "directory": store.sets, "sets": each} for store, each in found.items()]
        print(json.dumps({"version": 1, "stores": stores}, indent=1))
    else:
        print("\n\n".join(listing.describe(store, each) for store, each in found.items()))


@sets_app.command()
def verify(
    context: typer.Context,
    wanted: Chosen = "latest",
    every: Annotated[bool, typer.Option("--all", help="Verify all sets of the store, or of all stores.")] = False,
    name: Name = None,
) -> None:
    """Prove that a set is what it was when it was sealed.

    Every file is there with every byte, none is extra, and every part is opened and counted.

    \b
    Examples:
      sudo memops sets verify
      sudo memops sets verify 2026-11-30T213159Z
      sudo memops sets verify --all
    """
    from memops import look, settings
    from memops import sets as listing
    from memops.errors import MemopsError, UsageError

    look.require_root("memops sets verify")
    stores = settings.chosen(name or context.obj)
    if every and wanted != "latest":
        raise UsageError("--all verifies every set, so there is none to name.", "Leave one of them out.")
    if every:
        chosen = [(store, each) for store in stores for each in listing.listing(store)]
    elif wanted == "latest":
        chosen = [(s, each) for s in stores if (each := listing.find(listing.listing(s), wanted)) is not None]
    else:
        chosen = [listing.choose(stores, wanted)]
    if not chosen:
        raise MemopsError("There is no whole set to verify.", "See which sets there are: sudo memops sets")
    bad = 0
    for store, each in chosen:
        result = listing.verify(store, each["name"])
        bad += not result["ok"]
        word = {True: "verified", False: "FAILED", None: "not verified"}[result["ok"]]
        print(f"{store.name} {each['name']}: {word}" + (f": {result['message']}" if result["message"] else ""))
    if bad:
        raise MemopsError(
            f"{bad} of {len(chosen)} sets did not pass." if len(chosen) > 1 else "The set did not pass.",
            "A set that failed is not restored, counted or removed by itself. Make a new one: sudo memops backup",
        )


@sets_app.command()
def pin(context: typer.Context, wanted: Chosen, name: Name = None) -> None:
    """Keep a set for ever, or until unpin.

    \b
    Example:
      sudo memops sets pin latest
    """
    from memops import look, settings
    from memops import sets as listing

    look.require_root("memops sets pin")
    store, each = listing.choose(settings.chosen(name or context.obj), wanted)
    listing.pin(store, each["name"])
    undo = f"sudo memops sets unpin {each['name']}{listing.name_option(store)}"
    print(f"{store.name} {each['name']}: pinned; it stays until: {undo}")


@sets_app.command()
def unpin(context: typer.Context, wanted: Chosen, name: Name = None) -> None:
    """Let a set go again when its time has come.

    \b
    Example:
      sudo memops sets unpin 2026-11-30T213159Z
    """
    from memops import look, settings
    from memops import sets as listing

    look.require_root("memops sets unpin")
    store, each = listing.choose(settings.chosen(name or context.obj), wanted)
    listing.unpin(store, each["name"])
    print(f"{store.name} {each['name']}: not pinned")


def drill(name: Name = None) -> None:
    """Try now whether the newest set can be restored.

    memory-drill.service restores it into a private directory and proves it.

    Nothing of the store is touched. The timer does the same every week.

    \b
    Example:
      sudo memops drill
    """
    from memops import drill as drilling
    from memops import look

    look.require_root("memops drill")
    _each(name, drilling.run)


def _each(name: str | None, work: Callable[[Store], str]) -> None:
    """Do ``work`` for one store or for each in turn, and print what it says; one that fails keeps no other from it."""
    from memops import report, settings
    from memops.errors import MemopsError

    stores = settings.chosen(name)
    failures: list[MemopsError] = []
    for store in stores:
        prefix = f"{store.name}: " if len(stores) > 1 else ""
        try:
            print(prefix + work(store), flush=True)
        except MemopsError as error:
            if len(stores) > 1:
                report.error(prefix + error.message, error.hint)
            failures.append(error)
    if failures and len(stores) == 1:
        raise failures[0]
    if failures:
        raise typer.Exit(failures[0].exit_code)


def progress() -> Callable[[str, int, int], None] | None:
    """What shows on one line of a terminal how far the copies are; None where there is no terminal."""
    from memops import report

    if not sys.stderr.isatty():
        return None

    def show(what: str, done: int, total: int) -> None:
        line = f"{report.size(done)} of about {report.size(total)} {what}"
        print(f"\r{line:<50}\r", end="", file=sys.stderr, flush=True)

    return show
