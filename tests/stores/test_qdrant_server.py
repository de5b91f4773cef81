"""Qdrant's HTTP API: the server is the fake, and the client that fills and reads it is Qdrant's own."""

from __future__ import annotations

import contextlib

from conftest import ROOT


def test_qdrants_client_finds_everything_after_a_restore_over_http(lab):
    lab.server.copy_in(ROOT / "tests" / "fake_qdrant.py", "/srv/fake_qdrant.py")
    lab.server.write("/srv/agent/key", "s3cret\n", 0o600, "agent")
    url, key = "http://127.0.0.1:6343", {"MEMOPS_SECRETS": "/srv/agent/key"}

    @contextlib.contextmanager
    def fake():
        with lab.process("python3", "/srv/fake_qdrant.py", "6343", "s3cret") as process:
            assert process.stdout.readline() == "ready\n"
            yield

    with fake():
        with lab.writer("qdrant_server.py", url) as ask:
            before = ask()
        claim = lab.snapshot("qdrant", url, "remote", env=key)
    assert claim["counts"] == {"memories": 700, "a b": 3}
    _, (role, ids) = lab.verify("qdrant", "remote", claim)
    assert (role, set(ids)) == ("vectors", {*before["memories"], *before["a b"]})
    lab.put("remote", "/srv/agent/remote")
    with fake():  # an empty server in its place
        lab.kind("restore", "qdrant", "/srv/agent/remote", url, env=key)
        assert lab.read("qdrant_server.py", url) == before
