"""How a store is, as data: what systemd, the sealing job's record and the run records say of it.

The sealing job's record is root's and open to all; the run records are of the store's user, untrusted, and read where
they may be. One file of the standard library: ``status`` and ``check`` use it, and on a server the metrics job and the
alarms, which have it beside them. Programs are started by ``run``, which the caller gives: words in, output out.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Run = Callable[..., str]
Clean = Callable[[object, int], str]
"""Makes a job's words fit for a terminal: text and the most characters in, text out."""

STATE = "/var/lib/memops"
JOBS = ("snapshot", "backup", "prune")
TIMED = ("backup", "prune")
SCRIPTS = tuple(f"/usr/local/lib/memops/{script}.py" for script in ("snapshot", "seal", "prune"))
CLOCK = 300
"""Seconds that a time may lie ahead of the clock before it is called wrong."""

_LARGEST = 1_000_000

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


# What lies on the disk


class NotAllowed(Exception):  # noqa: N818 - an answer, not a bug
    """This user may not read it."""


def read(path: str) -> str | None:
    """A small plain file's text, no link followed; None when there is none. Raises NotAllowed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError:
        raise NotAllowed(path) from None
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_LARGEST).decode(errors="replace")


def run_records(path: str, clean: Clean) -> list[dict[str, Any]]:
    """The run records that the store's user keeps, oldest first; untrusted. Raises NotAllowed."""
    records = []
    for line in (read(path) or "").splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("job"), str) and isinstance(record.get("end"), str):
            counts = _mapping(record.get("counts"))
            record["counts"] = {key: value for key, value in counts.items() if _plausible(key, value)}
            record["exit"] = record["exit"] if type(record.get("exit")) is int else None
            record["message"] = clean(record.get("message", ""), 300)
            record["result"] = clean(record.get("result", ""), 20)
            records.append(record)
    return records


_JOURNAL_MODES = ("delete", "truncate", "persist", "memory", "wal", "off")


def _plausible(key: object, value: object) -> bool:
    """Whether a count is one: these words are the agent's to forge, and go to root's terminal."""
    if key == "journal_mode":
        return value in _JOURNAL_MODES
    return str(key).isidentifier() and type(value) is int and 0 <= value < 2**63


def last_run(records: Sequence[dict[str, Any]], job: str) -> dict[str, Any] | None:
    """The newest record of a job."""
    return next((record for record in reversed(records) if record["job"] == job), None)


def seal_record(path: str, clean: Clean) -> dict[str, Any] | None:
    """The sealing job's record: ``seal`` (its last run) and ``newest`` (the newest verified set, or None).

    None where there is none. Raises NotAllowed, and ValueError when it is damaged.
    """
    text = read(path)
    if text is None:
        if os.path.lexists(path):
            raise ValueError("it is not a plain file")
        return None
    record = json.loads(text)
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    seal = _mapping(record.get("seal"))
    return {"seal": {**seal, "message": clean(seal.get("message", ""), 300)}, "newest": record.get("newest")}


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


@dataclass(frozen=True)
class Files:
    """What was read: run records and the sealing record (None: not readable, or none), and what could not be read."""

    records: list[dict[str, Any]] | None
    seal: dict[str, Any] | None
    unreadable: tuple[str, ...] = ()


def read_files(name: str, clean: Clean) -> Files:
    """Read a store's records, as far as this user may."""
    unreadable = []
    records: list[dict[str, Any]] | None = None
    seal = None
    try:
        records = run_records(f"{STATE}/{name}/runs.jsonl", clean)
    except NotAllowed:
        unreadable.append(f"{STATE}/{name}/runs.jsonl (needs root or the store's user)")
    try:
        seal = seal_record(seal_path(name), clean)
    except NotAllowed:
        unreadable.append(f"{seal_path(name)} (it should be 0644)")
    except (ValueError, RecursionError):
        unreadable.append(f"{seal_path(name)} (it is damaged)")
    return Files(records, seal, tuple(unreadable))


def seal_path(name: str) -> str:
    """Where the sealing job of a store keeps its record."""
    return f"{STATE}/{name}.sets.json"


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
    words = ("systemd-analyze", "calendar", "--iterations=8", f"--base-time=@{int(base)}", "--", *expressions)
    # One question for all, since starting the program takes longer than its answer; a section for each expression.
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
    units = show(run, [*(unit(name, job) for job in JOBS), *timers, *alarms], *_PROPERTIES)
    next_run = {timer: _systemd_time(units.get(timer, {}).get("NextElapseUSecRealtime")) for timer in timers}
    if not all(next_run.values()):
        # A timer that somebody gave another kind of schedule has its next time elsewhere, which list-timers knows.
        next_run |= {timer: iso(at / 1e6) for timer, at in next_runs(run, timers).items()}
    newest = _newest(files.seal, now)
    jobs = [_job(job, name, units, files, now) for job in JOBS]
    asked = {job["job"]: _ask(timer, _since(job, timer), now) for job in jobs if (timer := _timer_of(job, units))}
    if newest is not None:
        asked["set"] = _ask(units.get(unit(name, "backup", "timer"), {}), seconds(str(newest.get("sealed_at"))), now)
    coming = elapses(run, [ask for _, ask in asked.values() if ask])
    due = {what: make_due(since, coming.get(ask, []) if ask else [], now) for what, (since, ask) in asked.items()}
    for job in jobs:
        job["due"] = due.get(job["job"])
        if job["due"] and job["result"] == "running":
            job["due"]["state"] = "ok"
    if newest is not None:
        newest["due"] = due["set"]
    return {
        "name": name,
        "timers": [_timer(timer, units.get(timer, {}), next_run.get(timer)) for timer in timers],
        "jobs": jobs,
        "counts": _counts(files.records or [], now),
        "newest_set": newest,
        "failed_alarms": _failed_alarms(name, units),
        "missing_scripts": [path for path in SCRIPTS if not os.access(path, os.F_OK)],
        "unreadable": list(files.unreadable),
    }


def _failed_alarms(name: str, units: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The alarm units that failed and are about this store: an alert or a mail of its jobs, a ping of its own."""
    about = {f"{unit(name, job)}.service" for job in JOBS}
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
    """When the job ran last; else when its timer last started it (which outlives a reboot) or began to wait."""
    times = (
        job["ended"],
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
    record = ((files.seal or {}).get("seal") if job == "backup" else last_run(files.records or [], job)) or {}
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
        "result": _result(shown, record, ended, known=files.records is not None or job == "backup"),
        "exit": record.get("exit", int(shown.get("ExecMainStatus") or 0) if ended else None),
        "ended": ended or None,
        "age": _age(ended, now),
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


def _counts(records: list[dict[str, Any]], now: float) -> dict[str, Any] | None:
    """The counts of the newest prune run that got as far as counting, and their age."""
    for record in reversed(records):
        if record["job"] == "prune" and "rows" in record["counts"]:
            return {**record["counts"], "at": record["end"], "age": _age(record["end"], now)}
    return None


def _newest(seal: dict[str, Any] | None, now: float) -> dict[str, Any] | None:
    newest = (seal or {}).get("newest")
    if not isinstance(newest, dict):
        return None
    return {**newest, "age": _age(str(newest.get("sealed_at", "")), now)}


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
