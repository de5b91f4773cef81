"""The hands, each against the real product: what its own client wrote is listed, deleted and looked for.

Before and after the product's own client reads, writes, searches and deletes.
"""

from __future__ import annotations

import contextlib
import json
import re

import pytest

from conftest import ROOT

# All servers share this machine's network, so that each module has ports of its own.
MCP, QDRANT, CHROMA = "8021", "6341", "8041"
on_debian_12, on_debian_13 = (
    pytest.mark.parametrize("lab", [suite], indirect=True) for suite in ("debian12", "debian13")
)
"""For what is the same with both Pythons: a server's address in the place of a path."""

MOMENT = re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d")


def by_text(answer):
    return {each["text"]: each for each in answer["facts"]}


def places(answer):
    return sorted((each["place"], each["rows"], each["retrieval"]) for each in answer["places"])


def test_mem0(lab):
    store = "/srv/agent/hand-mem0"
    config = {"history": f"{store}/history.db", "qdrant": f"{store}/qdrant"}
    lab.server.run("mkdir", store, user="agent")
    with lab.agent("mem0", store) as ask:
        tea, rome = ask("add", "likes green tea"), ask("add", "is in Rome", "ada", "2026-11-01")
        ask("add", "Bob is the neighbour", "bob")
        ask("add", "is away until New Year's Eve", "ada", "2026-12-31")
        ask("say", "Ada is in Rome, she says")
        ask("link", "Rome", rome)
        for each in (tea, rome):
            ask("link", "Ada", each)
        assert ask("entities") == {"Rome": [rome], "Ada": sorted([tea, rome])}
        assert rome not in ask("read"), "mem0 hides what has expired"
        held = lab.hand("mem0", "list", config)
        assert held["why"] == "held"
        assert re.fullmatch(rf"{store}/qdrant is held by process \d+ \(python\)", held["error"])
        assert "--agent-unit" in held["hint"]

    listed = lab.ask("mem0", "list", config)
    assert listed["product"] == "2.2.1"
    facts = by_text(listed)
    assert len(facts) == 4
    assert facts["is in Rome"]["expires"] == "2026-11-02 00:00:00", "the day itself still counts"
    assert facts["is away until New Year's Eve"]["expires"] == "2027-01-01 00:00:00"
    assert facts["likes green tea"] | {"created": "", "updated": ""} == {
        "id": tea, "text": "likes green tea", "subject": "", "source": "mem0 (Python), user ada",
        "created": "", "updated": "", "expires": None,
    }  # fmt: skip
    assert MOMENT.fullmatch(facts["likes green tea"]["created"])
    log = [("history", 1, False), ("messages", 1, False)]
    before = [*log, ("vectors mem0", 1, True), ("vectors mem0_entities", 2, True)]
    assert places(lab.ask("mem0", "places", config, ids=[rome], texts=["in Rome"])) == before

    answer = lab.ask("mem0", "delete", config, ids=[rome])
    assert answer == {"gone": [rome], "left": {}, "remains": {rome: ["history: 2 rows", "messages: 1 row"]}}
    assert places(lab.ask("mem0", "places", config, texts=["in Rome"])) == [("history", 2, False)]
    assert lab.ask("mem0", "delete", config, ids=[rome])["gone"] == [rome], "once more is no fault"
    # The text is nowhere in the vectors' files any more, nor that of the entity that only it had.
    grep = lab.server.run("grep", "-rl", "-e", "in Rome", "-e", "Rome", f"{store}/qdrant", check=False)
    assert (grep.code, grep.stdout) == (1, "")

    with lab.agent("mem0", store) as ask:
        assert ask("log", rome) == ["ADD", "DELETE"]
        assert ask("entities") == {"Ada": [tea]}
        assert ask("read", "bob") == {facts["Bob is the neighbour"]["id"]: "Bob is the neighbour"}
        new = ask("add", "is back home")
        ask("link", "Ada", new)
        assert ask("entities") == {"Ada": sorted([tea, new])}, "an entity's vector is no longer what it was"
        assert ask("find", "likes green tea")[0] == tea
        ask("delete", new)
        assert set(ask("read", "ada", True).values()) == {"likes green tea", "is away until New Year's Eve"}


