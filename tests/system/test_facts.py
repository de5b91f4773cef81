"""The life of a fact on real servers: as root, as the agent's user, and beside others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from system.machine import DB, ids, memops

if TYPE_CHECKING:
    from system.server import Result, Server

ALTERNATE = True  # each test on one Debian, all on both in the long form


def as_agent(server: Server, *arguments: str, code: int = 0) -> Result:
    """The command as the agent's user types it."""
    ran = server.run("runuser", "-u", "agent", "--", "memops", *arguments, check=False)
    assert ran.code == code, f"{arguments} → {ran.code}\n{ran.stdout}{ran.stderr}"
    return ran


def data(ran: Result) -> Any:
    return json.loads(ran.stdout)


def test_a_life_as_root_and_as_the_agents_user(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    said = memops(server, "remember", "editor", "Uses Helix", "--source", "chat 2026-08-08").stdout
    assert "no end, so it goes to review" in said
    old = said.split(":")[0]
    away = as_agent(server, "remember", "away", "Travels", "--source", "chat 1", "--kind", "travel", "--json")
    assert data(away)["fact"]["expires_at"]
    proposal = memops(server, "remember", "db", "Postgres 17", "--source", "web page", "--kind", "version").stdout
    assert "is a proposal for a version" in proposal
    assert "not from a person" in proposal

    assert as_agent(server, "recall", "helix").stdout.startswith('- "editor": "Uses Helix" (confirmed 2')
    memops(server, "recall", "--subject", "db", "--json")
    assert "used" in memops(server, "list").stdout
    assert server.sql(DB, "SELECT count(*) FROM memory WHERE last_used_at IS NOT NULL") == [[2]]

    new = data(as_agent(server, "replace", old, "Uses Zed", "--source", "chat 2", "--json"))["done"]["new"]["id"]
    shown = memops(server, "show", old).stdout
    assert f"replaced   by {new}" in shown
    assert "said agent" in shown
    memops(server, "confirm", new, "--until", "2199-01-31", code=3)
    assert "replaced" in as_agent(server, "confirm", old, code=3).stderr
    memops(server, "confirm", new)
    off_terminal = memops(server, "forget", new, code=2)
    assert "2 would go" in off_terminal.stdout
    assert "add --yes" in off_terminal.stderr
    assert data(memops(server, "forget", new, "--only", "--yes", "--json"))["back"] == [old]
    assert "Deleted: 1" in as_agent(server, "forget", "--subject", "editor", "--yes").stdout
    assert len(ids(server)) == 2

    # Nothing of root's is left beside the store, and nobody else gets at it.
    owners = server.run(
        "stat", "-c", "%U", "/srv/agent", *server.run("find", "/srv/agent", "-type", "f").stdout.split()
    )
    assert set(owners.stdout.split()) == {"agent"}
    server.run("useradd", "eve")
    denied = server.run("runuser", "-u", "eve", "--", "memops", "recall", check=False)
    assert denied.code == 4
    assert "the user agent's" in denied.stderr
    assert server.run("runuser", "-u", "eve", "--", "cat", "/var/lib/memops/default/verdicts.jsonl", check=False).code
    memops(server, "prune")
    memops(server, "backup")


def test_several_stores_locks_and_many_writers(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    server.run("useradd", "--create-home", "ada")
    server.run("install", "-d", "-o", "ada", "-m", "0700", "/home/ada/agent")
    memops(server, "install", "--name", "work", "--db", "/home/ada/agent/memory.db", "--user", "ada")
    assert "Say which one" in memops(server, "list", code=2).stderr
    remember = ("remember", "s", "f", "--source", "chat 1", "--json")
    memops(server, *remember, "--db", "/home/ada/agent/memory.db")
    assert data(memops(server, "list", "--name", "work", "--json"))["store"] == "work"
    # Whoever has one store needs no name for it.
    ran = server.run("runuser", "-u", "ada", "--", "memops", "list", "--json")
    assert len(data(ran)["facts"]) == 1
    assert "It looks after: /srv/agent/memory.db" in memops(server, "list", "--db", "/nope", code=2).stderr

    loop = "for i in 1 2 3; do memops remember s f$i --source 'chat 1' --name default --json >/dev/null || exit 1; done"
    many = "for j in 1 2 3 4 5 6 7 8 9 10; do ( " + loop + " ) & done; wait"
    server.run("runuser", "-u", "agent", "--", "sh", "-c", many, timeout=300)
    assert len(ids(server)) == 30
    hold = "import sqlite3, time; c = sqlite3.connect('%s'); c.execute('BEGIN IMMEDIATE'); print(1, flush=True)"
    hold += "; time.sleep(9)"
    server.run("systemd-run", "--quiet", "--unit=holder", "--uid=agent", "python3", "-c", hold % DB)
    server.wait_until(lambda: "1" in server.run("journalctl", "-u", "holder", "-o", "cat", check=False).stdout)
    locked = memops(server, *remember, "--name", "default", code=5)
    assert "write lock" in locked.stderr
    memops(server, "recall", "f1", "--name", "default")
    assert len(ids(server)) == 30

    # An agent of its own imports the one file.
    script = (
        "import sys; sys.path.insert(0, '/usr/local/lib/memops'); import store\n"
        f"with store.Memory('{DB}', timeout=30) as memory:\n"
        "    name = memory.remember('s', 'from an agent', source='chat 3')\n"
        "    print(store.block(memory.recall('agent')))\n"
    )
    ran = server.run("runuser", "-u", "agent", "--", "python3", "-c", script)
    assert "from an agent" in ran.stdout
    server.run("rm", "/usr/local/lib/memops/desk.py")
    assert "sudo memops install" in memops(server, "list", "--name", "default", code=1).stderr
