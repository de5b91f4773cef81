"""What the tests of the main job ask of a server, in one place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from system.server import Result, Server

DB = "/srv/agent/memory.db"

# Everything that an installation could touch, but for what apt and the journal write.
_LISTING = r"""
import hashlib, os, stat, sys
TOPS = "/etc /usr/local /srv /root /home /run/memops /var/lib/memops /var/lib/systemd/timers /var/spool".split()
AUTHENTICATION = "/etc/ld.so.cache /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/.pwd.lock".split()
SKIPPED = ("/etc/ssl", "/root/.cache", "/root/memops", "/etc/alternatives")
for top in TOPS:
    for folder, folders, files in os.walk(top):
        for name in sorted([*folders, *files]):
            path = os.path.join(folder, name)
            if path.startswith(SKIPPED) or "__pycache__" in path or path in AUTHENTICATION:
                continue
            s = os.lstat(path)
            what = os.readlink(path) if stat.S_ISLNK(s.st_mode) else ""
            if stat.S_ISREG(s.st_mode):
                what = hashlib.sha256(open(path, "rb").read()).hexdigest()
            print(path, oct(s.st_mode), s.st_uid, s.st_gid, what)
"""


def listing(server: Server) -> dict[str, str]:
    """Path → kind, mode, owner and contents, of every place an installation could touch."""
    lines = server.run("python3", "-c", _LISTING).stdout.splitlines()
    return {line.split(" 0o")[0]: line for line in lines}


def memops(server: Server, *arguments: str, code: int = 0, **options: Any) -> Result:
    """Run the command and insist on its exit code."""
    result = server.run("memops", *arguments, check=False, timeout=300, **options)
    assert result.code == code, f"memops {' '.join(arguments)} → {result.code}\n{result.stdout}{result.stderr}"
    assert "Traceback" not in result.stderr, result.stderr
    if arguments[0] in ("install", "prune") and code == 0:
        settle(server)
    return result


def settle(server: Server) -> None:
    """Wait for the digests, which systemd starts after each prune: nobody else does, and they leave records."""

    def idle() -> bool:
        shown = server.run("systemctl", "show", "--property=ActiveState,Job", "memory-digest*.service", check=False)
        busy = [line for line in shown.stdout.splitlines() if line.startswith("Job=") and line not in ("Job=", "Job=0")]
        return "ActiveState=activating" not in shown.stdout and not busy

    server.wait_until(idle)


def status(server: Server, *arguments: str) -> dict[str, Any]:
    """The first store of ``memops status --json``."""
    data = json.loads(memops(server, "status", "--json", *arguments).stdout)
    assert data["version"] == 1
    store: dict[str, Any] = data["stores"][0]
    return store


Fact = tuple[str, str | None, str | None, str]
"""id, expires_at, superseded_by, created_at"""


def add_facts(server: Server, rows: list[Fact], db: str = DB, user: str = "agent") -> None:
    """Put facts into a store."""
    server.sql(
        db,
        "INSERT INTO memory (id, subject, fact, source, expires_at, superseded_by, created_at)"
        " VALUES (?, 's', 'f', 'chat', ?, ?, ?)",
        many=rows,
        user=user,
    )


def ids(server: Server, db: str = DB, user: str = "agent") -> set[str]:
    """The ids in the store."""
    return {row[0] for row in server.sql(db, "SELECT id FROM memory", user=user)}


def sets(server: Server, directory: str = "/srv/backup/default") -> list[str]:
    """The names of the sets, oldest first."""
    return server.run("ls", "-A", directory).stdout.split()
