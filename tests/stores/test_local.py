"""Products that keep their memory in a directory, open while it is copied."""

from __future__ import annotations

import json
import threading


def test_a_local_qdrant_comes_back_point_for_point(lab):
    with lab.writer("qdrant_local.py", "/srv/agent/qdrant") as ask:
        before = ask()
        claim = lab.snapshot("qdrant", "/srv/agent/qdrant", "qdrant")
        after = ask("delete 21")
        assert len(after["memories"]) == len(before["memories"]) - 1
    assert claim["exact"] is True
    assert claim["counts"] == {"memories": 799, "memories_entities": 1, "two words": 0}
    entry, (role, ids) = lab.verify("qdrant", "qdrant", claim)
    assert entry["counts"] == claim["counts"]
    assert role == "vectors"
    assert set(ids) == set(before["memories"])
    lab.put("qdrant", "/srv/agent/qdrant-restored")
    assert lab.read("qdrant_local.py", "/srv/agent/qdrant-restored") == before


def test_a_qdrant_whose_client_was_killed_in_the_middle_of_writing_is_copied(lab):
    with lab.writer("qdrant_local.py", "/srv/agent/killed") as ask:
        before = ask()
    lab.server.run(
        "python3", "-c", _KILLED_WRITER, "/srv/agent/killed/collection/memories/storage.sqlite", user="agent"
    )
    assert lab.server.exists("/srv/agent/killed/collection/memories/storage.sqlite-journal")
    claim = lab.snapshot("qdrant", "/srv/agent/killed", "killed")
    lab.verify("qdrant", "killed", claim)
    lab.put("killed", "/srv/agent/killed-restored")
    assert lab.read("qdrant_local.py", "/srv/agent/killed-restored") == before


# Pages of an unfinished transaction are in the file, and the journal that takes them back is beside it.
_KILLED_WRITER = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
connection.execute("DELETE FROM points")
connection.execute("CREATE TABLE filler AS SELECT randomblob(3000000)")
os._exit(0)
"""


def test_a_chroma_comes_back_with_every_vector_document_and_neighbour(lab):
    with lab.writer("chroma.py", "/srv/agent/chroma") as ask:
        before = ask()
        claim = lab.snapshot("chroma", "/srv/agent/chroma", "chroma")
    assert claim["exact"] is True
    assert claim["counts"]["embeddings"] == 1216 + 3
    assert claim["counts"]["collections"] == 2
    assert claim["counts"]["files"] >= 4, "no vector has gone to a file, so the test shows too little"
    entry, (role, ids) = lab.verify("chroma", "chroma", claim)
    assert entry["counts"] == claim["counts"]
    assert (role, set(ids)) == ("vectors", set(before["memories"]))
    lab.put("chroma", "/srv/agent/chroma-restored")
    assert lab.read("chroma.py", "/srv/agent/chroma-restored") == before


def test_a_chroma_that_is_written_to_meanwhile_is_copied_as_it_was_at_one_moment(lab):
    with lab.writer("chroma.py", "/srv/agent/busy") as ask:
        before = ask()
        ask("run")
        claims = [lab.snapshot("chroma", "/srv/agent/busy", f"busy{number}") for number in range(3)]
        lab.server.wait_until(
            lambda: lab.server.sql("/srv/agent/busy/chroma.sqlite3", "SELECT count(*) FROM embeddings")[0][0] > 1500
        )
        claims.append(lab.snapshot("chroma", "/srv/agent/busy", "busy3"))
    last = 0
    for number, claim in enumerate(claims):
        entry, _ = lab.verify("chroma", f"busy{number}", claim)
        lab.put(f"busy{number}", "/srv/agent/busy-restored")
        found = lab.read("chroma.py", "/srv/agent/busy-restored")
        # Chroma commits a new vector to its queue before the table; opening the copy takes it over.
        assert len(found["memories"]) + 3 - entry["counts"]["embeddings"] in (0, 1)
        assert set(before["memories"]) <= set(found["memories"])
        added = sorted(int(each[1:]) for each in set(found["memories"]) - set(before["memories"]))
        assert added == list(range(2000, 2000 + len(added))), "a vector between two others is missing"
        for each, (vector, document, _) in found["memories"].items():
            of = int(each[1:])
            assert document == f"fact {of} about tea"
            assert [round(value, 3) for value in vector] == [of % 91, of % 7, of / 1000]
        assert len(added) >= last
        last = len(added)
    assert last > 280


def test_mem0s_history_and_vectors_come_back_together(lab):
    with lab.writer("mem0_qdrant.py", "/srv/agent/mem0") as ask:
        ask()
        before = ask("delete 3")
        assert len(before["memories"]) == 39
        claims = {
            "history": lab.snapshot("sqlite", "/srv/agent/mem0/history.db", "history"),
            "qdrant": lab.snapshot("qdrant", "/srv/agent/mem0/qdrant", "qdrant"),
        }
        assert len(ask("delete 5")["memories"]) == 38
    _, (facts, fact_ids) = lab.verify("sqlite", "history", claims["history"])
    _, (vectors, vector_ids) = lab.verify("qdrant", "qdrant", claims["qdrant"])
    assert (facts, vectors) == ("facts", "vectors")
    assert fact_ids == vector_ids == sorted(each["id"] for each in before["memories"])
    lab.server.sh("rm -rf /srv/agent/mem0/history.db /srv/agent/mem0/qdrant")
    lab.put("qdrant", "/srv/agent/mem0/qdrant")
    lab.put("history/history.db", "/srv/agent/mem0/history.db")
    assert lab.read("mem0_qdrant.py", "/srv/agent/mem0") == before


def test_a_sqlite_vec_store_is_copied_without_its_extension(lab):
    lab.server.run("mkdir", "-p", "/srv/agent/vec", user="agent")
    with lab.writer("sqlite_vec.py", "/srv/agent/vec") as ask:
        before = ask()
        claim = lab.snapshot("sqlite", "/srv/agent/vec/vec.db", "vec")
    entry, _ = lab.verify("sqlite", "vec", claim)
    assert entry["rows"]["facts"] == 499
    lab.put("vec", "/srv/agent/vec-restored")
    assert lab.read("sqlite_vec.py", "/srv/agent/vec-restored") == before


def test_notes_are_copied_as_they_were_between_two_changes(lab):
    """Two files that belong together, as FAISS and its docstore do, are replaced all the time."""
    lab.server.run("mkdir", "-p", "/srv/agent/notes/deep", user="agent")
    script = """
i=0
while [ ! -e /tmp/enough ]; do
    i=$((i + 1))
    echo $i >/srv/agent/notes/a.new; mv /srv/agent/notes/a.new /srv/agent/notes/a
    echo $i >/srv/agent/notes/deep/b.new; mv /srv/agent/notes/deep/b.new /srv/agent/notes/deep/b
    sleep 1.5
done
"""
    writer = threading.Thread(target=lambda: lab.server.sh(script, user="agent"))
    writer.start()
    try:
        lab.server.wait_until(lambda: lab.server.exists("/srv/agent/notes/deep/b"))
        for _ in range(4):
            claim = lab.snapshot("files", "/srv/agent/notes", "notes")
            lab.verify("files", "notes", claim)
            a, b = lab.server.sh("cat /root/sets/notes/a /root/sets/notes/deep/b").stdout.split()
            assert int(a) - int(b) in (0, 1), json.dumps([a, b])
    finally:
        lab.server.sh("touch /tmp/enough")
        writer.join()
