"""A store with further parts, a set of it and another state since: what the tests of restores begin with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from system.machine import DB, add_facts, ids, memops

if TYPE_CHECKING:
    from system.server import Server

OLD = "2020-01-01 00:00:00"
SETS = "/srv/backup/default"
NOTE = "/var/lib/memops/default.restore.json"
HISTORY = "/srv/agent/history.db"
NOTES = "/srv/agent/notes"
PARTS = ("--with", f"sqlite={HISTORY}", "--with", f"files={NOTES}")
KILLS = 50 if os.environ.get("MEMOPS_LONG") else 5

MAKE_PARTS = f"""
umask 077
sqlite3 {HISTORY} "CREATE TABLE history (id INTEGER PRIMARY KEY, what TEXT); INSERT INTO history (what) VALUES ('then')"
mkdir -p {NOTES}/deep/empty
echo then >{NOTES}/deep/note.md
echo then >{NOTES}/both.md
"""
CHANGE_PARTS = f"""
sqlite3 {HISTORY} "INSERT INTO history (what) VALUES ('since')"
rm -r {NOTES}/deep
echo since >{NOTES}/both.md
echo since >{NOTES}/new.md
"""

# Opens the store, writes to it, and stays; the word before the path says what it does to be found by.
AGENT = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("PRAGMA journal_mode = WAL")
number = 0
while True:
    number += 1
    values = (f"{time.time_ns()}", "s", "f", "x")
    connection.execute("INSERT INTO memory (id, subject, fact, source) VALUES (?, ?, ?, ?)", values)
    if number == 1:
        print("open", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def names(*words: str) -> list[Any]:
    return [(word, None, None, OLD) for word in words]


def state(server: Server) -> tuple[set[str], list[Any], str]:
    """What the parts hold: ids, history, notes."""
    notes = server.sh(f"cd {NOTES}; find . -path './before-restore-*' -prune -o -type f -exec sha256sum {{}} + | sort")
    return ids(server), server.sql(HISTORY, "SELECT what FROM history ORDER BY id"), notes.stdout


def timers(server: Server) -> dict[str, dict[str, str]]:
    units = tuple(f"memory-{job}.timer" for job in ("backup", "prune", "drill", "review"))
    return {unit: server.show(unit, "ActiveState", "UnitFileState") for unit in units}


def with_parts(server: Server) -> tuple[Any, Any]:
    """A store with two further parts, a set of it, and another state since; returns that of the set and the present."""
    memops(server, "install")
    server.sh(MAKE_PARTS, user="agent")
    memops(server, "install", *PARTS)
    add_facts(server, names("kept", "deleted"))
    memops(server, "backup")
    then = state(server)
    server.sql(DB, "DELETE FROM memory WHERE id = 'deleted'")
    add_facts(server, names("since"))
    server.sh(CHANGE_PARTS, user="agent")
    now = state(server)
    assert then != now
    return then, now


def untouched(server: Server) -> str:
    """All of the store's directory: sums, modes, owners. But for the files that any reader's opening makes."""
    those = "! -name '*-shm' ! -name '*-wal'"
    sums, modes = f"find . -type f {those} -exec sha256sum {{}} +", f"find . {those} -printf '%p %m %u %g\\n'"
    return server.sh(f"cd /srv/agent; {sums} | sort; {modes} | sort").stdout


def asides(server: Server, directory: str = "/srv/agent") -> list[str]:
    return server.sh(f"ls -d {directory}/before-restore-* 2>/dev/null || true").stdout.split()


def start_agent(server: Server, path: str, *options: str) -> str:
    """Run the agent in a unit of its own; returns its process."""
    identity = ("--property=User=agent", "--unit=some-agent", *options)
    server.run("systemd-run", "--quiet", *identity, "python3", "-u", "/usr/local/bin/agent.py", path, "3600")
    server.wait_until(lambda: "open" in server.journal("some-agent.service"))
    return server.show("some-agent.service", "MainPID")["MainPID"]
