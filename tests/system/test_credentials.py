"""Credentials on a real server: refused at a write by everybody, masked where facts are shown, found by memops scan."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import credentials_case
from system.machine import DB, ids, memops

if TYPE_CHECKING:
    from system.server import Result, Server

ALTERNATE = True
SLOW = True

RECORD = "/var/lib/memops/default/verdicts.jsonl"


def scan(server: Server, *arguments: str, code: int = 7, user: str | None = None) -> dict[str, Any]:
    options = {} if user is None else {"user": user}
    found: dict[str, Any] = json.loads(memops(server, "scan", "--json", *arguments, code=code, **options).stdout)
    return found


def test_a_credential_is_kept_out_hidden_and_found(memops_server: Server) -> None:
    server = memops_server
    key = credentials_case.planted(random.Random(6), 4)[3][2]
    assert key.startswith("gh")
    value, source = key[4:], ("--source", "chat 2026-12-01")
    number = value[::-1]  # of an order, as it may look
    server.sh("useradd --create-home --home-dir /home/bot agent && chmod 700 /home/bot")
    server.run("install", "-d", "-o", "agent", "-m", "0700", "/srv/agent", "/srv/parts")
    server.sql("/srv/parts/cache.db", "CREATE TABLE kept (a TEXT, doc BLOB, n REAL)", user="agent")
    server.sh("mkdir ~/notes && echo '# ours' >~/notes/a.md", user="agent")
    memops(server, "install", "--user", "agent", "--with", "sqlite=/srv/parts/cache.db", "--notes", "/home/bot/notes")

    def nowhere(*ran: Result) -> None:
        for each in ran:
            assert value not in each.stdout + each.stderr

    # Refused: as root, as the store's user, by replace, in a file of verdicts, by the library.
    clean = json.loads(memops(server, "remember", "editor", "Uses Helix", *source, "--json").stdout)["fact"]["id"]
    seen = json.loads(memops(server, "show", clean, "--json").stdout)["fact"]["seen"]
    verdict = {"id": clean, "seen": seen, "verdict": "replace", "fact": f"key {key}", "source": "chat 2"}
    server.write("/root/verdicts.json", json.dumps({"version": 1, "by": "ci", "verdicts": [verdict]}))
    refusals = [
        memops(server, "remember", "ci", f"push with {key}", *source, code=3),
        memops(server, "remember", "ci", "push", "--source", f"chat, {key}", code=3, user="agent"),
        memops(server, "replace", clean, key, *source, code=3),
        memops(server, "review", "--apply", "/root/verdicts.json", code=3),
    ]
    nowhere(*refusals)
    fields = ("the fact holds", "the source holds", "the fact holds", f"{clean}: the fact holds")
    for ran, words in zip(refusals, fields, strict=True):
        assert f"{words} what looks like a credential (GitHub token)" in ran.stderr.replace("The", "the")
        assert "password manager" in ran.stderr
        assert "--allow-secret REASON" in ran.stderr
    library = (
        "import sys; sys.path.insert(0, '/usr/local/lib/memops'); import store\n"
        f"with store.Memory('{DB}') as memory:\n"
        "    try: memory.remember('ci', sys.argv[1], source='chat 3')\n"
        "    except store.Refused as error: print(error)\n"
    )
    ran = server.run("python3", "-c", library, f"password: {value}", user="agent")
    assert ran.stdout == "the fact holds what looks like a credential (password)\n"
    assert ids(server) == {clean}
    assert scan(server, "--notes", code=0)["files"] == 1

    # Let in for a reason, which is on record without the text; it is not masked, and a scan leaves it out.
    assert "a reason" in memops(server, "remember", "o", key, *source, "--allow-secret", " ", code=3).stderr
    order = json.loads(
        memops(server, "remember", "order", f"It is {number}", *source, "--json", "--allow-secret", "an order").stdout
    )["fact"]["id"]
    assert "(allowed: an order)" in memops(server, "show", order).stdout
    record = server.read(RECORD)
    assert number not in record
    assert json.loads(record.splitlines()[-1])["allowed"]["reason"] == "an order"
    assert f"It is {number}" in memops(server, "list", "--json").stdout
    assert scan(server, code=0, user="agent")["allowed"] == 1

    # What an agent wrote by itself is masked in lists, and marked where it is shown as it is.
    insert = "INSERT INTO memory (id, subject, fact, source, confirmed_at) VALUES (?, 's', ?, 'chat 4', ?)"
    server.sql(DB, insert, many=[("m_agents", f"push with {key}", "2020-01-01 00:00:00")], user="agent")
    server.sql(DB, "CREATE TABLE queue (doc TEXT)", user="agent")
    server.sql(DB, "INSERT INTO queue VALUES (?)", many=[(json.dumps({"headers": {"token": value}}),)], user="agent")
    server.sql("/srv/parts/cache.db", "INSERT INTO kept VALUES ('plain', ?, 1)", many=[(key,)], user="agent")
    server.sh(f"echo '- the token is {key}' >>~/notes/a.md", user="agent")
    memops(server, "prune")
    nowhere(
        memops(server, "list"),
        memops(server, "list", "--json", user="agent"),
        memops(server, "review", "--json"),
        memops(server, "forget", "m_agents", "--dry-run"),
        memops(server, "digest"),
        memops(server, "digest", "--since", "1d", "--json"),
        memops(server, "notes", "/home/bot/notes"),
        memops(server, "notes", "/home/bot/notes", "--json"),
    )
    for command in (("show", "m_agents"), ("recall", "push")):
        ran = memops(server, *command)
        assert value in ran.stdout
        assert "Warning: m_agents holds what looks like a credential (fact: GitHub token)" in ran.stderr

    found = scan(server, "--notes")
    where = {(each.get("id") or each.get("table") or each["file"], each["kind"]) for each in found["found"]}
    assert where == {
        ("m_agents", "GitHub token"),
        ("queue", "secret value"),
        ("kept", "GitHub token"),
        ("/home/bot/notes/a.md", "GitHub token"),
    }
    assert scan(server, "--notes", user="agent")["found"] == found["found"]
    ran = memops(server, "scan", code=7)
    nowhere(ran, memops(server, "scan", "--notes", "--json", code=7))
    assert "m_agents (fact): GitHub token" in ran.stdout
    server.run("useradd", "eve")
    memops(server, "scan", code=4, user="eve")
    # Root has left nothing beside the databases.
    owners = server.sh("find /srv/agent /srv/parts -printf '%u\\n' | sort -u").stdout.split()
    assert owners == ["agent"]
    log = server.run("journalctl", "-b", "-o", "cat").stdout
    assert value not in log
