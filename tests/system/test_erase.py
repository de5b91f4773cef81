"""Erasing for good on real servers: as root with an agent, sets, digest and notes; as the agent's user."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from system.machine import DB, ids, memops, sets

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form
SLOW = True

WORD = "Xylophone 7731"
STATE = "/var/lib/memops/default"

_AGENT = """
[Service]
User=agent
ExecStart=/usr/bin/python3 -c "import sqlite3, time; c = sqlite3.connect('/srv/agent/memory.db'); \
c.execute('SELECT count(*) FROM memory').fetchone(); time.sleep(100000)"
"""

# Every byte of every file that may have it, the journal's too, read by a program of its own.
_SEARCH = r"""
import os, subprocess
words = "XYZ"
forms = [words.encode(each) for each in ("utf-8", "utf-16-le", "utf-16-be")]
for top in ("/srv", "/var/lib", "/etc", "/run/memops", "/var/log", "/run/log", "/root", "/tmp", "/var/tmp"):
    for folder, _, files in os.walk(top):
        if folder.startswith("/root/memops"):
            continue
        for name in files:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                data = open(path, "rb").read()
                if any(form in data for form in forms):
                    print(path)
if words in subprocess.run(["journalctl", "-o", "export"], capture_output=True, errors="replace").stdout:
    print("journal")
"""


def holding(server: Server, words: str = WORD) -> list[str]:
    """The files of the machine that have the words."""
    return server.run("python3", "-c", _SEARCH.replace("XYZ", words)).stdout.split()


def remember(server: Server, fact: str, *more: str) -> str:
    ran = memops(server, "remember", "s", fact, "--source", "chat 2026-08-08", "--json", *more)
    name: str = json.loads(ran.stdout)["fact"]["id"]
    return name


def erase(server: Server, *arguments: str, words: str = WORD, code: int = 0) -> dict[str, Any]:
    ran = memops(
        server, "forget", "--erase", "--matching", "-", "--yes", "--json", *arguments, code=code, input=f"{words}\n"
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_root_erases_with_proof(memops_server: Server) -> None:
    server = memops_server
    server.write("/etc/systemd/system/agent.service", _AGENT)
    server.run("systemctl", "daemon-reload")
    memops(server, "install", "--agent-unit", "agent.service", "--full-text")
    server.run("systemctl", "start", "agent")
    old = remember(server, f"Lives beside {WORD}")
    remember(server, "Lives elsewhere", "--replaces", old)
    kept = remember(server, "Uses Helix")
    memops(server, "backup")
    server.run("systemctl", "start", "memory-digest.service")
    memops(server, "sets", "pin", sets(server)[-1])
    doomed = remember(server, f"Was at {WORD}, once")
    memops(server, "backup")
    memops(server, "forget", doomed, "--yes")

    looked = memops(server, "forget", "--erase", "--matching", "-", "--dry-run", input=f"{WORD}\n").stdout
    assert WORD not in looked
    assert f"fact: {old} (fact)" in looked
    assert f"record: {STATE}/digests.jsonl" in looked
    assert looked.count("  set: ") == 2
    assert "agent.service is stopped meanwhile" in looked
    before = server.run("systemctl", "show", "-P", "MainPID", "agent").stdout
    assert len(sets(server)) == 4

    # Without --sets the sets stay, and so it is not gone.
    found = erase(server, code=7)
    assert found["ids"] == [old]
    assert not found["gone"]
    assert all(each.startswith("the set ") for each in found["left"]), found["left"]
    assert all(path.startswith("/srv/backup/") for path in holding(server))
    assert server.run("systemctl", "is-active", "agent").stdout.strip() == "active"
    assert server.run("systemctl", "show", "-P", "MainPID", "agent").stdout != before

    found = erase(server, "--sets", code=7)
    assert ["pinned" in each for each in found["left"]] == [True]
    found = erase(server, "--sets", "--pinned")
    assert (found["gone"], found["left"], found["remarks"]) == (True, [], [])
    assert holding(server) == []
    assert old not in ids(server)
    assert kept in ids(server)
    memops(server, "sets", "verify", "latest")
    assert "Uses Helix" in memops(server, "recall", "helix").stdout
    receipt = server.run("cat", found["receipt"]).stdout
    assert json.loads(receipt.splitlines()[-1])["gone"] is True
    assert server.run("stat", "-c", "%a %U", found["receipt"]).stdout.split() == ["600", "agent"]

    # Killed while the agent stands still, it does not stay so.
    killed = f"printf %s '{WORD}' | memops forget --erase --matching - --yes & command=$!"
    killed += "; while systemctl is-active -q agent; do sleep 0.01; done; kill -KILL $command; wait $command"
    assert server.run("bash", "-c", killed, check=False).code == 137
    server.wait_until(lambda: server.run("systemctl", "is-active", "agent", check=False).stdout.strip() == "active")

    # A credential goes out of a fact that stays.
    value = "ghp_" + "Q7w8E9r0T1y2" * 3
    name = remember(server, f"The token is {value} now", "--allow-secret", "made up")
    memops(server, "backup")
    ran = memops(server, "replace", name, "--redact", "--sets", "--yes")
    assert "Gone" in ran.stdout
    assert holding(server, value) == []
    assert "[…] now" in memops(server, "show", name).stdout


def test_the_agents_user_erases_what_is_theirs_and_nothing_is_called_gone_too_soon(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    name = remember(server, f"Lives beside {WORD}")
    memops(server, "backup")
    # Somebody has the store open: it is not written anew.
    server.write("/etc/systemd/system/agent.service", _AGENT)
    server.run("systemctl", "daemon-reload")
    server.run("systemctl", "start", "agent")
    server.wait_until(
        lambda: "memory.db" in server.run("sh", "-c", "ls -l /proc/[0-9]*/fd | grep memory.db", check=False).stdout
    )
    found = erase(server, code=7)
    assert found["ids"] == [name]
    assert any("sudo systemctl stop agent.service" in each for each in found["left"]), found["left"]
    server.run("systemctl", "stop", "agent")

    name = remember(server, f"Lives beside {WORD}")
    ran = server.run(*("runuser", "-u", "agent", "--", "memops", "forget", "--erase", name, "--yes"), check=False)
    assert ran.code == 7, ran.stdout + ran.stderr
    assert "only root can look at" in ran.stdout
    assert "sudo memops forget --erase --matching - --sets" in ran.stdout
    assert {path.partition("/2")[0] for path in holding(server)} == {"/srv/backup/default"}
    assert erase(server, "--sets")["gone"]
    assert holding(server) == []
    # Nobody else may, and nobody is asked in vain.
    server.run("useradd", "eve")
    denied = server.run("runuser", "-u", "eve", "--", "memops", "forget", "--erase", "m_1", "--yes", check=False)
    assert denied.code == 4
    assert "add --yes" in memops(server, "forget", "--erase", "--matching", "-", code=2, input=f"{WORD}\n").stderr
    assert server.sql(DB, "SELECT count(*) FROM memory") == [[0]]
