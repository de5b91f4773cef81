"""What is wrong about a store: the judgement that ``status``, ``check`` and the metrics job share.

One file of the standard library; pure. A store is what ``survey.look`` returns; docs/status.md has each key.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

OK, WARNING, CRITICAL, UNKNOWN = range(4)
"""The states of a store, numbered as Nagios does."""

FINE = ("done", "report", "stopped", "running", "never ran", "not read")
"""Results of a job that are no failure."""

OLD_SET = 48 * 3600
"""Seconds after which the newest verified set is too old for a scheduled prune, and in general where its timer's period
is not known."""


def problems(status: Mapping[str, Any], *, rows: bool = True) -> list[dict[str, str]]:
    """What is wrong, worst first: ``level`` (error, warning), ``what`` is so and what to ``type``. Pure.

    rows: also what is wrong with the rows, which are the agent's, and which not everybody may count.
    """
    found = [
        *_script_problems(status),
        *_job_problems(status),
        *_timer_problems(status),
        *_set_problems(status),
        *_restore_problems(status),
        *_pause_problems(status),
        *_suspicions(status),
        *_alarm_problems(status),
    ]
    found += _store_problems(status) if rows else ()
    return [
        {"level": level, "what": what, "type": to_type}
        for level, what, to_type in sorted(found, key=lambda problem: problem[0] != "error")
    ]


WAL_MOST, WAL_LEAST = 64 << 20, 4 << 20
"""Bytes that may wait in a -wal: never more than the first; the second always, however small the store."""

Problems = Iterator[tuple[str, str, str]]


def name_option(name: str) -> str:
    """What a command needs to mean the store ``name`` and no other one."""
    return "" if name == "default" else f" --name {name}"


def _unit_problems(unit: Mapping[str, Any]) -> Problems:
    if unit["loaded"] == "masked":
        yield "error", f"{unit['unit']} is masked", f"sudo systemctl unmask {unit['unit']}"
    elif unit["loaded"] != "loaded":
        yield "error", f"{unit['unit']} is {unit['loaded']}", "sudo memops install"
    if unit["reload_needed"]:
        yield "warning", f"{unit['unit']} or a drop-in of it changed on disk", "sudo systemctl daemon-reload"


def _job_problems(status: Mapping[str, Any]) -> Problems:
    for job in status["jobs"]:
        if _not_yet(job):
            what = f"there is no {job['job']} yet: the units are of an earlier version of memops"
            yield "warning", what, "sudo memops install"
            continue
        yield from _unit_problems(job)
        worst = "warning" if job["job"] in _MILD else "error"
        due = job["due"]
        if job["job"] == "backup" and job["result"] == "guard" and status["loss"]:
            continue  # the set is good, and what held is told with the sets
        if job["loaded"] == "loaded" and job["result"] not in FINE:
            what = f"{job['job']} failed: {job['message'] or 'it left no word'}"
            if job["job"] in _GOOD and job["good"] and due and due["age"] is not None:
                what += f"; the last good one was {span(due['age'])} ago"
            yield worst, what, f"journalctl -u {job['unit']}"
        elif due and due["state"] in _DUE:
            level, words = _DUE[due["state"]]
            what = f"{job['job']} {words.format(since='has not run for', age=span(due['age']), old='')}"
            yield min(level, worst, key=_LEVELS.index), what, f"systemctl status {job['unit']}"


_LEVELS = ("warning", "error")

_MILD = ("offsite", "digest", "review")
"""Jobs without which the memory is still pruned, and safe on this machine."""

_GOOD = ("drill", "offsite")
"""Jobs whose ``due`` counts from the last good run."""


_LATER = ("drill", "digest", "review")
"""Jobs that installations of earlier versions do not have."""


def _not_yet(unit: Mapping[str, Any]) -> bool:
    """Whether it is a unit that the version which was installed did not have."""
    return unit["loaded"] == "not-found" and str(unit["unit"]).startswith(tuple(f"memory-{job}" for job in _LATER))


def _timer_problems(status: Mapping[str, Any]) -> Problems:
    loaded = {job["unit"] for job in status["jobs"] if job["loaded"] == "loaded"}
    # While the job runs its timer has no next time yet.
    running = {job["unit"].removesuffix(".service") for job in status["jobs"] if job["result"] == "running"}
    for timer in status["timers"]:
        unit = timer["unit"]
        if not _not_yet(timer) or unit.replace(".timer", ".service") in loaded:
            yield from _unit_problems(timer)
        if timer["loaded"] != "loaded":
            continue
        if timer["active"] == "failed":
            yield "error", f"{unit} failed: systemd could not start what it starts", f"systemctl status {unit}"
        elif timer["enabled"] != "enabled" or timer["active"] != "active":
            yield (
                "warning",
                f"{unit} is {timer['enabled']} and {timer['active']}",
                f"sudo systemctl enable --now {unit}",
            )
        elif timer["next"] is None and unit.removesuffix(".timer") not in running:
            yield "error", f"{unit} has no next run", f"sudo systemctl restart {unit}"


def _set_problems(status: Mapping[str, Any]) -> Problems:
    start = "sudo systemctl start " + next(str(job["unit"]) for job in status["jobs"] if job["job"] == "backup")
    newest = status["newest_set"]
    if newest is None:
        if not sets_unseen(status):
            yield "error", "there is no verified backup", start
    elif newest.get("gone"):
        yield "error", f"the newest verified backup, {newest['set']}, is not there any more", start
    elif (due := newest.get("due", {})).get("state") in _DUE:
        level, words = _DUE[due["state"]]
        what = f"the newest verified backup {words.format(since='is', age=span(due['age']), old=' old')}"
        yield level, what, start
    elif due.get("late") is None and (newest["age"] is None or newest["age"] > OLD_SET):
        yield "warning", "the newest verified backup is older than two days", start


def _pause_problems(status: Mapping[str, Any]) -> Problems:
    if status["agent_paused"]:
        backup = next(str(job["unit"]) for job in status["jobs"] if job["job"] == "backup")
        what = "the agent is stopped for a copy, and none is under way"
        yield "error", what, f"sudo systemctl stop {backup.replace('backup', 'pause', 1)}"


def _restore_problems(status: Mapping[str, Any]) -> Problems:
    if status["restore_unfinished"]:
        what = "a restore has not come to its end: it was interrupted, unless one is running now"
        yield "error", what, f"sudo memops restore --undo{name_option(status['name'])}"


def _suspicions(status: Mapping[str, Any]) -> Problems:
    """Sets that somebody should look at: those that failed a later verification, and one that lost much."""
    name = name_option(status["name"])
    for failed in status["failed_sets"]:
        message = failed["message"] or "it left no word"
        what = f"the backup {failed['set']} did not pass its verification: {message}; only you may remove it"
        yield "error", what, f"sudo memops sets verify {shlex.quote(failed['set'])}{name}"
    if loss := status["loss"]:
        what = (
            f"old backups are kept for now, since the newest holds much less than {loss['set']}"
            f" ({_held(loss['rows'])}); is that right?"
        )
        yield "error", what, f"sudo memops backup --accept-loss{name}"


def _held(rows: object) -> str:
    if not isinstance(rows, Mapping):
        return f"{rows} rows"
    return ", ".join(f"{part}: {count}" for part, count in sorted(rows.items()))


def _script_problems(status: Mapping[str, Any]) -> Problems:
    for path in status["missing_scripts"]:
        yield "error", f"{path} is missing, so the next run will fail", "sudo memops install"


def _alarm_problems(status: Mapping[str, Any]) -> Problems:
    for unit in status["failed_alarms"]:
        yield "warning", f"{unit} failed, so an alarm did not get through", f"journalctl -u {shlex.quote(unit)}"


def sets_unseen(status: Mapping[str, Any]) -> bool:
    """Whether root's record of the sets could not be read, so that nothing is known of the sets."""
    return any(f"/{status['name']}.sets.json (" in what for what in status["unreadable"])


