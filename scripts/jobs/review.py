"""Remind of the review: how many facts wait, and which are next; memory-review.timer starts it every week.

The journal gets ids and counts only. The facts themselves are in ``review.json`` in the state directory, 0600, for the
mail; escaped for a terminal, and without what looks like a credential. Nothing is decided here, and nothing changed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import health
import store

import job
import note_month
import reading
import reviewing
import rows
import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

DAYS: Final = 90
"""Age of a confirmation from which on a fact waits."""

LIMIT: Final = 20
"""Facts of one week."""


def kept(fact: Mapping[str, Any]) -> dict[str, Any]:
    """A fact of the queue as it is kept for the mail."""
    return {
        "id": shown.text(fact["id"], shown.ID),
        "subject": shown.text(fact["subject"], 100),
        "fact": shown.text(fact["fact"], 500),
        "source": shown.text(fact["source"], 200),
        "class": fact["class"],
        "confirmed_at": store.printable(fact["confirmed_at"], 30),
        "age": fact["age"],
    }


def line(queue: Mapping[str, Any], name: str) -> str:
    """What the journal gets: counts and ids."""
    if not queue["waiting"]:
        return f"none of {queue['live']} live facts waits for review"
    names = ", ".join(map(shown.name, queue["facts"]))
    command = f"memops review{health.name_option(name)}"
    return f"{queue['waiting']} of {queue['live']} live facts wait for review ({command}); the next: {names}"


def remind(arguments: argparse.Namespace, watch: reading.Watch) -> job.Outcome:
    """One run of the service. Raises JobError, sqlite3.Error, StoreError, OSError."""
    with reading.opened(arguments.store, watch) as connection:
        queue = reviewing.queue(rows.Reader(connection), f"{arguments.sql}/review.sql", DAYS, LIMIT, unused=False)
    counts = {key: queue[key] for key in ("waiting", "live")}
    lines, noted = note_month.look(arguments.state, [(seen, place) for seen, place in arguments.notes])
    if noted:
        job.say(f"review: {note_month.line(noted)}")
    found = {
        "at": job.now(),
        "invocation": os.environ.get("INVOCATION_ID", ""),
        **counts,
        "facts": [kept(fact) for fact in queue["facts"]],
        "notes": lines,
    }
    path = os.path.join(arguments.state, "review.json")
    job.replace_file(path, json.dumps(found, ensure_ascii=False) + "\n", 0o600)
    return job.Outcome(line(queue, arguments.name), counts | noted)


def main() -> int:
    """Read the command line, run, return the exit code."""
    parser = argparse.ArgumentParser(description="Remind of the facts that wait for a review.")
    parser.add_argument("--name", required=True, help="the store's name")
    parser.add_argument("--store", required=True, help="the database")
    parser.add_argument("--sql", required=True, help="the directory of the store's SQL files")
    parser.add_argument("--state", required=True, help="the directory for run records and the queue")
    parser.add_argument(
        "--notes", nargs=2, action="append", default=[], metavar=("SEEN", "PATH"), help="notes, once a month"
    )
    arguments = parser.parse_args()
    return job.run("review", arguments.state, lambda: reading.in_time(lambda watch: remind(arguments, watch)))


if __name__ == "__main__":
    sys.exit(main())
