"""List the facts that came in since the last digest, and count how the store is; each prune starts it.

The last digests that had facts are in ``digests.jsonl`` in the state directory, 0600 and in no other place, so that
erasing a fact can reach it; where the next one starts is in ``digest.json``. The journal gets ids and counts only. What
is kept is escaped for a terminal, and what looks like a credential is masked.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import records
import store

import job
import prune
import reading
import sections
import shown
import vitals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store import Sources

SECTIONS: Final = ("listed", "state", "odd")
KEPT_IN: Final = "digests.jsonl"
KEPT: Final = 14
"""Digests that are kept; root reads a megabyte of them at most."""

NAMED: Final = 20
"""Ids that the journal gets."""

Sections = dict[str, list[str]]


@dataclass(frozen=True)
class Bound:
    """How much of a digest is shown: facts, and bytes of all of them as JSON."""

    facts: int = 100
    size: int = 50_000


@dataclass(frozen=True)
class Mark:
    """Where a digest starts: a date as the store has them (None: a day ago), and the last row that was there."""

    since: str | None = None
    row: int | None = None


def read_mark(state: str) -> Mark:
    """Where the next digest starts. A file that says nothing sensible counts as none."""
    try:
        found = json.loads(records.read(os.path.join(state, "digest.json")) or "")
        since, row = found["since"], found["row"]
    except (ValueError, KeyError, TypeError, RecursionError, records.NotAllowed):
        return Mark()
    sound = type(row) is int and -1 <= row < 1 << 63 and store.moment_of(since) is not None
    return Mark(since, row) if sound else Mark()


def gather(
    connection: sqlite3.Connection, statements: Sections, sources: Sources, mark: Mark, bound: Bound
) -> tuple[dict[str, Any], Mark]:
    """The digest since ``mark``, and where the next one starts.

    The digest is ``{"at", "since", "new", "marked", "odd", "classes", "facts", "left"}``: when it was made and from
    when on; how many facts are new, and how many of them not from a person; how many of all facts have no date of
    creation that can be so; new facts by class; the facts that are shown, what is not from a person
    first; how many are not.
    """
    state = reading.one_row(connection, statements["state"])
    since = mark.since or connection.execute("SELECT datetime(?, '-1 day')", (state["now"],)).fetchone()[0]
    last = -1 if state["last"] is None else state["last"]
    has_origin = "origin" in store.columns_of(connection)
    classes = dict.fromkeys(store.CLASSES, 0)
    marked: list[dict[str, Any]] = []
    plain: list[dict[str, Any]] = []
    for row in connection.execute(statements["listed"][0], {"row": mark.row, "since": since, "last": last}):
        name, subject, fact, source, origin, created = row
        if not has_origin:
            origin = store.origins(connection, [name])[name]
        kind = sources.class_of(source, origin)
        classes[kind] += 1
        chosen = plain if kind == "person" else marked
        if len(chosen) < bound.facts:
            chosen.append(
                {
                    "id": shown.text(name, shown.ID),
                    "subject": shown.text(subject, 100),
                    "fact": shown.text(fact, 500),
                    "source": shown.text(source, 200),
                    "class": kind,
                    "created_at": store.printable(created, 30),
                }
            )
    (odd,) = connection.execute(*statements["odd"]).fetchone()
    facts, new = fitting([*marked, *plain], bound), sum(classes.values())
    digest = {
        "at": job.now(),
        "since": since,
        "new": new,
        "marked": new - classes["person"],
        "odd": odd,
        "classes": {kind: count for kind, count in classes.items() if count},
        "facts": facts,
        "left": new - len(facts),
    }
    return digest, Mark(state["now"], last)


def since(connection: sqlite3.Connection, sql: str, moment: str) -> dict[str, Any]:
    """The digest from a date on (as the store has them), of which more is shown than of a nightly one.

    sql: the directory of the store's SQL files. Raises JobError, OSError, StoreError, sqlite3.Error.
    """
    statements = sections.read_sections(os.path.join(sql, "digest.sql"), SECTIONS)
    digest, _ = gather(connection, statements, store.read_sources(), Mark(moment), Bound(500, 1_000_000))
    return digest


def fitting(facts: list[dict[str, Any]], bound: Bound) -> list[dict[str, Any]]:
    """As many of the facts, from the first on, as may be shown."""
    kept, room = [], bound.size
    for fact in facts[: bound.facts]:
        room -= len(json.dumps(fact))
        if room < 0:
            break
        kept.append(fact)
    return kept


def line(digest: Mapping[str, Any], waiting: int) -> str:
    """What the journal gets: counts and ids."""
    words = f"{digest['new']} new since {digest['since']} UTC"
    if digest["new"]:
        names = [shown.name(fact) for fact in digest["facts"][:NAMED]]
        more = digest["new"] - len(names)
        words += f", {digest['marked']} not from a person: {', '.join(names)}" + (f" and {more} more" if more else "")
    if digest["odd"]:
        words += f"; {digest['odd']} with no real date of creation"
    return f"{words}; {waiting} wait for review"


def keep(state: str, digest: dict[str, Any]) -> None:
    """Add a digest to those that are kept. Raises OSError."""
    job.append_lines(state, KEPT_IN, [digest], KEPT, 0o600)


def make(arguments: argparse.Namespace, watch: reading.Watch) -> job.Outcome:
    """The digest and the figures. Raises JobError, sqlite3.Error, StoreError, OSError."""
    statements, mark = read_sql(arguments.sql), read_mark(arguments.state)
    sources = store.read_sources()
    with reading.opened(arguments.store, watch) as connection:
        digest, after = gather(connection, statements, sources, mark, Bound())
        if digest["new"]:
            keep(arguments.state, {**digest, "invocation": os.environ.get("INVOCATION_ID", "")})
        # Only now: what a killed run had listed comes again.
        text = json.dumps({"since": after.since, "row": after.row}) + "\n"
        job.replace_file(os.path.join(arguments.state, "digest.json"), text, 0o600)
        prune.prepare(connection, statements)
        counts = {key: digest[key] for key in ("new", "marked", "odd")}
        counts |= {**vitals.dead(connection), **vitals.look(connection, statements, sources)}
    return job.Outcome(line(digest, counts["waiting"]), counts)


def read_sql(directory: str) -> Sections:
    """The sections of all the store's SQL files that are needed. Raises JobError, OSError."""
    wanted = {"prune": prune.SECTIONS, "digest": SECTIONS, "health": vitals.SECTIONS, "review": vitals.WAITING}
    found: Sections = {}
    for name, some in wanted.items():
        found |= sections.read_sections(os.path.join(directory, f"{name}.sql"), some)
    return found


