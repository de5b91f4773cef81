"""What uses the store under load, as an agent would: run with the system's python3, as the store's user.

Arguments: what it is (see ROLES), a name, the store, seconds. It prints what was acknowledged, a line each: ``+ID`` a
fact, ``-OLD NEW`` a fact that another one replaced, ``xID`` one that was dead when it came.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "lib"))

# ruff: noqa: ARG001 - every role is played in the same way

ADD = "INSERT INTO memory (id, subject, fact, source, expires_at) VALUES (?, ?, ?, 'chat 2026-08-08', ?)"


def connect(path: str) -> sqlite3.Connection:
    """As anybody would who knows about WAL and locks, and nothing about memops."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def plain(name: str, path: str, end: float, size: int = 30, pause: float = 0.1) -> int:
    """Add facts, replace some of its own, confirm some; returns how many transactions."""
    connection, last, number, chance = connect(path), "", 0, random.Random(name)  # noqa: S311
    while time.monotonic() < end:
        number += 1
        new, text = f"{name}_{number}", f"{name} {number} " + "says " * size
        dead = number % 5 == 0
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(ADD, (new, name, text, "2020-01-01 00:00:00" if dead else None))
        old = last if number % 7 == 0 and not dead else ""
        if old:
            connection.execute("UPDATE memory SET superseded_by = ? WHERE id = ?", (new, old))
        connection.execute("COMMIT")
        print(f"x{new}" if dead else f"-{old} {new}" if old else f"+{new}", flush=True)
        if number % 11 == 0 and last:
            connection.execute("UPDATE memory SET confirmed_at = datetime('now') WHERE id = ?", (last,))
        last = last if dead else new
        time.sleep(chance.random() * pause)
    connection.close()
    return number


def memory(name: str, path: str, end: float) -> int:
    """The same through the library, which reads, too."""
    import store  # type: ignore[import-not-found]

    number, last = 0, ""
    with store.Memory(path) as found:
        while time.monotonic() < end:
            number += 1
            old = last if number % 7 == 0 else ""
            new = found.remember(name, f"{name} {number} says so", "chat 2026-08-08", replaces=old or None)
            print(f"-{old} {new}" if old else f"+{new}", flush=True)
            found.recall("says", limit=5)
            last = new
            time.sleep(0.01)
    return number


def once(name: str, path: str, end: float) -> int:
    """A fact through the library, three times replaced; and all that is recalled marked as used."""
    import store

    with store.Memory(path) as found:
        ids = [found.remember(name, f"{name} 0 says so", "chat 2026-08-08")]
        print(f"+{ids[0]}", flush=True)
        for number in range(1, 4):
            new = found.remember(name, f"{name} {number} says so", "chat 2026-08-08", replaces=ids[-1])
            print(f"-{ids[-1]} {new}", flush=True)
            ids.append(new)
        found.recall("says", limit=50)
    return len(ids)


def reader(name: str, path: str, end: float) -> int:
    """Read what is live, over and over."""
    connection, number = connect(path), 0
    while time.monotonic() < end:
        number += 1
        connection.execute("SELECT count(*), max(confirmed_at) FROM live_memory").fetchone()
        connection.execute("SELECT * FROM live_memory ORDER BY confirmed_at DESC LIMIT 20").fetchall()
        time.sleep(0.01)
    return number


def recall(name: str, path: str, end: float) -> int:
    """Read through the library."""
    import store

    number = 0
    with store.Memory(path) as found:
        while time.monotonic() < end:
            number += 1
            found.recall("says", limit=20)
            time.sleep(0.01)
    return number


def pinned(name: str, path: str, end: float) -> int:
    """One read that does not end: a cursor that somebody forgot."""
    connection = connect(path)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM memory").fetchone()
    print("reading", flush=True)
    while time.monotonic() < end:
        time.sleep(0.05)
    return 1


def bulk(name: str, path: str, end: float) -> int:
    """Add long facts."""
    return plain(name, path, end, 3000, 0.01)


ROLES = {each.__name__: each for each in (plain, memory, once, reader, recall, pinned, bulk)}


def main() -> int:
    """Play the role until the time is over; the last line of stderr says how much was done."""
    role, name, path, seconds = sys.argv[1:5]
    try:
        count = ROLES[role](name, path, time.monotonic() + float(seconds))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(count, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
