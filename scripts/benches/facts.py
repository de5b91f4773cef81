"""What the commands on facts and the library cost, beside bare SQL in Python's sqlite3, on a throwaway server.

Goals, with 100,000 and with 1,000,000 facts: a recall of the library takes at most 1.5 times the bare indexed query, by
words, by subject and without either; noting what was used costs it under 1 ms; ``memops review``, ``list`` and ``show``
take at most 0.15 s more than ``memops --version``, typed by the store's user; the full-text index costs what
``memops install`` says of it. The best of several rounds counts, since the machine is not ours alone. Needs root, as
scripts/test does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Goal = tuple[str, float, float, str]

ROOT = Path(__file__).resolve().parents[2]
DB, PLAIN = "/srv/agent/memory.db", "/srv/agent/plain.db"
LIBRARY = "/usr/local/lib/memops"
VOCABULARY = 30_000
LIMIT = 20
SHOWN = "l.id, l.subject, l.fact, l.source, l.confirmed_at, l.expires_at"

BARE = {
    "words": f"SELECT {SHOWN} FROM memory_text AS t JOIN memory AS m ON m.rowid = t.rowid"
    " JOIN live_memory AS l ON l.id = m.id WHERE memory_text MATCH ? ORDER BY t.rank LIMIT 20",
    "subject": f"SELECT {SHOWN} FROM live_memory AS l WHERE subject = ? ORDER BY confirmed_at DESC LIMIT 20",
    "latest": f"SELECT {SHOWN} FROM memory AS l WHERE likelihood(superseded_by IS NULL, 0.95)"
    " AND (expires_at IS NULL OR expires_at > datetime('now')) ORDER BY confirmed_at DESC LIMIT 20",
}
"""A recall as somebody would write it who knows the indexes."""

INSERT = "INSERT INTO memory (id, subject, fact, source) VALUES (?, ?, ?, 'chat 2026-11-30')"


# On the server, as the store's user


class Words:
    """Texts whose words are as unevenly common as those of a language: number n comes up about 1/n times as often."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311
        letters = random.Random(1)  # noqa: S311 - the same words for every seed
        self._words = ["".join(letters.choices("etaoinshrdlucm", k=letters.randint(3, 11))) for _ in range(VOCABULARY)]
        self._weights = list(itertools.accumulate(1 / (n + 3) for n in range(VOCABULARY)))

    def text(self, least: int, most: int) -> str:
        """A text of so many words."""
        return " ".join(
            self._chance.choices(self._words, cum_weights=self._weights, k=self._chance.randint(least, most))
        )

    def pick(self, first: int, last: int) -> str:
        """One of the words from the ``first`` to the ``last`` most common one."""
        return self._words[self._chance.randint(first, last)]


def make_rows(first: int, last: int) -> Iterator[tuple[object, ...]]:
    """Facts: some 50 of a subject, confirmed in the last 400 days, a tenth of them replaced by the one before."""
    subjects = last // 50
    chance, words = random.Random(first), Words(first)  # noqa: S311
    for number in range(first, last):
        days = chance.random() * 400
        ends = chance.random() * 300 if chance.random() < 0.2 else None
        replaced = f"m_{number - 1:09}" if number % 10 == 9 else None
        yield f"m_{number:09}", f"subject {chance.randrange(subjects)}", words.text(8, 40), days, ends, replaced


def fill(first: int, last: int) -> None:
    """Add facts number ``first`` to ``last`` to the store."""
    connection = sqlite3.connect(DB, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO memory (id, subject, fact, source, created_at, confirmed_at, expires_at, superseded_by) VALUES"
        " (?1, ?2, ?3, 'chat 2026-11-30', datetime('now', '-400 days'), datetime('now', -?4 || ' days'),"
        " datetime('now', ?5 || ' days'), ?6)",
        make_rows(first, last),
    )
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    print(json.dumps({"bytes": Path(DB).stat().st_size}))


def write() -> None:
    """Store two thousand facts one by one, as an agent does, in the store and its copy without the index, in turn."""
    sys.path.insert(0, LIBRARY)
    import store  # type: ignore[import-not-found]

    words, took = Words(5), dict.fromkeys((DB, PLAIN), 0.0)
    connections = {path: store.connect(path) for path in took}
    for number in range(2000):
        row = f"w_{number}", "written", words.text(8, 40)
        for path, connection in connections.items():
            start = time.perf_counter()
            connection.execute(INSERT, row)
            took[path] += time.perf_counter() - start
    for connection in connections.values():
        connection.execute("DELETE FROM memory WHERE subject = 'written'")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    print(json.dumps({"ms": (took[DB] - took[PLAIN]) / 2}))


