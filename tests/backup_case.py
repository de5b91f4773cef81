"""A store, its incoming directory and its sets, and both halves of a backup run on them with the rights they have on
a server: the snapshot as the store's owner, the sealing as root without a capability.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENT = 65533
PYTHON = "/usr/bin/python3"  # what the units run; the tests' own may lie where the agent cannot reach it
SCHEMA = """
CREATE TABLE memory (
  id            TEXT PRIMARY KEY,
  subject       TEXT NOT NULL,
  fact          TEXT NOT NULL,
  superseded_by TEXT REFERENCES memory(id) ON DELETE CASCADE
);
CREATE INDEX memory_superseded ON memory(superseded_by);
CREATE VIEW live_memory AS SELECT id, fact FROM memory WHERE superseded_by IS NULL;
PRAGMA user_version = 7;
"""
FILL = """
INSERT INTO memory(id, subject, fact)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
SELECT printf('m_%08d', i), 'subject', hex(randomblob(150)) FROM n
"""


class Case:
    """The directories of one backup, in a place that the agent can reach."""

    def __init__(self, top: Path, lib: Path) -> None:
        self.top, self.lib = top, top / "lib"
        self.source, self.incoming = top / "store" / "memory.db", top / "incoming"
        self.sets, self.state, self.state_file = top / "sets", top / "state", top / "default.sets.json"
        top.chmod(0o755)
        shutil.copytree(lib, self.lib)
        self.lib.chmod(0o755)
        for directory, mode in ((self.source.parent, 0o700), (self.incoming, 0o2770), (self.state, 0o750)):
            directory.mkdir()
            os.chown(directory, AGENT, 0 if directory == self.incoming else AGENT)
            directory.chmod(mode)
        self.sets.mkdir(mode=0o700)

    def fill(self, rows: int, *, journal_mode: str = "delete", more: str = "") -> None:
        """Make the store, with ``rows`` rows in memory and whatever the SQL ``more`` adds."""
        with contextlib.closing(sqlite3.connect(self.source, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA journal_mode = {journal_mode}")
            connection.executescript(SCHEMA)
            connection.execute("BEGIN")
            connection.execute(FILL, (rows,))
            connection.execute("COMMIT")
            connection.executescript(more)
        for file in self.source.parent.iterdir():
            os.chown(file, AGENT, AGENT)

    def snapshot_command(self, *options: object) -> list[str]:
        return [
            *("setpriv", f"--reuid={AGENT}", f"--regid={AGENT}", "--clear-groups"),
            *(PYTHON, "-I", f"{self.lib}/snapshot.py", "--store", str(self.source)),
            *("--incoming", str(self.incoming), "--state", str(self.state), *map(str, options)),
        ]

    def seal_command(self, *options: object) -> list[str]:
        return [
            *("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--clear-groups"),
            *(PYTHON, "-I", f"{self.lib}/seal.py", "--name", "default", "--incoming", str(self.incoming)),
            *("--sets", str(self.sets), "--sets-record", str(self.state_file), *map(str, options)),
        ]

    def snapshot(self, *options: object) -> subprocess.CompletedProcess[str]:
        return run(self.snapshot_command(*options))

    def seal(self, *options: object) -> subprocess.CompletedProcess[str]:
        return run(self.seal_command(*options))

    def claim(self) -> dict:
        return json.loads((self.incoming / "memory.json").read_text())

    def write_claim(self, claim: object) -> None:
        self.put("memory.json", claim if isinstance(claim, bytes) else json.dumps(claim).encode())

    def put(self, name: str, content: bytes) -> None:
        """Lay a file into incoming as the agent would."""
        path = self.incoming / name
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(0o640)
        os.chown(path, AGENT, 0)

    def saved(self) -> dict:
        return json.loads(self.state_file.read_text())

    def digest(self) -> dict[str, str]:
        """Every file below the sets' directory with its sha256: what must not change."""
        return {
            str(file.relative_to(self.sets)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in self.sets.rglob("*")
            if file.is_file()
        }

    def whole_sets(self) -> list[str]:
        """The names of all sets, each of them looked into; anything else in the directory is a failure."""
        names = sorted(path.name for path in self.sets.iterdir())
        for name in names:
            manifest = json.loads((self.sets / name / "manifest.json").read_text())
            (part,) = manifest["parts"]
            file = self.sets / name / part["file"]
            assert sorted(p.name for p in (self.sets / name).iterdir()) == ["manifest.json", "memory.db"]
            assert manifest["set"] == name
            assert hashlib.sha256(file.read_bytes()).hexdigest() == part["sha256"]
            assert rows(file) == part["rows"]["memory"]
        return names


@contextlib.contextmanager
def case(lib: Path) -> Iterator[Case]:
    with tempfile.TemporaryDirectory(prefix="memops-backup-") as top:
        yield Case(Path(top), lib)


@contextlib.contextmanager
def small_disk(directory: Path, size: str) -> Iterator[None]:
    """Put a tmpfs of ``size`` over ``directory``, with its owner and mode."""
    status = directory.stat()
    options = f"size={size},uid={status.st_uid},gid={status.st_gid},mode={status.st_mode & 0o7777:o}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def peak(command: list[str]) -> tuple[int, int]:
    """Run ``command``; return its exit code and the most memory it held, in KiB.

    By way of a small process, since a child's figure begins with that of the process it was forked from.
    """
    code = (
        "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:], stdout=sys.stderr);"
        "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    returned, most = run([PYTHON, "-c", code, *command]).stdout.split()
    return int(returned), int(most)


def rows(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM memory").fetchone()[0])
