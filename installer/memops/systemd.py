"""Asking and telling systemd, in its own words. Answers are data (``systemctl show``, JSON), never tables."""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from memops import host, survey
from memops.errors import MemopsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OLDEST = 252


def version() -> int | None:
    """The running systemd's version; None where PID 1 is another program."""
    if not Path("/run/systemd/system").is_dir():
        return None
    match = re.match(r"systemd (\d+)", host.run("systemctl", "--version").out)
    return int(match[1]) if match else None


def calendar(expression: str) -> str:
    """The normal form of a calendar expression. Raises UsageError when systemd cannot read it."""
    ran = host.run("systemd-analyze", "calendar", "--iterations=1", "--", expression, ok=None)
    match = re.search(r"Normalized form: (.+)", ran.out)
    if ran.code or not match:
        raise UsageError(
            f"{expression!r} is not a calendar expression.", f"Try it with: systemd-analyze calendar {expression!r}"
        )
    if "Next elapse: never" in ran.out:
        raise UsageError(f"{expression!r} lies in the past for ever.", "Type for example 'daily' or '04:00'.")
    return match[1].strip()


def show(units: Sequence[str], *properties: str) -> dict[str, dict[str, str]]:
    """Properties of units as systemd reports them now: unit → property → value; times are in UTC."""
    return survey.show(output, units, *properties)


def next_runs(timers: Sequence[str]) -> dict[str, int]:
    """When each timer elapses next, as list-timers says: timer → µs since 1970. One without a next run is left out."""
    return survey.next_runs(output, timers)


def output(*words: str) -> str:
    """What a program prints. Raises MemopsError when it fails."""
    return host.run(*words).out


def verify(files: Mapping[str, str]) -> None:
    """Let systemd read unit files (name → text) before they go live. Raises MemopsError for anything it remarks."""
    with tempfile.TemporaryDirectory(prefix="memops-verify-") as directory:
        paths = [Path(directory, name) for name in files]
        for path, text in zip(paths, files.values(), strict=True):
            path.write_text(text, encoding="utf-8")
        ran = host.run(
            "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *(str(path) for path in paths), ok=None
        )
    # Exit code 0 proves little: unknown keys and paths cut at a space are only remarked.
    if ran.code or ran.err.strip():
        raise MemopsError(f"systemd does not accept the units: {ran.said}", "Please report this with your memops.toml.")


def wait(unit: str, look: Callable[[], None] = lambda: None) -> None:
    """Stay until a oneshot service has nothing to do any more. look: called now and then meanwhile."""
    while show([unit], "Job")[unit]["Job"] not in ("", "0"):
        look()
        time.sleep(0.1)


def start(unit: str) -> host.Ran:
    """Start a oneshot service and wait for its end; what systemctl said, whose code is not 0 when the job failed.

    A run under way is waited for first: starting would only join it, and it may be one of an older unit, or have been
    told something else.
    """
    wait(unit)
    return host.run("systemctl", "start", "--", unit, timeout=4 * 3600, ok=None)


def follow(unit: str, look: Callable[[], None]) -> None:
    """As ``start``, and call ``look`` now and then while the new run goes on; how it ended is in the jobs' records."""
    wait(unit)
    look()
    host.run("systemctl", "start", "--no-block", "--", unit)
    wait(unit, look)


def exposure(unit: str) -> float | None:
    """How exposed a loaded service is, 0 (best) to 10, by ``systemd-analyze security``; None when it does not say."""
    ran = host.run("systemd-analyze", "security", "--no-pager", "--", unit, ok=None)
    match = re.search(r"Overall exposure level for .*: ([0-9.]+)", ran.out)
    return float(match[1]) if match else None


def journal(units: Sequence[str], lines: int, *matches: str) -> list[dict[str, str]] | None:
    """The newest journal entries of units, oldest first, as fields; None when this user may not read them."""
    chosen = [f"--unit={unit}" for unit in units]
    ran = host.run("journalctl", "--no-pager", "--output=json", f"--lines={lines}", *chosen, *matches, ok=None)
    if ran.code or "not seeing messages from other users" in ran.err or "No journal files were opened" in ran.err:
        return None
    return [json.loads(line) for line in ran.out.splitlines() if line.startswith("{")]
