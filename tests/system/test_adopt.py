"""Stores of other programs on a real server: adopted, looked after by real units, released; their programs go on."""

# ruff: noqa: S108 - a server's own directories

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from system.machine import listing, memops, sets, settle, status

if TYPE_CHECKING:
    from system.server import Result, Server

ALTERNATE = True

FACTS, NOTES, GRAPH = "/srv/ada/facts.db", "/srv/ada/notes/MEMORY.md", "/srv/ada/graph/memory.jsonl"

TABLE = """
CREATE TABLE facts (id INTEGER PRIMARY KEY, body TEXT NOT NULL, topic TEXT, created TEXT DEFAULT CURRENT_TIMESTAMP);
INSERT INTO facts (body, topic, created) VALUES ('Likes tea', 'food', '2025-01-01T10:00:00Z');
INSERT INTO facts (body, topic, created) VALUES ('Is in Rome', 'travel', '2026-11-01T10:00:00Z');
INSERT INTO facts (body, topic, created) VALUES ('Deploys on Fridays', 'work', '2026-11-02T10:00:00Z');
"""
ENTITY = '{"type":"entity","name":"Ada","entityType":"person","observations":["likes tea","is in Rome"]}\n'


def make(server: Server) -> None:
    """The programs' own stores, of ada's."""
    server.run("useradd", "--create-home", "--home-dir", "/srv/ada", "ada")
    server.run("mkdir", "/srv/ada/notes", "/srv/ada/graph", user="ada")
    server.run("python3", "-c", f"import sqlite3; sqlite3.connect({FACTS!r}).executescript({TABLE!r})", user="ada")
    server.write(NOTES, "# Memory\n\n- Likes green tea (2026-08-08)\n- Deploys on Fridays\n", 0o600, "ada")
    server.write(GRAPH, ENTITY, 0o600, "ada")


def sql(server: Server, statement: str) -> Any:
    """A statement of the program that keeps the table."""
    return server.sql(FACTS, statement, user="ada")


def listed(server: Server, name: str) -> dict[str, dict[str, Any]]:
    """Text → fact, as ``memops list`` says."""
    found = json.loads(memops(server, "list", "--json", "--name", name).stdout)["facts"]
    return {each["fact"]: each for each in found}


def prune(server: Server, name: str, code: int = 0) -> Result:
    """A run of the unit, as the timer starts it."""
    return memops(server, "prune", "--name", name, code=code)


def test_a_plain_table_is_owned_and_let_go(memops_server: Server) -> None:
    server = memops_server
    make(server)
    before = listing(server)
    foretold = memops(server, "adopt", FACTS, "--dry-run").stdout
    assert 'ALTER TABLE "facts" ADD COLUMN expires_at TEXT' in foretold
    assert "Level own, since a plain table takes further columns" in foretold
    refused = memops(server, "adopt", FACTS, code=2)
    assert "--yes" in refused.stderr
    assert server.run("memops", "adopt", FACTS, tty=True, input="n\n", check=False).code == 1
    assert listing(server) == before

    memops(server, "adopt", FACTS, "--yes")
    settle(server)
    assert memops(server, "install", "--dry-run").stdout.startswith("Nothing to do")
    found = status(server)
    assert (found["name"], found["product"], found["level"]) == ("facts", "sqlite", "own")
    assert found["problems"] == []
    facts = listed(server, "facts")
    assert facts["Likes tea"]["confirmed_at"] == "2025-01-01 10:00:00"
    # The program goes on as before, and memops does what it does for every store.
    sql(server, "INSERT INTO facts (body, topic) VALUES ('Has a cat', 'home')")
    sql(server, "UPDATE facts SET body = 'Likes green tea' WHERE id = 1")
    memops(server, "confirm", "1", "--name", "facts")
    assert listed(server, "facts")["Likes green tea"]["confirmed_at"] > "2026-11-30"
    sql(server, "UPDATE facts SET expires_at = '2026-11-10 00:00:00' WHERE id = 2")
    assert "2 " in memops(server, "prune", "--dry-run", "--name", "facts").stdout
    assert "1 expired" in prune(server, "facts").stdout
    assert [row[0] for row in sql(server, "SELECT id FROM facts ORDER BY id")] == [1, 3, 4]
    assert [row[0] for row in sql(server, "SELECT body FROM live_facts WHERE topic = 'home'")] == ["Has a cat"]
    new = memops(server, "remember", "s", "f", "--source", "chat", "--name", "facts", code=3, user="ada")
    assert "written by the agent's own program" in new.stderr

    # A set, and what was lost comes back.
    memops(server, "backup", "--name", "facts")
    memops(server, "forget", "3", "--name", "facts", "--yes")
    newest = sets(server, "/srv/backup/facts")[-1]
    memops(server, "restore", newest, "--name", "facts", "--yes")
    assert [row[0] for row in sql(server, "SELECT id FROM facts ORDER BY id")] == [1, 3, 4]
    memops(server, "check", "--name", "facts")

    before = listing(server)
    assert "DROP VIEW" in memops(server, "release", "facts", "--dry-run").stdout
    assert listing(server) == before
    memops(server, "release", "facts", "--drop-columns", "--yes")
    assert sql(server, "SELECT name FROM sqlite_schema WHERE name <> 'facts'") == []
    columns = [row[0] for row in sql(server, "SELECT name FROM pragma_table_info('facts')")]
    assert columns == ["id", "body", "topic", "created"]
    assert sets(server, "/srv/backup/facts")
    assert "looks after no store" in memops(server, "status", code=1).stderr


