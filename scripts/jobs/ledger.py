"""The prune of a store that another program keeps: what has ended is deleted by the product itself.

The hand lists what the product holds, the ledger is brought in line with it, prune.sql says what of it is dead, the
hand deletes that, and the list is asked for once more: only what the product has no more leaves the ledger. At the
level observe nothing is deleted; what has ended is said.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import desk
import full_text
import gate
import guard
import handing
import job
import prune
import reading
import reconcile
import verdicts
import wal
from sections import read_sections

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MODES: Final = (*guard.PRUNE_MODES, "sync")
"""What root may ask of a run: also to bring the ledger in line, and no more."""

TOGETHER: Final = 200
"""Memories that are deleted with one question: a product takes seconds to start."""

ASKED: Final = 270.0
"""Seconds for an answer of the hand's while somebody waits."""

SHOWN: Final = 3
"""Reasons and places that a line names."""

OBSERVED: Final = "files that people and agents write are theirs to change"


@dataclass
class Outcome:
    """What became of a deletion: ``left`` id → why it is still there, ``remains`` id → where its text still lies, and
    ``failure`` where the hand did not get to its end.
    """

    left: dict[str, str] = field(default_factory=dict)
    remains: dict[str, list[str]] = field(default_factory=dict)
    failure: handing.HandError | None = None

    @property
    def stopped(self) -> bool:
        """Whether it was told to stop."""
        return self.failure is not None and self.failure.why == "stopped"


@dataclass
class Ledger:
    """An open ledger, and the hand on the product."""

    connection: sqlite3.Connection
    hand: handing.Hand
    watch: reading.Watch

    def sync(self, *, allow_large: bool = False) -> tuple[handing.Listing, reconcile.Change]:
        """Ask the product what it holds, and make the ledger say so. Raises JobError."""
        listing = self.hand.listing()
        self.watch.until = time.monotonic() + reading.DEADLINE
        now = str(self.connection.execute("SELECT datetime('now')").fetchone()[0])
        return listing, reconcile.reconcile(self.connection, listing, now, allow_large=allow_large)

    def delete(self, pieces: Iterable[Sequence[str]]) -> Outcome:
        """Delete memories in the product, piece by piece; what it lists afterwards is believed, and not what it says.

        Raises HandError when it cannot be asked what is left.
        """
        done = Outcome()
        asked: list[str] = []
        for ids in pieces:
            asked += ids
            try:
                found = self.hand.delete(ids)
            except handing.HandError as error:
                done.failure = error
                break
            done.left |= found.left
            done.remains |= found.remains
        if not asked or done.stopped:
            return done
        try:
            # Also after a failure: some may be gone, and the ledger is to say so.
            there = self.sync(allow_large=True)[0].memories
        except handing.HandError as error:
            raise done.failure or error from None
        why = done.failure.sentence if done.failure else "the product lists it still"
        done.left = {name: done.left.get(name, why) for name in asked if name in there}
        done.remains = {name: where for name, where in done.remains.items() if name not in there}
        return done


def work(ledger: Ledger, arguments: argparse.Namespace, mode: str) -> job.Outcome:
    """Reconcile, list, ask the guard, delete, look again. Raises JobError and sqlite3.Error."""
    clock = time.monotonic()
    sections = read_sections(arguments.sql, prune.SECTIONS)
    _, change = ledger.sync(allow_large=mode == "allow-large")
    facts = prune.prepare(ledger.connection, sections)
    doomed = facts["doomed"]
    words = f"{facts['rows']:,} memories" + (f" ({said})" if (said := change.words()) else "")
    if mode == "sync":
        return job.Outcome(words, prune.make_forecast(ledger.connection, sections, doomed), "report")
    objection = guard.make_objection(facts, guard.last_run(arguments.state))
    if mode == "report":
        held = f"; the guard would hold: {objection}" if objection else ""
        what = "are past their end" if arguments.level == "observe" else f"of {facts['rows']} would be deleted"
        forecast = prune.make_forecast(ledger.connection, sections, doomed)
        return job.Outcome(f"{words}; {doomed} {what}{held}", forecast, mode)
    if arguments.level == "observe":
        counts = prune.take_counts(ledger.connection, sections, doomed) | wal.measure(ledger.connection)
        del counts["refused"]
        ended = f"; {doomed} past their end, not deleted: {OBSERVED}" if doomed else ""
        return job.Outcome(words + ended, counts)
    if objection and mode != "allow-large":
        forecast = prune.make_forecast(ledger.connection, sections, doomed)
        advice = "If that is right: memops prune --allow-large"
        raise job.JobError(f"nothing deleted: {objection}. {advice}", job.GUARD, forecast)
    with job.Progress("prune", arguments.state, doomed) as progress:
        done = ledger.delete(_pieces(ledger, doomed, progress))
    ledger.watch.until = time.monotonic() + reading.DEADLINE
    full_text.settle(ledger.connection, lambda: time.monotonic() < ledger.watch.until)
    counts = prune.take_counts(ledger.connection, sections, doomed) | wal.measure(ledger.connection)
    line = f"{words}; {counts['expired']} expired and deleted in the product{_named(done.remains)}"
    line += f"; {counts['rows']:,} rows, {counts['live']:,} live, {time.monotonic() - clock:.1f} s"
    if done.stopped:
        return job.Outcome(f"told to stop with {counts['dead']} dead memories left; {line}", counts, "stopped")
    if done.failure:
        raise job.JobError(f"{done.failure}; {line}", job.FAILED, counts)
    if done.left:
        raise job.JobError(f"not deleted: {_reasons(done.left)}; {line}", job.FAILED, counts)
    if counts["dead"]:
        # Renewed meanwhile, or held by a trigger of the ledger's.
        line += f"; {counts['dead']} left as they are"
    return job.Outcome(line, counts)


