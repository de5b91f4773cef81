"""Restores that are killed, cut off, refused or attacked: the old state or the set's, whole, whatever happens."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING

from system.machine import DB, add_facts, ids, memops, sets, status
from system.restore_server import (
    HISTORY,
    KILLS,
    NOTE,
    NOTES,
    SETS,
    asides,
    names,
    state,
    timers,
    untouched,
    with_parts,
)
from system.test_sets import back_date, change_a_byte

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form


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


def test_a_job_that_runs_is_waited_for_and_two_restores_keep_apart(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, names("then"))
    memops(server, "backup")
    chosen = sets(server)[-1]
    drop_in = "/etc/systemd/system/memory-prune.service.d/slow.conf"
    server.run("mkdir", "-p", drop_in.rpartition("/")[0])
    server.write(drop_in, "[Service]\nExecStartPre=+/bin/sh -c 'until [ -e /root/go ]; do sleep 0.1; done'\n")
    server.sh("systemctl daemon-reload; systemctl start --no-block memory-prune.service")
    add_facts(server, names("since"))
    server.sh(f"memops restore {chosen} --yes >/root/said 2>&1 & echo $! >/root/pid")
    server.wait_until(lambda: "wait for the end of memory-prune.service" in server.read("/root/said"))
    assert "Another restore" in memops(server, "restore", "latest", "--yes", code=3).stderr
    assert "since" in ids(server)
    server.run("touch", "/root/go")
    server.wait_until(lambda: "is back" in server.read("/root/said"), timeout=60)
    assert ids(server) == {"then"}
    assert len(sets(server)) == 3


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