def test_mem0_is_not_touched_where_it_would_be_harmed(lab):
    store = "/srv/agent/none"
    config = {"history": f"{store}/history.db", "qdrant": f"{store}/qdrant"}
    missing = lab.hand("mem0", "list", config)
    assert (missing["why"], missing["error"]) == ("missing", f"{store}/history.db is not there")
    assert not lab.server.exists(store), "a new and empty store was made"
    # Without entities there is no collection of them, which would get vectors of another size than the agent's.
    lab.server.run("mkdir", store, user="agent")
    with lab.agent("mem0", store) as ask:
        tea = ask("add", "likes green tea")
    other = lab.hand("mem0", "list", {**config, "collection": "memories"})
    assert (other["why"], other["error"]) == ("missing", f"{store}/qdrant has no collection memories; there are: mem0")
    assert lab.ask("mem0", "delete", config, ids=[tea])["gone"] == [tea]
    assert list(json.loads(lab.server.read(f"{store}/qdrant/meta.json"))["collections"]) == ["mem0"]
    # A mem0 that removes the directory when it starts is never started.
    for version, why in (("1.0.0", "removes its local Qdrant directory"), ("1.0.11", "older than 2.0")):
        metadata = f"Metadata-Version: 2.1\nName: mem0ai\nVersion: {version}\n"
        lab.server.sh(f"rm -rf /srv/old; mkdir -p /srv/old/mem0ai-{version}.dist-info; chmod -R a+rX /srv/old")
        lab.server.write(f"/srv/old/mem0ai-{version}.dist-info/METADATA", metadata)
        old = lab.hand("mem0", "delete", config, ids=[tea], environment=["Environment=PYTHONPATH=/srv/old"])
        assert old["why"] == "version"
        assert why in old["error"]
    bare = lab.hand("mem0", "list", config, python="/usr/bin/python3")
    assert (bare["why"], bare["error"]) == ("missing", "/usr/bin/python3 has no mem0ai")
    assert "--python" in bare["hint"]


def test_chroma_beside_the_agent(lab):
    store, config = "/srv/agent/hand-chroma", {"path": "/srv/agent/hand-chroma"}
    with lab.agent("chroma", store) as ask:
        tea, rome = ask("add", "likes green tea"), ask("add", "is in Rome")
        assert ask("find", "is in Rome") == "is in Rome"
        facts = by_text(lab.ask("chroma", "list", config))
        assert set(facts) == {"likes green tea", "is in Rome"}
        assert facts["is in Rome"]["source"] == "Chroma, collection memories"
        assert MOMENT.fullmatch(facts["is in Rome"]["created"])
        before = [("collection memories", 1, True), ("embeddings_queue", 1, False)]
        assert places(lab.ask("chroma", "places", config, texts=["in Rome"])) == before

        answer = lab.ask("chroma", "delete", config, ids=[rome])
        assert (answer["gone"], answer["left"]) == ([rome], {})
        queue, memory = answer["remains"][rome]
        assert queue == "embeddings_queue: 1 row"
        assert re.fullmatch(r"the vector, in the memory of process \d+ \(python\) until it writes or .*", memory)
        # It is as the hand says: the agent's process finds the vector still, but no text, until it writes.
        assert ask("find", "is in Rome") is None
        assert ask("read") == {tea: "likes green tea"}
        new = ask("add", "is back home")
        assert ask("find", "is in Rome") in ("likes green tea", "is back home")
        assert places(lab.ask("chroma", "places", config, texts=["in Rome"])) == [("embeddings_queue", 1, False)]
    with lab.agent("chroma", store) as ask:
        ask("delete", new)
        assert ask("read") == {tea: "likes green tea"}
    two = "import chromadb; chromadb.PersistentClient(path='/srv/agent/hand-chroma').create_collection('two')"
    lab.server.run("/opt/products/bin/python", "-c", two, user="agent")
    several = lab.hand("chroma", "list", config)
    assert (several["why"], several["error"]) == ("missing", f"{store} has 2 collections: memories, two")
    assert set(by_text(lab.ask("chroma", "list", {**config, "collection": "memories"}))) == {"likes green tea"}