def _pieces(ledger: Ledger, doomed: int, progress: job.Progress) -> Iterator[list[str]]:
    """The ids of the doomed, in pieces: those that are still as they were listed when their turn comes."""
    for first in range(1, doomed + 1, TOGETHER):
        ids = [str(row[0]) for row in ledger.connection.execute(_STILL, (first, first + TOGETHER - 1))]
        if ids:
            yield ids
        progress.at(min(first + TOGETHER - 1, doomed))


_STILL: Final = (
    "SELECT m.id FROM doomed AS d JOIN main.memory AS m ON m.rowid = d.row AND m.id IS d.id"
    " WHERE d.n BETWEEN ? AND ? AND (m.superseded_by, m.expires_at) IS (d.superseded_by, d.expires_at)"
)
"""Of a range of the doomed, those that are as they were listed: nobody renewed them meanwhile."""


def _named(remains: dict[str, list[str]]) -> str:
    """Where the text of what was deleted still lies: ``; their text remains in history (2)``."""
    places: dict[str, int] = {}
    for where in remains.values():
        for place in {each.partition(":")[0] for each in where}:
            places[place] = places.get(place, 0) + 1
    named = ", ".join(f"{place} ({number})" for place, number in sorted(places.items())[: 2 * SHOWN])
    return f"; their text remains in {named}" if named else ""


def _reasons(left: dict[str, str]) -> str:
    """Why memories are left, each reason with one of them: ``a (mem0 still has it) and 2 more``."""
    first: dict[str, str] = {}
    for name, why in left.items():
        first.setdefault(why, name)
    shown = [f"{store.printable(name, 40)} ({why})" for why, name in list(first.items())[:SHOWN]]
    return ", ".join(shown) + (f" and {len(left) - len(shown):,} more" if len(left) > len(shown) else "")


@contextlib.contextmanager
def opened(arguments: argparse.Namespace, stop: job.Stop) -> Iterator[Ledger]:
    """The ledger and the hand. Raises sqlite3.Error, StoreError."""
    watch = reading.Watch(None, time.monotonic() + reading.DEADLINE)
    hand = handing.Hand(
        arguments.hand, arguments.python, read_config(arguments.config), lambda: bool(stop), store=arguments.name,
    )  # fmt: skip
    with contextlib.closing(store.connect(arguments.store, timeout=reading.WAIT_SECONDS)) as connection:
        connection.text_factory = lambda text: text.decode(errors="backslashreplace")
        connection.set_progress_handler(watch, 10_000)
        yield Ledger(connection, hand, watch)


def read_config(path: str) -> dict[str, str]:
    """What a hand is told of where its store is."""
    with open(path, encoding="utf-8") as file:
        return {str(key): str(value) for key, value in json.load(file).items()}


def run(arguments: argparse.Namespace) -> job.Outcome:
    """One run of the service."""
    stop = job.Stop()
    objection = arguments.sets_record and gate.make_objection(arguments.sets_record, time.time())
    if objection and job.scheduled("prune", arguments.state):
        raise job.JobError(f"nothing deleted: {objection}. {gate.advice(arguments.sets_record)}", job.NO_BACKUP)
    mode = guard.read_mode(arguments.mode_file, time.time(), MODES)
    try:
        with opened(arguments, stop) as ledger:
            outcome = work(ledger, arguments, mode)
    except handing.HandError as error:
        if error.why == "stopped":
            return job.Outcome("told to stop before anything was deleted", {}, "stopped")
        raise
    except sqlite3.Error as error:
        raise prune.make_failure(error) from error
    if objection:
        outcome.message += f"; {objection}"
    return outcome


