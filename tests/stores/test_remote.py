"""Parts that servers keep, by the bundle's own units: fetched, refused when the server is gone, put back."""

from __future__ import annotations

import json

import pytest

from conftest import ROOT
from stores.conftest import Lab
from stores.test_postgres import psql
from system import products
from system.machine import add_facts, ids, memops, sets
from system.server import Server

URL = "http://127.0.0.1:6333"
FAKE = "[Service]\nExecStart=/usr/bin/python3 /srv/fake_qdrant.py 6333 s3cret\n"


@pytest.fixture
def lab():
    """A server with PostgreSQL, a stand-in for Qdrant's server, and the command."""
    with Server("debian13", products.with_command("debian13")) as server:
        server.copy_in(ROOT / "tests" / "fake_qdrant.py", "/srv/fake_qdrant.py")
        server.write("/etc/systemd/system/fake-qdrant.service", FAKE)
        server.run("systemctl", "daemon-reload")
        server.run("systemctl", "start", "fake-qdrant.service", "postgresql.service")
        server.wait_until(lambda: server.run("pg_isready", check=False).code == 0)
        yield Lab(server)


def test_servers_are_backed_up_and_put_back_with_the_store(lab):
    server = lab.server
    memops(server, "install")
    add_facts(server, [(name, None, None, "2026-01-01 00:00:00") for name in "abc"])
    server.sh("createuser agent; createdb -O agent memory", user="postgres")
    psql(lab, "CREATE EXTENSION vector", user="postgres")
    psql(
        lab, "CREATE TABLE memories (id text PRIMARY KEY, vector vector(2)); INSERT INTO memories VALUES ('a', '[1,2]')"
    )
    with lab.writer("qdrant_server.py", URL) as ask:
        before = ask()
    server.write("/root/key", "s3cret\n", 0o600)
    parts = ("--with", URL, "--with", "postgresql:///memory")
    memops(server, "install", *parts, "--secret", "qdrant=/root/key")
    assert server.run("stat", "-c", "%a %U", "/etc/memops/default/qdrant.secret").stdout == "600 root\n"
    assert "Nothing to do" in memops(server, "install").stdout
    units = server.sh("cat /etc/systemd/system/memory-* /etc/memops/memops.toml").stdout
    assert "s3cret" not in units

    server.run("systemctl", "start", "memory-backup.service")
    newest = sets(server)[-1]
    manifest = json.loads(server.read(f"/srv/backup/default/{newest}/manifest.json"))
    assert [(part["kind"], part["name"]) for part in manifest["parts"][1:]] == [
        ("qdrant", "qdrant"),
        ("postgres", "postgres"),
    ]
    assert manifest["parts"][2]["counts"] == {"public.memories": 1}
    assert "s3cret" not in server.run("journalctl", "--no-pager", "-u", "memory-*").stdout
    memops(server, "drill")
    assert "remote" in memops(server, "status").stdout

    # A server that is gone: no set, an alarm that names it, and the store's own timer goes on.
    server.run("systemctl", "stop", "postgresql.service")
    assert server.run("systemctl", "start", "memory-backup.service", check=False).code
    assert sets(server)[-1] == newest
    alarm = ("journalctl", "-p", "err", "-o", "cat", "-u", "memory-alert@*")
    server.wait_until(lambda: "postgres" in server.run(*alarm, check=False).stdout)
    server.run("systemctl", "start", "postgresql.service")
    server.wait_until(lambda: server.run("pg_isready", check=False).code == 0)

    # All three lost, and one of the servers refuses to take its part: nothing is changed anywhere.
    server.run("systemctl", "restart", "fake-qdrant.service")  # it starts empty
    psql(lab, "TRUNCATE memories; CREATE TABLE on_it (id text REFERENCES memories)")
    server.sql("/srv/agent/memory.db", "DELETE FROM memory")
    said = memops(server, "restore", "latest", "--yes", code=1)
    assert "Everything is as before" in said.stderr
    assert ids(server) == set()
    assert psql(lab, "SELECT count(*) FROM memories") == "0"
    psql(lab, "DROP TABLE on_it")
    memops(server, "restore", "latest", "--yes")
    assert ids(server) == {"a", "b", "c"}
    assert psql(lab, "SELECT id, vector FROM memories") == "a|[1,2]"
    assert lab.read("qdrant_server.py", URL) == before
    server.run("systemctl", "reset-failed")
    memops(server, "backup")
    memops(server, "uninstall")
    assert not server.exists("/etc/memops")
