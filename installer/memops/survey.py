"""How a store is, as data: what systemd and the jobs' records say of it.

One file of the standard library: ``status`` and ``check`` use it, and on a server the metrics job and the alarms, which
have it beside them. Programs are started by ``run``, which the caller gives: words in, output out. What the records say
is given, too, as ``records.read_files`` reads it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

Run = Callable[..., str]

JOBS = ("snapshot", "backup", "prune", "digest", "drill", "review")
TIMED = ("backup", "prune", "drill", "review")
FOLLOWS = {"offsite": "backup", "digest": "prune"}
"""Jobs without a timer of their own whose run is due when that of another one is."""

OPTIONAL = ("pause", "remote", "offsite")
"""Jobs that only some stores have: which, is asked of systemd. A pause leaves no record and is seen when it failed."""

ORDER = ("pause", "remote", "snapshot", "backup", "offsite", "prune", "digest", "drill", "review")
"""All of them, as a night goes and a week ends."""

SCRIPTS = {job: f"/usr/local/lib/memops/{'seal' if job == 'backup' else job}.py" for job in ORDER}
CLOCK = 300
"""Seconds that a time may lie ahead of the clock before it is called wrong."""

_PROPERTIES = (
    *("LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload", "DropInPaths", "Job"),
    *("Result", "ExecMainStatus", "ExecMainExitTimestamp", "InvocationID"),
    *(
        "NextElapseUSecRealtime",
        "TimersCalendar",
        "LastTriggerUSec",
        "LastTriggerUSecMonotonic",
        "ActiveEnterTimestamp",
    ),
)


def unit(name: str, job: str, kind: str = "service") -> str:
    """The name of a store's unit: ``unit("default", "prune")`` is memory-prune.service."""
    return f"memory-{job}{_suffix(name)}.{kind}"


def _suffix(name: str) -> str:
    return "" if name == "default" else f"-{name}"


class Files(Protocol):
    """What was read from the disk, see ``records.Files``."""

    @property
    def records(self) -> list[dict[str, Any]] | None:
        """The run records; None where they may not be read."""

    @property
    def sets(self) -> dict[str, Any] | None:
        """Root's record of the sets; None where there is none, or it may not be read."""

    @property
    def unreadable(self) -> tuple[str, ...]:
        """What could not be read, in words."""

    @property
    def restoring(self) -> bool:
        """Whether a restore has not come to its end."""

    def last(self, job: str) -> dict[str, Any]:
        """The record of a job's last run; empty where there is none."""

    def good(self, job: str) -> str | None:
        """When a job's last good run ended."""

    def known(self, job: str) -> bool:
        """Whether the place where a job leaves its record could be read."""


# What systemd says


def show(run: Run, units: Sequence[str], *properties: str) -> dict[str, dict[str, str]]:
    """Properties of units as systemd reports them now: unit → property → value; times are in UTC."""
    # systemctl writes times in the zone of its environment, and --timestamp= does not change all of them (252).
    out = run("env", "TZ=UTC", "systemctl", "show", "--no-pager", f"--property=Id,{','.join(properties)}", "--", *units)
    found: dict[str, dict[str, str]] = {}
    for block in out.split("\n\n"):
        pairs: dict[str, str] = {}
        for line in block.splitlines():
            key, _, value = line.partition("=")
            pairs[key] = f"{pairs[key]}\n{value}" if key in pairs else value
        if "Id" in pairs:
            found[pairs["Id"]] = pairs
    return found


def next_runs(run: Run, timers: Sequence[str]) -> dict[str, int]:
    """When each timer elapses next, as list-timers says: timer → µs since 1970. One without a next run is left out."""
    out = run("systemctl", "list-timers", "--all", "--output=json", "--no-pager", "--", *timers)
    return {row["unit"]: int(row["next"]) for row in json.loads(out or "[]") if row.get("next")}


Ask = tuple[tuple[str, ...], float]
"""Calendar expressions, and a time after which to ask for their elapses."""


def elapses(run: Run, asks: Sequence[Ask]) -> dict[Ask, list[int]]:
    """The next three times that each of ``asks`` means, in this machine's time zone; fewer where there are no more."""
    if not asks:
        return {}
    expressions = sorted({expression for ask in asks for expression in ask[0]})
    base = min(since for _, since in asks)
    words = ("systemd-analyze", "calendar", "--iterations=16", f"--base-time=@{int(base)}", "--", *expressions)
    # One question for all, since starting the program takes longer than its answer; so many times, because what runs
    # every day is asked about from the last drill on. A section for each expression.
    sections = dict(zip(expressions, re.split(r"\n\s*\n", run(*words).strip()), strict=False))
    found = {}
    for ask in asks:
        times = {at for expression in ask[0] for at in parse_elapses(sections.get(expression, "")) if at > ask[1]}
        found[ask] = sorted(times)[:3]
        if len(times) < 3 and base < ask[1]:
            found |= elapses(run, [ask])
    return found


