"""Every part of a memory in one set, on real servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from system.machine import add_facts, memops, sets

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form

SETS = "/srv/backup/default"
AGENT = "[Service]\nUser=agent\nExecStart=/bin/sleep infinity\n"
HISTORY = (
    "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, event TEXT);"
    "INSERT INTO history VALUES ('1', 'a', 'ADD'), ('2', 'b', 'ADD'), ('3', 'b', 'DELETE');"
)


def fill(server: Server) -> None:
    """A store with two facts, a database and notes beside it."""
    memops(server, "install")
    add_facts(server, [(name, None, None, "2026-01-01 00:00:00") for name in "ab"])
    server.run(
        "python3",
        "-c",
        f"import sqlite3; sqlite3.connect('/srv/agent/history.db').executescript({HISTORY!r})",
        user="agent",
    )
    server.sh(
        "mkdir -p /srv/agent/notes/deep && echo one >/srv/agent/notes/one.md && echo two >/srv/agent/notes/deep/two.md",
        user="agent",
    )


def newest(server: Server) -> dict[str, Any]:
    """The manifest of the newest set."""
    manifest: dict[str, Any] = json.loads(server.read(f"{SETS}/{sets(server)[-1]}/manifest.json"))
    return manifest


def test_parts_are_sealed_together_and_the_agent_is_paused_meanwhile(memops_server: Server) -> None:
    server = memops_server
    fill(server)
    server.write("/etc/systemd/system/agent.service", AGENT)
    server.run("systemctl", "daemon-reload")
    server.run("systemctl", "start", "agent.service")
    said = memops(
        server,
        "install",
        *("--with", "/srv/agent/history.db", "--with", "/srv/agent/notes", "--agent-unit", "agent.service"),
    )
    assert "is taken for --with sqlite=/srv/agent/history.db." in said.stderr
    assert "Nothing to do" in memops(server, "install").stdout
    before = server.show("agent.service", "InvocationID")
    server.run("systemctl", "start", "memory-backup.service")
    manifest = newest(server)
    assert [(part["kind"], part["name"]) for part in manifest["parts"]] == [
        ("sqlite", "memory.db"),
        ("sqlite", "history"),
        ("files", "notes"),
    ]
    set_ = f"{SETS}/{manifest['set']}"
    assert set(manifest["parts"][2]["files"]) == {"notes/one.md", "notes/deep/two.md"}
    assert server.read(f"{set_}/notes/deep/two.md") == "two\n"
    assert server.run("find", set_, "!", "-user", "root", "-o", "-perm", "/077").stdout == ""
    assert server.run("ls", "-A", "/srv/backup/incoming/default").stdout == ""
    # Stopped, and started again once the copies were there.
    server.wait_until(lambda: server.show("agent.service", "ActiveState")["ActiveState"] == "active")
    assert server.show("agent.service", "InvocationID") != before
    assert server.show("memory-pause.service", "ActiveState")["ActiveState"] == "inactive"
    words = server.journal("memory-pause.service")
    assert words.index("stopped for the copy") < words.index("started again")

    # A copy that fails lets the agent go on, too, and there is no set.
    server.run("mv", "/srv/agent/notes", "/srv/agent/away", user="agent")
    kept = sets(server)
    server.run("systemctl", "start", "memory-backup.service", check=False)
    assert sets(server) == kept
    assert "notes: there is" in server.journal("memory-snapshot.service")
    server.wait_until(lambda: server.show("agent.service", "ActiveState")["ActiveState"] == "active")
    server.run("mv", "/srv/agent/away", "/srv/agent/notes", user="agent")
    # One that does not run stays so.
    server.run("systemctl", "stop", "agent.service")
    memops(server, "backup")
    assert server.show("agent.service", "ActiveState")["ActiveState"] == "inactive"

    # Without the parts again; the manifest of the bundle forgets the unit.
    memops(server, "install", "--with", "", "--agent-unit", "")
    assert server.run("systemctl", "cat", "memory-pause.service", check=False).code == 1
    memops(server, "backup")
    assert len(newest(server)["parts"]) == 1
    memops(server, "uninstall")
    assert server.run("systemctl", "list-unit-files", "--no-legend", "memory-*", check=False).stdout == ""


@pytest.mark.parametrize("suite", ["debian13"], indirect=True)
def test_what_is_no_part_is_refused(memops_server: Server) -> None:
    server = memops_server
    fill(server)
    server.run("install", "-m", "644", "/dev/null", "/srv/agent/roots.db")
    server.sh("ln /srv/agent/history.db /srv/agent/twin.db; mkfifo /srv/agent/pipe", user="agent")
    server.sh("mkdir -p /srv/backup/mine && chown agent /srv/backup/mine")
    for words, code, said in (
        (("sqlite=/srv/agent/none.db",), 3, "cannot be reached (No such file or directory)"),
        (("sqlit=/srv/agent/history.db",), 2, "sqlit is no kind of part"),
        (("sqlite=/srv/agent/notes",), 2, "that is a directory"),
        (("qdrant=/srv/agent/history.db",), 2, "that is a file"),
        (("/srv/agent/roots.db",), 3, "belongs to root, and the store to agent"),
        (("/srv/agent/twin.db",), 3, "2 hard links"),
        (("/srv/agent/pipe",), 3, "neither a file nor a directory"),
        (("/srv/agent",), 3, "The store lies in /srv/agent"),
        (("/srv/agent/memory.db",), 2, "is the store itself"),
        (("files=/srv/backup/mine",), 3, "lie one inside the other"),
        (("/srv/agent/notes", "files=/srv/agent/notes/"), 2, "is given twice"),
        (("ftp://127.0.0.1/x",), 2, "no kind of part has such an address"),
        (("qdrant=http://me:word@127.0.0.1:6333",), 2, "holds a secret"),
        (("postgres=postgresql:///memory?password=word",), 2, "holds a secret"),
    ):
        result = memops(server, "install", *(word for each in words for word in ("--with", each)), code=code)
        assert said in result.stderr, (words, result.stderr)
    assert "no unit gone.service" in memops(server, "install", "--agent-unit", "gone.service", code=3).stderr
    assert "no part of that name" in memops(server, "install", "--secret", "qdrant=/etc/hostname", code=2).stderr
    assert "the key is empty" in memops(server, "install", "--secret", "qdrant=/dev/null", code=2).stderr
    assert "Nothing to do" in memops(server, "install").stdout


@pytest.mark.parametrize("suite", ["debian13"], indirect=True)
def test_a_link_in_place_of_a_part_shows_the_agent_nothing(memops_server: Server) -> None:
    server = memops_server
    fill(server)
    memops(server, "install", "--with", "/srv/agent/notes")
    memops(server, "backup")
    server.sh("mkdir -p /root/closed && chmod 700 /root && echo secret >/root/closed/key && chmod -R a+rX /root/closed")
    server.sh("mkdir -p /home/ada/open && chmod 700 /home/ada && echo secret >/home/ada/open/key")
    kept = sets(server)
    for place in ("/root/closed", "/home/ada/open", "/usr/local/lib/memops", "/var/lib/memops"):
        server.sh(f"rm -rf /srv/agent/notes; ln -s {place} /srv/agent/notes", user="agent")
        memops(server, "backup", code=1)
        assert sets(server) == kept
        words = server.journal("memory-snapshot.service")
        assert "notes: what is at its path belongs to another user now" in words or "notes: there is a link" in words
        assert server.run("memops", "restore", "latest", "--yes", check=False).code in (1, 3)
    assert server.run("find", "/root/closed", "/home/ada", "-name", "before-restore*").stdout == ""


@pytest.mark.parametrize("suite", ["debian13"], indirect=True)
def test_an_agent_that_does_not_come_up_again_is_told(memops_server: Server) -> None:
    server = memops_server
    fill(server)
    server.write("/etc/systemd/system/agent.service", AGENT + "ExecStartPre=/bin/sh -c 'test ! -e /srv/agent/broken'\n")
    server.run("systemctl", "daemon-reload")
    server.run("systemctl", "start", "agent.service")
    memops(server, "install", "--agent-unit", "agent.service")
    server.run("touch", "/srv/agent/broken", user="agent")
    memops(server, "backup")
    alarm = ("journalctl", "-p", "err", "-o", "cat", "-u", "memory-alert@*")
    server.wait_until(lambda: "memory-pause.service" in server.run(*alarm, check=False).stdout)
    assert "could not be started again" in server.journal("memory-pause.service")
    assert memops(server, "check", code=2)
