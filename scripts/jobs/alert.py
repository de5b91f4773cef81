"""Say that a job failed: one line at priority err, then the last lines of that run; with ``--mail``, by mail.

``memory-alert@UNIT.service`` runs it through the ``OnFailure=`` of every job, and ``memory-mail@UNIT.service`` where an
address is set; that mails what a good digest or reminder left, too. systemd tells in $MONITOR_* which run is meant (man
systemd.exec); without, it is the newest on record. What the store's user can write is only ever shown, escaped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import letters
import records
import survey
from store import printable

import job
import post

if TYPE_CHECKING:
    from collections.abc import Mapping

LINES: Final = 10

MEANING: Final = {
    "pause": "does the agent run?",
    "remote": "so there is no new backup",
    "drill": "so nothing proves that the newest backup can be restored",
    "offsite": "so the newest backup is on this machine only",
    "digest": "so nobody was shown the new facts",
    "review": "so nobody was reminded of the review",
}
"""What the failure of a job comes to, where its name does not say it."""

LEFT: Final = ":left"
"""Behind a unit's name: mail what its good run left. Failures have a mail unit of their own, since systemd tells
nothing of the run to a unit that it could start for either."""

BEFORE: Final = {"backup": ("pause", "remote", "snapshot"), "snapshot": ("pause",), "remote": ("pause",)}
"""The steps of a backup that a later one needs; each is started by every backup."""


@dataclass(frozen=True)
class Report:
    """What there is to say: the line, the last lines of the run, and whether another unit's report tells it better."""

    line: str
    tail: tuple[str, ...]
    failed: bool = True
    repeats: bool = False


@dataclass(frozen=True)
class Places:
    """Where things are; tests have others."""

    settings: str
    state: str
    sendmail: str


def split(unit: str) -> tuple[str, str]:
    """A unit's job and store: ``memory-prune-work.service`` → ``prune``, ``work``."""
    name, _, store = unit.removeprefix("memory-").removesuffix(".service").partition("-")
    return name, store or "default"


def read(path: str) -> str:
    """A plain file's text, no link followed; empty when there is none."""
    try:
        return records.read(path) or ""
    except records.NotAllowed:
        return ""


def kept_records(state: str, name: str, store: str) -> list[dict[str, Any]]:
    """What a job wrote about its runs, oldest first; of a job of root's only the last is kept."""
    key = records.KEYS.get(name)
    if key:  # one object, over many lines
        text = read(f"{state}/{store}.sets.json").replace("\n", " ")
        runs = [record.get(key) for record in records.objects(text)]
    else:
        runs = [*records.objects(read(f"{state}/{store}/runs.jsonl"))]
    return [run for run in runs if isinstance(run, dict) and run.get("job", name) == name]


def journal(*matches: str) -> list[dict[str, Any]]:
    """The newest journal entries, oldest first; none where there is no journal or it cannot be read."""
    command = ["journalctl", "--no-pager", "--quiet", "--output=json", *matches]
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
        return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(b"{")]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []


def verdict(unit: str) -> str | None:
    """How a start of ``unit`` just now ended, by systemd's own line: ``failed``, ``dependency`` …

    Empty when there is no such line of the last minute, None when there is no journal to look in. The journal may be
    a moment behind, and a run's last lines come before this one.
    """
    for _ in range(20):
        # With --since, --lines would count from there on.
        entries = journal("--since=-1min", "_PID=1", f"UNIT={unit}")[-3:]
        results = [str(entry["JOB_RESULT"]) for entry in entries if "JOB_RESULT" in entry]
        if results and results[-1] != "done":
            return results[-1]
        time.sleep(0.1)
    return "" if journal("--lines=1", "_PID=1") else None


def failed_before(unit: str) -> str:
    """The unit of the same backup whose failure kept ``unit`` from running; empty where it is none of them."""
    name, _ = split(unit)
    for earlier in BEFORE.get(name, ()):
        first = unit.replace(name, earlier, 1)
        # What it did lately: a long copy may have run to its end since it failed.
        entries = journal("--since=-1day", "_PID=1", f"UNIT={first}")
        results = [entry["JOB_RESULT"] for entry in entries if "JOB_RESULT" in entry]
        if results and results[-1] == "failed":
            return first
    return unit.replace(name, "snapshot", 1) if name == "backup" else ""


