"""Notes in plain files on a real server: who reads them, and the look once a month."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from system.machine import memops

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True

STATE = "/var/lib/memops/default"


def review(server: Server) -> dict[str, Any]:
    """What one run of the reminder leaves."""
    server.run("systemctl", "start", "memory-review.service")
    kept: dict[str, Any] = json.loads(server.read(f"{STATE}/review.json"))
    return kept


def test_notes_are_read_by_their_owner_and_looked_at_once_a_month(memops_server: Server) -> None:
    server = memops_server
    server.sh(
        "useradd --create-home ada && chmod 700 /home/ada && useradd --create-home --home-dir /home/bot agent"
        " && chmod 700 /home/bot && mkdir /root/closed && chmod 700 /root && echo '- secret' >/root/closed/key.md"
        " && chmod -R a+rX /root/closed"
    )
    server.sh("mkdir ~/notes && echo '- hers, of 2024-01-02' >~/notes/a.md && chmod 700 ~/notes", user="ada")
    server.sh(
        r"mkdir -p ~/.hermes/memories '/home/bot/my %h $x'"
        r" && printf 'tea, 2025-03-04\n§\ncake\n' >~/.hermes/memories/MEMORY.md"
        r" && printf -- '- red \033[31m\n' >'/home/bot/my %h $x/b c.md' && chmod 700 ~/.hermes",
        user="agent",
    )
    # Nothing is installed yet. Root reads each as its owner, in a unit; what root owns without a capability.
    said = memops(server, "notes", "/home/ada/notes", "/home/bot/.hermes", "/home/bot/my %h $x", "/root/closed").stdout
    assert "/home/ada/notes/a.md:1  2024-01-02  hers" in said
    assert "/home/bot/.hermes/memories/MEMORY.md:3  unknown  cake" in said
    assert "/home/bot/my %h $x/b c.md:1  unknown  red \\x1b[31m" in said
    assert "/root/closed/key.md:1  unknown  secret" in said
    assert not server.exists("/run/memops")
    assert "bot/.hermes/memories/MEMORY.md:1" in memops(server, "notes", "/home/bot/.hermes", user="agent").stdout
    assert "Type it again with sudo" in memops(server, "notes", "/home/ada/notes", user="agent", code=4).stderr

    for path, code, words in (
        ("/home/ada/notes", 3, "belongs to ada, and the store to agent"),
        ("/home/bot/.hermez", 2, "Did you mean /home/bot/.hermes?"),
        ("/etc/ssl", 3, "is no place for notes"),
    ):
        assert words in memops(server, "install", "--user", "agent", "--notes", path, code=code).stderr
    both = ("--notes", "/home/bot/.hermes", "--notes", "/home/bot/my %h $x")
    memops(server, "install", "--user", "agent", *both)
    assert "Nothing to do" in memops(server, "install").stdout
    kept = review(server)
    assert kept["notes"][0] == "Notes in plain files: 3, 1 older than 31 days, 2 without a date."
    assert "/home/bot/.hermes/memories/MEMORY.md:1  2025-03-04  tea, 2025-03-04" in kept["notes"]
    assert "/home/bot/my %h $x/b c.md:1  unknown  red \\x1b[31m" in kept["notes"]
    words = server.journal("memory-review.service")
    assert "notes in plain files: 3, 1 older than 31 days, 2 without a date" in words
    assert "cake" not in words
    assert server.run("stat", "--format=%a %U", f"{STATE}/review.json", f"{STATE}/notes.json").stdout.split() == [
        *("600", "agent", "640", "agent")
    ]
    # The next week none, and in the fifth one again.
    assert review(server)["notes"] == []
    back = "import json; p = '/var/lib/memops/default/notes.json'; s = json.load(open(p)); s['at'] -= 28 * 86400;"
    server.run("python3", "-c", f"{back} open(p, 'w').write(json.dumps(s))", user="agent")

    # A link in their place shows the agent nothing that is not its own, and what is gone is said.
    server.sh("mv ~/.hermes ~/away && ln -s /root/closed ~/.hermes && rm -r '/home/bot/my %h $x'", user="agent")
    kept = review(server)
    assert kept["notes"][0] == "Notes in plain files: 0, 0 older than 31 days, 0 without a date."
    assert sum("it is gone, or belongs to another user now" in line for line in kept["notes"]) == 2
    assert "secret" not in server.read(f"{STATE}/review.json")
    memops(server, "install", "--prune-at", "04:00")

    memops(server, "install", "--notes", "")
    assert "--notes" not in server.read("/etc/systemd/system/memory-review.service")
    assert server.exists(f"{STATE}/notes.json")
    memops(server, "uninstall")
    assert not server.exists(STATE)