def recall() -> None:
    """Compare the library's recall with bare SQL, and recalls that note what was used with those that do not."""
    sys.path.insert(0, LIBRARY)
    import store

    memory, words = store.Memory(DB), Words(7)
    bare = sqlite3.connect(DB, isolation_level=None)
    common = [f"{words.pick(20, 200)} {words.pick(200, 2000)}" for _ in range(30)]
    rare = [words.pick(5000, 20_000) for _ in range(100)]
    subjects = [f"subject {number}" for number in range(1000, 1100)]
    pairs: dict[str, tuple[str, Sequence[str], Callable[[str], object]]] = {
        "by common words": ("words", common, lambda text: memory.recall(text, touch=False)),
        "by a rare word": ("words", rare, lambda text: memory.recall(text, touch=False)),
        "of a subject": ("subject", subjects, lambda text: memory.recall(subject=text, touch=False)),
        "without a query": ("latest", [""] * 100, lambda _: memory.recall(touch=False)),
    }
    found: dict[str, Any] = {}
    for name, (query, texts, ours) in pairs.items():
        times: dict[str, list[float]] = {"ours": [], "bare": []}
        for _ in range(7):
            for way in times:
                start = time.perf_counter()
                for text in texts:
                    if way == "ours":
                        ours(text)
                    else:
                        bare.execute(BARE[query], (text,) if text else ()).fetchall()
                times[way].append((time.perf_counter() - start) / len(texts))
        found[name] = {way: min(each) for way, each in times.items()}
    bare.close()
    # Every recall finds twenty facts that nobody used before, which is the most there can be to note.
    extra = []
    for first in range(0, 1000, 200):
        took = {}
        for touch in (False, True):
            start = time.perf_counter()
            for number in range(first, first + 200):
                memory.recall(subject=f"subject {number}", touch=touch)
            memory.flush()
            took[touch] = (time.perf_counter() - start) / 200
        extra.append(took[True] - took[False])
    found["touch"] = statistics.median(extra)
    memory.close()
    print(json.dumps(found))


def commands(rounds: int) -> None:
    """Time the commands, in turn, so that the machine's moods meet all alike."""
    what = {
        "--version": [],
        "list": ["list"],
        "review": ["review", "--json"],
        "show": ["show", "m_000000128"],
        "recall": ["recall", Words(7).pick(200, 2000)],
    }
    times: dict[str, list[float]] = {name: [] for name in what}
    for _ in range(rounds):
        for name, words in what.items():
            start = time.perf_counter()
            subprocess.run(["memops", *(words or [name])], stdout=subprocess.DEVNULL, check=True)
            times[name].append(time.perf_counter() - start)
    print(json.dumps({name: min(each) for name, each in times.items()}))


# Here


def bench(suite: str, sizes: Sequence[int], rounds: int) -> bool:
    """Measure with stores of these sizes on one server; print, and return whether the goals hold."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "installer")]
    from system import images
    from system.server import Server

    held, first = True, 0
    with Server(suite, images.with_command(suite)) as server:

        def on_server(*words: object) -> dict[str, Any]:
            ran = server.run("python3", "/srv/bench/facts.py", *map(str, words), user="agent", timeout=3600)
            return json.loads(ran.stdout or "{}")

        server.copy_in(Path(__file__), "/srv/bench/facts.py")
        server.run("memops", "install", timeout=600)
        for size in sizes:
            server.run("memops", "install", "--no-full-text", "--yes", timeout=600)
            plain = on_server("--fill", first, size)["bytes"]
            server.run("cp", DB, PLAIN, user="agent", timeout=600)
            start = time.monotonic()
            server.run("memops", "install", "--full-text", "--yes", timeout=1800)
            built = time.monotonic() - start
            indexed = int(server.run("stat", "-c", "%s", DB).stdout)
            more = on_server("--write")["ms"]
            found, seconds = on_server("--recall"), on_server("--commands", rounds)
            print(f"facts, {size:,} rows on {suite}, {plain / 1e6:.0f} MB; index made in {built:.1f} s")
            held &= judge(found, seconds, indexed / plain, more)
            first = size
    return held


def judge(found: dict[str, Any], seconds: dict[str, float], size: float, write_ms: float) -> bool:
    """Print a line for each goal; whether all are reached."""
    touch = found.pop("touch")
    goals: list[Goal] = [
        (f"recall {name}, times bare SQL", each["ours"] / each["bare"], 1.5, f"{1e3 * each['ours']:.2f} ms")
        for name, each in found.items()
    ]
    goals.append(("noting what was used, ms a recall", 1e3 * touch, 1, ""))
    version = seconds.pop("--version")
    goals += [
        (f"memops {name}, seconds above --version", took - version, 0.15, f"{took:.2f} s")
        for name, took in seconds.items()
    ]
    goals += [
        ("full-text index, times the file", size, 1.5, ""),
        ("full-text index, ms more a write", write_ms, 1, ""),
    ]
    for what, measured, goal, how in goals:
        more = f" ({how})" if how else ""
        print(f"  {'ok    ' if measured <= goal else 'MISSED'}  {what}: {measured:.2f}, at most {goal}{more}")
    return all(measured <= goal for _, measured, goal, _ in goals)


def main() -> int:
    """Read the command line and do one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, action="append", help="facts in the store (100000 and 1000000)")
    parser.add_argument("--rounds", type=int, default=9, help="how often each command runs (%(default)s)")
    parser.add_argument("--suite", default="debian13", help="the server (%(default)s)")
    parser.add_argument("--fill", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--recall", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--commands", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        fill(*options.fill)
    elif options.write:
        write()
    elif options.recall:
        recall()
    elif options.commands:
        commands(options.commands)
    else:
        return 0 if bench(options.suite, sorted(options.rows or [100_000, 1_000_000]), options.rounds) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
