"""Putting sets back on real servers: the old state or the set's, whole, whatever happens in between."""

from __future__ import annotations

import json
import os
import random
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from system import images
from system.machine import DB, add_facts, ids, memops, sets, status
from system.server import Server
from system.test_sets import back_date, change_a_byte

if TYPE_CHECKING:
    from collections.abc import Iterator

ALTERNATE = True  # each test on one Debian, all on both in the long form
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
    units = ("memory-backup.timer", "memory-prune.timer", "memory-drill.timer")
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


@pytest.fixture
def agent(memops_server: Server) -> Server:
    """A server with a store that is installed, a set of it, and /root/agent.py, which holds a store open."""
    server = memops_server
    memops(server, "install")
    add_facts(server, names("then"))
    memops(server, "backup")
    server.write("/usr/local/bin/agent.py", AGENT)
    return server


def start_agent(server: Server, path: str, *options: str) -> str:
    """Run the agent in a unit of its own; returns its process."""
    identity = ("--property=User=agent", "--unit=some-agent", *options)
    server.run("systemd-run", "--quiet", *identity, "python3", "-u", "/usr/local/bin/agent.py", path, "3600")
    server.wait_until(lambda: "open" in server.journal("some-agent.service"))
    return server.show("some-agent.service", "MainPID")["MainPID"]


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


def kill_after(server: Server, seconds: float, what: str = "memops") -> None:
    """Put the newest set back, and kill the command, or the owner's process, some time later."""
    kill = "kill -9 $!" if what == "memops" else "systemctl kill --signal=KILL memory-restoring.service"
    command = f"memops restore $(ls {SETS} | head -n 2 | tail -n 1) --yes >/root/said 2>&1"
    script = f"{command} & sleep {seconds:.3f}; {kill}; wait"
    server.run("sh", "-c", script, check=False, timeout=300)


def test_killed_at_any_moment(memops_server: Server) -> None:
    server = memops_server
    then, now = with_parts(server)
    server.run("systemctl", "disable", "--now", "memory-prune.timer")
    units, chosen, clock = timers(server), sets(server)[1], time.monotonic()
    memops(server, "restore", chosen, "--yes")
    whole = time.monotonic() - clock
    assert state(server) == then
    seen = set()
    for attempt in range(KILLS):
        # From the set's state to the present one again, so that each kill may leave either.
        server.sql(DB, "DELETE FROM memory WHERE id = 'deleted'")
        add_facts(server, [row for row in names("since") if "since" not in ids(server)])
        server.sh(f"rm -rf {NOTES}/*; echo since >{NOTES}/both.md; echo since >{NOTES}/new.md", user="agent")
        server.sql(HISTORY, "DELETE FROM history WHERE what = 'since'")
        server.sql(HISTORY, "INSERT INTO history (id, what) VALUES (2, 'since')")
        assert state(server) == now
        what = "memops" if attempt % 2 == 0 else "the owner's process"
        moment = random.uniform(0.3, 1) * whole
        kill_after(server, moment, what)
        if server.exists(NOTE):
            seen.add("note")
            problems = status(server)["problems"]
            assert any("restore --undo" in problem["type"] for problem in problems)
        if attempt % 3 == 2:
            memops(server, "restore", chosen, "--dry-run")
        else:
            memops(server, "restore", "--undo")
        found = state(server)
        assert found in (then, now), f"killed {what} after {moment:.3f} s: {server.read('/root/said')}"
        seen.add("then" if found == then else "now")
        assert not server.exists(NOTE)
        assert timers(server) == units
        assert server.sh(f"ls -A /srv/agent {NOTES} | grep '^.restore' || true").stdout == ""
        assert server.sql(DB, "PRAGMA journal_mode") == [["wal"]]
        server.sh(f"rm -rf /srv/agent/before-restore-* {NOTES}/before-restore-*")
    assert "now" in seen
    assert "nothing to undo" in memops(server, "restore", "--undo").stdout


