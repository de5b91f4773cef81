"""Being wrong is survivable: nothing is destroyed unasked, a set comes first, and the way back works as it is named."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from destructive import DESTROYS, FURTHER
from system.machine import DB, add_facts, ids, listing, memops, sets

if TYPE_CHECKING:
    from system.server import Result, Server

ALTERNATE = True  # each test on one Debian, all on both in the long form
SLOW = True

BROKEN = "/etc/systemd/system/memory-snapshot.service.d/broken.conf"


def state(server: Server) -> tuple[Any, ...]:
    """All that must stay: facts, sets, and memops itself."""
    ours = {path for path in listing(server) if path.startswith(("/etc/", "/usr/local/"))}
    return server.sql(DB, "SELECT * FROM memory ORDER BY id"), sets(server), ours


def undo(server: Server, said: Result) -> Result:
    """Type what was named."""
    command = re.search(r"To undo this: sudo memops (restore \S+)$", said.stdout + said.stderr, re.MULTILINE)
    assert command, said
    return memops(server, *command[1].split(), "--yes")


def test_nothing_is_destroyed_unasked_and_the_way_back_works(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    dead = [(f"dead{n:03}", "2020-01-01 00:00:00", None, "2020-01-01 00:00:00") for n in range(150)]
    add_facts(server, [(name, None, None, "2020-01-01 00:00:00") for name in "abcd"])
    add_facts(server, dead)
    server.sql(DB, "UPDATE memory SET fact = 'Likes green tea' WHERE id = 'a'")  # words that can be searched for
    memops(server, "backup")
    add_facts(server, [("since", None, None, "2020-01-01 00:00:00")])
    before, first = state(server), sets(server)[-1]

    for name, case in {**DESTROYS, **FURTHER}.items():
        words, dry = ([first if word == "SET" else word for word in each] for each in (case.words, case.dry))
        foretold = memops(server, *dry)
        assert state(server) == before, f"{name}: its dry run"
        refused = memops(server, *words, code=case.code)
        assert case.agreed[0] in refused.stderr, name
        assert state(server) == before, f"{name}: off a terminal"
        asked = server.run("memops", *words, tty=True, input="n\n", check=False)
        assert asked.code == (3 if case.code == 3 else 1), (name, asked.stdout)
        assert state(server) == before, f"{name}: a no at a terminal"
        if "To undo this" not in case.says:
            for said in (foretold.stdout, refused.stdout + refused.stderr, asked.stdout):
                assert case.says in said, name

    # The two that take a set, and the way back that they name.
    for words in (("forget", "a", "b"), ("prune", "--allow-large")):
        done = memops(server, *words, "--yes")
        assert len(state(server)[0]) < len(before[0])
        back = undo(server, done)
        assert state(server)[0] == before[0], words
    # Undoing can be undone, and latest goes on meaning a set that nobody took on the way back.
    assert "since" in ids(server)
    newest = sets(server)[-1]
    assert "dead" not in str(ids(server) - {row[0] for row in dead})
    assert f"restore {newest}" in back.stdout
    assert f"Putting back the set {newest} " not in memops(server, "restore", "latest", "--dry-run").stdout
    undo(server, back)
    assert len(ids(server)) == 5, "without those that the prune had taken"
    # Several at once, through a file of verdicts.
    verdicts = (
        '{"version": 1, "by": "me", "verdicts": [{"id": "a", "verdict": "forget"}, {"id": "b", "verdict": "forget"}]}'
    )
    listed = {fact["id"]: fact for fact in facts(server)}
    verdicts = re.sub(r'"id": "(\w)"', lambda m: f'{m[0]}, "seen": "{listed[m[1]]["seen"]}"', verdicts)
    done = memops(server, "review", "--apply", "-", input=verdicts)
    assert ids(server) == {"c", "d", "since"}
    undo(server, done)
    assert len(ids(server)) == 5

    # The store's user can make no set, and hears how old the newest is.
    ran = server.run("runuser", "-u", "agent", "--", "memops", "forget", "a", "b", check=False)
    assert "The newest set is " in ran.stderr
    assert "Only root can take one: sudo memops backup" in ran.stderr
    assert len(ids(server)) == 5

    # No set, no deletion, unless that is said; a restore goes on, since what it replaces may be beyond saving.
    server.run("mkdir", BROKEN.rpartition("/")[0])
    server.write(BROKEN, "[Service]\nExecStartPre=/bin/false\n")
    server.run("systemctl", "daemon-reload")
    for words in (("forget", "a", "b"), ("prune", "--allow-large"), ("review", "--apply", "-")):
        refused = memops(server, *words, *(["--yes"] if words[0] != "review" else []), code=3, input=verdicts)
        assert "nothing was d" in refused.stderr
        assert "--no-backup" in refused.stderr
    assert len(ids(server)) == 5
    memops(server, "forget", "a", "b", "--yes", "--no-backup")
    assert ids(server) == {"c", "d", "since"}
    count = len(sets(server))
    said = memops(server, "restore", first, "--yes")
    assert "Note: no set of what is there now could be taken" in said.stderr
    assert len(ids(server)) == 154
    server.run("rm", DB)
    said = memops(server, "restore", first, "--yes")
    assert "no whole store (missing)" in said.stderr
    assert len(ids(server)) == 154
    assert len(sets(server)) == count
    assert server.sh("ls /srv/backup/default").stdout.count("pinned") == 0


def facts(server: Server) -> list[dict[str, Any]]:
    """The live facts as a program sees them."""
    found: list[dict[str, Any]] = json.loads(memops(server, "list", "--json").stdout)["facts"]
    return found
