"""Hands and agents that run as services: a mem0 whose vectors are in a private /tmp, and mcp-memory-service."""

from __future__ import annotations

from stores.conftest import run_lab
from stores.stores_case import HOME, Services
from system import products
from system.server import Server

ALTERNATE = True


def test_services_go_on_after_a_deletion_by_a_hand(suite, lib):
    with Server(suite, products.with_products(suite)) as server:
        lab = run_lab(server, lib)
        agents = Services(lab)
        tea = agents.mem0("add", "likes green tea")
        assert "qdrant" not in server.sh("ls -A /tmp").stdout, "the private /tmp is not the server's"
        pid = server.show("mem0-agent.service", "MainPID")["MainPID"]
        assert server.exists(f"/proc/{pid}/root/tmp/qdrant/meta.json")
        # The service's end is the end of what it remembered, of which only the log of changes knows.
        server.run("systemctl", "restart", "mem0-agent.service")
        agents.wait()
        assert agents.mem0("read") == {}
        assert agents.mem0("log", tea) == ["ADD"]

        # The vectors moved to where they stay, and a memory that ended.
        agents.keep_vectors()
        tea, rome = agents.mem0("add", "likes green tea"), agents.mem0("add", "is in Rome", "ada", "2026-11-01")
        config = {"history": f"{HOME}/.mem0/history.db", "qdrant": f"{HOME}/.mem0/qdrant"}
        held = lab.hand("mem0", "delete", config, ids=[rome])
        assert held["why"] == "held"
        assert rome in agents.mem0("read", "ada", True), "nothing was deleted"
        server.run("systemctl", "stop", "mem0-agent.service")
        answer = lab.ask("mem0", "delete", config, ids=[rome])
        assert answer == {"gone": [rome], "left": {}, "remains": {rome: ["history: 2 rows"]}}
        server.run("systemctl", "start", "mem0-agent.service")
        agents.wait()
        assert agents.mem0("read", "ada", True) == {tea: "likes green tea"}
        new = agents.mem0("add", "is back home")
        assert agents.mem0("find", "is back home")[0] == new
        agents.mem0("delete", new)
        assert agents.mem0("log", new) == ["ADD", "DELETE"]

        # mcp-memory-service goes on meanwhile.
        oslo = agents.remember("lives in Oslo")
        path = f"{HOME}/.local/share/mcp-memory/sqlite_vec.db"
        assert lab.ask("mcp_memory", "delete", {"path": path}, ids=[oslo])["gone"] == [oslo]
        assert agents.recalled() == {}
        bergen = agents.remember("lives in Bergen")
        assert agents.recalled() == {bergen: "lives in Bergen"}
        agents.mcp("DELETE", f"/memories/{bergen}")
        assert agents.recalled() == {}
        assert server.run("systemctl", "is-failed", "mem0-agent", "mcp-memory", check=False).stdout.split() == [
            "active", "active",
        ]  # fmt: skip
