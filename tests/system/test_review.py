"""The review on real servers: a person at a terminal as root and as the agent's user, and an agent through JSON."""

from __future__ import annotations

import json
import os
import select
import time
from typing import TYPE_CHECKING, Any

from system.machine import DB, ids, memops

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form

RECORD = "/var/lib/memops/default/verdicts.jsonl"


def review(server: Server, *steps: tuple[str, str], **options: Any) -> str:
    """``memops review`` at a terminal: wait for each question, then type. All that was seen, its exit code too."""
    # A shell in between would report Ctrl-C as the end of the command, if it did not trap it.
    command = ("sh", "-c", "trap : INT; memops review; echo ended with $?")
    process = server.popen(*command, tty=True, empty_input=False, **options)
    assert process.stdin is not None
    assert process.stdout is not None
    seen, read, end = "", 0, time.monotonic() + 120
    try:
        for question, typed in [*steps, ("", "")]:
            while not question or question not in seen[read:]:
                assert time.monotonic() < end, f"{question!r} does not come:\n{seen}"
                if not select.select([process.stdout], [], [], 1)[0]:
                    continue
                more = os.read(process.stdout.fileno(), 65536).decode(errors="replace").replace("\r\n", "\n")
                if not more:
                    assert not question, f"{question!r} did not come:\n{seen}"
                    return seen
                seen += more
            read = seen.index(question, read) + len(question)
            process.stdin.write(typed)
            process.stdin.flush()
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
    raise AssertionError("unreachable")


def add(server: Server, *facts: tuple[str, str, str, int]) -> None:
    """Put facts into the store: id, text, source, and how many days ago it was confirmed."""
    server.sql(
        DB,
        "INSERT INTO memory (id, subject, fact, source, confirmed_at)"
        " VALUES (?, 'about', ?, ?, datetime('now', '-' || ? || ' days'))",
        many=facts,
    )


def confirmed_now(server: Server) -> set[str]:
    """The facts that were confirmed a moment ago."""
    return {row[0] for row in server.sql(DB, "SELECT id FROM memory WHERE confirmed_at > datetime('now', '-1 hour')")}


def test_people_review_at_a_terminal(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add(
        server,
        ("m_1", "Uses Helix", "chat 2026-01-01", 300),
        ("m_2", "Deploys with checks disabled \x1b[2J", "https://example.org/page", 250),
        ("m_3", "The database is Postgres 15", "chat 2026-02-02", 200),
        ("m_4", "Prefers pnpm", "chat 2026-03-03", 150),
        ("m_5", "Not long ago", "chat 2026-11-30", 5),
    )
    seen = review(
        server,
        ("1 of 4", ""),
        ("? help: ", "y"),
        ("m_1: confirmed", ""),
        ("NOT A PERSON (web)", ""),
        ("? help: ", "y"),
        ("true? y/n ", "n"),
        ("? help: ", "f"),
        ("for good? y/n ", "y"),
        ("m_2: forgotten", ""),
        ("? help: ", "\x03"),
        ("Interrupted. Done: 1 confirmed, 1 forgotten.", ""),
        ("ended with 1\n", ""),
        env={"SUDO_USER": "ada"},
    )
    assert "\x1b[2J" not in seen
    assert confirmed_now(server) == {"m_1"}
    # Nothing beside the store is root's, so its owner still writes.
    assert server.run("find", "/srv/agent", "-user", "root", "-name", "memory.db*").stdout == ""

    review(
        server,
        ("1 of 2", ""),
        ("? help: ", "r"),
        ("goes back) ", "Postgres 17\n"),
        ("] ", "\n"),
        ("m_3: replaced by ", ""),
        ("? help: ", "u"),
        ("goes back) ", "30d\n"),
        ("m_4: confirmed, until ", ""),
        ("Nothing is left in the queue.", ""),
        ("ended with 0\n", ""),
        user="agent",
        env={"LOGNAME": "agent"},
    )
    ((new, source),) = server.sql(DB, "SELECT id, source FROM memory WHERE fact = 'Postgres 17'")
    assert source.startswith("a person at a terminal, 20")
    assert ids(server) == {"m_1", "m_3", "m_4", "m_5", new}
    records = [json.loads(line) for line in server.read(RECORD).splitlines()]
    # The store's user may be the agent itself, at whatever terminal.
    assert [(r["by"], r["id"], r["verdict"], r["terminal"]) for r in records] == [
        ("ada", "m_1", "confirm", True),
        ("ada", "m_2", "forget", True),
        ("agent", "m_3", "replace", False),
        ("agent", "m_4", "confirm", False),
    ]
    assert "Postgres" not in server.read(RECORD)
    assert server.run("stat", "--format=%U %a", RECORD).stdout == "agent 600\n"

    assert "Nothing to review" in review(server)
    assert "--json" in memops(server, "review", code=2).stderr
    assert "sudo" in memops(server, "review", "--json", code=4, user="nobody").stderr


def test_an_agent_reviews_through_json(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add(server, *((f"m_{n}", f"fact {n}", "chat 2026-01-01", 300 - n) for n in range(30)))
    queue = json.loads(memops(server, "review", "--json", user="agent").stdout)
    assert (queue["waiting"], queue["live"], len(queue["facts"])) == (30, 30, 20)
    assert queue == {**json.loads(memops(server, "review", "--json").stdout), "facts": queue["facts"]}
    words = ["confirm", "forget", "skip", "confirm"]
    verdicts = [
        {"id": fact["id"], "seen": fact["seen"], "verdict": words[n % 4], **({"for": "90d"} if n % 4 == 3 else {})}
        for n, fact in enumerate(queue["facts"])
    ]
    given = json.dumps({"version": 1, "by": "checker", "verdicts": verdicts})
    server.write("/srv/agent/verdicts.json", given, owner="agent")

    before = server.sql(DB, "SELECT * FROM memory ORDER BY id")
    apply = ("review", "--apply", "/srv/agent/verdicts.json")
    assert "5 forgotten" in memops(server, *apply, "--dry-run", user="agent").stdout
    assert server.sql(DB, "SELECT * FROM memory ORDER BY id") == before

    # A fact that changed since keeps all of them from being applied, for root as for the agent.
    server.sql(DB, "UPDATE memory SET fact = 'changed' WHERE id = 'm_19'")
    before = server.sql(DB, "SELECT * FROM memory ORDER BY id")
    for options in ({}, {"user": "agent"}):
        assert "m_19" in memops(server, *apply, code=3, **options).stderr.lower()
    assert server.sql(DB, "SELECT * FROM memory ORDER BY id") == before

    server.sql(DB, "UPDATE memory SET fact = 'fact 19' WHERE id = 'm_19'")
    done = json.loads(memops(server, "review", "--apply", "-", "--json", input=given).stdout)["done"]
    assert [each["verdict"] for each in done] == [verdict["verdict"] for verdict in verdicts]
    assert len(ids(server)) == 25
    assert len(confirmed_now(server)) == 10
    assert {json.loads(line)["by"] for line in server.read(RECORD).splitlines()} == {"checker"}
    assert json.loads(memops(server, "review", "--json", user="agent").stdout)["waiting"] == 15
