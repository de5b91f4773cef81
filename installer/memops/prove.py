"""After an installation: does the machine say what was meant? Every proof is an observation, none an assumption."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from memops import adopted, host, jobs, prune, systemd
from memops.errors import MemopsError
from memops.render import METRICS_UNITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from memops.settings import Store

MOST_EXPOSED = {"snapshot": 0.5, "prune": 0.5, "digest": 0.5, "review": 0.5, "backup": 1.0, "drill": 1.2}
"""The exposure each job may have at most, by ``systemd-analyze security``."""


def everything(store: Store, edited: set[str], say: Callable[[str], None]) -> list[str]:
    """Prove the installation of a store; returns what did not hold, in sentences.

    edited: units that somebody changed, which may well say something else than memops meant.
    """
    problems: list[str] = []
    proofs: tuple[Callable[[], list[str]], ...] = (
        partial(units, store, edited, say),
        partial(next_runs, store, say),
        partial(first_backup, store, say),
        partial(first_prune, store, say),
        partial(first_digest, store, say),
        partial(textfile, store, say),
        partial(exposure, store, edited, say),
    )
    for proof in proofs:
        try:
            problems += proof()
        except MemopsError as error:
            problems.append(error.message)
    return problems


def units(store: Store, edited: set[str], say: Callable[[str], None]) -> list[str]:
    """``systemctl show`` reports the user, the bound directory and the schedule that were meant."""
    say("systemctl show: users, directories and schedules are what was meant")
    names = [*(store.unit(job) for job in store.jobs), *store.timers]
    shown = systemd.show(names, "LoadState", "User", "BindPaths", "TimersCalendar", "DropInPaths")
    problems = [
        f"systemd reports {unit} as {shown.get(unit, {}).get('LoadState', 'unknown')}."
        for unit in names
        if shown.get(unit, {}).get("LoadState") != "loaded"
    ]
    ours = {name: unit for name, unit in shown.items() if name not in edited and not unit["DropInPaths"]}
    for job in ("prune", "snapshot", "digest", "review"):
        unit = ours.get(store.unit(job), {"User": store.user})
        if unit["User"] != store.user:
            problems.append(f"{store.unit(job)} would run as {unit['User'] or 'root'}, not as {store.user}.")
        bound = f"{store.directory}:/run/memops/store:"
        if store.strict and not unit.get("BindPaths", bound).startswith(bound):
            problems.append(f"{store.unit(job)} binds {unit['BindPaths']!r}, not {store.directory}.")
    for job, wanted in (("prune", store.prune_at), ("backup", store.backup_at)):
        timer = ours.get(store.unit(job, "timer"))
        if timer and f"OnCalendar={systemd.calendar(wanted)} ;" not in timer["TimersCalendar"]:
            problems.append(f"{timer['Id']} has the schedule {timer['TimersCalendar']!r}, not {wanted!r}.")
    return problems


def next_runs(store: Store, say: Callable[[str], None]) -> list[str]:
    """``systemctl list-timers`` shows a next run for each timer that nobody disabled or stopped."""
    runs = systemd.next_runs(store.timers)
    for timer, at in sorted(runs.items(), key=lambda item: item[1]):
        say(f"systemctl list-timers: {timer} runs next at {datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%d %H:%M} UTC")
    shown = systemd.show(store.timers, "UnitFileState", "ActiveState")
    meant = [t for t in store.timers if shown.get(t) == {"Id": t, "UnitFileState": "enabled", "ActiveState": "active"}]
    return [f"{timer} has no next run: systemctl status {timer}" for timer in meant if timer not in runs]


def first_backup(store: Store, say: Callable[[str], None]) -> list[str]:
    """The journal holds the line of a sealed set; where there is no journal to read, the sealing job's record does."""
    entries = systemd.journal([store.unit("backup")], 20) or []
    sealed = next((e["MESSAGE"] for e in reversed(entries) if "sealed" in str(e.get("MESSAGE", ""))), None)
    record = (jobs.sets_record(store) or {"seal": {}})["seal"]
    if sealed is None and record.get("result") == "done":
        say(f"the journal shows nothing of it, but the sealing job's record: {record.get('message')}")
    elif sealed is None:
        return [f"There is no sealed set: journalctl -u {store.unit('backup')}"]
    else:
        say(f"journalctl: {sealed}")
    return []


def first_prune(store: Store, say: Callable[[str], None]) -> list[str]:
    """The prune unit runs: only reporting at first, and for real when nothing is dead."""
    counts = prune.run(store, "report")["counts"]
    dead = sum(int(counts.get(reason, 0)) for reason in ("expired", "superseded", "chain"))
    if dead:
        say(
            f"prune, only reporting: the first run will delete {dead} of {counts.get('rows')} rows;"
            " which: sudo memops prune --dry-run"
        )
        return []
    record = prune.run(store, None)
    say(f"prune, for real: {record['message']}")
    return []


def first_digest(store: Store, say: Callable[[str], None]) -> list[str]:
    """The prune has started the digest, which ends well."""
    unit = store.unit("digest")
    systemd.wait(unit)
    record = jobs.last_run(jobs.run_records(store), "digest")
    if record is None or record["exit"] != 0:
        return [f"The digest did not come to a good end: journalctl -u {unit}"]
    say(f"digest: {record['message']}")
    return []


def textfile(store: Store, say: Callable[[str], None]) -> list[str]:
    """The metrics job, where there is one, writes the store's figures."""
    if not store.textfile:
        return []
    systemd.start(METRICS_UNITS[0])
    written = f'memops_status{{store="{store.name}"}}' in (host.read(store.textfile) or "")
    if not written:
        return [f"{store.textfile} does not hold the figures: journalctl -u {METRICS_UNITS[0]}"]
    say(f"{store.textfile} holds the figures of {store.name}")
    return []


def exposure(store: Store, edited: set[str], say: Callable[[str], None]) -> list[str]:
    """``systemd-analyze security`` gives each job at most the exposure it should have, unless it was stepped down."""
    problems, scores = [], []
    # Where the product is a server, its prune has a network.
    wider = {"prune": 1.5} if store.has_ledger and adopted.speaks(store) else {}
    for job, most in (MOST_EXPOSED | wider).items():
        unit = store.unit(job)
        score = systemd.exposure(unit)
        scores.append(f"{unit} {score}")
        if store.strict and unit not in edited and (score is None or score > most):
            problems.append(f"{unit} is exposed {score}, more than {most}: systemd-analyze security {unit}")
    say(f"systemd-analyze security (0 is best, 10 worst): {', '.join(scores)}")
    return problems
