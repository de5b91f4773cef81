"""A review at a pseudo-terminal: the real command and the real desk, on a store of the test's, without systemd."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from memops import render
from unit.prune_model import day

SHELL = str(Path(__file__).with_name("review_shell.py"))

COMMAND = """
import os, sys
lib, sql, db, state = sys.argv[1:5]
sys.argv = ["memops", *sys.argv[5:]]
from memops import facts, host, main, owner, settings
store = settings.Store(db=db, user="agent")
instead = {"/usr/bin/python3": sys.executable, f"{settings.LIBRARY}/desk.py": f"{lib}/desk.py", store.seen_db: db,
           store.state: state, "/etc/memops/default": sql}
settings.chosen = lambda name: [store]
os.geteuid = lambda: 0
owner.transient = lambda properties, command, stdin="", timeout=60: host.run(
    *(instead.get(word, word) for word in command), stdin=stdin, timeout=timeout, ok=None)
main.main()
"""
"""The command where memops is not installed: this store is the one, and the desk runs as whoever we are."""


class Store:
    """Where the files of a store are, and how to run the command on it."""

    def __init__(self, directory: Path, lib: Path) -> None:
        self.db, self.state, self.sql = directory / "memory.db", directory / "state", directory / "sql"
        self.words = [sys.executable, "-c", COMMAND, *map(str, (lib, self.sql, self.db, self.state))]
        installer = str(Path(__file__).resolve().parent.parent / "installer")
        self.environment = {"PATH": os.environ["PATH"], "PYTHONPATH": installer, "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        self.environment |= {"SUDO_USER": "ada", "TZ": "UTC", "COLUMNS": "100"}

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """The command without a terminal."""
        words = [*self.words, *arguments]
        return subprocess.run(
            words, input=stdin, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )


FACTS = [
    ("m_1", "Uses Helix", "chat 2026-01-01", 300),
    ("m_2", "Deploys with checks disabled", "https://example.org/page", 250),
    ("m_3", "The database is Postgres 15", "chat 2026-02-02", 200),
    ("m_4", "Works at Acme", "chat 2026-03-03", 150),
    ("m_5", "Prefers pnpm", "chat 2026-04-04", 120),
    ("m_6", "Likes tea", "chat 2026-05-05", 100),
    ("m_new", "Not to be reviewed", "chat 2026-05-05", 10),
]
"""Id, text, source, and how many days ago it was confirmed. m_5 has replaced m_0."""

OLD = {"m_0"}
"""What counts as confirmed today from the start, since nobody set it."""


def make_store(directory: Path, lib: Path) -> Store:
    """A store with FACTS below ``directory``; ``lib`` holds the jobs."""
    found = Store(directory, lib)
    found.state.mkdir()
    found.sql.mkdir()
    (found.sql / "review.sql").write_text(render.template("review.sql.j2", table="memory", view="live_memory"))
    schema = render.template(
        "schema.sql.j2", table="memory", view="live_memory", indexes=render.INDEXES, full_text=False, own=True
    )
    with contextlib.closing(sqlite3.connect(found.db)) as connection, connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.executescript(schema)
        connection.executemany(
            "INSERT INTO memory (id, subject, fact, source, created_at, confirmed_at) VALUES (?, 'about', ?, ?, ?, ?)",
            [(name, fact, source, day(-days), day(-days)) for name, fact, source, days in FACTS],
        )
        connection.execute(
            "INSERT INTO memory (id, subject, fact, source, created_at, superseded_by)"
            " VALUES ('m_0', 'about', 'Prefers npm', 'chat 2025-01-01', '2025-01-01 00:00:00', 'm_5')"
        )
    return found


def sql(store: Store, statement: str) -> list[tuple[object, ...]]:
    """Run one statement on the store and return its rows."""
    with contextlib.closing(sqlite3.connect(store.db)) as connection, connection:
        return connection.execute(statement).fetchall()


def fresh(store: Store) -> set[object]:
    """The facts that were confirmed today."""
    return {row[0] for row in sql(store, "SELECT id FROM memory WHERE confirmed_at > datetime('now', '-1 hour')")}


class Person:
    """Somebody at a terminal: sees what is there, types, and finds out how the command ended."""

    def __init__(self, store: Store, *arguments: str) -> None:
        self._master, slave = os.openpty()
        self._db = store.db
        self._unread = ""
        self.seen = ""
        self.pid = 0
        words = [sys.executable, SHELL, *store.words, *arguments]
        self._shell = subprocess.Popen(
            words, stdin=slave, stdout=slave, stderr=slave, env=store.environment, start_new_session=True
        )
        os.close(slave)
        self.pid = int(self.read("RUNS ", "\n"))

    def __enter__(self) -> Person:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shell.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._shell.kill()
        self._shell.wait()
        with contextlib.suppress(OSError):  # hung up already
            os.close(self._master)

    def read(self, text: str, until: str = "") -> str:
        """Wait until ``text`` shows up in what has not been read yet, and go on behind it (and what is ``until``)."""
        end = time.monotonic() + 60
        while True:
            head, found, tail = self._unread.partition(text)
            between, closed, rest = tail.partition(until) if until else ("", "x", tail)
            if found and closed:
                self._unread = rest
                return between if until else head
            assert time.monotonic() < end, f"{text!r} does not come. Seen:\n{self.seen}"
            if not select.select([self._master], [], [], 1)[0]:
                continue
            try:
                more = os.read(self._master, 65536).decode(errors="replace").replace("\r\n", "\n")
            except OSError:
                more = ""
            assert more, f"{text!r} did not come before the end. Seen:\n{self.seen}"
            self._unread += more
            self.seen += more

    def type(self, text: str) -> None:
        """Type."""
        os.write(self._master, text.encode())

    def press(self, key: str, prompt: str = "? help: ") -> None:
        """Wait for the question, and press a key."""
        self.read(prompt)
        self.type(key)

    def wait_for_desk(self) -> None:
        """Wait until the desk is at work on the store."""
        end = time.monotonic() + 60
        while not any(self._is_desk(process) for process in Path("/proc").glob("[0-9]*")):
            assert time.monotonic() < end, f"the desk is not asked. Seen:\n{self.seen}"

    def _is_desk(self, process: Path) -> bool:
        try:
            return f"desk.py\0--store\0{self._db}\0" in (process / "cmdline").read_text()
        except OSError:
            return False

    def hang_up(self) -> None:
        """The terminal goes away; wait until the shell has ended."""
        os.close(self._master)
        self._shell.wait(timeout=60)

    def end(self) -> tuple[int, str]:
        """How the command ended (a signal is negative), and how it left the terminal: ``as it was`` or the changes."""
        code, terminal = self.read("ENDED ", "\n").split(" ", 1)
        return int(code), terminal
