"""Putting sets back on real servers: what is said, what comes back, and that the agent stands still meanwhile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from system.machine import DB, add_facts, ids, memops, sets
from system.restore_server import (
    AGENT,
    CHANGE_PARTS,
    HISTORY,
    MAKE_PARTS,
    NOTE,
    NOTES,
    PARTS,
    SETS,
    asides,
    names,
    start_agent,
    state,
    timers,
    untouched,
    with_parts,
)
from system.test_sets import back_date, change_a_byte

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form


@pytest.fixture
def agent(memops_server: Server) -> Server:
    """A server with a store that is installed, a set of it, and /root/agent.py, which holds a store open."""
    server = memops_server
    memops(server, "install")
    add_facts(server, names("then"))
    memops(server, "backup")
    server.write("/usr/local/bin/agent.py", AGENT)
    return server


def test_all_parts_come_back_after_a_damage(memops_server: Server) -> None:
    server = memops_server
    then, _ = with_parts(server)
    memops(server, "backup")
    server.run("systemctl", "disable", "--now", "memory-prune.timer")
    before, newest = timers(server), sets(server)[-1]
    server.sh("printf 'garbage that is no page' | dd of=/srv/agent/memory.db bs=1 seek=4096 conv=notrunc status=none")
    damaged = server.run("sha256sum", DB).stdout.split()[0]
    shown = memops(server, "restore", sets(server)[-2], "--dry-run").stdout
    assert "cannot be compared: the store is damaged" in shown
    said = memops(server, "restore", sets(server)[-2], "--yes")
    assert state(server) == then
    assert server.sql(DB, "PRAGMA journal_mode") == [["wal"]]
    assert server.sql(DB, "PRAGMA integrity_check") == [["ok"]]
    assert (
        server.run("stat", "-c", "%U:%G %a", DB, HISTORY, f"{NOTES}/both.md").stdout.split("\n")[:3]
        == ["agent:agent 600"] * 3
    )
    (aside,) = asides(server)
    assert f"{aside}/" in said.stdout
    assert damaged in server.sh(f"sha256sum {aside}/*").stdout
    assert server.run("stat", "-c", "%U %a", aside).stdout == "agent 700\n"
    assert server.read(f"{asides(server, NOTES)[0]}/new.md") == "since\n"
    assert timers(server) == before
    assert before["memory-prune.timer"] == {"ActiveState": "inactive", "UnitFileState": "disabled"}
    assert not server.exists(NOTE)
    assert sets(server)[-1] == newest
    # The next backup leaves out what was moved aside.
    memops(server, "backup")
    assert "before-restore" not in server.read(f"{SETS}/{sets(server)[-1]}/manifest.json")


def test_what_is_said_before_and_that_it_is_asked(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, names("kept", "b\x1b[31m", *(f"d{n:02}" for n in range(12))))
    memops(server, "backup")
    server.sql(DB, "DELETE FROM memory WHERE id LIKE 'd%' OR id LIKE 'b%'")
    add_facts(server, names("since"))
    server.sql(DB, "UPDATE memory SET fact = 'other' WHERE id = 'kept'")
    before = untouched(server)
    shown = memops(server, "restore", "latest", "--dry-run").stdout
    assert "facts that will be lost (stored since then): 1\n      since\n" in shown
    assert "deletions that will be undone: 13\n      b\\x1b[31m\n      d00\n" in shown
    assert "facts that will say again what they said then: 1\n      kept\n" in shown
    refused = memops(server, "restore", "latest", code=2).stderr
    assert "stored since then): 1: since\n" in refused
    assert "undone: 13: b\\x1b[31m, d00, d01, d02, d03, d04, d05, d06, d07, d08 and 3 more" in refused
    assert "add --yes" in refused
    # The words that run later are typed as for a person: no.
    asked = server.run("memops", "restore", "latest", tty=True, input="n\n", check=False)
    assert "Put it back?" in asked.stdout
    assert asked.code == 1
    assert untouched(server) == before
    assert server.run("memops", "restore", "latest", tty=True, input="y\n", check=False).code == 0
    assert len(ids(server)) == 14


def test_a_stale_wal_is_not_replayed(memops_server: Server) -> None:
    """The rows of a killed writer lie in the -wal alone; beside a restored file they would come back, or worse."""
    server = memops_server
    memops(server, "install")
    add_facts(server, names("then"))
    memops(server, "backup")
    crash = (
        "import os, sqlite3; c = sqlite3.connect('/srv/agent/memory.db', isolation_level=None);"
        "c.execute('PRAGMA wal_autocheckpoint = 0');"
        "[c.execute(\"INSERT INTO memory (id, subject, fact, source) VALUES (?, 's', 'f', 'x')\", (f'wal{n}',))"
        " for n in range(500)]; os._exit(1)"
    )
    server.run("python3", "-c", crash, user="agent", check=False)
    assert int(server.run("stat", "-c", "%s", f"{DB}-wal").stdout) > 100_000
    assert "stored since then): 500" in memops(server, "restore", "latest", "--dry-run").stdout
    memops(server, "restore", "latest", "--yes")
    assert ids(server) == {"then"}
    assert server.exists(f"{asides(server)[0]}/memory.db-wal")
    # What was there before can be opened where it lies now.
    assert len(ids(server, f"{asides(server)[0]}/memory.db")) == 501


@pytest.mark.parametrize("where", ["beside us", "in a container's place"])
def test_an_agent_that_runs_is_named_and_nothing_happens(agent: Server, where: str) -> None:
    server = agent
    path, options = DB, ()
    if where == "in a container's place":
        path = "/data/memory.db"
        options = ("--property=BindPaths=/srv/agent:/data", "--property=TemporaryFileSystem=/data:mode=755")
    process = start_agent(server, path, *options)
    before = untouched(server)
    refused = memops(server, "restore", "latest", "--yes", code=3).stderr
    assert f"process {process} (" in refused
    assert "agent.py" in refused
    assert f"has {DB} open" in refused or f"has {DB}-" in refused
    assert "systemctl stop some-agent.service" in refused
    assert "--agent-unit some-agent.service" in refused
    assert untouched(server) == before
    assert all(shown["ActiveState"] == "active" for shown in timers(server).values())
    # A -wal that was removed under it is still its own.
    server.sh("mkdir /srv/agent/away; mv /srv/agent/memory.db /srv/agent/away; rm /srv/agent/memory.db-*", user="agent")
    refused = memops(server, "restore", "latest", "--yes", code=3).stderr
    assert f"process {process} (" in refused
    assert "(deleted)" in refused
    server.run("systemctl", "stop", "some-agent.service")
    memops(server, "restore", "latest", "--yes")
    assert ids(server) == {"then"}


def test_the_agents_unit_is_stopped_and_started_again(agent: Server) -> None:
    server = agent
    command = "python3 -u /usr/local/bin/agent.py /srv/agent/memory.db 0.02"
    unit = f"[Service]\nUser=agent\nExecStart={command}\nRestart=always\n"
    server.write("/etc/systemd/system/my-agent.service", unit)
    server.sh("systemctl daemon-reload; systemctl start my-agent.service")
    memops(server, "install", "--agent-unit", "my-agent.service")
    server.wait_until(lambda: len(ids(server)) > 5)
    first = server.show("my-agent.service", "MainPID")["MainPID"]
    memops(server, "restore", "latest", "--yes")
    assert server.show("my-agent.service", "ActiveState", "MainPID") != {"ActiveState": "active", "MainPID": first}
    server.wait_until(lambda: len(ids(server)) > 5)
    assert "then" in ids(server)
    # One that did not run is not started.
    server.run("systemctl", "stop", "my-agent.service")
    memops(server, "restore", "latest", "--yes")
    assert ids(server) == {"then"}
    assert server.show("my-agent.service", "ActiveState") == {"ActiveState": "inactive"}
    # One that starts by itself while the set is laid ready is in the way, and named.
    server.sh("systemctl start my-agent.service")
    memops(server, "install", "--agent-unit", "")
    refused = memops(server, "restore", "latest", "--yes", code=3).stderr
    assert "my-agent.service" in refused
    assert server.show("my-agent.service", "ActiveState") == {"ActiveState": "active"}


def test_which_set_is_meant(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    back_date(server, *sets(server), "2026-01-02T080000Z", "2026-01-02T200000Z", "2026-01-03T080000Z")
    server.run("rm", "-r", f"{SETS}/{sets(server)[-1]}")
    for wanted, name in (
        ("2026-01-02", "2026-01-02T200000Z"),
        ("2026-01-02T080000Z", "2026-01-02T080000Z"),
        ("2026-01-03 07:59", "2026-01-02T200000Z"),
        ("2026-01-03 08:00 UTC", "2026-01-03T080000Z"),
    ):
        said = memops(server, "restore", wanted, "--dry-run")
        assert f"Putting back the set {name} of the store default:" in said.stdout
    for wanted in ("2026-01-04", "2026-01-01T000000Z", "2026-01-02 07:59", "2025-01-01 00:00"):
        refused = memops(server, "restore", wanted, "--yes", code=2).stderr
        assert "2026-01-03T080000Z, 2026-01-02T200000Z, 2026-01-02T080000Z" in refused
    assert "neither a set nor a date" in memops(server, "restore", "yesterday", "--yes", code=2).stderr
    change_a_byte(server, f"{SETS}/2026-01-02T200000Z/memory.db")
    memops(server, "restore", "2026-01-02T200000Z", "--yes", code=3)
    # Known to be damaged since, so the day's other set is its newest good one.
    said = memops(server, "restore", "2026-01-02", "--yes")
    assert "The set 2026-01-02T080000Z is back" in said.stdout
    assert "memops sets" in memops(server, "restore", code=2).stderr
    assert memops(server, "restore", "latest", code=4, user="nobody").stderr.count("sudo memops restore latest") == 1


def test_a_set_is_written_elsewhere_beside_a_running_agent(agent: Server) -> None:
    server = agent
    start_agent(server, DB)
    before = untouched(server)
    said = memops(server, "restore", "latest", "--to", "/root/look")
    assert "/root/look/" in said.stdout
    assert server.sql("/root/look/memory.db", "SELECT id FROM memory", user="root") == [["then"]]
    assert server.run("stat", "-c", "%U %a", "/root/look", "/root/look/memory.db").stdout == "root 700\nroot 600\n"
    server.sh(
        "mkdir /root/full /home/ada /home/ada/in; touch /root/full/x; useradd ada; chown -R ada /home/ada;"
        "ln -s /root/other /root/link; mkdir /root/other; ln -s /srv/agent /root/way"
    )
    for target, why in (
        ("/root/full", "not an empty directory"),
        ("/root/link", "not an empty directory"),
        ("/srv/agent/look", "in a place of the store"),
        ("/root/way/look", "in a place of the store"),
        ("/srv/backup/look", "in a place of the store"),
        ("/home/ada/look", "Others may change /home/ada"),
    ):
        assert why in memops(server, "restore", "latest", "--to", target, code=3).stderr
        assert not server.exists(f"{target}/memory.db")
    assert untouched(server) == before
    # It is a whole set, and can come back from there.
    server.run("systemctl", "stop", "some-agent.service")
    memops(server, "restore", "/root/look", "--yes")
    assert ids(server) == {"then"}


def test_a_set_that_was_fetched_back(memops_server: Server) -> None:
    server = memops_server
    then, now = with_parts(server)
    newest = sets(server)[-1]
    server.sh(f"useradd -m ada; cp -r {SETS}/{newest} /home/ada/fetched; chown -R ada /home/ada; rm -r {SETS}/{newest}")
    digest = "cd /home/ada/fetched; find . -type f -exec sha256sum {} + | sort; find . -printf '%p %m %u %T@ %C@\\n'"
    fetched = server.sh(digest).stdout
    server.sh("ln -s /home/ada/fetched /home/ada/link; cp -r /home/ada/fetched /home/ada/bad; mkdir /home/ada/none")
    server.sh("ln -sf /etc/shadow /home/ada/bad/notes/both.md")
    before = untouched(server)
    for path, why in (
        ("/home/ada/link", "is not the directory of a set"),
        ("/home/ada/bad", "both.md is a link"),
        ("/home/ada/none", "manifest.json is missing"),
        ("/home/ada/nothing", "is not the directory of a set"),
    ):
        assert why in memops(server, "restore", path, "--yes", code=3).stderr
    assert untouched(server) == before
    assert "since" in memops(server, "restore", "/home/ada/fetched", "--dry-run").stdout
    assert state(server) == now
    said = memops(server, "restore", "/home/ada/fetched", "--yes")
    assert f"The set {newest} is back" in said.stdout
    assert state(server) == then
    assert server.sh(digest).stdout == fetched
    assert sets(server) == [name for name in sets(server) if re.match(r"\d{4}-", name)]


def test_a_store_in_a_closed_home_with_a_group_of_its_own(memops_server: Server) -> None:
    server = memops_server
    db = "/home/ada/a b/memory.db"
    server.sh("useradd -m ada; groupadd team; usermod -aG team ada; chmod 700 /home/ada")
    server.sh("mkdir '/home/ada/a b'", user="ada")
    memops(server, "install", "--db", db, "--user", "ada")
    add_facts(server, names("then"), db, "ada")
    server.sh(f"chgrp team '{db}'; chmod 660 '{db}'", user="ada")
    memops(server, "backup")
    server.sql(db, "DELETE FROM memory", user="ada")
    memops(server, "restore", "latest", "--yes")
    assert ids(server, db, "ada") == {"then"}
    assert server.run("stat", "-c", "%U:%G %a", db).stdout == "ada:team 660\n"
    server.sh(f"rm -r '{db}' '{db}-wal' '{db}-shm' 2>/dev/null || true")
    shown = memops(server, "restore", "latest", "--dry-run").stdout
    assert "The store is missing. The set has 1 facts." in shown
    memops(server, "restore", "latest", "--yes")
    assert ids(server, db, "ada") == {"then"}
    assert server.run("stat", "-c", "%U:%G %a", db).stdout == "ada:ada 600\n"
    server.sh("rm -r '/home/ada/a b'")
    refused = memops(server, "restore", "latest", "--yes", code=3).stderr
    assert "sudo install -d -o ada -m 700 '/home/ada/a b'" in refused


# A manifest as memops 0.1 wrote it.
AGE = """
import json, sys
path = sys.argv[1] + "/manifest.json"
manifest = json.load(open(path))
part = manifest["parts"][0]
keys = ("kind", "name", "file", "size", "sha256", "taken_at", "exact", "rows", "uncounted", "schema_sha256")
part = {key: part[key] for key in (*keys, "user_version", "foreign_key_violations")}
old = {key: manifest[key] for key in ("version", "store", "set", "sealed_at", "sqlite")}
json.dump({**old, "parts": [part]}, open(path, "w"))
"""


def test_a_set_of_an_earlier_version(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, names("then"))
    memops(server, "backup")
    old = sets(server)[-1]
    server.run("/usr/bin/python3", "-c", AGE, f"{SETS}/{old}")
    server.sh(MAKE_PARTS, user="agent")
    memops(server, "install", *PARTS)
    add_facts(server, names("since"))
    server.sh(CHANGE_PARTS, user="agent")
    now = state(server)
    said = memops(server, "restore", old, "--yes").stderr
    assert "The set has no history: that stays as it is." in said
    assert state(server) == ({"then"}, *now[1:])
