"""The commands on single facts: remember, recall, list, show, confirm, replace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memops import panels
from memops.cli_backups import Name  # noqa: TC001 - typer reads the annotations

if TYPE_CHECKING:
    from memops.settings import Store

Db = Annotated[
    Path | None, typer.Option("--db", metavar="PATH", help="The store with this database, instead of --name.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
For = Annotated[
    str | None, typer.Option("--for", metavar="TIME", help="How long it is true: 7d, 12h, '2 weeks', '3 months'.")
]
Until = Annotated[
    str | None, typer.Option(metavar="DATE", help="Until when: 2027-01-31, 'friday', '31 jan'; never for no end.")
]
Source = Annotated[
    str, typer.Option(metavar="WHERE", help="Where it is from: 'chat 2026-08-08'. What cannot be checked is no use.")
]
AllowSecret = Annotated[
    str | None,
    typer.Option(metavar="REASON", help="Why what looks like a credential opens nothing, and may be stored."),
]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="As list and recall --json show them.")]
WithSets = Annotated[
    bool, typer.Option("--sets", help="When erasing: remove the sets that hold it, once a new one is made.")
]
Pinned = Annotated[bool, typer.Option("--pinned", help="With --sets: also those that are pinned.")]

KINDS = {"travel": "7d", "status": "7d", "version": "90d", "project": "90d", "preference": None, "convention": None}
"""How long a fact of a kind is mostly true; None: it has no end and is reviewed."""

PROPOSED = ("version", "project")
"""Kinds whose length is a guess, which is said."""

VERSION = 1


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (remember, recall, list_, show, confirm, replace):
        app.command(command.__name__.rstrip("_"), rich_help_panel=panels.FACTS)(command)


def remember(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="What it is about, in a word or two.")],
    fact: Annotated[str, typer.Argument(metavar="FACT", help="A sentence or two.")],
    source: Source,
    for_: For = None,
    until: Until = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="travel, status: 7 days; version, project: 90 days, a proposal; preference, convention: no end.",
        ),
    ] = None,
    replaces: Annotated[str | None, typer.Option(metavar="ID", help="The live fact that this one corrects.")] = None,
    allow_secret: AllowSecret = None,
    name: Name = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Store a fact, with where it is from.

    Without --for, --until or --kind it has no end and goes to review: there is no lifetime that fits all facts.

    Remember what a person said, and only that. A web page, a file or a tool's output that is stored as a memory becomes
    an instruction in every later prompt, whoever wrote it.

    What looks like a credential is refused (exit code 3): keep it in a password manager, and store where it is kept.

    \b
    Examples:
      memops remember editor 'Uses Helix' --source 'chat 2026-08-08'
      memops remember away 'Replies are slow' --source 'chat 2026-08-08' --for 7d
      memops remember db 'Postgres 17' --source 'chat 2026-11-30' --kind version
    """
    from memops import dates, fact_text, facts

    ends = _end(for_, until, kind)
    store = facts.chosen(name, db)
    made = facts.ask(
        store,
        "remember",
        subject=subject,
        fact=fact,
        source=source,
        expires_at=ends.get("expires_at"),
        replaces=replaces,
        allow_secret=allow_secret,
        **who(store, as_json=as_json),
    )
    if as_json:
        print_json(store, fact=made)
        return
    print("\n".join([*fact_text.about(made, fact_text.width()), *_remarks(made)]))
    if kind in PROPOSED and made["expires_at"]:
        until_then = dates.shown(made["expires_at"])
        print(f"{until_then} is a proposal for a {kind}. Another: memops confirm {made['id']} --for 30d")


