"""Gathering what ``memops status`` shows: from systemd, the run records, the sealing record and the journal.

Everything is looked at, nothing guessed: what this user may not read is named in ``unreadable``.
"""

from __future__ import annotations

import calendar
import shlex
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from memops import host, jobs, prune, systemd
from memops.errors import MemopsError
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memops.settings import Store

VERSION = 1
OLD_SET = 48 * 3600
"""Seconds after which the newest verified set is too old."""

_PROPERTIES = (
    *("LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload", "DropInPaths"),
    *("Result", "ExecMainStatus", "ExecMainExitTimestamp", "LastTriggerUSec", "InvocationID"),
)


def gather(stores: Iterable[Store], *, fresh: bool = False, now: float | None = None) -> dict[str, Any]:
    """The whole status as JSON carries it: ``{"version": 1, "stores": [...]}``; docs/status.md describes each key."""
    at = time.time() if now is None else now
    return {"version": VERSION, "stores": [_store(store, fresh, at) for store in stores]}


def _store(store: Store, fresh: bool, now: float) -> dict[str, Any]:
    services = [store.unit(job) for job in store.jobs]
    units = systemd.show([*services, *store.timers], *_PROPERTIES)
    unreadable: list[str] = []
    records: list[dict[str, Any]] | None = None
    try:
        records = jobs.run_records(store)
    except jobs.NotAllowed:
        unreadable.append(f"{store.state}/runs.jsonl (needs root or {store.user})")
    seal = jobs.seal_record(store)
    next_runs = systemd.next_runs(store.timers)
    result: dict[str, Any] = {
        "name": store.name,
        "db": store.db,
        "user": store.user,
        "backup_dir": store.sets,
        "timers": [_timer(timer, units.get(timer, {}), next_runs.get(timer)) for timer in store.timers],
        "jobs": [_job(job, store, units, records, seal, now) for job in store.jobs],
        "counts": _counts(records or [], now),
        "newest_set": _newest(seal, now),
        "journal": _journal(services, unreadable),
        "unreadable": unreadable,
    }
    if fresh:
        result["counts"] = {**prune.count(store), "at": iso(now), "age": 0}
    return {**result, "problems": problems(result)}


def _timer(unit: str, shown: Mapping[str, str], next_run: int | None) -> dict[str, Any]:
    return {
        "unit": unit,
        "enabled": shown.get("UnitFileState", "unknown"),
        "active": shown.get("ActiveState", "unknown"),
        "next": None if next_run is None else iso(next_run / 1e6),
        "last": _systemd_time(shown.get("LastTriggerUSec", "")),
    }


def _job(
    job: str,
    store: Store,
    units: Mapping[str, Mapping[str, str]],
    records: list[dict[str, Any]] | None,
    seal: dict[str, Any] | None,
    now: float,
) -> dict[str, Any]:
    """A job's last run: its own record, or systemd's word where there is no record of that run."""
    shown = units.get(store.unit(job), {})
    record = ((seal or {}).get("seal") if job == "backup" else jobs.last_run(records or [], job)) or {}
    if shown.get("ActiveState") == "failed" and record.get("invocation", "") != shown.get("InvocationID"):
        # The run ended before the job could write: a sandbox that could not be set up, a kill, a full disk.
        record = {
            "message": f"the run left no record (systemd: {shown.get('Result')}, status {shown.get('ExecMainStatus')})"
        }
    ended = str(record.get("end") or _systemd_time(shown.get("ExecMainExitTimestamp", "")) or "")
    return {
        "job": job,
        "unit": store.unit(job),
        "loaded": shown.get("LoadState", "unknown"),
        "state": shown.get("ActiveState", "unknown"),
        "result": _result(shown, record, ended, known=records is not None or job == "backup"),
        "exit": record.get("exit", int(shown.get("ExecMainStatus") or 0) if ended else None),
        "ended": ended or None,
        "age": _age(ended, now),
        "message": printable(record.get("message", ""), 300),
        "drop_ins": shown.get("DropInPaths", "").split(),
        "reload_needed": shown.get("NeedDaemonReload") == "yes",
    }