def count(arguments: argparse.Namespace) -> int:
    """Print the prune's counts and the figures as JSON, made now; nothing is changed."""
    try:
        statements = read_sql(arguments.sql)
        with reading.opened(arguments.store, reading.Watch(None, time.monotonic() + reading.DEADLINE)) as connection:
            facts = prune.prepare(connection, statements)
            counts = prune.make_forecast(connection, statements, facts["doomed"])
            health = {**vitals.dead(connection), **vitals.look(connection, statements, store.read_sources())}
    except (sqlite3.Error, job.JobError, store.StoreError, OSError) as error:
        failure = prune.make_failure(error)
        job.say(f"digest: {failure}", error=True)
        return failure.exit_code
    print(json.dumps({"counts": counts, "health": health}))
    return job.DONE


def main() -> int:
    """Read the command line, run, return the exit code."""
    parser = argparse.ArgumentParser(description="List the new facts of a memory store, and count how it is.")
    parser.add_argument("--store", required=True, help="the database")
    parser.add_argument("--sql", required=True, help="the directory of the store's SQL files")
    parser.add_argument("--state", help="the directory for run records and digests")
    parser.add_argument("--count", action="store_true", help="list nothing: print the figures as JSON")
    arguments = parser.parse_args()
    if arguments.count:
        return count(arguments)
    if arguments.state is None:
        parser.error("--state is needed")
    return job.run("digest", arguments.state, lambda: reading.in_time(lambda watch: make(arguments, watch)))


if __name__ == "__main__":
    sys.exit(main())