def test_files_are_observed_and_left_as_they_are(memops_server: Server) -> None:
    server = memops_server
    make(server)
    server.run("cp", "-r", "/srv/ada/notes", "/tmp", user="ada")
    lost = memops(server, "adopt", "/tmp/notes", "--yes", code=3).stderr
    assert "sudo memops doctor /tmp/notes/" in lost
    sums = server.sh(f"sha256sum {NOTES} {GRAPH}").stdout

    memops(server, "adopt", "/srv/ada/notes", "--yes")
    memops(server, "adopt", GRAPH, "--yes")
    settle(server)
    assert "looked after already" in memops(server, "adopt", NOTES, "--yes", code=3).stderr
    assert memops(server, "install", "--name", "notes", "--dry-run").stdout.startswith("Nothing to do")
    assert {*listed(server, "notes")} == {"Likes green tea (2026-08-08)", "Deploys on Fridays"}
    assert {*listed(server, "server-memory")} == {"likes tea", "is in Rome"}
    assert "level observe" in memops(server, "status", "--name", "notes").stdout

    # An end that a person sets here: what has ended is said, and not deleted.
    rome = listed(server, "server-memory")["is in Rome"]["id"]
    memops(server, "confirm", rome, "--until", "2026-12-24", "--name", "server-memory")
    server.sql(
        "/var/lib/memops-ledgers/server-memory/memory.db",
        f"UPDATE memory SET expires_at = '2026-11-10 00:00:00' WHERE id = '{rome}'",
        user="ada",
    )
    dry = memops(server, "prune", "--dry-run", "--name", "server-memory").stdout
    assert "would delete none of them" in dry
    assert "1 past their end, not deleted" in prune(server, "server-memory").stdout
    refused = memops(server, "forget", rome, "--name", "server-memory", "--yes", code=3)
    assert "Nothing is deleted here" in refused.stderr
    # What is written there is here after the next run.
    server.write(GRAPH, ENTITY.replace('"is in Rome"', '"is in Oslo"'), 0o600, "ada")
    assert "1 new, 1 gone" in prune(server, "server-memory").stdout
    assert {*listed(server, "server-memory")} == {"likes tea", "is in Oslo"}
    server.write(GRAPH, ENTITY, 0o600, "ada")
    memops(server, "backup", "--name", "notes")
    memops(server, "restore", "latest", "--name", "notes", "--yes")

    memops(server, "release", "notes", "--delete-ledger", "--yes")
    assert not server.exists("/var/lib/memops-ledgers/notes")
    memops(server, "uninstall")
    assert server.exists("/var/lib/memops-ledgers/server-memory/memory.db")
    assert server.sh(f"sha256sum {NOTES} {GRAPH}").stdout == sums