def _result(shown: Mapping[str, str], record: Mapping[str, Any], ended: str, *, known: bool) -> str:
    if shown.get("ActiveState") == "failed":
        return "failed"
    if shown.get("ActiveState") == "activating":
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


def _journal(services: list[str], unreadable: list[str]) -> dict[str, list[str] | None]:
    lines: dict[str, list[str] | None] = {}
    for unit in services:
        entries = systemd.journal(unit, 1, "_TRANSPORT=stdout")
        lines[unit] = (
            None
            if entries is None
            else [
                f"{iso(int(e['__REALTIME_TIMESTAMP']) / 1e6)} {printable(e.get('MESSAGE', ''), 200)}" for e in entries
            ]
        )
    if None in lines.values():
        unreadable.append("the journal (needs root or the group systemd-journal)")
    return lines


def problems(status: Mapping[str, Any]) -> list[dict[str, str]]:
    """What is wrong, worst first: ``level`` (error, warning), ``what`` is so and what to ``type``. Pure."""
    found = [*_job_problems(status), *_timer_problems(status), *_set_problems(status), *_store_problems(status)]
    return [
        {"level": level, "what": what, "type": to_type}
        for level, what, to_type in sorted(found, key=lambda problem: problem[0] != "error")
    ]


Problems = Iterator[tuple[str, str, str]]


def _job_problems(status: Mapping[str, Any]) -> Problems:
    for job in status["jobs"]:
        if job["loaded"] != "loaded":
            yield "error", f"{job['unit']} is {job['loaded']}", "sudo memops install"
        elif job["result"] not in ("done", "report", "stopped", "running", "never ran", "not read"):
            yield "error", f"{job['job']} failed: {job['message'] or 'it left no word'}", f"journalctl -u {job['unit']}"
        if job["reload_needed"]:
            yield "warning", f"{job['unit']} changed on disk", "sudo systemctl daemon-reload"


def _timer_problems(status: Mapping[str, Any]) -> Problems:
    for timer in status["timers"]:
        unit = timer["unit"]
        if timer["enabled"] != "enabled" or timer["active"] != "active":
            yield (
                "warning",
                f"{unit} is {timer['enabled']} and {timer['active']}",
                f"sudo systemctl enable --now {unit}",
            )
        elif timer["next"] is None:
            yield "error", f"{unit} has no next run", f"sudo systemctl restart {unit}"


def _set_problems(status: Mapping[str, Any]) -> Problems:
    start = "sudo systemctl start " + next(str(job["unit"]) for job in status["jobs"] if job["job"] == "backup")
    newest = status["newest_set"]
    if newest is None:
        yield "error", "there is no verified backup", start
    elif newest["age"] is None or newest["age"] > OLD_SET:
        yield "warning", "the newest verified backup is older than two days", start


def _store_problems(status: Mapping[str, Any]) -> Problems:
    counts = status["counts"] or {}
    if counts.get("violations"):
        check = f"sqlite3 {shlex.quote(status['db'])} 'PRAGMA foreign_key_check'"
        yield "warning", f"{counts['violations']} foreign-key violations", check
    if counts.get("doubtful"):
        what = f"{counts['doubtful']} rows are kept because a date or a chain is doubtful"
        yield "warning", what, "sudo memops prune --dry-run"


def iso(seconds: float) -> str:
    """A time since 1970 as UTC text, like the run records'."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _age(text: str | None, now: float) -> int | None:
    try:
        return int(now - calendar.timegm(time.strptime(text or "", "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return None


def _systemd_time(text: str) -> str | None:
    """systemd's own time text in the C locale and UTC (host.run sets both), as ours."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.strptime(text, "%a %Y-%m-%d %H:%M:%S %Z"))
    except ValueError:
        return None


def not_installed() -> MemopsError:
    """What to say where there is nothing to show."""
    left = host.look("/etc/memops/manifest.json") is not None
    return MemopsError(
        "memops is installed only in part here." if left else "memops looks after no store on this machine.",
        "Type: sudo memops install",
    )
