"""Three agents that run as services, adopted, pruned by memops' own units, and as able as before.

mem0 with its expired memories, mcp-memory-service, and notes as Claude Code keeps them.
"""

from __future__ import annotations

import json
import re

import pytest

from stores.conftest import run_lab
from stores.stores_case import HOME, NOTES, Services, _notes
from system import products
from system.machine import memops, settle
from system.server import Server

SUITE = "debian13"
MCP = f"{HOME}/.local/share/mcp-memory/sqlite_vec.db"


@pytest.fixture(scope="module")
def lab():
    """A server with the products and the command, on which nothing of memops is installed."""
    with Server(SUITE, products.with_command(SUITE)) as server:
        yield run_lab(server)


def listed(lab, name):
    """Text → fact, as ``memops list`` says."""
    found = json.loads(memops(lab.server, "list", "--json", "--name", name).stdout)["facts"]
    return {each["fact"]: each for each in found}


def by_timer(lab, name):
    """Let the prune's timer elapse; the record of the run that it starts."""
    timer, records = f"memory-prune-{name}.timer", f"/var/lib/memops/{name}/runs.jsonl"
    soon = "[Timer]\nOnCalendar=\nOnCalendar=2099-01-01\nOnActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=1s\n"

    def runs():
        found = [json.loads(line) for line in lab.server.read(records).splitlines()]
        return [each for each in found if each["job"] == "prune"]

    before = len(runs())
    lab.server.run("mkdir", "-p", f"/etc/systemd/system/{timer}.d")
    lab.server.write(f"/etc/systemd/system/{timer}.d/soon.conf", soon)
    lab.server.sh(f"systemctl daemon-reload; systemctl restart {timer}")
    lab.server.wait_until(lambda: len(runs()) > before, 60)
    settle(lab.server)
    lab.server.run("rm", "-r", f"/etc/systemd/system/{timer}.d")
    lab.server.sh(f"systemctl daemon-reload; systemctl restart {timer}")
    return runs()[-1]