def test_the_power_is_cut(memops_server: Server) -> None:
    server = memops_server
    then, now = with_parts(server)
    with server.popen("memops", "restore", sets(server)[1], "--yes") as command:
        server.wait_until(lambda: server.exists(NOTE))
        time.sleep(random.uniform(0, 2))
        server.cut_power()
        command.communicate()
    server.start()
    memops(server, "restore", "--undo")
    assert state(server) in (then, now)
    assert all(shown["ActiveState"] == "active" for shown in timers(server).values())
    memops(server, "restore", sets(server)[1], "--yes")
    assert state(server) == then
    assert status(server)["problems"] == []


def test_the_stores_disk_has_no_room(memops_server: Server) -> None:
    server = memops_server
    server.sh(
        "useradd --system agent; mkdir /mnt/small; mount -t tmpfs -o size=40M tmpfs /mnt/small; mkdir /mnt/small/a"
    )
    server.sh("chown agent:agent /mnt/small/a; chmod 700 /mnt/small/a")
    db = "/mnt/small/a/memory.db"
    memops(server, "install", "--db", db, "--user", "agent")
    server.sql(
        db,
        "INSERT INTO memory (id, subject, fact, source) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        " WHERE i < 15000) SELECT 'm' || i, 's', hex(randomblob(400)), 'x' FROM n",
        user="agent",
    )
    memops(server, "backup")
    before = server.sh("sha256sum /mnt/small/a/memory.db; ls -A /mnt/small/a").stdout
    refused = memops(server, "restore", "latest", "--yes", code=1).stderr
    assert "no room beside the present files for the set: it needs 1" in refused
    assert "Everything is as before" in refused
    assert server.sh("sha256sum /mnt/small/a/memory.db; ls -A /mnt/small/a").stdout == before
    assert all(shown["ActiveState"] == "active" for shown in timers(server).values())
    assert not server.exists(NOTE)
    server.sh("mount -o remount,size=80M /mnt/small")
    memops(server, "restore", "latest", "--yes")


def test_a_set_that_is_damaged_is_refused_and_nothing_stops(memops_server: Server) -> None:
    server = memops_server
    with_parts(server)
    good = sets(server)[-1]
    since = [server.show(unit, "ActiveEnterTimestamp") for unit in timers(server)]
    before = untouched(server)
    for number, (break_it, why) in enumerate(
        [
            ("one byte", "memory.db has changed"),
            ("rm {}/history/history.db", "history/history.db is missing"),
            ("echo >{}/notes/more", "notes/more is in the set, and not in its manifest"),
            ("rm {}/manifest.json", "manifest.json is missing"),
            ("ln -sf /etc/passwd {}/notes/both.md", "notes/both.md is neither a file nor a directory"),
        ]
    ):
        bad = f"2999-01-0{number + 1}T000000Z"
        back_date(server, good, bad)
        if break_it == "one byte":
            change_a_byte(server, f"{SETS}/{bad}/memory.db")
        else:
            server.sh(break_it.format(f"{SETS}/{bad}"))
        refused = memops(server, "restore", bad, "--yes", code=3).stderr
        assert f"The set {bad} is damaged: {why}" in refused
        assert f"The next older good set: sudo memops restore {good}" in refused
        server.run("rm", "-r", f"{SETS}/{bad}")
    assert untouched(server) == before
    assert [server.show(unit, "ActiveEnterTimestamp") for unit in timers(server)] == since
    # What the sums cannot show, opening the parts does.
    forged = "2999-01-09T000000Z"
    back_date(server, good, forged)
    server.sh(f"sqlite3 {SETS}/{forged}/memory.db \"DELETE FROM memory WHERE id = 'kept'\"")
    server.run("/usr/bin/python3", "-c", FORGE, f"{SETS}/{forged}")
    refused = memops(server, "restore", forged, "--yes", code=1).stderr
    assert "memory: the copy is not what the store was" in refused
    assert "Everything is as before" in refused
    assert untouched(server) == before
    assert all(shown["ActiveState"] == "active" for shown in timers(server).values())


# A database that was replaced together with its sum in the manifest.
FORGE = """
import sys
sys.path.insert(0, "/usr/local/lib/memops")
import hashlib, json, manifests
with open(sys.argv[1] + "/manifest.json", "r+b") as file:
    manifest, content = json.load(file), open(sys.argv[1] + "/memory.db", "rb").read()
    manifest["parts"][0] |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    file.seek(0)
    file.truncate()
    file.write(manifests.write(manifest))
"""


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


