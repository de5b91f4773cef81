"""The nightly prune beside the field guide's two statements, with an agent that writes all the while.

Goals: no write of the agent fails beside ours; its worst wait is at most 1/20, and the 99th percentile at most 1/50, of
its worst wait beside the plain prune; ours takes at most 8 times as long.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "installer"))

from memops import assets  # noqa: E402 - from the checkout
from memops.render import sql  # noqa: E402
from memops.settings import Store  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = 86_400

PLAIN = """
PRAGMA foreign_keys = ON;
DELETE FROM memory WHERE expires_at IS NOT NULL AND expires_at <= datetime('now');
DELETE FROM memory WHERE superseded_by IS NOT NULL AND created_at < datetime('now', '-180 days');
"""

AGENT = """
import json, sqlite3, sys, threading, time
connection = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
connection.execute("PRAGMA foreign_keys = ON")
told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
waits, failures, number = [], [], 0
print("ready", flush=True)
while not told.is_set():
    start = time.monotonic()
    try:
        connection.execute("INSERT INTO memory (id, subject, fact, source) VALUES (?, 'now', ?, 'bench')",
                           (f"agent_{number}", "x" * 180))
    except sqlite3.OperationalError:
        failures.append(start)
    number += 1
    waits.append((start, time.monotonic() - start))
    time.sleep(max(0.0, 0.02 - (time.monotonic() - start)))
json.dump({"waits": waits, "failures": failures}, sys.stdout)
"""


def main() -> int:
    """Measure with both kinds of ids; 0 when every goal was reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows in the store (%(default)s)")
    parser.add_argument("--ids", choices=["ordered", "random"], help="only one kind of ids")
    parser.add_argument("--full-text", action="store_true", help="with a full-text index in the store")
    # Not /tmp, which may be a tmpfs: disks are what is measured.
    parser.add_argument("--directory", default="/var/tmp", help="where to put the stores (%(default)s)")  # noqa: S108
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memops-bench-", dir=options.directory) as directory:
        kinds = [options.ids] if options.ids else ["ordered", "random"]
        store = Store(full_text=options.full_text)
        held = [compare(Path(directory), options.rows, kind, store) for kind in kinds]
    return 0 if all(held) else 1


def compare(directory: Path, rows: int, ids: str, store: Store) -> bool:
    """Prune two copies of one store, plainly and our way; print and judge the figures."""
    original = directory / "original.db"
    make_store(original, rows, ids, store)
    results = {}
    for way, command in {"plain": plain_command(), "memops": our_command(directory)}.items():
        copy = directory / f"{way}.db"
        shutil.copy(original, copy)
        results[way] = measure(copy, [argument.replace("STORE", str(copy)) for argument in command])
    kept = [count_old_rows(directory / f"{way}.db") for way in results]
    for file in directory.glob("*.db*"):
        file.unlink()
    plain, ours = results["plain"], results["memops"]
    print(f"prune, {rows} rows, {ids} ids, {rows - kept[0]} dead" + ", full text" * store.full_text)
    for way, result in results.items():
        print(
            f"  {way:7} {result['seconds']:6.1f} s; the agent waited {result['worst'] * 1000:7.1f} ms at worst, "
            f"{result['p99'] * 1000:6.1f} ms p99; {result['failures']} of {result['writes']} writes failed"
        )
    goals = {
        "the same rows went": kept[0] == kept[1],
        "no write failed": ours["failures"] == 0,
        f"worst wait 1/{plain['worst'] / ours['worst']:.0f} (1/20)": ours["worst"] * 20 <= plain["worst"],
        f"p99 1/{plain['worst'] / ours['p99']:.0f} of plain's worst (1/50)": ours["p99"] * 50 <= plain["worst"],
        f"{ours['seconds'] / plain['seconds']:.1f} times as long (8)": ours["seconds"] <= 8 * plain["seconds"],
    }
    for goal, reached in goals.items():
        print(f"  {'ok    ' if reached else 'MISSED'}  {goal}")
    return all(goals.values())


def make_store(path: Path, rows: int, ids: str, store: Store) -> None:
    """A WAL store: two fifths of the rows dead, a tenth of the rows in chains of five, 300 bytes a row."""
    chance = random.Random(20)  # noqa: S311
    now = time.time()

    def date(days: float) -> str:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now + days * DAY))

    def name(number: int) -> str:
        return f"m_{number:08}" if ids == "ordered" else uuid.UUID(int=chance.getrandbits(128), version=4).hex

    def make_rows() -> Iterator[tuple[str | None, ...]]:
        head, fate = "", 0.0
        for number in range(rows):
            place = number % 50  # the first five of fifty make a chain, newest row first
            key = name(number)
            if place in (0, *range(5, 50)):
                head, fate = key, chance.random()
            older = 1 <= place < 5
            expires = None if older else date(-1) if fate < 0.4 else date(90) if fate > 0.8 else None
            created = date(-200) if older and 0.4 <= fate < 0.5 else date(-chance.random() * 100)
            yield key, f"subject {number % 997}", f"{chance.getrandbits(700):x}", created, created, expires, head
            head = key if place < 5 else ""

    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(sql("schema", store))
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO memory (id, subject, fact, source, created_at, confirmed_at, expires_at, superseded_by)"
            " VALUES (?1, ?2, ?3, 'chat 2026-08-08', ?4, ?5, ?6, nullif(?7, ?1))",
            make_rows(),
        )
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def plain_command() -> list[str]:
    """The guide's prune, with the 5 s timeout it advises."""
    program = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=5).executescript(sys.argv[2])"
    return [sys.executable, "-c", program, "STORE", PLAIN]


def our_command(directory: Path) -> list[str]:
    """The service's command line, from a directory laid out like /usr/local/lib/memops."""
    lib, state = directory / "lib", directory / "state"
    for made in (lib, state):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
    for name, text in assets.jobs().items():
        (lib / name).parent.mkdir(exist_ok=True)
        (lib / name).write_text(text)
    (lib / "prune.sql").write_text(sql("prune", Store()))
    return [sys.executable, "-I", *f"{lib}/prune.py --store STORE --sql {lib}/prune.sql --state {state}".split()]


def measure(path: Path, command: list[str]) -> dict[str, Any]:
    """Run ``command`` beside an agent; returns seconds, and the agent's waits meanwhile."""
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert agent.stdout  # noqa: S101
        agent.stdout.readline()
        time.sleep(1)
        start = time.monotonic()
        subprocess.run(command, check=True)
        end = time.monotonic()
        time.sleep(0.5)
        seen = json.loads(agent.communicate("")[0])
    finally:
        agent.kill()
        agent.wait()
    waits = sorted(wait for at, wait in seen["waits"] if start - wait < at < end)
    return {
        "seconds": end - start,
        "worst": waits[-1],
        "p99": waits[int(len(waits) * 0.99)],
        "writes": len(waits),
        "failures": len(seen["failures"]),
    }


def count_old_rows(path: Path) -> int:
    """Rows in the store without those the agent wrote meanwhile."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM memory WHERE source <> 'bench'").fetchone()[0])


if __name__ == "__main__":
    sys.exit(main())
