"""Every product's store on one server, made by the product itself, and the agents that run as services.

Not by the product are Claude Code's folder, which is plain notes, and Qdrant's server (tests/fake_qdrant.py).
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field

from system import products

HOME = "/srv/agent"
NOTES = f"{HOME}/.claude/projects/-srv-agent-work/memory/MEMORY.md"


@dataclass(frozen=True)
class Made:
    """A part of a store that was made: ``product`` as its file in products/ is named, ``what`` and ``kind`` as there.

    ``table`` holds ``rows`` memories, of which ``dates`` tells the format of each column (found.Database.dates).
    """

    product: str
    what: str
    kind: str
    path: str
    rows: int
    table: str = ""
    dates: dict[str, str] = field(default_factory=dict)


def make_every_store(lab, node):
    """Let each product make its store below the agent's home, and say what there must be. node: there is Node too."""
    made = [*_mem0(lab), *_local(lab), *_mcp(lab), *_notes(lab)]
    return [*made, *_node(lab)] if node else made


def _mem0(lab):
    place = f"{HOME}/.mem0"
    lab.server.run("mkdir", place, user="agent")
    with lab.agent("mem0", place) as ask:
        tea = ask("add", "likes green tea")
        ask("add", "is in Rome", "ada", "2026-11-01")
        ask("link", "Tea", tea)
        ask("delete", ask("add", "a mistake"))
    iso = {"created_at": "iso", "updated_at": "iso"}
    yield Made("mem0", "change log", "sqlite", f"{place}/history.db", 4, "history", iso)
    yield Made("mem0", "vectors", "qdrant", f"{place}/qdrant", 2)


def _local(lab):
    with lab.agent("chroma", f"{HOME}/chroma") as ask:
        ask("add", "likes green tea")
        ask("add", "is in Rome")
    yield Made("chroma", "memories", "chroma", f"{HOME}/chroma", 2)
    with lab.agent("langgraph", f"{HOME}/langgraph.db") as ask:
        ask("add", "tea", "likes green tea")
        ask("add", "rome", "is in Rome", 60)
    dates = {"created_at": "utc", "updated_at": "utc"}
    yield Made("langgraph", "memories", "sqlite", f"{HOME}/langgraph.db", 2, "store", dates)
    with lab.agent("agents_sdk", f"{HOME}/sessions.db") as ask:
        ask("add", "I like green tea")
    yield Made("openai-agents", "sessions", "sqlite", f"{HOME}/sessions.db", 1, "agent_messages", {"created_at": "utc"})
    with lab.writer("qdrant_local.py", f"{HOME}/points") as ask:
        ask()
    yield Made("qdrant", "vectors", "qdrant", f"{HOME}/points", 799)


def _mcp(lab):
    path = f"{HOME}/.local/share/mcp-memory/sqlite_vec.db"
    with lab.agent("mcp_memory", path) as ask:
        ask("add", "likes green tea")
        ask("delete", ask("add", "lived in Oslo"), 40)
    dates = {"created_at": "epoch", "updated_at": "epoch", "created_at_iso": "iso", "deleted_at": "epoch"}
    yield Made("mcp-memory-service", "memories", "sqlite", path, 2, "memories", dates)


def _notes(lab):
    text = "# Memory\n\n- Likes green tea (2026-08-08)\n- Deploys on Fridays\n"
    lab.server.run("mkdir", "-p", NOTES.rpartition("/")[0], user="agent")
    lab.server.write(NOTES, text, 0o600, "agent")
    yield Made("claude-code", "notes", "files", NOTES, 2)


def _node(lab):
    path = f"{HOME}/graph/memory.jsonl"
    lab.server.run("mkdir", f"{HOME}/graph", f"{HOME}/typescript", user="agent")
    with lab.agent("server_memory", path) as ask:
        ask("add", "Ada", "likes green tea")
        assert ask("read") == {"Ada": ["likes green tea"]}
    yield Made("server-memory", "memories", "files", path, 1)
    script = f"cd {HOME}/typescript && exec node /srv/agents/mem0_ts.cjs 'likes green tea' 'is in Rome'"
    assert len(json.loads(lab.server.sh(script, user="agent").stdout.splitlines()[-1])) == 2
    path = f"{HOME}/typescript/memory.db"
    dates = {"created_at": "iso"}
    yield Made("mem0-ts", "change log", "sqlite", path, 2, "memory_history", dates)
    yield Made("mem0-ts", "vectors", "sqlite", f"{HOME}/typescript/vector_store.db", 2, "vectors")


