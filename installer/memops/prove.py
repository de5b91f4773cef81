"""After an installation: does the machine say what was meant? Every proof is an observation, none an assumption."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memops import prune, systemd
from memops.errors import MemopsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memops.settings import Store

MOST_EXPOSED = {"snapshot": 0.5, "prune": 0.5, "backup": 1.0}
"""The exposure each job may have at most, by ``systemd-analyze security``."""


def everything(store: Store, say: Callable[[str], None]) -> list[str]:
    """Prove the installation of a store; returns what did not hold, in sentences."""
    problems: list[str] = []
    for proof in (units, next_runs, first_backup, first_prune, exposure):
        try:
            problems += proof(store, say)
        except MemopsError as error:
            problems.append(error.message)
    return problems


def units(store: Store, say: Callable[[str], None]) -> list[str]:
    """``systemctl show`` reports the user, the bound directory and the schedule that were meant."""
    say("systemctl show: users, directories and schedules are what was meant")
    services = [store.unit(job) for job in store.jobs]
    shown = systemd.show(
        [*services, *store.timers], "LoadState", "User", "BindPaths", "TimersCalendar", "NeedDaemonReload"
    )
    problems = [
        f"systemd reports {unit} as {shown.get(unit, {}).get('LoadState', 'unknown')}."
        for unit in (*services, *store.timers)
        if shown.get(unit, {}).get("LoadState") != "loaded"
    ]
    bound = f"{store.directory}:/run/memops/store:"
    for job in ("prune", "snapshot"):
        unit = shown.get(store.unit(job), {})
        if unit.get("User") != store.user:
            problems.append(f"{store.unit(job)} would run as {unit.get('User') or 'root'}, not as {store.user}.")
        if not unit.get("BindPaths", "").startswith(bound):
            problems.append(f"{store.unit(job)} binds {unit.get('BindPaths')!r}, not {store.directory}.")
    for job, wanted in (("prune", store.prune_at), ("backup", store.backup_at)):
        timer = shown.get(store.unit(job, "timer"), {})
        if f"OnCalendar={systemd.calendar(wanted)} ;" not in timer.get("TimersCalendar", ""):
            problems.append(
                f"{store.unit(job, 'timer')} has the schedule {timer.get('TimersCalendar')!r}, not {wanted!r}."
            )
    return problems


def next_runs(store: Store, say: Callable[[str], None]) -> list[str]:
    """``systemctl list-timers`` shows a next run for each timer."""
    runs = systemd.next_runs(store.timers)
    for timer, at in sorted(runs.items(), key=lambda item: item[1]):
        say(f"systemctl list-timers: {timer} runs next at {datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%d %H:%M} UTC")
    return [f"{timer} has no next run: systemctl status {timer}" for timer in store.timers if timer not in runs]


def first_backup(store: Store, say: Callable[[str], None]) -> list[str]:
    """The journal holds the line of a sealed set."""
    entries = systemd.journal(store.unit("backup"), 20)
    sealed = next((e["MESSAGE"] for e in reversed(entries or []) if "sealed" in str(e.get("MESSAGE", ""))), None)
    if sealed is None:
        return [f"The journal shows no sealed set: journalctl -u {store.unit('backup')}"]
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


def exposure(store: Store, say: Callable[[str], None]) -> list[str]:
    """``systemd-analyze security`` gives each job at most the exposure it should have."""
    problems, scores = [], []
    for job, most in MOST_EXPOSED.items():
        score = systemd.exposure(store.unit(job))
        scores.append(f"{store.unit(job)} {score}")
        if score is None or score > most:
            problems.append(f"{store.unit(job)} is exposed {score}, more than {most}: systemd-analyze security")
    say(f"systemd-analyze security (0 is best, 10 worst): {', '.join(scores)}")
    return problems