def test_langgraph_beside_the_agent(lab):
    store, config = "/srv/agent/hand-langgraph.db", {"path": "/srv/agent/hand-langgraph.db"}
    orphans = "SELECT key FROM store_vectors EXCEPT SELECT key FROM store"
    with lab.agent("langgraph", store) as ask:
        ask("add", "tea", "likes green tea")
        ask("add", "rome/2026", "is in Rome", 0.001)
        ask("add", "milan", "is in Milan", 0.001)
        ask("say", "is in Rome, he says")
        lab.server.wait_until(
            lambda: lab.server.sql(store, "SELECT max(expires_at) < datetime('now') FROM store")[0][0]
        )
        assert ask("read")["rome/2026"] == "is in Rome", "LangGraph returns what has expired"
        facts = by_text(lab.ask("langgraph", "list", config))
        rome = facts["is in Rome"]
        assert (rome["id"], rome["subject"]) == ("users.ada/rome%2F2026", "rome/2026")
        assert rome["source"] == "LangGraph, namespace users.ada"
        assert MOMENT.fullmatch(rome["expires"])
        assert facts["likes green tea"]["expires"] is None
        before = [("store", 1, True), ("store_vectors", 1, True)]
        assert places(lab.ask("langgraph", "places", config, texts=["in Rome"])) == before

        answer = lab.ask("langgraph", "delete", config, ids=[rome["id"]])
        assert answer == {"gone": [rome["id"]], "left": {}, "remains": {rome["id"]: ["checkpoints: 1 row"]}}
        assert lab.server.sql(store, orphans) == []
        # Its own sweep leaves the vectors; the hand's next deletion, of whatever, takes them out.
        assert ask("sweep") == 1
        assert lab.server.sql(store, orphans) == [["milan"]]
        assert lab.ask("langgraph", "delete", config, ids=["users.ada/gone", "odd"]) == {
            "gone": ["users.ada/gone"], "left": {"odd": "it is no id of LangGraph's: NAMESPACE/KEY"}, "remains": {},
        }  # fmt: skip
        assert lab.server.sql(store, orphans) == []
        assert lab.server.sql(store, "PRAGMA foreign_key_check") == []

        ask("add", "home", "is back home")
        assert ask("find", "is back home")[0] == "home"
        ask("delete", "home")
        assert ask("read") == {"tea": "likes green tea"}


def test_mcp_memory_service_beside_the_agent(lab):
    store, config = "/srv/agent/hand-mcp/sqlite_vec.db", {"path": "/srv/agent/hand-mcp/sqlite_vec.db"}
    with lab.agent("mcp_memory", store) as ask:
        tea, rome, milan = (ask("add", text) for text in ("likes green tea", "is in Rome", "is in Milan"))
        long_ago, lately = ask("add", "lived in Oslo"), ask("add", "lived in Bergen")
        assert ask("delete", long_ago, 31)
        assert ask("delete", lately, 29)
        facts = by_text(lab.ask("mcp_memory", "list", config))
        assert set(facts) == {"likes green tea", "is in Rome", "is in Milan", "lived in Oslo"}
        assert facts["likes green tea"]["source"] == "mcp-memory-service, tags tea"
        assert facts["likes green tea"]["expires"] is None
        assert MOMENT.fullmatch(facts["likes green tea"]["created"])
        tombstone = facts["lived in Oslo"]
        assert tombstone["expires"] < facts["likes green tea"]["created"]
        assert "deleted 20" in tombstone["source"]
        before = [("memories", 1, True), ("memory_content_fts", 1, True), ("memory_embeddings", 1, True)]
        assert places(lab.ask("mcp_memory", "places", config, texts=["in Rome"])) == before

        answer = lab.ask("mcp_memory", "delete", config, ids=[rome, long_ago])
        assert (answer["gone"], answer["left"]) == ([rome, long_ago], {})
        assert any("marked as deleted, until 20" in said for said in answer["remains"][rome])
        assert not any("marked as deleted" in said for said in answer["remains"].get(long_ago, []))
        rows = lab.server.sql(store, "SELECT content FROM memories ORDER BY id")
        assert rows == [["likes green tea"], ["is in Rome"], ["is in Milan"], ["lived in Bergen"]]
        retrieval = {each["retrieval"] for each in lab.ask("mcp_memory", "places", config, ids=[rome])["places"]}
        assert retrieval == {False}

        assert set(ask("read")) == {tea, milan}
        assert set(ask("find", "is in Rome")) == {tea, milan}
        assert ask("add", "is in Rome") == rome, "it can be stored anew"
        assert rome in ask("find", "is in Rome")
        assert ask("delete", rome)
    assert lab.server.run("find", "/srv/agent/hand-mcp", "!", "-user", "agent").stdout == ""