class LedgerDesk(desk.Desk):
    """The desk where what is forgotten goes through the hand."""

    ledger: Ledger
    level = "ledger"

    def forget(self, ids: list[str], only: bool, token: str | None, by: str, terminal: bool) -> dict[str, Any]:
        """Delete memories in the product; what is ``gone``."""
        self._require_level()
        self._reader.named(ids)
        verdicts.require_same(verdicts.going(self._reader, ids, only=only), token)
        remains = self._through_the_hand(ids, by, terminal=terminal)
        return {"gone": list(dict.fromkeys(ids)), "back": [], "remains": remains}

    def forget_all(
        self, subject: str | None, user: str | None, token: str | None, by: str, terminal: bool
    ) -> dict[str, Any]:
        """Delete all memories of a subject that were shown as going; the ``count``."""
        self._require_level()
        where, values = self._all_of(subject, user)
        ids = [str(row[0]) for row in self._connection.execute(f"SELECT id FROM memory WHERE {where}", values)]
        verdicts.require_same(verdicts.going(self._reader, ids, only=False), token)
        return {"count": len(ids), "remains": self._through_the_hand(ids, by, terminal=terminal)}

    def apply(
        self, given: list[dict[str, Any]], by: str, terminal: bool, rehearse: bool = False
    ) -> list[dict[str, Any]]:
        """Carry out verdicts: first all are tried, then memories are deleted in the product, then the rest is done."""
        forgets = [number for number, each in enumerate(given) if each["verdict"] == "forget"]
        if forgets:
            self._require_level()
        if rehearse or not forgets:
            return super().apply(given, by, terminal, rehearse)
        tried = super().apply(given, by, terminal, rehearse=True)
        self._through_the_hand([name for number in forgets for name in tried[number]["gone"]], by, terminal=terminal)
        rest = iter(super().apply([each for each in given if each["verdict"] != "forget"], by, terminal))
        return [tried[number] if number in forgets else next(rest) for number in range(len(given))]

    def _require_level(self) -> None:
        if self.level == "observe":
            raise store.Refused(f"nothing is deleted here: {OBSERVED}", "Delete it there; the next prune sees that")

    def _through_the_hand(self, ids: list[str], by: str, *, terminal: bool) -> dict[str, list[str]]:
        """Delete memories; id → where its text still lies."""
        done = self.ledger.delete([ids])
        gone = [name for name in ids if not store.is_there(self._connection, name)]
        self._forgotten(gone, gone, by, terminal=terminal)
        if done.failure:
            raise done.failure
        if done.left:
            raise job.JobError(f"{len(done.left)} of {len(ids)} not deleted: {_reasons(done.left)}")
        return done.remains


def answer(arguments: argparse.Namespace, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request, as desk.py gives it."""
    watch = reading.Watch(None, time.monotonic() + reading.DEADLINE)
    config = read_config(arguments.config)
    # Whoever asked waits no longer than for both questions.
    hand = handing.Hand(arguments.hand, arguments.python, config, seconds=ASKED, store=arguments.name)

    def make(connection: sqlite3.Connection, state: str, sql: str) -> desk.Desk:
        connection.set_progress_handler(watch, 10_000)
        made = LedgerDesk(connection, state, sql, adopted=True)
        made.ledger, made.level = Ledger(connection, hand, watch), arguments.level
        return made

    return desk.answer(arguments.store, arguments.state, os.path.dirname(arguments.sql), request, make)


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, run, return the exit code."""
    parser = argparse.ArgumentParser(description="Prune a memory store through the product that keeps it.")
    for name, what in (
        ("store", "the ledger"),
        ("name", "the store's name"),
        ("sql", "prune.sql, as rendered for this store"),
        ("state", "the directory for run records"),
        ("hand", "the program of hands/ that speaks to the product"),
        ("python", "what it runs with"),
    ):
        parser.add_argument(f"--{name}", required=True, help=what)
    parser.add_argument("--level", required=True, choices=("ledger", "observe"), help="whether anything is deleted")
    parser.add_argument("--config", required=True, metavar="FILE", help="the hand's configuration")
    parser.add_argument("--mode-file", help="where root may ask for a report only, a large run or no prune")
    parser.add_argument("--sets-record", help="root's record of the sets: a timer's run wants a new backup in it")
    parser.add_argument("--request", action="store_true", help="answer one request on standard input, as desk.py does")
    arguments = parser.parse_args(argv)
    if arguments.request:
        print(json.dumps(answer(arguments, json.loads(sys.stdin.buffer.read(desk.LARGEST)))), flush=True)
        return job.DONE
    return job.run("prune", arguments.state, lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
