"""How long ``memops restore latest`` takes, beside a verified copy: what a careful person types instead.

Plain: sha256 of the set's file compared with its manifest, ``cp --sparse=never``, fsync, then ``integrity_check`` and
``foreign_key_check`` of the file in its place. Ours: the whole command with all that it starts. Both with the same set,
in turn, on one throwaway Debian server (see tests/system; needs root and what scripts/test installs), since the command
works through systemd. Prints one line for the goal and exits 1 when it is missed: time at most 1.5 times plain.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "installer")]

from system import images  # noqa: E402
from system.server import Server  # noqa: E402

DB = "/srv/agent/memory.db"

PLAIN = """
import hashlib, json, os, sqlite3, subprocess, sys
source, target = sys.argv[1:]
with open(f"{source}/manifest.json") as file:
    part = json.load(file)["parts"][0]
with open(f"{source}/memory.db", "rb") as file:
    if hashlib.file_digest(file, "sha256").hexdigest() != part["sha256"]:
        sys.exit("the set is damaged")
os.makedirs(os.path.dirname(target), exist_ok=True)
subprocess.run(["cp", "--sparse=never", f"{source}/memory.db", target], check=True)
with open(target, "rb") as file:
    os.fsync(file.fileno())
connection = sqlite3.connect(target)
if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
    sys.exit("the copy is damaged")
connection.execute("PRAGMA foreign_key_check").fetchall()
"""

MAKE = """
import sys
from pathlib import Path
sys.path.insert(0, "/srv/bench")
import backup
backup.make_store(Path(sys.argv[1]), int(sys.argv[2]))
"""


def timed(server: Server, *command: str) -> float:
    """Run a command on a server whose disk is at rest, and return the seconds it took."""
    server.run("sync", timeout=600)
    begin = time.monotonic()
    server.run(*command, timeout=3600)
    return time.monotonic() - begin


def bench(suite: str, size: int, rounds: int) -> bool:
    """Do it both ways ``rounds`` times with a store of ``size`` bytes; print, and return whether the goal is met."""
    took: dict[str, list[float]] = {"plain": [], "ours": []}
    with Server(suite, images.with_command(suite)) as server:
        server.copy_in(ROOT / "scripts" / "benches" / "backup.py", "/srv/bench/backup.py")
        server.run("useradd", "--system", "agent")
        server.run("install", "-d", "-o", "agent", "-g", "agent", "-m", "700", "/srv/agent")
        server.run("python3", "-c", MAKE, DB, str(size), user="agent", timeout=3600)
        server.run("memops", "install", "--yes", timeout=3600)
        (name,) = server.run("ls", "/srv/backup/default").stdout.split()
        length = int(server.run("stat", "-c", "%s", f"/srv/backup/default/{name}/memory.db").stdout)
        for _ in range(rounds):
            plain = ("python3", "-c", PLAIN, f"/srv/backup/default/{name}", "/srv/plain/memory.db")
            took["plain"].append(timed(server, *plain))
            server.run("rm", "-r", "/srv/plain")
            took["ours"].append(timed(server, "memops", "restore", "latest", "--yes"))
            server.sh("rm -r /srv/agent/before-restore-*")
        (rows,) = server.sql(DB, "SELECT count(*) FROM memory")[0]
        version = server.run("python3", "-c", "import sqlite3; print(sqlite3.sqlite_version)").stdout.strip()
    ours, plainly = (statistics.median(took[way]) for way in ("ours", "plain"))
    print(f"set {length / 1e9:.2f} GB, {rows:,} rows, {rounds} rounds on {suite}, SQLite {version}")
    ratio = ours / plainly
    print(f"{'ok  ' if ratio <= 1.5 else 'MISS'} time: {ratio:.2f}, at most 1.5 ({ours:.2f} s beside {plainly:.2f} s)")
    return ratio <= 1.5


def main() -> int:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description="Measure a restore beside a verified copy.")
    parser.add_argument("--size", type=int, default=1000, help="the store's size in MB (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each way runs (%(default)s)")
    parser.add_argument("--suite", choices=images.SUITES, default="debian13", help="the server (%(default)s)")
    options = parser.parse_args()
    return 0 if bench(options.suite, options.size * 1_000_000, options.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