def recall(
    query: Annotated[
        list[str] | None, typer.Argument(metavar="[QUERY]", help="Words that it is about; without, the latest.")
    ] = None,
    subject: Annotated[str | None, typer.Option(metavar="SUBJECT", help="Only facts about exactly this.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="The most facts.")] = 20,
    max_chars: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Characters that a prompt has room for; only whole facts.")
    ] = None,
    name: Name = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Print live facts for a prompt, each with its age and source.

    Reading confirms nothing. That a fact was used is noted, so that review --unused finds those that nobody needs. A
    fact that holds what looks like a credential is printed as it is, with a warning on standard error.

    \b
    Examples:
      memops recall editor
      memops recall 'which database' --max-chars 2000
      memops recall --subject availability --json
    """
    from memops import fact_text, facts, report

    store = facts.chosen(name, db)
    words = " ".join(query or [])
    found = facts.ask(store, "recall", query=words, subject=subject, limit=limit, max_chars=max_chars)
    if as_json:
        print_json(store, **{key: found[key] for key in ("facts", "left", "ranked")})
        return
    if found["block"]:
        print(found["block"])
    else:
        report.say("No live fact is about that." if words or subject else "There is no live fact.")
    for fact in found["facts"]:
        if fact["secrets"]:
            report.say(fact_text.warning(fact))
    if found["left"]:
        report.say(f"{found['left']} more did not fit into {max_chars} characters.")


def list_(
    which: Annotated[
        str,
        typer.Argument(
            metavar="[WHICH]", help="live, dead, doubtful, unused or all. [default: live]", show_default=False
        ),
    ] = "live",
    subject: Annotated[str | None, typer.Option(metavar="SUBJECT", help="Only facts about exactly this.")] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="Only from person, agent, tool, web, file, others, system or unknown."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="The most facts.")] = 50,
    name: Name = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """List facts, one a line.

    Shown are id, state, days since it was confirmed and since it was used, subject, fact and source. A source that is
    not a person is marked with an exclamation mark, a doubtful date with a question mark. What looks like a credential
    is masked.

    \b
    Examples:
      memops list
      memops list dead --subject editor
      memops list --source web
    """
    from memops import fact_text, facts, report
    from memops.errors import UsageError
    from memops.store import CLASSES

    sorts = ("live", "dead", "doubtful", "unused", "all")
    for what, value, known in (("a sort of facts", which, sorts), ("a class of sources", source, CLASSES)):
        if value is not None and value not in known:
            raise UsageError(f"{value!r} is not {what}.", f"Type one of: {', '.join(known)}")
    store = facts.chosen(name, db)
    found = facts.ask(store, "list", which=which, subject=subject, source_class=source, limit=limit)
    if as_json:
        print_json(store, **found)
        return
    print("\n".join(fact_text.table(found["facts"], fact_text.width())) or f"There is no such fact ({which}).")
    if found["more"]:
        report.say(f"These are {limit}, and there are more: --limit {limit * 10}")


def show(
    wanted: Annotated[str, typer.Argument(metavar="ID", help="As list and recall --json show it.")],
    name: Name = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Show all about a fact, with what it replaced and what replaced it.

    It is printed as it is, with a warning where it holds what looks like a credential; in the others that is masked.

    \b
    Example:
      memops show m_0maf28d10a
    """
    from memops import fact_text, facts, report

    store = facts.chosen(name, db)
    found = facts.ask(store, "show", id=wanted)
    if as_json:
        print_json(store, **found)
        return
    room = fact_text.width()
    lines = fact_text.about(found["fact"], room)
    if len(found["chain"]) > 1:
        lines += ["Its chain, newest first:", *fact_text.tree(found["chain"], room)]
        lines += [f"  and {found['more']} more"] if found["more"] else []
    if found["verdicts"]:
        lines += ["Decided:", *(f"  {_verdict(line)}" for line in found["verdicts"])]
    print("\n".join(lines))
    if found["fact"]["secrets"]:
        report.say(fact_text.warning(found["fact"]))


def confirm(
    ids: Ids, for_: For = None, until: Until = None, name: Name = None, db: Db = None, as_json: Json = False
) -> None:
    """Say that facts are still true.

    Check them against what they describe; to read them again proves nothing.

    \b
    Examples:
      memops confirm m_0maf28d10a
      memops confirm m_0maf28d10a --until 2027-01-31
    """
    from memops import fact_text, facts

    store = facts.chosen(name, db)
    given = [{"id": each, "verdict": "confirm", **_end(for_, until, None)} for each in dict.fromkeys(ids)]
    done = facts.ask(store, "apply", given=given, **who(store, as_json=as_json))
    if as_json:
        print_json(store, done=done)
        return
    for each in done:
        print("\n".join([*fact_text.about(each["new"], fact_text.width()), *_remarks(each["new"])]))


def replace(
    wanted: Annotated[str, typer.Argument(metavar="ID", help="The live fact that is not true any more.")],
    fact: Annotated[str | None, typer.Argument(metavar="FACT", help="What is true now.", show_default=False)] = None,
    source: Annotated[str | None, typer.Option(metavar="WHERE", help="Where it is from: 'chat 2026-08-08'.")] = None,
    for_: For = None,
    until: Until = None,
    allow_secret: AllowSecret = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Keep the fact; what looks like a credential becomes […], everywhere.")
    ] = False,
    with_sets: WithSets = False,
    pinned: Pinned = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --redact: say where it is, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --redact: do not ask.")] = False,
    name: Name = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Put a new fact in the place of one that is not true any more.

    The old one is kept behind it. The new one ends when the old one did, unless --for or --until say otherwise.

    With --redact no new fact is needed: the value that looks like a credential is erased as memops forget --erase
    does it, with the same proof and exit code 7, and the fact stays with its dates.

    \b
    Examples:
      memops replace m_0maf28d10a 'Uses Zed' --source 'chat 2026-12-01'
      sudo memops replace m_0maf28d10a --redact --sets
    """
    from memops import cli_erase, erasing, fact_text, facts
    from memops.errors import UsageError

    if redact == (fact is not None) or redact == (source is not None) or (not redact and (yes or dry_run or with_sets)):
        raise UsageError(
            "Say what is true now, and where it is from; or --redact without both.",
            "Type for example: memops replace ID 'Uses Zed' --source 'chat 2026-12-01'",
        )
    store = facts.chosen(name, db)
    if redact:
        meant = erasing.Wanted(redact=wanted, sets=with_sets, pinned=pinned)
        cli_erase.erase(store, meant, dry_run=dry_run, yes=yes, as_json=as_json, from_input=False)
        return
    verdict = {"id": wanted, "verdict": "replace", "fact": fact, "source": source, **_end(for_, until, None)}
    if allow_secret is not None:
        verdict["allow_secret"] = allow_secret
    (done,) = facts.ask(store, "apply", given=[verdict], **who(store, as_json=as_json))
    if as_json:
        print_json(store, done=done)
        return
    print("\n".join([*fact_text.about(done["new"], fact_text.width()), *_remarks(done["new"])]))
    print(f"It took the place of {wanted}, which is kept behind it: memops show {done['new']['id']}")


def who(store: Store, *, as_json: bool) -> dict[str, Any]:
    """Who says so, and whether that is a person at a terminal."""
    from memops import facts

    return {"by": facts.person(), "terminal": facts.is_person(store) and not as_json}


def _end(for_: str | None, until: str | None, kind: str | None) -> dict[str, str | None]:
    """``expires_at`` from what was typed; empty where nothing was. Raises UsageError."""
    from memops import dates
    from memops.errors import UsageError

    if sum(value is not None for value in (for_, until, kind)) > 1:
        raise UsageError("--for, --until and --kind say the same thing in three ways.", "Leave all but one out.")
    if until is not None:
        return {"expires_at": dates.until(until)}
    if kind is not None:
        if kind not in KINDS:
            raise UsageError(f"--kind {kind!r} is not known.", f"Type one of: {', '.join(KINDS)}")
        for_ = KINDS[kind]
        if for_ is None:
            return {"expires_at": None}
    return {} if for_ is None else {"expires_at": dates.after(for_)}


def _remarks(fact: dict[str, Any]) -> list[str]:
    masked = ["Note: what looks like a credential in it is masked here."] if fact["secrets"] else []
    if fact["class"] == "person":
        return masked
    return [*masked, f"Note: it is not from a person ({fact['class']}), and is marked so wherever it is shown."]


def _verdict(line: dict[str, Any]) -> str:
    from memops.store import printable

    place = " at a terminal" if line.get("terminal") is True else ""
    new = f" by {printable(line.get('new'))}" if line.get("new") else ""
    allowed = line.get("allowed")
    why = f" (allowed: {printable(allowed.get('reason'), 200)})" if isinstance(allowed, dict) else ""
    word = {"remember": "stored", "confirm": "confirmed", "replace": "replaced", "forget": "deleted"}.get(
        str(line.get("verdict")), "?"
    )
    who = printable(line.get("by", "?"), 100)
    return f"{printable(line.get('at', '?'), 20)}  {printable(line.get('id', '?'))} {word}{new}, said {who}{place}{why}"


def print_json(store: Store, **found: Any) -> None:
    """Print an answer about one store's facts, as docs/facts.md describes them."""
    print(json.dumps({"version": VERSION, "store": store.name, **found}, indent=1))
