"""How long a backup takes, beside the plain chain of commands that proves as much about one file.

Plain: ``VACUUM INTO``, ``integrity_check``, ``foreign_key_check``, sha256. Ours: snapshot.py and seal.py. Both on the
same store, in turn, in processes of their own, while an agent writes a row every 20 ms. Prints one line for each goal
and exits 1 when one is missed: time at most 1.5 times plain, memory under 64 MiB, the agent's p99 at most 1.25 times
what it is beside plain.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = "/usr/bin/python3"

SCHEMA = """
CREATE TABLE memory (
  id            TEXT PRIMARY KEY,
  subject       TEXT NOT NULL,
  fact          TEXT NOT NULL,
  source        TEXT NOT NULL,
  created_at    TEXT NOT NULL DEFAULT (datetime('now')),
  confirmed_at  TEXT NOT NULL DEFAULT (datetime('now')),
  expires_at    TEXT,
  superseded_by TEXT REFERENCES memory(id) ON DELETE CASCADE
);
CREATE INDEX memory_expires ON memory(expires_at);
CREATE INDEX memory_superseded ON memory(superseded_by);
"""

FILL = """
INSERT INTO memory(id, subject, fact, source, superseded_by)
WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 + 49999)
SELECT printf('m_%09d', i), 'subject ' || (i % 1000), hex(randomblob(120)), 'chat ' || i,
  CASE WHEN i % 10 = 0 THEN printf('m_%09d', i - 1) END
FROM n
"""


def make_store(path: Path, size: int) -> None:
    """Make a store of at least ``size`` bytes, in WAL mode."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;" + SCHEMA)
        first = 1
        while path.stat().st_size < size:
            connection.execute(FILL, (first,))
            first += 50_000


def plain(source: str, target: str) -> None:
    """The plain chain, as a person would type it."""
    with contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True, isolation_level=None)) as connection:
        connection.execute("VACUUM INTO ?", (target,))
    with contextlib.closing(sqlite3.connect(target)) as copy:
        if copy.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise SystemExit("the copy is damaged")
        copy.execute("PRAGMA foreign_key_check").fetchall()
    with Path(target).open("rb") as file:
        hashlib.file_digest(file, "sha256").hexdigest()


def agent(source: str, times: str) -> None:
    """Write a row every 20 ms until stopped, and note when each began and how long it took."""
    with (
        contextlib.closing(sqlite3.connect(source, isolation_level=None, timeout=5)) as connection,
        Path(times).open("w", encoding="ascii", buffering=1) as file,
    ):
        while True:
            start = time.monotonic()
            connection.execute(
                "INSERT INTO memory(id, subject, fact, source) VALUES (hex(randomblob(9)), 's', 'f', 'x')"
            )
            file.write(f"{start} {time.monotonic() - start}\n")
            time.sleep(0.02)


def run(command: list[str]) -> int:
    """Run ``command`` and return its peak memory in KiB."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[2:4]} failed")
    return usage.ru_maxrss


def slowest(times: Path, spans: list[tuple[float, float]]) -> float:
    """The 99th percentile, in seconds, of the agent's writes that began within ``spans``."""
    writes = [tuple(map(float, line.split())) for line in times.read_text(encoding="ascii").splitlines()]
    took = sorted(length for start, length in writes if any(a <= start <= b for a, b in spans))
    return took[int(len(took) * 0.99)]


def bench(top: Path, size: int, rounds: int) -> bool:
    """Run both ways ``rounds`` times on a store of ``size`` bytes in ``top``; print, and return whether all is well."""
    lib, source, incoming, sets = (top / name for name in ("lib", "memory.db", "incoming", "sets"))
    shutil.copytree(ROOT / "scripts" / "jobs", lib)
    for name in ("health.py", "records.py", "store.py"):
        shutil.copy(ROOT / "installer" / "memops" / name, lib)
    incoming.mkdir()
    sets.mkdir(mode=0o700)
    make_store(source, size)
    own, target = [PYTHON, "-I", __file__], str(top / "plain.db")
    shared = ["--incoming", str(incoming)]
    state = str(top / "default.sets.json")
    ours = [
        [PYTHON, "-I", f"{lib}/snapshot.py", "--store", str(source), *shared, "--state", str(top)],
        [PYTHON, "-I", f"{lib}/seal.py", "--name", "default", *shared, "--sets", str(sets), "--sets-record", state],
    ]
    spans: dict[str, list[tuple[float, float]]] = {"plain": [], "ours": []}
    peaks = []
    # Its times go to memory, so that the note of a write does not wait for the disk that is measured.
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as quiet,
        subprocess.Popen([*own, "--agent", str(source), f"{quiet}/times"]) as writer,
    ):
        try:
            for _ in range(rounds):
                for name, commands in (("plain", [[*own, "--plain", str(source), target]]), ("ours", ours)):
                    os.sync()
                    begin = time.monotonic()
                    peak = max(run(command) for command in commands)
                    spans[name].append((begin, time.monotonic()))
                    if name == "ours":
                        peaks.append(peak)
                    Path(target).unlink(missing_ok=True)
                    for done in sets.iterdir():
                        shutil.rmtree(done)
            if writer.poll() is not None:
                raise SystemExit("the agent's write failed")
            p99 = {name: slowest(Path(quiet, "times"), spans[name]) for name in spans}
        finally:
            writer.kill()
    took = {name: statistics.median(end - begin for begin, end in spans[name]) for name in spans}
    print(f"store {source.stat().st_size / 1e9:.2f} GB, {rounds} rounds, SQLite {sqlite3.sqlite_version}")
    goals = (
        ("time", took["ours"] / took["plain"], 1.5, f"{took['ours']:.2f} s beside {took['plain']:.2f} s"),
        ("memory in MiB", max(peaks) / 1024, 64, ""),
        (
            "agent's p99",
            p99["ours"] / p99["plain"],
            1.25,
            f"{1e3 * p99['ours']:.1f} ms beside {1e3 * p99['plain']:.1f} ms",
        ),
    )
    for what, measured, goal, how in goals:
        print(f"{'ok  ' if measured <= goal else 'MISS'} {what}: {measured:.2f}, at most {goal} {how and f'({how})'}")
    return all(measured <= goal for _, measured, goal, _ in goals)


def main() -> int:
    """Read the command line and do one of the parts."""
    parser = argparse.ArgumentParser(description="Measure a backup beside the plain chain of commands.")
    parser.add_argument("--size", type=int, default=1000, help="the store's size in MB (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each way runs (%(default)s)")
    parser.add_argument("--plain", nargs=2, metavar=("STORE", "COPY"), help=argparse.SUPPRESS)
    parser.add_argument("--agent", nargs=2, metavar=("STORE", "TIMES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        plain(*options.plain)
    elif options.agent:
        agent(*options.agent)
    else:
        # Not /tmp, which may be a tmpfs: disks are what is measured.
        with tempfile.TemporaryDirectory(prefix="memops-bench-", dir="/var/tmp") as top:
            return 0 if bench(Path(top), options.size * 1_000_000, options.rounds) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
