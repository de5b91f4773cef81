"""The main job of the backups: a plain store and a mem0 memory with its vectors, lost and put back as one."""

from __future__ import annotations

import json

import pytest

from stores.conftest import Lab
from system import images, products
from system.machine import add_facts, ids, memops, sets
from system.server import Server

MEM0 = "/srv/agent/mem0"


@pytest.fixture(params=list(images.SUITES))
def lab(request):
    """A server with the products and the command."""
    with Server(request.param, products.with_command(request.param)) as server:
        yield Lab(server)


def test_a_store_and_a_mem0_memory_are_backed_up_lost_and_put_back_together(lab):
    server = lab.server
    memops(server, "install")
    add_facts(server, [(f"fact-{number}", None, None, "2026-01-01 00:00:00") for number in range(300)])
    facts = ids(server)
    with lab.writer("mem0_qdrant.py", MEM0) as ask:
        ask()
        before = ask("delete 3")
        memops(server, "install", "--with", f"{MEM0}/history.db", "--with", f"{MEM0}/qdrant")
        # As the timer does it, with the agent's library open; what it does afterwards is not in the set.
        server.run("systemctl", "start", "memory-backup.service")
        assert len(ask("delete 5")["memories"]) == len(before["memories"]) - 1
        said = memops(server, "restore", "latest", "--yes", code=3)
        assert "in use" in said.stderr
        assert f"{MEM0}/" in said.stderr
    newest = sets(server)[-1]
    manifest = json.loads(server.read(f"/srv/backup/default/{newest}/manifest.json"))
    assert [part["name"] for part in manifest["parts"]] == ["memory.db", "history", "qdrant"]
    pairs = manifest["pairs"]
    assert (pairs["facts"], pairs["vectors"]) == (["history"], ["qdrant"])
    assert (pairs["ghosts"]["count"], pairs["orphans"]["count"]) == (0, 0)
    memops(server, "drill")

    # The store is damaged, half of the other memory is gone, and the rest is of another day.
    server.sh(
        "dd if=/dev/urandom of=/srv/agent/memory.db bs=4096 count=3 conv=notrunc status=none;"
        f" rm -rf /srv/agent/memory.db-* {MEM0}/qdrant/collection",
        user="agent",
    )
    seen = memops(server, "restore", "latest", "--dry-run").stdout
    assert "history" in seen
    done = memops(server, "restore", "latest", "--yes")
    assert "before-restore-" in done.stdout
    assert ids(server) == facts
    assert lab.read("mem0_qdrant.py", MEM0) == before
    assert server.run("find", "/srv/agent", "!", "-user", "agent").stdout == ""
    assert server.sql("/srv/agent/memory.db", "PRAGMA journal_mode", user="agent") == [["wal"]]
    assert server.show("memory-backup.timer", "ActiveState")["ActiveState"] == "active"

    # The memory is lived in again: the next backup finds both halves whole.
    with lab.writer("mem0_qdrant.py", MEM0) as ask:
        ask("delete 7")
        memops(server, "backup")
    manifest = json.loads(server.read(f"/srv/backup/default/{sets(server)[-1]}/manifest.json"))
    assert (manifest["pairs"]["ghosts"]["count"], manifest["pairs"]["orphans"]["count"]) == (0, 0)
    assert memops(server, "status").stdout.startswith("default: ok")

    # A vector whose fact went another way is named.
    lost = before["memories"][0]["id"]
    forget = f"DELETE FROM history WHERE memory_id = '{lost}'"
    script = f"import sqlite3; c = sqlite3.connect('{MEM0}/history.db'); c.execute(\"{forget}\"); c.commit()"
    server.run("python3", "-c", script, user="agent")
    assert "1 ghosts" in memops(server, "backup").stdout
    manifest = json.loads(server.read(f"/srv/backup/default/{sets(server)[-1]}/manifest.json"))
    assert manifest["pairs"]["ghosts"] == {"count": 1, "ids": [lost]}
    assert manifest["pairs"]["orphans"]["count"] == 0