_ELAPSE = re.compile(r"\s*(Next elapse|Iter[^:]*|\(in UTC\)): \w+ (\d{4,}-\d\d-\d\d \d\d:\d\d:\d\d)")


def parse_elapses(text: str) -> list[int]:
    """The times in the output of ``systemd-analyze calendar``. Pure."""
    found: list[int] = []
    for match in filter(None, map(_ELAPSE.match, text.splitlines())):
        at = int(datetime.fromisoformat(f"{match[2]}+00:00").timestamp())
        if match[1] == "(in UTC)":  # follows a line in local time, and is missing where that is UTC
            found[-1] = at
        else:
            found.append(at)
    return sorted(set(found))


def limits(since: float, coming: Sequence[int]) -> tuple[int, int] | None:
    """The ages at which what happened at ``since`` is late (a run was missed), and overdue (older than two periods).

    coming: the next elapses after it. A period is the shortest way from one to the next, but nothing is late before
    it is due: what runs on weekdays is not late on Sunday. None when there is no period. Pure.
    """
    if len(coming) < 2:
        return None
    period = min(later - earlier for earlier, later in itertools.pairwise(coming))
    slack = max(900, period // 10)
    late = max(since + period, coming[0]) + slack
    overdue = max(since + 2 * period, coming[1], late)
    return int(late - since), int(overdue - since)


def make_due(since: float | None, coming: Sequence[int], now: float) -> dict[str, Any]:
    """Whether what happened at ``since`` should have happened again: the ``due`` of docs/status.md. Pure."""
    late, overdue = (since is not None and limits(since, coming)) or (None, None)
    age = None if since is None else int(now - since)
    state = "unknown"
    if age is not None and age < -CLOCK:
        state = "future"
    elif age is not None and late is not None and overdue is not None:
        state = "ok" if age <= late else "late" if age <= overdue else "overdue"
    return {
        "state": state,
        "since": None if since is None else iso(since),
        "age": age,
        "late": late,
        "overdue": overdue,
    }


# A store, as data


def look(name: str, run: Run, now: float, files: Files) -> dict[str, Any]:
    """A store as ``status --json`` shows it, as far as it can be known without its settings and the journal."""
    timers = [unit(name, job, "timer") for job in TIMED]
    alarms = ("memory-alert@*", "memory-mail@*", f"memory-ping{_suffix(name)}@*")
    units = show(run, [*(unit(name, job) for job in ORDER), *timers, *alarms], *_PROPERTIES)
    loaded = {each: shown.get("LoadState", "unknown") for each, shown in units.items()}
    present = [job for job in ORDER if job in JOBS or _there(job, units.get(unit(name, job), {}))]
    next_run = {timer: _systemd_time(units.get(timer, {}).get("NextElapseUSecRealtime")) for timer in timers}
    if not all(next_run[timer] for timer in timers if loaded.get(timer) == "loaded"):
        # A timer that somebody gave another kind of schedule has its next time elsewhere, which list-timers knows.
        next_run |= {timer: iso(at / 1e6) for timer, at in next_runs(run, timers).items()}
    sets = files.sets or {}
    newest = _newest(sets.get("newest"), now)
    jobs = [_job(job, name, units, files, now) for job in present]
    _judge(jobs, newest, units, run, now)
    there = [job for job in present if loaded.get(unit(name, job)) == "loaded"]
    return {
        "name": name,
        "timers": [_timer(timer, units.get(timer, {}), next_run.get(timer)) for timer in timers],
        "jobs": jobs,
        "counts": counts(files.records or [], now),
        "newest_set": newest,
        "failed_sets": sets.get("failed") or [],
        "loss": _loss(sets.get("loss")),
        "restore_unfinished": files.restoring,
        "agent_paused": _left_paused(name, units),
        "failed_alarms": _failed_alarms(name, units),
        "missing_scripts": [SCRIPTS[job] for job in there if not os.access(SCRIPTS[job], os.F_OK)],
        "unreadable": list(files.unreadable),
    }


def _left_paused(name: str, units: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether the agent's pause lasts though no copy needs it: systemd may overlook that when a copy is stopped."""
    shown = {job: units.get(unit(name, job), {}) for job in ("pause", "remote", "snapshot", "backup")}
    idle = all(shown[job].get("Job", "") in ("", "0") for job in shown)
    return idle and shown["pause"].get("ActiveState") == "active"


def _there(job: str, shown: Mapping[str, str]) -> bool:
    """Whether there is anything to say of an optional job."""
    if job == "pause":
        return shown.get("ActiveState") == "failed"
    return shown.get("LoadState", "not-found") != "not-found"


def _judge(
    jobs: list[dict[str, Any]],
    newest: dict[str, Any] | None,
    units: Mapping[str, Mapping[str, str]],
    run: Run,
    now: float,
) -> None:
    """Add to each job and to the newest set whether it is due."""
    asked = {job["job"]: _ask(timer, _since(job, timer), now) for job in jobs if (timer := _timer_of(job, units))}
    timers = {job["job"]: _timer_of(job, units) or {} for job in jobs}
    for job in jobs:
        if leader := FOLLOWS.get(job["job"]):
            asked[job["job"]] = _ask(timers[leader], seconds(job["good"] or job["ended"]), now)
    if newest is not None:
        asked["set"] = _ask(timers["backup"], seconds(str(newest["sealed_at"])), now)
    coming = elapses(run, [ask for _, ask in asked.values() if ask])
    due = {what: make_due(since, coming.get(ask, []) if ask else [], now) for what, (since, ask) in asked.items()}
    for job in jobs:
        job["due"] = due.get(job["job"])
        if job["due"] and job["result"] == "running":
            job["due"]["state"] = "ok"
    if newest is not None:
        newest["due"] = due["set"]


def _failed_alarms(name: str, units: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The alarm units that failed and are about this store: an alert or a mail of its jobs, a ping of its own."""
    about = {f"{unit(name, job)}{event}.service" for job in ORDER for event in ("", ":left")}
    failed = [each for each, shown in units.items() if "@" in each and shown.get("ActiveState") == "failed"]
    return [each for each in failed if each.startswith("memory-ping") or each.partition("@")[2] in about]


def _timer_of(job: Mapping[str, Any], units: Mapping[str, Mapping[str, str]]) -> Mapping[str, str] | None:
    return units.get(job["unit"].removesuffix("service") + "timer")


def _ask(timer: Mapping[str, str], since: float | None, now: float) -> tuple[float | None, Ask | None]:
    """When it happened last, and what is to be asked of the timer's calendar then."""
    expressions = tuple(re.findall(r"OnCalendar=(.+?) ;", timer.get("TimersCalendar", "")))
    # A time that nobody can have meant is not asked about.
    plausible = since is not None and 0 < since <= now + CLOCK
    return since, (expressions, since) if expressions and plausible and since is not None else None


def _since(job: Mapping[str, Any], timer: Mapping[str, str]) -> float | None:
    """When the job ran last; else when its timer last started it (which outlives a reboot) or began to wait.

    A drill that failed proves nothing, so the last good one counts.
    """
    times = (
        (job["job"] == "drill" and job["good"]) or job["ended"],
        _systemd_time(timer.get("LastTriggerUSec")),
        _systemd_time(timer.get("ActiveEnterTimestamp")),
    )
    return next((at for at in map(seconds, times) if at is not None), None)


def _timer(unit: str, shown: Mapping[str, str], next_run: str | None) -> dict[str, Any]:
    return {
        "unit": unit,
        "enabled": shown.get("UnitFileState", "unknown"),
        "active": shown.get("ActiveState", "unknown"),
        "next": next_run,
        "last": _systemd_time(shown.get("LastTriggerUSec")),
        "loaded": shown.get("LoadState", "unknown"),
        "drop_ins": shown.get("DropInPaths", "").split(),
        "reload_needed": shown.get("NeedDaemonReload") == "yes",
    }


def _job(job: str, name: str, units: Mapping[str, Mapping[str, str]], files: Files, now: float) -> dict[str, Any]:
    """A job's last run: its own record, or systemd's word where there is no record of that run."""
    shown, timer = units.get(unit(name, job), {}), units.get(unit(name, job, "timer"), {})
    record, good = files.last(job), files.good(job)
    if shown.get("ActiveState") == "failed" and record.get("invocation", "") != shown.get("InvocationID"):
        # The run ended before the job could write: a sandbox that could not be set up, a kill, a full disk.
        record = {"message": explain(shown)}
    end = str(record.get("end", ""))
    ended = end if seconds(end) is not None else _systemd_time(shown.get("ExecMainExitTimestamp")) or ""
    if _passed_over(shown, timer, ended, now):
        record = {**record, "result": "not started", "message": "its timer elapsed and systemd did not run it"}
    return {
        "job": job,
        "unit": unit(name, job),
        "loaded": shown.get("LoadState", "unknown"),
        "state": shown.get("ActiveState", "unknown"),
        "result": _result(shown, record, ended, known=files.known(job)),
        "exit": record.get("exit", int(shown.get("ExecMainStatus") or 0) if ended else None),
        "ended": ended or None,
        "age": _age(ended, now),
        "good": None if seconds(good) is None else good,
        "message": str(record.get("message", "")),
        "drop_ins": shown.get("DropInPaths", "").split(),
        "reload_needed": shown.get("NeedDaemonReload") == "yes",
    }


def _passed_over(shown: Mapping[str, str], timer: Mapping[str, str], ended: str, now: float) -> bool:
    """Whether the timer elapsed since the machine came up, but no run followed: a mount or another unit is missing."""
    # The time on the monotonic clock is of this boot; the other one is also the stamp of a Persistent= timer.
    if timer.get("LastTriggerUSecMonotonic", "0") in ("", "0") or shown.get("Job", "") not in ("", "0"):
        return False
    triggered = seconds(_systemd_time(timer.get("LastTriggerUSec")))
    before = max(seconds(ended) or 0, seconds(_systemd_time(shown.get("ExecMainExitTimestamp"))) or 0)
    idle = shown.get("ActiveState") == "inactive"
    return idle and triggered is not None and before < triggered - 1 and now > triggered + 60


STATUS = {
    "203": "the system's python3 or the job's script is missing (203/EXEC): sudo memops install",
    "217": "the user of the unit does not exist (217/USER)",
    "226": "its sandbox could not be set up, or a directory is missing (226/NAMESPACE); is it mounted?",
}
"""systemd's own exit statuses (man systemd.exec, PROCESS EXIT CODES) that a job cannot explain itself."""

RESULT = {
    "timeout": "it did not end in time and was stopped",
    "signal": "it was killed",
    "core-dump": "it crashed",
    "oom-kill": "the machine ran out of memory and killed it",
    "resources": "systemd had no resources to start it; is the disk full, a mount missing?",
    "start-limit-hit": "it was started too often",
}
"""What systemd's Result= says of a run that left no record (man org.freedesktop.systemd1)."""


def explain(shown: Mapping[str, str]) -> str:
    """Why a run failed that left no record this user can read, in words, from systemd's properties. Pure."""
    result, code = shown.get("Result", "unknown"), shown.get("ExecMainStatus", "?")
    return STATUS.get(code) or RESULT.get(result) or f"it ended with exit code {code}"


def _result(shown: Mapping[str, str], record: Mapping[str, Any], ended: str, *, known: bool) -> str:
    if shown.get("ActiveState") == "failed":
        return "failed"
    if shown.get("ActiveState") == "activating" or shown.get("Job", "") not in ("", "0"):
        return "running"
    return str(record.get("result") or ("done" if ended else "never ran" if known else "not read"))


def counts(records: list[dict[str, Any]], now: float) -> dict[str, Any] | None:
    """The counts of the newest prune run that got as far as counting, and their age."""
    for record in reversed(records):
        if record["job"] == "prune" and "rows" in record["counts"]:
            return {**record["counts"], "at": record["end"], "age": _age(record["end"], now)}
    return None


def _newest(newest: object, now: float) -> dict[str, Any] | None:
    if not isinstance(newest, dict):
        return None
    found = {key: newest.get(key) for key in ("set", "sealed_at", "bytes", "rows")}
    return {**found, "parts": newest.get("parts", 1), "age": _age(str(newest.get("sealed_at", "")), now)}


def _loss(loss: object) -> dict[str, Any] | None:
    return {key: loss.get(key) for key in ("set", "rows")} if isinstance(loss, dict) else None


def iso(seconds: float) -> str:
    """A time since 1970 as UTC text, like the run records'."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_SYSTEMD = re.compile(r"[A-Z][a-z]{2} (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC", re.ASCII)


def seconds(text: str | None) -> int | None:
    """Seconds since 1970 of a time as ``iso`` writes it; None for anything else."""
    if not _ISO.fullmatch(text or ""):
        return None
    try:
        # strptime would do, but its first call costs status a tenth of its time.
        return int(datetime.fromisoformat(str(text)).timestamp())
    except ValueError:
        return None


def _age(text: str | None, now: float) -> int | None:
    at = seconds(text)
    return None if at is None else int(now - at)


def _systemd_time(text: str | None) -> str | None:
    """systemd's own text of a time in UTC, as ours."""
    match = _SYSTEMD.fullmatch(text or "")
    return f"{match[1]}T{match[2]}Z" if match else None
