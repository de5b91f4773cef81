"""What goes with the main job, on a real systemd: options, long chains, the guard, locks, screens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from system.machine import DB, add_facts, ids, memops, sets, status

if TYPE_CHECKING:
    from system.server import Server

OLD, YOUNG, PAST, FUTURE = "2020-01-01 00:00:00", "2026-11-01 00:00:00", "2021-05-05 05:05:05", "2999-01-01 00:00:00"

ALTERNATE = True  # each test on one Debian, all on both in the long form

COMPLETE = """
. /etc/bash_completion.d/memops
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _memops_completion memops; echo "${COMPREPLY[@]}"; }
complete_words memops sta
complete_words memops install --prune-a
"""


def test_a_changed_option_changes_what_follows_from_it_and_is_remembered(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    one = sets(server)
    said = memops(server, "install", "--prune-at", "04:15").stdout
    assert "change /etc/systemd/system/memory-prune.timer" in said
    assert "memory-backup.timer" not in said.partition("systemctl show")[0]
    assert "04:15:00" in server.show("memory-prune.timer", "TimersCalendar")["TimersCalendar"]
    assert sets(server) == one
    assert "Nothing to do" in memops(server, "install").stdout


@pytest.mark.parametrize("order", ["parents first", "parents last"])
def test_a_chain_of_5000_goes_whole(memops_server: Server, order: str) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, [(f"live{n}", None, None, YOUNG) for n in range(20_000)])
    # One connection puts the whole chain in, with foreign keys checked at its end.
    links = [(f"c{n}", PAST if n == 0 else None, f"c{n - 1}" if n else None, YOUNG) for n in range(5_000)]
    if order == "parents last":
        server.sql(
            DB,
            "PRAGMA foreign_keys = OFF;"
            + "".join(
                "INSERT INTO memory (id, subject, fact, source, expires_at, superseded_by, created_at) VALUES"
                f" ('{i}', 's', 'f', 'chat', {repr(e) if e else 'NULL'}, {repr(s) if s else 'NULL'}, '{c}');"
                for i, e, s, c in reversed(links)
            ),
            script=True,
        )
    else:
        add_facts(server, links)
    server.run("systemctl", "start", "memory-prune.service", timeout=300)
    assert "1 expired, 0 superseded, 4999 in chains" in server.journal("memory-prune.service").replace(
        ",", ", "
    ).replace(",  ", ", ").replace("4, 999", "4999")
    assert len(ids(server)) == 20_000


def test_the_guard_holds_until_a_person_lets_it_go(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(
        server,
        [(f"dead{n}", PAST, None, OLD) for n in range(150)] + [(f"live{n}", None, None, OLD) for n in range(100)],
    )
    assert server.run("systemctl", "start", "memory-prune.service", check=False).code != 0
    assert server.show("memory-prune.service", "ExecMainStatus")["ExecMainStatus"] == "6"
    assert len(ids(server)) == 250
    refused = memops(server, "prune", code=6)
    assert "memops prune --allow-large" in refused.stderr
    assert "prune failed" in memops(server, "status").stdout
    memops(server, "prune", "--allow-large", "--yes")
    assert len(ids(server)) == 100
    assert not server.exists("/run/memops/prune-default.json")
    assert status(server)["problems"] == []


def test_a_store_with_dead_rows_is_only_reported_on_at_install(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, [("dead", PAST, None, OLD), ("live", None, None, OLD)])
    memops(server, "uninstall")
    said = memops(server, "install").stdout
    assert "the first run will delete 1 of 2 rows" in said
    assert ids(server) == {"dead", "live"}


def test_a_locked_store_is_named(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, [("dead", PAST, None, OLD)])
    hold = (
        "import sqlite3, sys, time\n"
        f"c = sqlite3.connect({DB!r}, isolation_level=None)\n"
        "c.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    holder = server.popen("python3", "-c", hold, user="agent", empty_input=False)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert "the agent held the write lock" in memops(server, "prune", code=5).stderr
    finally:
        holder.communicate("")
    assert ids(server) == {"dead"}
    memops(server, "prune")
    assert ids(server) == set()


def test_what_a_stranger_sees(memops_server: Server) -> None:
    server = memops_server
    assert "sudo memops install" in memops(server, "status", code=1, user="nobody").stderr
    memops(server, "install")
    data = json.loads(memops(server, "status", "--json", user="nobody").stdout)["stores"][0]
    assert data["counts"] is None
    assert len(data["unreadable"]) == 2
    assert all(lines is None for lines in data["journal"].values())
    assert data["timers"][0]["next"] is not None
    text = memops(server, "status", user="nobody").stdout
    assert "not read" in text
    assert "never ran" not in text.replace("drill        never ran", "")
    for command in ("install", "prune", "uninstall"):
        refused = memops(server, command, user="nobody", code=4)
        assert f"sudo memops {command}" in refused.stderr


def test_the_shell_completes_and_logs_and_manual_are_there(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    assert server.run("bash", "-c", COMPLETE).stdout.split() == ["status", "--prune-at"]
    assert "prune: 0 expired" in memops(server, "logs", "--no-follow").stdout
    page = server.read("/usr/local/share/man/man8/memops.8")
    assert "memops install" in page.replace("\\fB", "").replace("\\fR", "")
    assert "\\-\\-prune\\-at" in page


def test_no_colour_is_kept_and_the_screen_fits(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    coloured = memops(server, "status", tty=True, env={"TERM": "xterm", "COLUMNS": "80"}).stdout
    assert "\x1b[" in coloured
    assert "\x1b[" not in memops(server, "status", tty=True, env={"TERM": "xterm", "NO_COLOR": "1"}).stdout
    for columns in (80, 50):
        lines = memops(server, "status", env={"COLUMNS": str(columns)}).stdout.splitlines()
        assert max(map(len, lines)) <= columns