def test_three_agents_come_under_care_and_go_on(lab):
    server = lab.server
    agents = Services(lab)
    list(_notes(lab))

    # mem0: one half of it is where it goes at every stop.
    tea = agents.mem0("add", "likes green tea")
    found = json.loads(memops(server, "doctor", "--json", code=1).stdout)
    assert {each["product"] for each in found["stores"]} >= {"mem0", "mcp-memory-service", "claude-code"}
    worst = found["findings"][0]
    assert (worst["code"], worst["path"]) == ("on-tmp", "/tmp/qdrant/")  # noqa: S108
    assert any('"path": "/srv/' in line for line in worst["mend"]), worst["mend"]
    half = memops(server, "adopt", f"{HOME}/.mem0", "--yes", code=3).stderr
    assert "its vectors are not there" in half
    agents.keep_vectors()
    tea, rome = agents.mem0("add", "likes green tea"), agents.mem0("add", "is in Rome", "ada", "2026-11-01")
    bare = memops(server, "adopt", f"{HOME}/.mem0", "--yes", code=3).stderr
    assert "/usr/bin/python3 has no mem0ai" in bare
    held = memops(server, "adopt", f"{HOME}/.mem0", "--python", products.PYTHON, "--yes", code=1)
    assert re.search(r"qdrant is held by process \d+ \(python\)", held.stderr)
    assert not server.exists("/etc/memops/memops.toml"), "an adoption that fails is undone"
    assert "memory-" not in server.run("systemctl", "list-units", "--failed").stdout
    adopted = memops(server, "adopt", f"{HOME}/.mem0", "--agent-unit", "mem0-agent.service", "--yes").stdout
    assert "Level ledger, since mem0 drops columns" in adopted
    agents.wait()
    assert {*listed(lab, "mem0")} >= {"likes green tea"}

    # mcp-memory-service and the notes.
    oslo, bergen = agents.remember("lives in Oslo"), agents.remember("lives in Bergen")
    memops(server, "adopt", MCP, "--python", products.MCP_PYTHON, "--yes")
    memops(server, "adopt", f"{HOME}/.claude", "--yes")
    settle(server)
    assert {*listed(lab, "mcp-memory-service")} == {"lives in Oslo", "lives in Bergen"}
    assert "Deploys on Fridays" in listed(lab, "claude-code")
    walls = ("User", "ProtectHome", "PrivateNetwork", "CapabilityBoundingSet", "NoNewPrivileges", "ReadWritePaths")
    shown = server.show("memory-prune-mem0.service", *walls)
    assert [shown[name] for name in walls[:5]] == ["agent", "read-only", "yes", "", "yes"]
    assert shown["ReadWritePaths"] == f"/var/lib/memops/mem0 -{HOME}/.mem0 -{HOME}/.mem0/qdrant"
    assert memops(server, "install", "--name", "mem0", "--dry-run").stdout.startswith("Nothing to do")
    levels = {each["name"]: each["level"] for each in json.loads(memops(server, "status", "--json").stdout)["stores"]}
    assert levels == {"mem0": "ledger", "mcp-memory-service": "ledger", "claude-code": "observe"}

    def traced(text, code=0):
        said = json.loads(memops(server, "trace", text, "--name", "mem0", "--json", code=code).stdout)
        return {(place["what"], place["recalled"]) for place in said["places"]}, said["reasons"]

    assert traced("is in Rome")[0] >= {("vectors", True), ("change log", False)}

    # The timer's run deletes what has ended, through mem0 itself.
    assert agents.mem0("read", "ada", True) == {tea: "likes green tea", rome: "is in Rome"}
    record = by_timer(lab, "mem0")
    assert (record["job"], record["exit"]) == ("prune", 0)
    assert "1 expired and deleted in the product; their text remains in history (1)" in record["message"]
    agents.wait()
    assert agents.mem0("read", "ada", True) == {tea: "likes green tea"}
    assert agents.mem0("log", rome) == ["ADD", "DELETE"]
    grep = server.run("grep", "-rl", "in Rome", f"{HOME}/.mem0/qdrant", check=False)
    assert (grep.code, grep.stdout) == (1, "")
    assert {*listed(lab, "mem0")} == {"likes green tea"}
    there, why = traced("is in Rome")
    assert ("change log", False) in there
    assert not any(recalled for _, recalled in there), (there, why)
    assert why == []

    # An end that is set here; and what a person forgets.
    forgotten = memops(server, "forget", oslo, "--name", "mcp-memory-service", "--yes").stdout
    assert re.search(r"Deleted: 1\. The words remain in: .*memories: its text, marked as deleted, until 20", forgotten)
    assert agents.recalled() == {bergen: "lives in Bergen"}
    memops(server, "backup", "--name", "mem0")
    memops(server, "drill", "--name", "mem0")
    agents.wait()

    # Each product's own client reads, writes and deletes as before.
    new = agents.mem0("add", "is back home")
    assert agents.mem0("find", "is back home")[0] == new
    agents.mem0("delete", new)
    assert agents.mem0("read") == {tea: "likes green tea"}
    milan = agents.remember("lives in Milan")
    assert milan in agents.recalled()
    agents.mcp("DELETE", f"/memories/{milan}")
    assert agents.recalled() == {bergen: "lives in Bergen"}
    server.write(NOTES, server.read(NOTES) + "- Has a cat\n", 0o600, "agent")
    memops(server, "prune", "--name", "claude-code")
    assert "Has a cat" in listed(lab, "claude-code")
    memops(server, "check")

    for name in ("mem0", "mcp-memory-service", "claude-code"):
        assert memops(server, "install", "--name", "claude-code", "--dry-run").stdout.startswith("Nothing to do")
        memops(server, "release", name, "--yes")
    agents.wait()
    assert agents.mem0("read") == {tea: "likes green tea"}
    assert agents.recalled() == {bergen: "lives in Bergen"}