def test_a_job_that_runs_is_waited_for_and_two_restores_keep_apart(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, names("then"))
    memops(server, "backup")
    chosen = sets(server)[-1]
    drop_in = "/etc/systemd/system/memory-backup.service.d/slow.conf"
    server.run("mkdir", "-p", drop_in.rpartition("/")[0])
    server.write(drop_in, "[Service]\nExecStartPre=/usr/bin/sleep 8\n")
    server.sh("systemctl daemon-reload; systemctl start --no-block memory-backup.service")
    add_facts(server, names("since"))
    server.sh(f"memops restore {chosen} --yes >/root/said 2>&1 & echo $! >/root/pid")
    server.wait_until(lambda: "wait for the end of memory-backup.service" in server.read("/root/said"))
    assert "Another restore" in memops(server, "restore", "latest", "--yes", code=3).stderr
    server.wait_until(lambda: "is back" in server.read("/root/said"), timeout=60)
    assert ids(server) == {"then"}
    assert len(sets(server)) == 3


@pytest.fixture
def without_namespaces(suite: str) -> Iterator[Server]:
    forbidden = "--system-call-filter=~unshare mount_setattr open_tree move_mount"
    with Server(suite, images.with_command(suite), (forbidden,)) as booted:
        yield booted


def test_where_services_get_no_namespaces(without_namespaces: Server) -> None:
    server = without_namespaces
    then, _ = with_parts(server)
    chosen = sets(server)[-1]
    memops(server, "restore", chosen, "--yes")
    assert state(server) == then
    memops(server, "restore", chosen, "--to", "/root/look")
    memops(server, "restore", "/root/look", "--yes")
    assert state(server) == then


def test_the_agent_cannot_turn_it_against_others(memops_server: Server) -> None:
    """The store's directory is the agent's: links there lead only where it may go itself."""
    server = memops_server
    memops(server, "install")
    add_facts(server, names("then"))
    memops(server, "backup")
    server.sh("mkdir /root/secret; echo secret >/root/secret/x; chmod 600 /etc/memops/manifest.json")
    manifest = server.read("/etc/memops/manifest.json")
    server.sh(
        "rm /srv/agent/memory.db*; ln -s /etc/memops/manifest.json /srv/agent/memory.db;"
        "ln -s /root/secret /srv/agent/memory.db-wal; ln -s /root/secret /srv/agent/before-restore-x",
        user="agent",
    )
    memops(server, "restore", "latest", "--yes")
    assert ids(server) == {"then"}
    assert server.read("/etc/memops/manifest.json") == manifest
    assert server.run("ls", "-A", "/root/secret").stdout == "x\n"
    assert server.run("stat", "-c", "%F", f"{asides(server)[0]}/memory.db").stdout == "symbolic link\n"


def test_a_note_that_cannot_be_read_is_named_and_kept(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    server.write(NOTE, "{}")
    refused = memops(server, "restore", "--undo", code=1).stderr
    assert f"{NOTE} cannot be read" in refused
    assert json.loads(server.read(NOTE)) == {}


def test_one_that_was_killed_at_its_very_end_is_finished(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, names("then"))
    memops(server, "backup")
    server.sql(DB, "DELETE FROM memory")
    copying = f"while sleep 0.01; do cp {NOTE} /root/note 2>/dev/null || true; done"
    server.sh(f"({copying}) & memops restore latest --yes; kill $!")
    note = json.loads(server.read("/root/note"))
    assert set(note["stopped"]) == set(timers(server))
    # As it is when the last step was not done: what was laid ready is there, the timers stand.
    server.write(NOTE, json.dumps({**note, "stage": "done"}))
    left = f"/srv/agent/.restore-{note['stamp']}"
    server.sh(f"mkdir {left}; touch {left}/ready.json", user="agent")
    server.run("systemctl", "stop", *timers(server))
    said = memops(server, "restore", "--undo")
    assert "It stays" in said.stderr
    assert "is in place" in said.stdout
    assert ids(server) == {"then"}
    assert not server.exists(left)
    assert not server.exists(NOTE)
    assert all(shown["ActiveState"] == "active" for shown in timers(server).values())