MEM0_UNIT = f"""\
[Unit]
Description=An agent whose memory is mem0
[Service]
User=agent
PrivateTmp=yes
RuntimeDirectory=mem0-agent
Environment=VECTORS=/tmp/qdrant
ExecStart={products.PYTHON} -W ignore /srv/agents/mem0_agent.py {HOME}/.mem0 /run/mem0-agent/socket
[Install]
WantedBy=multi-user.target
"""

# Servers of tests share the machine's network, and modules run side by side.
MCP_PORT = 8031 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
MCP_KEY = "s3cret"
MCP_UNIT = f"""\
[Unit]
Description=mcp-memory-service
[Service]
User=agent
ExecStart={products.MCP_COMMAND} server --http --http-port {MCP_PORT}
Environment=MCP_API_KEY={MCP_KEY} MCP_MEMORY_ALLOW_HASH_EMBEDDINGS=1 MCP_MDNS_ENABLED=false MCP_OAUTH_ENABLED=false
[Install]
WantedBy=multi-user.target
"""


class Services:
    """The agents of a server as systemd runs them: mem0 with its vectors in a private /tmp, and mcp-memory-service."""

    def __init__(self, lab) -> None:
        self.server = lab.server
        self.server.run("mkdir", "-p", f"{HOME}/.mem0", user="agent")
        self.server.write("/etc/systemd/system/mem0-agent.service", MEM0_UNIT)
        self.server.write("/etc/systemd/system/mcp-memory.service", MCP_UNIT)
        self.server.sh("systemctl daemon-reload; systemctl start mem0-agent mcp-memory")
        self.wait()

    def keep_vectors(self):
        """Move mem0's vectors to where they stay; what they held is gone."""
        drop_in = f"[Service]\nEnvironment=VECTORS={HOME}/.mem0/qdrant\n"
        self.server.run("mkdir", "/etc/systemd/system/mem0-agent.service.d")
        self.server.write("/etc/systemd/system/mem0-agent.service.d/place.conf", drop_in)
        self.server.sh("systemctl daemon-reload; systemctl restart mem0-agent")
        self.wait()

    def wait(self):
        """Until both answer."""
        self.server.wait_until(lambda: self._answers(lambda: self.mem0("read")), 60)
        self.server.wait_until(lambda: self._answers(lambda: self.mcp("GET", "/health")), 60)

    def _answers(self, ask):
        with contextlib.suppress(Exception):
            ask()
            return True
        return False

    def mem0(self, *words):
        """Tell the agent with mem0 something, on its socket."""
        return self._run(_TELL, json.dumps(words))

    def mcp(self, method, path, body=None):
        """Ask the service's API."""
        given = {"method": method, "url": f"http://127.0.0.1:{MCP_PORT}/api{path}", "key": MCP_KEY, "body": body}
        return self._run(_HTTP, json.dumps(given))

    def remember(self, text):
        """Let mcp-memory-service store a memory; its id."""
        return self.mcp("POST", "/memories", {"content": text, "tags": ["tea"]})["content_hash"]

    def recalled(self):
        """What mcp-memory-service has: id → text."""
        return {each["content_hash"]: each["content"] for each in self.mcp("GET", "/memories")["memories"]}

    def _run(self, script, given):
        return json.loads(self.server.run("python3", "-I", "-c", script, input=given, user="agent").stdout)


_TELL = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect("/run/mem0-agent/socket")
    connection.sendall(sys.stdin.read().encode() + b"\\n")
    print(connection.makefile().readline())
"""

_HTTP = """
import json, sys, urllib.request
given = json.load(sys.stdin)
headers = {"Authorization": "Bearer " + given["key"], "Content-Type": "application/json"}
body = None if given["body"] is None else json.dumps(given["body"]).encode()
request = urllib.request.Request(given["url"], body, headers, method=given["method"])
print(urllib.request.urlopen(request, timeout=20).read().decode())
"""
