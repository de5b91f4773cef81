"""What every nightly job shares: exit codes, run records, progress, and being told to stop.

Standard library only; installed to /usr/local/lib/memops. A job prints one line for the journal and adds an object
to ``runs.jsonl`` in its state directory: version, job, start, end (UTC), seconds, result, exit, message, counts,
invocation, trigger. The newest ``KEEP`` objects are kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import sqlite3
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import records
from store import StoreError, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
LOCKED: Final = 5
GUARD: Final = 6
NO_BACKUP: Final = 8

STAMPS: Final = "/var/lib/systemd/timers"
"""Where systemd keeps when each Persistent= timer elapsed last."""

SYSTEMD: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
"""The environment in which a job asks systemd something."""

KEEP: Final = 600
"""Run records kept: about half a year of three jobs a night."""

RESULTS: Final = {
    DONE: "done",
    FAILED: "failed",
    USAGE: "usage",
    REFUSED: "refused",
    LOCKED: "locked",
    GUARD: "guard",
    NO_BACKUP: "no backup",
}
"""The word for each exit code in a run record, where the job gives no other."""


class JobError(Exception):
    """The job cannot go on: a sentence that says why, its exit code, and what was counted until then."""

    def __init__(self, message: str, exit_code: int = FAILED, counts: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.counts = counts or {}


class Outcome:
    """How a job ended: the line for the journal, what was counted, and a word where ``done`` does not say it."""

    def __init__(self, message: str, counts: dict[str, Any], result: str = "done") -> None:
        self.message = message
        self.counts = counts
        self.result = result


class Stop:
    """True once the job was told to stop (SIGTERM, SIGINT), which it looks at between two pieces of work."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: object) -> None:
        self._asked = True

    def __bool__(self) -> bool:
        return self._asked


def now() -> str:
    """This second in UTC, ``YYYY-MM-DDTHH:MM:SSZ``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def say(message: str, *, error: bool = False) -> None:
    """Print one line; in the journal an error has priority err."""
    in_journal = error and "JOURNAL_STREAM" in os.environ
    print(("<3>" if in_journal else "") + message, file=sys.stderr if error else sys.stdout, flush=True)


_NO_VALUE: Final = re.compile(
    "no such |no query solution|malformed database schema|database |disk I/O|attempt to write|unable to open|file is "
    "|(UNIQUE|CHECK|NOT NULL|FOREIGN KEY) constraint failed|unsafe use of|not authorized|interrupted|too many |string "
    "|out of memory|circularly defined|cannot |view |error in |vtable constructor failed|table .* may not be modified"
)
"""Messages of SQLite's that are made of names in the schema, and of nothing else."""


def said(error: sqlite3.Error | MemoryError) -> str:
    """SQLite's message as it may go to the journal: escaped, and without a value of the store's.

    It names tables and functions, which are the agent's text. But what a trigger raises, or a function complains of,
    can have a fact in it; of such an error only its name is told.
    """
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    plain = name != "SQLITE_CONSTRAINT_TRIGGER" and _NO_VALUE.match(str(error))
    return printable(error, 200) if plain else str(name)


