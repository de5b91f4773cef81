"""The stores' figures in Prometheus' text format, for node_exporter's textfile collector; docs/metrics.md lists them.

One file of the standard library, for ``memops check --prometheus`` and the metrics job. Pure. No text of a fact is in
it: label values are the names of stores and jobs and fixed words.
"""

from __future__ import annotations

import calendar
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

METRICS = {
    "memops_up": "Whether systemd and the records could be asked (1) or not (0).",
    "memops_status": "How the store is, as memops check says: 0 ok, 1 warning, 2 critical, 3 unknown.",
    "memops_problems": "What is wrong with the units, runs and sets of the store, by level.",
    "memops_last_run_timestamp_seconds": "When the job's last run ended.",
    "memops_last_run_success": "Whether the job's last run succeeded (1) or failed (0).",
    "memops_last_run_max_age_seconds": "The age of a last run at which memops check says critical.",
    "memops_timer_enabled": "Whether the job's timer is enabled and active (1) or not (0).",
    "memops_timer_next_timestamp_seconds": "When the job's timer elapses next.",
    "memops_set_timestamp_seconds": "When the newest verified backup set was sealed.",
    "memops_set_bytes": "Size of the newest verified backup set.",
    "memops_set_rows": "Rows of all tables in the newest verified backup set.",
    "memops_set_parts": "Parts of the newest verified backup set.",
    "memops_drill_timestamp_seconds": "When the last good drill, a restore of a set for trial, ended.",
    "memops_offsite_timestamp_seconds": "When a set was last handed away from the machine.",
    "memops_rows": "Rows of the store at the last prune, by state; the states overlap.",
    "memops_foreign_key_violations": "Rows that point at no row, at the last prune.",
    "memops_rows_timestamp_seconds": "When the rows were counted.",
}
"""Every metric and its help text. All are gauges."""

STATES = {"rows": "all", "live": "live", "gap": "gap", "dead": "dead", "doubtful": "doubtful"}
"""What a prune counts, and the word for it in the label ``state``."""

SUCCESS = ("done", "report", "stopped")
"""Results of a run that succeeded; it may have been stopped in order before its end."""

Sample = tuple[str, dict[str, str], int]


def text(stores: Sequence[tuple[Mapping[str, Any], int]], *, up: bool = True) -> str:
    """The whole file. stores: what survey.look found of each, with its problems, and its state as a number."""
    samples: list[Sample] = [("memops_up", {}, int(up))]
    for store, state in stores:
        samples += _samples(store, state)
    lines = []
    for name, help_text in METRICS.items():
        found = [sample for sample in samples if sample[0] == name]
        if found:
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
            lines += [f"{name}{_labels(labels)} {value}" for _, labels, value in found]
    return "\n".join(lines) + "\n"


def _samples(store: Mapping[str, Any], state: int) -> Iterator[Sample]:
    name = {"store": str(store["name"])}
    yield "memops_status", name, state
    for level in ("error", "warning"):
        count = sum(problem["level"] == level for problem in store["problems"])
        yield "memops_problems", {**name, "level": level}, count
    timers = {timer["unit"].removesuffix(".timer"): timer for timer in store["timers"]}
    for job in store["jobs"]:
        labels = {**name, "job": job["job"]}
        yield from _job_samples(job, labels)
        if timer := timers.get(job["unit"].removesuffix(".service")):
            yield from _timer_samples(timer, labels)
        if job["good"] is not None and job["job"] in ("drill", "offsite"):
            yield f"memops_{job['job']}_timestamp_seconds", name, _seconds(job["good"])
    yield from _numbers(store["newest_set"], name, {key: f"memops_set_{key}" for key in ("bytes", "rows", "parts")})
    if store["newest_set"] and store["newest_set"]["age"] is not None:
        yield "memops_set_timestamp_seconds", name, _seconds(store["newest_set"]["sealed_at"])
    counts = store["counts"] or {}
    for key, word in STATES.items():
        yield from _numbers(counts, {**name, "state": word}, {key: "memops_rows"})
    yield from _numbers(counts, name, {"violations": "memops_foreign_key_violations"})
    if counts.get("age") is not None:
        yield "memops_rows_timestamp_seconds", name, _seconds(counts["at"])


def _job_samples(job: Mapping[str, Any], labels: dict[str, str]) -> Iterator[Sample]:
    if job["age"] is not None:
        yield "memops_last_run_timestamp_seconds", labels, _seconds(job["ended"])
    if job["result"] not in ("running", "never ran", "not read"):
        yield "memops_last_run_success", labels, int(job["result"] in SUCCESS)
    if job["due"] and job["due"]["overdue"] is not None:
        yield "memops_last_run_max_age_seconds", labels, job["due"]["overdue"]


def _timer_samples(timer: Mapping[str, Any], labels: dict[str, str]) -> Iterator[Sample]:
    yield "memops_timer_enabled", labels, int((timer["enabled"], timer["active"]) == ("enabled", "active"))
    if timer["next"] is not None:
        yield "memops_timer_next_timestamp_seconds", labels, _seconds(timer["next"])


def _numbers(found: Mapping[str, Any] | None, labels: dict[str, str], names: Mapping[str, str]) -> Iterator[Sample]:
    for key, metric in names.items():
        value = (found or {}).get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            yield metric, labels, value


def _seconds(text: str) -> int:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in labels.items()) + "}"


def escape(value: str) -> str:
    """A label's value as the format wants it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