def state(status: Mapping[str, Any]) -> int:
    """OK, WARNING, CRITICAL or UNKNOWN, from what everybody may see (so not from the rows)."""
    levels = {problem["level"] for problem in problems(status, rows=False)}
    if "error" in levels:
        return CRITICAL
    return UNKNOWN if sets_unseen(status) else WARNING if levels else OK


_DUE = {
    "late": ("warning", "{since} {age}{old} and is late"),
    "overdue": ("error", "{since} {age}{old}, more than twice its period"),
    "future": ("warning", "carries a time {age} from now; is the clock right?"),
}
"""What a ``due`` that is not as it should be comes to: level and words."""


def _store_problems(status: Mapping[str, Any]) -> Problems:
    counts = status["counts"] or {}
    if counts.get("violations"):
        check = f"sqlite3 {shlex.quote(status['db'])} 'PRAGMA foreign_key_check'"
        yield "warning", f"{counts['violations']} foreign-key violations", check
    if counts.get("doubtful"):
        what = f"{counts['doubtful']} rows are kept because a date or a chain is doubtful"
        yield "warning", what, "sudo memops prune --dry-run"
    if what := wal_problem(counts):
        yield "warning", what, f"sudo fuser -v {shlex.quote(status['db'])}"


def wal_problem(counts: Mapping[str, Any]) -> str:
    """What is wrong with how much waits in the -wal, by the counts of a prune; empty where nothing is."""
    waiting, size = counts.get("wal_waiting", 0), counts.get("bytes", 0)
    if waiting <= WAL_MOST and (waiting <= WAL_LEAST or waiting <= size):
        return ""
    return f"{waiting / 1e6:,.1f} MB wait in the -wal, which grows: somebody reads the store, and does not end"


def span(seconds: int) -> str:
    """A length of time, whatever its sign, in words: ``5 minutes``, ``30 hours``, ``3 days``."""
    length = abs(seconds)
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if length >= 2 * size:
            return f"{length // size} {unit}"
    return f"{length} seconds"
