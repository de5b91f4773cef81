"""Turning results into text. Data goes to stdout, talk to stderr; colour only where a terminal wants it."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from memops import plot as plots
from memops.health import name_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from memops.settings import Store

_COLOURS = {"red": 31, "green": 32, "yellow": 33, "bold": 1, "dim": 2}


def colour(text: str, name: str, stream: TextIO) -> str:
    """``text`` in a colour when ``stream`` is a terminal and NO_COLOR (https://no-color.org) is not set."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m"


def say(text: str) -> None:
    """One line of talk."""
    print(text, file=sys.stderr, flush=True)


def step(text: str) -> None:
    """One step of an installation."""
    print(f"  {text}", flush=True)


def error(message: str, hint: str) -> None:
    """What is so, and what to type."""
    say(colour("Error: ", "red", sys.stderr) + message)
    if hint:
        say(hint)


def ask(what: str) -> str:
    """A secret from standard input: typed unseen on a terminal, else the first line."""
    return getpass.getpass(f"{what}: ") if sys.stdin.isatty() else sys.stdin.readline().strip()


def progress() -> Callable[[int, int], None] | None:
    """What shows how far a job is, on one line of a terminal; None where there is no terminal."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        print(f"\r{done} of {total} rows", end="" if done < total else "\n", file=sys.stderr, flush=True)

    return show


def installed(store: Store, remarks: list[str]) -> str:
    """The last words of an installation."""
    lines = [f"Note: {remark}" for remark in remarks]
    rank = f"sudo memops install --full-text{name_option(store.name)}"
    lines += [
        "",
        f"memops looks after {store.db} now. What to type next:",
        "  memops status                             see how it is",
        f"  sudo systemctl start {store.unit('prune'):<20} prune now",
        f"  sudo systemctl start {store.unit('backup'):<20} back up now",
        *([] if store.full_text else [f"  {rank:<41} let recall rank what it finds"]),
        "  sudo memops uninstall                     take it away again; the data stays",
    ]
    return "\n".join(lines)


def doomed(rows: list[dict[str, str]], *, deletes: bool = True) -> str:
    """The list of ``memops prune --dry-run``; ``deletes``: whether a run would do so, or only observe."""
    if not rows:
        return "Nothing is dead and nothing doubtful: a run would delete nothing."
    wide = max(len(row["id"]) for row in rows)
    lines = []
    for row in rows:
        why = {
            "expired": f"expired {row['date']}",
            "superseded": f"superseded, dated {row['date']}",
            "chain": f"behind {row.get('behind', '?')}, which goes",
            "doubtful": f"kept, it or its chain is doubtful: {row['date']}",
        }.get(row["reason"], row["reason"])
        lines.append(f"{row['id']:<{wide}}  {why}")
    kept = sum(row["reason"] == "doubtful" for row in rows)
    last = f"A run would delete {len(rows) - kept} rows and keep {kept} doubtful ones."
    return "\n".join([*lines, last if deletes else "Another program keeps them, and a run would delete none of them."])


def age(seconds: int | None) -> str:
    """An age in the largest unit that fits: ``5 min``, ``20 h``, ``3 days``."""
    if seconds is None:
        return "?"
    if seconds < 0:
        return "in the future"
    for size, unit in ((86400, "days"), (3600, "h")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"


def size(count: object) -> str:
    """Bytes in decimal units."""
    amount = float(count) if isinstance(count, int | float) else 0.0
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def status(data: Mapping[str, Any]) -> str:
    """The screen of ``memops status``."""
    width = screen()
    return "\n\n".join("\n".join(_store(store, width)) for store in data["stores"])


def screen() -> int:
    """Columns that a report takes: those of the terminal, 80 where there is none, and no more than can be read."""
    return min(shutil.get_terminal_size((80, 24)).columns, 120)


_MARKS = {"ok": ("ok", "green"), "warning": ("look here", "yellow"), "error": ("not well", "red")}


def _store(store: Mapping[str, Any], width: int) -> list[str]:
    word, tint = _MARKS[store["problems"][0]["level"] if store["problems"] else "ok"]
    lines = [f"{colour(store['name'], 'bold', sys.stdout)}: {colour(word, tint, sys.stdout)}"]
    for problem in store["problems"]:
        lines += wrap(f"{problem['what']}.", width, "! ", _MARKS[problem["level"]][1])
        lines += wrap(problem["type"], width, "    ", "bold")
    mode = (store["counts"] or {}).get("journal_mode")
    lines += _line(
        "store", f"{store['db']} (user {store['user']}" + (f", journal mode {mode})" if mode else ")"), width
    )
    if store.get("level"):
        lines += _line("adopted", f"{store['product']}, level {store['level']}", width)
    lines += _line("facts", _facts(store), width)
    lines += _health(store["health"], width) if store["health"] else []
    newest = store["newest_set"]
    if newest:
        parts = f"{newest['parts']} parts, " if newest["parts"] != 1 else ""
        newest = f"{newest['set']}, {parts}{newest['rows']} rows, {size(newest['bytes'])}, {age(newest['age'])} old"
    lines += _line("newest set", newest or "none verified yet", width)
    timers = {timer["unit"].removesuffix(".timer"): timer for timer in store["timers"]}
    for job in store["jobs"]:
        lines += _line(job["job"], _run(job, timers.get(job["unit"].removesuffix(".service"))), width)
    lines += [line for unit, entries in store["journal"].items() for line in _log(unit, entries, width)]
    for unit in (*store["timers"], *store["jobs"]):
        lines += [line for path in unit["drop_ins"] for line in _line("drop-in", path, width)]
    for what in store["unreadable"]:
        lines += _line("not read", what, width)
    return lines


def _run(job: Mapping[str, Any], timer: Mapping[str, Any] | None) -> str:
    last = str(job["result"]) if job["ended"] is None else f"{job['result']} {age(job['age'])} ago"
    if timer is None:
        starts = {"offsite": "follows each backup", "digest": "follows each prune"}
        return f"{last}; {starts.get(job['job'], 'the backup starts it')}"
    if job["job"] in ("drill", "review"):
        return f"{last}; next {_minute(timer['next'])}"
    return f"{last}; next {_minute(timer['next'])}, timer's last {_minute(timer['last'])}"


def _log(unit: str, entries: list[str] | None, width: int) -> list[str]:
    label = unit.removeprefix("memory-").removesuffix(".service") + " log"
    return [line for entry in entries or [] for line in _line(label, entry, width, "dim")]


def _facts(store: Mapping[str, Any]) -> str:
    counts = store["counts"]
    if counts is None:
        return "not counted" if store["unreadable"] else "not counted yet"
    parts = [f"{counts.get('rows', '?')} rows, {counts.get('live', '?')} live, gap {counts.get('gap', '?')}"]
    parts += [f"{counts[key]} {key}" for key in ("dead", "doubtful") if key in counts]
    if "violations" in counts:
        parts.append(f"{counts['violations']} foreign-key violations")
    return ", ".join(parts) + f" (counted {age(counts['age'])} ago)"


_CONFIRMED = {
    "month": "under 30 days",
    "quarter": "30 to 90 days",
    "half": "90 to 180 days",
    "year": "180 days to a year",
    "older": "longer ago",
    "never": "never",
}
"""The words for the ages of a confirmation."""


def _health(health: Mapping[str, Any], width: int) -> list[str]:
    from memops.vitals import WEEKLY

    ages = [(word, health["confirmed"][key]) for key, word in _CONFIRMED.items()]
    plot = plots.bars(ages, width - len(_label("")), sys.stdout.encoding)
    lines = [_label("confirmed" if number == 0 else "") + bar for number, bar in enumerate(plot)]
    sources = sorted(health["sources"].items(), key=lambda item: (item[0] != "person", -item[1]))
    if sources:
        lines += _line("sources", ", ".join(f"{count:,} {name}" for name, count in sources), width)
    if any(health["dead"].values()):
        dead = health["dead"]
        words = f"{dead['expired']:,} expired, {dead['superseded']:,} superseded, {dead['chain']:,} behind those"
        lines += _line("dead", words, width)
    weeks = f", {health['weeks']:,} weeks at {WEEKLY} a week" if health["weeks"] > 1 else ""
    counted = f" (counted {age(health['age'])} ago)"
    return lines + _line("review", f"{health['waiting']:,} facts wait{weeks}{counted}", width)


def _minute(text: str | None) -> str:
    return "none" if text is None else text[:16].replace("T", " ") + " UTC"


def _line(label: str, text: str, width: int, tint: str = "") -> list[str]:
    return wrap(text, width, _label(label), tint)


def _label(label: str) -> str:
    return f"  {label:<12} "


def wrap(text: str, width: int, first: str, tint: str = "", rest: int | None = None) -> list[str]:
    """A text in lines of ``width``; those after the first are as far in as what leads it, or ``rest`` columns.

    A long word is never cut.
    """
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * (len(first) if rest is None else rest),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [colour(line, tint, sys.stdout) if tint else line for line in lines or [first]]