def explain(error: sqlite3.Error) -> JobError:
    """SQLite's error in words a person can act on, with the exit code that goes with it."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return JobError("the agent held the write lock for longer than the job waits", LOCKED)
    meaning = {
        sqlite3.SQLITE_CANTOPEN: "the store is not there, or its directory cannot be written",
        sqlite3.SQLITE_READONLY: "the store or its directory is read-only, or files beside it belong to another user",
        sqlite3.SQLITE_FULL: "the disk is full",
        sqlite3.SQLITE_IOERR: "the disk could not be read or written",
        sqlite3.SQLITE_CORRUPT: "the store is damaged",
        sqlite3.SQLITE_NOTADB: "the file is not a SQLite database",
        sqlite3.SQLITE_CONSTRAINT: "a trigger or another rule of the store forbids it",
    }.get(code)
    words = said(error)
    return JobError(f"{meaning} (SQLite: {words})" if meaning else f"SQLite: {words}")


def run(name: str, state: str, work: Callable[[], Outcome]) -> int:
    """Do ``work`` and leave one line and one run record about it, whatever happens.

    name: the job's word in the record. state: the directory for runs.jsonl. Returns the exit code.
    """
    trigger = "timer" if scheduled(name, state) else "person"
    return run_recorded(name, work, lambda record: append_record(state, {**record, "trigger": trigger}))


def run_recorded(name: str, work: Callable[[], Outcome], keep: Callable[[dict[str, Any]], None]) -> int:
    """As ``run``, for a job with a record of its own: ``keep`` puts it where it belongs."""
    start, clock = now(), time.monotonic()
    try:
        outcome, code = work(), DONE
    except sqlite3.Error as error:
        failure = explain(error)
        outcome, code = Outcome(str(failure), {}, RESULTS[failure.exit_code]), failure.exit_code
    except JobError as error:
        outcome, code = Outcome(str(error), error.counts, RESULTS[error.exit_code]), error.exit_code
    except (StoreError, OSError) as error:
        outcome, code = Outcome(str(error), {}, RESULTS[FAILED]), FAILED
    record = {
        "version": 1,
        "job": name,
        "start": start,
        "end": now(),
        "seconds": round(time.monotonic() - clock, 3),
        "result": outcome.result,
        "exit": code,
        "message": outcome.message,
        "counts": outcome.counts,
        "invocation": os.environ.get("INVOCATION_ID", ""),
    }
    try:
        keep(record)
    except OSError as error:
        say(f"{name}: the run record could not be written: {error}", error=True)
        code = code or FAILED
    say(f"{name}: {outcome.message}", error=code != DONE)
    return code


def append_record(state: str, record: dict[str, Any]) -> None:
    """Add one record to runs.jsonl."""
    append_lines(state, "runs.jsonl", [record], KEEP)


def append_lines(state: str, name: str, added: Sequence[Mapping[str, Any]], keep: int, mode: int = 0o640) -> None:
    """Add objects to a file of JSON lines, and keep the newest ``keep``.

    The file is written anew and renamed, so that a reader never sees half of it.
    """
    with alone(state):
        lines = [json.dumps(r, ensure_ascii=True) for r in [*read_lines(state, name), *added]][-keep:]
        replace_file(os.path.join(state, name), "\n".join(lines) + "\n", mode)


@contextlib.contextmanager
def alone(directory: str, patience: float = 5) -> Iterator[None]:
    """Keep other jobs of the store from writing their record at the same time.

    Waits ``patience`` seconds at most: the directory is the agent's, who could hold the lock for ever.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + patience
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def read_records(state: str) -> list[dict[str, Any]]:
    """The run records, oldest first."""
    return read_lines(state, "runs.jsonl")


def read_lines(state: str, name: str) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines, in their order.

    What is no JSON object, or no plain file of a plausible size, is passed over: the agent owns the directory, and a
    record it spoilt must not keep a job from its work.
    """
    try:
        return records.objects(records.read(os.path.join(state, name)) or "")
    except records.NotAllowed:
        return []


def scheduled(name: str, state: str) -> bool:
    """Whether its timer started this run of the job ``name``, and not a person."""
    timer = os.environ.get("TRIGGER_UNIT", "")
    if not timer.endswith(".timer"):
        return False
    # Of a unit that a timer started once, systemd (252 to 257) says so at each later start too, until it reads its
    # units again. But the stamp that a timer leaves when it elapses is then from before the last run.
    try:
        elapsed = os.stat(f"{STAMPS}/stamp-{timer}").st_mtime
    except OSError:
        return True  # a timer that is not Persistent= leaves none
    return elapsed > _last_end(name, state) + 1


def _last_end(name: str, state: str) -> float:
    """When the last run of a job ended, in seconds since 1970; 0 where there is no record of it."""
    for record in reversed(read_records(state)):
        if record.get("job") == name:
            with contextlib.suppress(ValueError):
                end = datetime.strptime(str(record.get("end")), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
                if end <= time.time():
                    return end
    return 0.0


def replace_file(path: str, text: str, mode: int = 0o640) -> None:
    """Write ``text`` to ``path`` by way of a new file, synced and renamed into place."""
    temporary = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    os.rename(temporary, path)


class Progress:
    """``progress.json`` beside the run records: job, done, total, at. At most twice a second; gone at the end."""

    def __init__(self, name: str, state: str, total: int) -> None:
        self._name, self._total, self._last = name, total, float("-inf")
        self._path = os.path.join(state, "progress.json")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        for path in (self._path, f"{self._path}.new"):  # the second is of a run that was killed
            with contextlib.suppress(OSError):
                os.unlink(path)

    def at(self, done: int) -> None:
        """Note that ``done`` of ``total`` pieces are through. A full disk is no reason to fail here."""
        if time.monotonic() - self._last < 0.5:
            return
        self._last = time.monotonic()
        text = json.dumps({"job": self._name, "done": done, "total": self._total, "at": now(), "pid": os.getpid()})
        with contextlib.suppress(OSError):
            replace_file(self._path, text + "\n")