@on_debian_12
def test_mcp_memory_service_over_http(lab):
    base, port = "/srv/agent/hand-http", MCP
    lab.server.run("mkdir", base, user="agent")
    unit = (
        "[Service]\nUser=agent\nExecStart=/opt/mcp/bin/memory server --http --http-port " + port + "\n"
        f"Environment=MCP_MEMORY_BASE_DIR={base} MCP_API_KEY=s3cret MCP_MEMORY_ALLOW_HASH_EMBEDDINGS=1\n"
        "Environment=MCP_MDNS_ENABLED=false MCP_OAUTH_ENABLED=false\n"
    )
    lab.server.write("/etc/systemd/system/mcp-http.service", unit)
    lab.server.write("/srv/key", "s3cret\n", 0o600, "agent")
    lab.server.sh("systemctl daemon-reload; systemctl start mcp-http")
    curl = (
        "import json, sys, urllib.request as u; body = sys.argv[2].encode() or None;"
        f"q = u.Request('http://127.0.0.1:{port}/api' + sys.argv[1], body,"
        "{'Authorization': 'Bearer s3cret', 'Content-Type': 'application/json'});"
        "print(u.urlopen(q, timeout=20).read().decode())"
    )

    def client(path, body=""):
        return json.loads(lab.server.run("python3", "-c", curl, path, body and json.dumps(body)).stdout)

    lab.server.wait_until(lambda: lab.server.run("python3", "-c", curl, "/health", "", check=False).code == 0, 60)
    rome = client("/memories", {"content": "is in Rome", "tags": ["place"]})["content_hash"]
    config, key = {"url": f"http://127.0.0.1:{port}"}, ["Environment=MEMOPS_SECRETS=/srv/key"]
    refused = lab.hand("mcp_memory", "list", config)
    assert refused["error"].endswith("HTTP 401")
    assert set(by_text(lab.ask("mcp_memory", "list", config, environment=key))) == {"is in Rome"}
    answer = lab.ask("mcp_memory", "delete", config, ids=[rome], environment=key)
    assert (answer["gone"], answer["left"]) == ([rome], {})
    assert answer["remains"][rome][0].startswith("memories: its text, marked as deleted")
    assert client("/memories")["memories"] == []
    client("/memories", {"content": "is back home", "tags": []})
    assert [each["content"] for each in client("/memories")["memories"]] == ["is back home"]
    lab.server.sh("systemctl stop mcp-http")
    gone = lab.hand("mcp_memory", "list", config, environment=key)
    assert (gone["why"], gone["hint"]) == ("missing", "Is the service running?")


@contextlib.contextmanager
def qdrants_server(lab):
    """A stand-in for Qdrant's server: its address, and the way of a hand to its key."""
    lab.server.copy_in(ROOT / "tests" / "fake_qdrant.py", "/srv/fake_qdrant.py")
    lab.server.write("/srv/agent/key", "s3cret\n", 0o600, "agent")
    with lab.process("python3", "/srv/fake_qdrant.py", QDRANT, "s3cret") as process:
        assert process.stdout.readline() == "ready\n"
        yield f"http://127.0.0.1:{QDRANT}", ["Environment=MEMOPS_SECRETS=/srv/agent/key"]


