"""A machine whose jobs all went well last night, for the tests of what is made of that; each can be changed."""

from __future__ import annotations

import calendar
import os
import subprocess
import time

from memops import check, records, survey

DAY = 86400
NOW = calendar.timegm((2026, 11, 30, 12, 0, 0))
NIGHT = NOW - 12 * 3600  # the last midnight
SUNDAY = NIGHT - DAY


def stamp(seconds: float) -> str:
    return time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def systemd(**changes: dict[str, str]) -> survey.Run:
    """A systemd that ran everything last night; ``prune_timer={...}`` changes properties of memory-prune.timer.

    The drill and the review's reminder were on the last Sunday. Of the jobs that only some stores have there is none.
    """
    units = {f"memory-{job}.service": {"LoadState": "not-found", "ActiveState": "inactive"} for job in survey.OPTIONAL}
    for job in survey.JOBS:
        units[f"memory-{job}.service"] = {
            "LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "static", "NeedDaemonReload": "no",
            "DropInPaths": "", "Job": "", "Result": "success", "ExecMainStatus": "0",
            "ExecMainExitTimestamp": stamp(NIGHT + 60), "InvocationID": "a" * 32,
        }  # fmt: skip
    for job in survey.TIMED:
        units[f"memory-{job}.timer"] = {
            "LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no",
            "DropInPaths": "", "TimersCalendar": "{ OnCalendar=*-*-* 00:00:00 ; next_elapse=x }",
            "NextElapseUSecRealtime": stamp(NIGHT + DAY), "LastTriggerUSec": stamp(NIGHT),
            "LastTriggerUSecMonotonic": "5d 3h", "ActiveEnterTimestamp": stamp(NIGHT - 9 * DAY),
        }  # fmt: skip
    for job in ("drill", "review"):
        units[f"memory-{job}.service"]["ExecMainExitTimestamp"] = stamp(SUNDAY + 60)
        units[f"memory-{job}.timer"] |= {
            "TimersCalendar": "{ OnCalendar=Sun *-*-* 00:00:00 ; next_elapse=x }", "LastTriggerUSec": stamp(SUNDAY),
            "NextElapseUSecRealtime": stamp(SUNDAY + 7 * DAY),
        }  # fmt: skip
    for name, properties in changes.items():
        units[f"memory-{name.replace('_', '.')}" + ("" if "_" in name else ".service")].update(properties)

    def run(*words: str) -> str:
        if words[:4] == ("env", "TZ=UTC", "systemctl", "show"):
            wanted = words[words.index("--") + 1 :]
            # As systemd does, a pattern stands for the units that are loaded: here no alarm ever ran.
            assert {name for name in wanted if not name.endswith("@*")} == set(units)
            return "\n\n".join("\n".join(f"{k}={v}" for k, v in {"Id": n, **units[n]}.items()) for n in units)
        if words[:2] == ("systemctl", "list-timers"):
            return "[]"
        # The real one, whose answers are what the judgement rests on.
        assert words[:2] == ("systemd-analyze", "calendar")
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        return subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout

    return run


def sealed(at: float = NIGHT + 60, result: str = "done", message: str = "", **more: object) -> dict:
    newest = {"set": "s", "sealed_at": survey.iso(at), "bytes": 20480, "rows": 3}
    seal = {"end": survey.iso(at), "result": result, "exit": int(result != "done"), "message": message}
    return {"seal": seal, "newest": newest, **more}


def ended(at: float, message: str = "", **more: object) -> dict:
    """The record of a job of root's; with a message it failed."""
    return {"end": survey.iso(at), "result": "failed" if message else "done", "exit": int(bool(message)),
            "message": message, **more}  # fmt: skip


THERE = {"LoadState": "loaded", "ActiveState": "inactive", "NeedDaemonReload": "no"}
NOT_FOUND = {"LoadState": "not-found", "ActiveState": "inactive"}
FAILED = {"set": "2026-11-29T233000Z", "at": "x", "message": "memory.db has another sha256"}


def whole() -> dict:
    """A record of the sets with everything in it."""
    found = sealed(drill=ended(SUNDAY), offsite=ended(NIGHT), failed=[FAILED], loss={"set": "s", "rows": 9})
    found["newest"]["parts"] = 3
    return found


FILES = records.Files(None, sealed(), ("/var/lib/memops/default/runs.jsonl (needs root or the store's user)",))


def look(files: records.Files = FILES, now: float = NOW, **changes: dict[str, str]) -> check.Judged:
    found = survey.look("default", systemd(**changes), now, files)
    return check.judge({"db": "/srv/agent/memory.db", "user": "agent", "backup_dir": "/srv/backup/default", **found})


WEEKLY = {"TimersCalendar": "{ OnCalendar=Mon *-*-* 00:00:00 ; next_elapse=x }"}
GONE = {"ExecMainExitTimestamp": ""}
REBOOTED = {"LastTriggerUSecMonotonic": "0"}
NEVER = {"LastTriggerUSec": "", "LastTriggerUSecMonotonic": "0", "ActiveEnterTimestamp": stamp(NOW - 60)}
