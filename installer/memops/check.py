"""``memops check``: one line for a monitoring system, by the rules for Nagios plugins.

See https://www.monitoring-plugins.org/doc/guidelines.html. It needs no rights: what it judges can be seen by everybody.
"""

from __future__ import annotations

import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

from memops import exposition, health, host, status
from memops.errors import MemopsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memops.settings import Store

WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
WORST_FIRST = (health.CRITICAL, health.UNKNOWN, health.WARNING, health.OK)
SHOWN = 3
"""Problems of one store that the line names; the others it counts."""

Judged = tuple["Mapping[str, Any]", int]


class Verdict(SystemExit):
    """The end of a check, with its state as the exit code; no other exit of the command has that meaning."""


def run(stores: Sequence[Store], textfile: str | None = None) -> NoReturn:
    """Look at the stores, write ``textfile`` when given, print the line and exit with the worst state.

    Raises MemopsError when nothing could be looked at.
    """
    if textfile is not None and not textfile.endswith(".prom"):
        raise UsageError(
            f"{textfile} does not end in .prom, and node_exporter reads only what does.",
            "Type for example: memops check --prometheus memops.prom",
        )
    try:
        judged = [judge(status.look(store, time.time())) for store in stores]
    except MemopsError:
        write(textfile, exposition.text([], up=False))
        raise
    write(textfile, exposition.text(judged))
    print(line(judged))
    raise Verdict(worst(judged))


def judge(found: Mapping[str, Any]) -> Judged:
    """What was found of a store, with its problems, and its state."""
    return {**found, "problems": health.problems(found, rows=False)}, health.state(found)


def write(textfile: str | None, text: str) -> None:
    """Put the figures in place. Raises MemopsError when that fails."""
    if textfile is None:
        return
    try:
        host.write(textfile, text)
    except OSError as error:
        raise MemopsError(f"{textfile} cannot be written: {error.strerror}.") from error


def unknown(error: BaseException) -> int:
    """Say in the one line that nothing could be found out, and return the exit code for that."""
    if isinstance(error, MemopsError):
        said = f"{error.message} {error.hint}"
    elif isinstance(error, SystemExit):
        said = "wrong usage. See: memops check --help"
    else:
        traceback.print_exception(error)
        said = f"{type(error).__name__} in memops itself"
    print(f"MEMOPS {WORDS[health.UNKNOWN]} - {_plain(said)}")
    sys.stdout.flush()
    return health.UNKNOWN


def worst(judged: Sequence[Judged]) -> int:
    """The worst state of all."""
    return min((state for _, state in judged), key=WORST_FIRST.index)


def line(judged: Sequence[Judged]) -> str:
    """The line: the worst state, each store's words, the worst store first, and the performance data. Pure."""
    ordered = sorted(judged, key=lambda one: WORST_FIRST.index(one[1]))
    words = "; ".join(_words(store, state) for store, state in ordered)
    data = " ".join(part for store, _ in judged for part in _performance(store, several=len(judged) > 1))
    return f"MEMOPS {WORDS[worst(judged)]} - {_plain(words)} | {data}"


def _words(store: Mapping[str, Any], state: int) -> str:
    whats = [problem["what"] for problem in store["problems"]]
    if health.sets_unseen(store):
        whats += [f"cannot read {what}" for what in store["unreadable"] if ".sets.json" in what]
    if len(whats) > SHOWN:
        whats[SHOWN:] = [f"and {len(whats) - SHOWN} more"]
    if not whats:
        whats = [f"newest set {health.span(store['newest_set']['age'])} old"]
        whats += [_ran(job, store) for job in store["jobs"] if job["job"] in ("prune", "drill")]
    return f"{store['name']} {WORDS[state].lower()}: {', '.join(whats)}"


def _ran(job: Mapping[str, Any], store: Mapping[str, Any]) -> str:
    if job["result"] == "running":
        return f"{job['job']} is running"
    if job["age"] is not None:
        return f"{job['job']} {job['result']} {health.span(job['age'])} ago"
    timer = job["unit"].replace(".service", ".timer")
    # After a restart systemd no longer knows the run, only the time of it.
    was = any(each["last"] for each in store["timers"] if each["unit"] == timer)
    return f"{job['job']} started {health.span(job['due']['age'])} ago" if was else f"{job['job']} not due yet"


def _performance(store: Mapping[str, Any], *, several: bool) -> Iterator[str]:
    """Performance data: label=value[unit];[warning];[critical];[least]. An age may not be below 0, a future time."""
    prefix = f"{store['name']}_" if several else ""
    newest = store["newest_set"] or {}
    dues = {"set": newest.get("due"), **{job["job"]: job["due"] for job in store["jobs"]}}
    for label, due in dues.items():
        if due and due["age"] is not None:
            limits = ("" if due[key] is None else due[key] for key in ("late", "overdue"))
            yield f"{prefix}{label}_age={due['age']}s;{';'.join(map(str, limits))};0"
    for label, found, key, unit in (
        ("set_size", newest, "bytes", "B"),
        *((key, store["counts"] or {}, key, "") for key in ("rows", "live", "dead", "doubtful")),
    ):
        if isinstance(found.get(key), int):
            yield f"{prefix}{label}={found[key]}{unit};;;0"


def _plain(text: str) -> str:
    """One line without the sign that begins the performance data."""
    return " ".join(text.replace("|", "/").split())