def tail(invocation: str, record: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The last lines of a run: from the journal, else from its record."""
    lines = []
    if re.fullmatch(r"[0-9a-f]{32}", invocation):
        of_run = (f"_SYSTEMD_INVOCATION_ID={invocation}", "+", "_PID=1", f"INVOCATION_ID={invocation}")
        for entry in journal(f"--lines={LINES}", *of_run):
            text = entry.get("MESSAGE")
            if isinstance(text, list):  # what is not UTF-8 comes as numbers
                text = bytes(text).decode(errors="replace")
            lines.append(printable(text, 200))
    if not lines and record is not None:
        shown = (f"{key} {printable(record[key], 100)}" for key in ("start", "end", "result", "exit") if key in record)
        lines = ["the journal has no line of it; its record: " + ", ".join(shown)]
    return tuple(lines)


def words(environment: Mapping[str, str]) -> str:
    """systemd's result of a run that left no word, for people."""
    result, status = environment.get("MONITOR_SERVICE_RESULT", ""), environment.get("MONITOR_EXIT_STATUS", "")
    if result in ("signal", "core-dump"):
        return f"it was killed by SIG{printable(status, 10)}"
    if said := survey.STATUS.get(status) or survey.RESULT.get(result):
        return said
    if result == "exit-code":
        return f"it ended with exit code {printable(status, 10)} and left no word"
    return f"it left no word (systemd: {printable(result or 'unknown', 30)})"


def make_report(unit: str, state: str, environment: Mapping[str, str]) -> Report:
    """What there is to say about the run of ``unit`` that systemd's variables mean, or about its newest."""
    name, store = split(unit)
    kept = kept_records(state, name, store)
    monitored = environment.get("MONITOR_UNIT") == unit
    # A unit that never started has a good run's variables, or none; so it is when a person starts this to try it out.
    failed = monitored and environment.get("MONITOR_SERVICE_RESULT") != "success"
    how = verdict(unit) if monitored else ""
    if how == "dependency" or (how is None and not failed):
        first = failed_before(unit)
        other = f"a unit that it needs failed; which: systemctl list-dependencies {unit}"
        line = f"{unit} did not run at {job.now()}: {f'{first} failed before it' if first else other}"
        return Report(line, (), repeats=bool(first))
    if failed:
        invocation = environment.get("MONITOR_INVOCATION_ID", "")
        record = next((r for r in reversed(kept) if r.get("invocation") == invocation), None)
    else:
        record = kept[-1] if kept else None
        invocation = str((record or {}).get("invocation", ""))
    when = printable(record.get("end", "?"), 20) if record else job.now()
    message = printable(record.get("message", ""), 300) if record else ""
    if not failed and (record is None or record.get("exit") == 0):
        said = f"at {when}: {message}" if record else "is not on record"
        return Report(f"{unit} did not fail; its last run {said}", tail(invocation, record), failed=False)
    meaning = f" ({MEANING[name]})" if name in MEANING else ""
    return Report(f"{unit} failed at {when}: {message or words(environment)}{meaning}", tail(invocation, record))


def left_behind(unit: str, state: str, environment: Mapping[str, str]) -> letters.Letter | None:
    """A letter with what a run of the digest or of the reminder left; None where there is nothing to tell.

    The run is the one that systemd's variables mean, else the last that left something.
    """
    name, store = split(unit)
    find = {"digest": digests, "review": queues}.get(name)
    run = environment.get("MONITOR_INVOCATION_ID", "") if environment.get("MONITOR_UNIT") == unit else None
    found = [left for left in (find(f"{state}/{store}") if find else ()) if run in (None, left.get("invocation"))]
    if not found:
        return None
    return {"digest": letters.digest, "review": letters.review}[name](found[-1], store, printable)


def digests(state: str) -> list[dict[str, Any]]:
    """The digests that are kept, oldest first."""
    return [each for each in records.objects(read(f"{state}/digests.jsonl")) if each.get("facts")]


def queues(state: str) -> list[dict[str, Any]]:
    """What the last reminder left, if anything waits."""
    return [each for each in records.objects(read(f"{state}/review.json")) if each.get("facts") or each.get("notes")]


def mail(asked: str, places: Places, environment: Mapping[str, str]) -> int:
    """Mail why a run failed, or what a good one left, and say in one line what became of it."""
    unit, why = asked.removesuffix(LEFT), ""
    if asked != unit:
        letter = left_behind(unit, places.state, environment)
        why = "" if letter else "it left nothing to tell"
    else:
        report = make_report(unit, places.state, environment)
        letter = letters.failure(unit, report.line, report.tail, failed=report.failed)
        why = "the failure before it has its own" if report.repeats else ""
    address = post.address_of(places.settings, split(unit)[1])
    if letter is None or why or not address:
        job.say(f"no mail about {unit}: {why if address else 'no address is set'}")
        return job.DONE
    if reason := post.send(letter, address, places.sendmail):
        job.say(f"the mail about {unit} to {address} could not be sent: {reason}", error=True)
        return job.FAILED
    job.say(f"the mail about {unit} to {address} was handed to {places.sendmail}")
    return job.DONE


def main(argv: list[str]) -> int:
    """Read the command line, report, return the exit code."""
    parser = argparse.ArgumentParser(description="Say that a job failed, and why.")
    parser.add_argument("unit", help=f"the unit that failed; with {LEFT} behind it, one whose good run left something")
    parser.add_argument("--mail", action="store_true", help="by mail instead of in the journal")
    parser.add_argument("--settings", default="/etc/memops/memops.toml", help="memops.toml")
    parser.add_argument("--state", default="/var/lib/memops", help="the directory of the run records")
    parser.add_argument("--sendmail", default="/usr/sbin/sendmail", help="the mail program")
    options = parser.parse_args(argv)
    event = f"({LEFT})?" if options.mail else ""
    if not re.fullmatch(rf"memory-[a-z]+(-[a-z0-9-]+)?\.service{event}", options.unit):
        parser.error(f"{options.unit!r} is no unit of memops")
    places = Places(options.settings, options.state, options.sendmail)
    if options.mail:
        return mail(options.unit, places, os.environ)
    report = make_report(options.unit, places.state, os.environ)
    address = post.address_of(places.settings, split(options.unit)[1])
    no_mail = address and not os.path.exists(places.sendmail)
    note = f" (no mail: this machine has no {places.sendmail})" if no_mail else ""
    job.say(report.line + note, error=report.failed)
    for line in report.tail:
        job.say(f"  | {line}")
    return job.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
