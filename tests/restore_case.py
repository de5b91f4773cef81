"""A memory of several parts and a set of it, in a directory: what the tests of putting it back begin with."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sqlite3
import stat
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import census
import kinds
import manifests
import restore
import setcopy
from pieces import Piece, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAMING = ("mkdir", "rename", "unlink", "rmdir")
"""The calls that change which names there are."""

ALL = (*NAMING, "fsync", "chmod", "open")
STAMP = "2026-11-30T213159Z"
SET = "2026-11-29T233000Z"
COLUMNS = "id TEXT PRIMARY KEY, subject, fact, source, created_at, confirmed_at, expires_at, superseded_by"


def make_database(path: Path, ids: Sequence[str], *, mode: str = "wal", unflushed: str = "") -> None:
    """A store with these facts; ``unflushed`` is one that only its -wal has, as a killed writer leaves it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute(f"CREATE TABLE memory ({COLUMNS})")
        connection.executemany("INSERT INTO memory (id, fact) VALUES (?, 'f')", [(i,) for i in ids])
        if unflushed:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("INSERT INTO memory (id, fact) VALUES (?, 'f')", (unflushed,))
            left = {end: Path(f"{path}{end}").read_bytes() for end in ("-wal", "-shm")}
            main = path.read_bytes()
    if unflushed:
        path.write_bytes(main)
        for end, content in left.items():
            Path(f"{path}{end}").write_bytes(content)


def ids(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM memory ORDER BY id")]


def make_set(directory: Path, sources: dict[str, tuple[str, Path]]) -> Path:
    """Seal a set of these parts (name → kind and source), the store under the name memory."""
    directory.mkdir(mode=0o700)
    entries = []
    for name, (kind, source) in sources.items():
        target = directory / ("taken" if name == "memory" else name)
        target.mkdir()
        module = kinds.load(kind)
        limit = census.Limit(60)
        claim = module.snapshot(f"{source}/" if source.is_dir() else str(source), str(target), limit)
        if name == "memory":
            (target / source.name).rename(directory / "memory.db")
            target.rmdir()
            claim, target, known = {**claim, "file": "memory.db"}, directory, hashed(directory / "memory.db")
            entry = {"kind": kind, "name": "memory.db", "file": "memory.db", "taken_at": claim["taken_at"], **known}
        else:
            files = {str(p.relative_to(directory)): hashed(p) for p in sorted(target.rglob("*")) if p.is_file()}
            inner = [str(p.relative_to(directory)) for p in sorted(target.rglob("*")) if p.is_dir()]
            entry = {"kind": kind, "name": name, "source": str(source), "taken_at": claim["taken_at"]}
            entry |= {"files": files, "directories": [name, *inner]}
        verified = module.verify(str(target), claim, limit)
        if name == "memory":
            verified.pop("counts")
        entries.append({**entry, "exact": claim["exact"], **verified})
    manifest = {"version": 1, "store": "default", "set": directory.name, "sealed_at": "2026-11-29T23:30:00Z"}
    (directory / "manifest.json").write_bytes(manifests.write({**manifest, "parts": entries, "pairs": None}))
    return directory


def hashed(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def sent(chosen: Path, names: Sequence[str]) -> bytes:
    """What root's process writes to the owner's."""
    out = io.BytesIO()
    setcopy.send(str(chosen), names, out, census.Limit(60))
    return out.getvalue()


def snapshot(top: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below ``top``: kind, mode and contents."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(top.rglob("*")):
        status = path.lstat()
        what = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path.relative_to(top))] = (oct(status.st_mode), what)
    return found


def killed(work: Any, at: int, calls: Sequence[str] = ALL) -> bool:
    """Do ``work`` in a process that is killed before its system call number ``at``; whether it was.

    Counted are those of ``calls``.
    """
    pid = os.fork()
    if pid == 0:
        try:
            _count_down(at, calls)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 9), "the work failed: see above"
    return code == 9


def _count_down(left: int, calls: Sequence[str]) -> None:
    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(9)
            return real(*words, **more)

        return call

    for name in calls:
        setattr(os, name, counted(getattr(os, name)))
    restore.move = counted(restore.move)


class Memory:
    """A store, a further database beside it, a directory of notes and one plain file; and a set of their past."""

    def __init__(self, top: Path) -> None:
        self.srv, self.notes, self.sets = top / "srv", top / "srv" / "notes", top / "sets"
        self.store, self.history, self.plain = self.srv / "brain.db", self.srv / "history.db", self.srv / "plan.md"
        for directory in (self.srv, self.notes, self.sets):
            directory.mkdir()
        self.pieces = (
            Piece("memory", "sqlite", str(self.srv), "brain.db", "wal"),
            Piece("history", "sqlite", str(self.srv), "history.db"),
            Piece("notes", "files", str(self.notes), ""),
            Piece("plan", "files", str(self.srv), "plan.md"),
        )

    @property
    def task(self) -> Task:
        return Task(STAMP, self.pieces, ())

    @property
    def task_text(self) -> str:
        return json.dumps({"stamp": STAMP, "pieces": [vars(piece) for piece in self.pieces], "served": []})

    def past(self) -> None:
        """The state that the set has."""
        make_database(self.store, ["a", "deleted"])
        make_database(self.history, ["h1"], mode="delete")
        (self.notes / "sub" / "empty").mkdir(parents=True)
        (self.notes / "sub" / "old.md").write_text("as it was")
        (self.notes / "both.md").write_text("as it was")
        self.plain.write_text("first plan")

    def seal(self) -> Path:
        parts = {"history": ("sqlite", self.history), "notes": ("files", self.notes), "plan": ("files", self.plain)}
        return make_set(self.sets / SET, {"memory": ("sqlite", self.store), **parts})

    def present(self) -> None:
        """The state that a restore meets: facts gone and new, a -wal with rows of its own, notes changed, modes odd."""
        for path in self.srv.iterdir():
            if path != self.notes:
                path.unlink()
        shutil.rmtree(self.notes)
        self.notes.mkdir(mode=0o750)
        make_database(self.store, ["a", "new"], unflushed="only in the wal")
        make_database(self.history, ["h1", "h2"], unflushed="h3")
        (self.notes / "both.md").write_text("as it is")
        (self.notes / "both.md").chmod(0o640)
        (self.notes / "newer.md").write_text("new")
        (self.notes / "sub").write_text("a file now")
        self.plain.write_text("second plan")
        self.store.chmod(0o660)
        (self.srv / "other.txt").write_text("not a part of it")
        (self.srv / "before-restore-2020-01-01T000000Z").mkdir()
        (self.notes / "before-restore-2020-01-01T000000Z").mkdir()
