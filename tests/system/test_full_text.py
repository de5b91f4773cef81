"""The full-text index from its offer to its end, on a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from system.machine import DB, add_facts, ids, memops, sets

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True

OWN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
insert = "INSERT OR REPLACE INTO memory (id, subject, fact, source) VALUES (?, 'drinks', ?, 'chat')"
connection.execute(insert, ("own", "a pot of oolong"))
connection.execute(insert, ("own", "a pot of sencha"))
"""


def remember(server: Server, fact: str, *more: str, **options: Any) -> str:
    """The id of a new fact."""
    said = memops(server, "remember", "drinks", fact, "--source", "chat 2026-11-30", "--json", *more, **options)
    return str(json.loads(said.stdout)["fact"]["id"])


def recall(server: Server, query: str, **options: Any) -> tuple[list[str], bool]:
    """The facts found, best first, and whether they are ranked."""
    found = json.loads(memops(server, "recall", query, "--json", **options).stdout)
    return [fact["fact"] for fact in found["facts"]], found["ranked"]


def require_true(server: Server) -> None:
    """Fail unless the index holds exactly the words of the table."""
    server.sql(DB, "INSERT INTO memory_text(memory_text, rank) VALUES ('integrity-check', 1)", user="agent")


def test_the_index_from_its_offer_to_its_end(memops_server: Server) -> None:
    server = memops_server
    assert "sudo memops install --full-text" in memops(server, "install").stdout
    remember(server, "Tea in the morning")
    remember(server, "Coffee with a long story about many other things than coffee", user="agent")

    # An existing store: it is shown with its cost, and asked for.
    offered = memops(server, "install", "--full-text", "--dry-run").stdout
    assert "add a full-text index (two fifths more on the disk, up to a millisecond more a write)" in offered
    assert "CREATE VIRTUAL TABLE" in offered
    assert "--yes" in memops(server, "install", "--full-text", code=2).stderr
    assert memops(server, "install", "--full-text", tty=True, input="n\n", code=1)
    assert "Nothing to do" in memops(server, "install").stdout
    memops(server, "install", "--full-text", tty=True, input="y\n")
    assert "Nothing to do" in memops(server, "install").stdout

    # Written by root, by the agent and by its own hands; ranked for both.
    first = remember(server, "Coffee, black")
    remember(server, "Coffee, white", "--replaces", first, user="agent")
    server.run("python3", "-c", OWN, DB, user="agent")
    server.run("sqlite3", DB, "DELETE FROM memory WHERE fact LIKE 'Tea%'", user="agent")
    wanted = ["Coffee, white", "Coffee with a long story about many other things than coffee"]
    assert recall(server, "COFFEE") == (wanted, True)
    assert recall(server, 'coffee" OR NOT (', user="agent")[1]
    assert recall(server, "sencha", user="agent") == (["a pot of sencha"], True)
    assert recall(server, "oolong")[0] == recall(server, "tea")[0] == []
    require_true(server)

    # The jobs work on it as it is.
    add_facts(server, [("dead", "2020-01-01 00:00:00", None, "2020-01-01 00:00:00")])
    assert "1 expired" in memops(server, "prune").stdout
    assert "dead" not in ids(server)
    memops(server, "backup")
    (part,) = json.loads(server.read(f"/srv/backup/default/{sets(server)[-1]}/manifest.json"))["parts"]
    assert part["rows"] == {"memory": 4, "memory_text_replaced": 0}
    memops(server, "drill")
    kept = ids(server)
    memops(server, "forget", "own", "--yes", user="agent")
    assert recall(server, "sencha")[0] == []
    memops(server, "restore", "latest", "--yes")
    assert ids(server) == kept
    assert recall(server, "sencha", user="agent") == (["a pot of sencha"], True)
    require_true(server)
    assert "Nothing to do" in memops(server, "install").stdout

    # And out again: recall looks for plain text then.
    memops(server, "install", "--no-full-text", "--yes")
    names = {row[0] for row in server.sql(DB, "SELECT name FROM sqlite_schema", user="agent")}
    assert not [name for name in names if name.startswith("memory_text")]
    assert recall(server, "sencha", user="agent") == (["a pot of sencha"], False)
    assert "Nothing to do" in memops(server, "install").stdout