@on_debian_13
def test_qdrants_server(lab):
    with qdrants_server(lab) as (url, key):
        with lab.writer("qdrant_server.py", url) as ask:
            before = ask()["memories"]
        several = lab.hand("qdrant", "list", {"url": url}, environment=key)
        assert several["error"] == f"{url} has 2 collections: a b, memories"
        config = {"url": url, "collection": "memories"}
        refused = lab.hand("qdrant", "list", config)
        assert "Must provide an API key" in refused["error"] or "refuses the key" in refused["error"]
        assert "no point of memories has a text" in lab.hand("qdrant", "list", config, environment=key)["error"]
        two = sorted(before)[:2]
        assert len(lab.ask("qdrant", "places", config, ids=two, environment=key)["places"]) == 2
        answer = lab.ask("qdrant", "delete", config, ids=two, environment=key)
        assert (answer["gone"], answer["left"]) == (two, {})
        segments = "Qdrant's segments and log, until its optimizer has rewritten them"
        assert answer["remains"] == {each: [segments] for each in two}
        after = lab.read("qdrant_server.py", url)["memories"]
        assert after == {each: point for each, point in before.items() if each not in two}
        assert lab.ask("qdrant", "places", config, ids=two, environment=key)["places"] == []
    refused = lab.hand("qdrant", "list", config, environment=key)
    assert "does not answer" in refused["error"]


@on_debian_12
def test_mem0_on_qdrants_server_beside_the_agent(lab):
    store = "/srv/agent/hand-mem0-url"
    lab.server.run("mkdir", store, user="agent")
    with qdrants_server(lab) as (url, key), lab.agent("mem0", store, VECTORS=url) as ask:
        tea, rome = ask("add", "likes green tea"), ask("add", "is in Rome", "ada", "2026-11-01")
        for config, hand in (({"history": f"{store}/history.db"}, "mem0"), ({}, "qdrant")):
            facts = by_text(lab.ask(hand, "list", {**config, "url": url, "collection": "mem0"}, environment=key))
            assert set(facts) == {"likes green tea", "is in Rome"}
            assert facts["is in Rome"]["expires"] == "2026-11-02 00:00:00"
        config = {"history": f"{store}/history.db", "url": url}
        answer = lab.ask("mem0", "delete", config, ids=[rome], environment=key)
        assert answer == {"gone": [rome], "left": {}, "remains": {rome: ["history: 2 rows"]}}
        assert ask("read", "ada", True) == {tea: "likes green tea"}
        new = ask("add", "is back home")
        ask("delete", new)
        assert ask("read") == {tea: "likes green tea"}
        assert ask("log", rome) == ["ADD", "DELETE"]


@on_debian_13
def test_chromas_server(lab):
    lab.server.run("mkdir", "/srv/agent/hand-server", user="agent")
    server = ("/opt/products/bin/chroma", "run", "--path", "/srv/agent/hand-server", "--port", CHROMA)
    config = {"url": f"http://127.0.0.1:{CHROMA}"}
    alive = ("python3", "-c", f"import socket; socket.create_connection(('127.0.0.1', {CHROMA})).close()")
    with lab.process(*server):
        lab.server.wait_until(lambda: lab.server.run(*alive, check=False).code == 0)
        with lab.agent("chroma", CHROMA) as ask:
            tea, rome = ask("add", "likes green tea"), ask("add", "is in Rome")
            assert set(by_text(lab.ask("chroma", "list", config))) == {"likes green tea", "is in Rome"}
            queued = {rome: ["the server's embeddings_queue, which its API does not show"]}
            answer = lab.ask("chroma", "delete", config, ids=[rome, "none"])
            assert answer == {"gone": [rome, "none"], "left": {}, "remains": queued}
            assert ask("find", "is in Rome") == "likes green tea"
            new = ask("add", "is back home")
            assert len(lab.ask("chroma", "places", config, texts=["back home"])["places"]) == 1
            ask("delete", new)
            assert ask("read") == {tea: "likes green tea"}
    assert lab.hand("chroma", "list", config)["why"] in ("failed", "missing")
