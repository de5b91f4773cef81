"""store.py and shape.py: connections with every pragma right, and what is said of files that are no stores."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import desk
import shape
from memops import store

EIGHT = (
    "CREATE TABLE memory (id TEXT PRIMARY KEY, subject TEXT NOT NULL, fact TEXT NOT NULL, source TEXT NOT NULL,"
    " created_at TEXT NOT NULL DEFAULT (datetime('now')), confirmed_at TEXT NOT NULL DEFAULT (datetime('now')),"
    " expires_at TEXT, superseded_by TEXT REFERENCES memory(id) ON DELETE CASCADE)"
)


@pytest.fixture
def db(tmp_path) -> str:
    path = str(tmp_path / "memory.db")
    shape.create(path, EIGHT + ";")
    return path


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


@pytest.mark.parametrize("readonly", [False, True])
def test_every_connection_has_its_pragmas(db: str, readonly: bool) -> None:
    connection = store.connect(db, readonly=readonly)
    try:
        assert pragma(connection, "foreign_keys") == 1
        assert pragma(connection, "secure_delete") == 1
        assert pragma(connection, "synchronous") == 3
        assert pragma(connection, "trusted_schema") == 0
        assert pragma(connection, "cell_size_check") == 1
        if readonly:
            with pytest.raises(sqlite3.OperationalError):
                connection.execute("DELETE FROM memory")
    finally:
        connection.close()


def test_a_missing_store_is_never_made(tmp_path) -> None:
    for readonly in (False, True):
        with pytest.raises(sqlite3.OperationalError):
            store.connect(str(tmp_path / "typo.db"), readonly=readonly)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("readonly", [False, True])
def test_a_store_that_is_replaced_while_it_is_opened_is_not_used(
    db: str, readonly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite would have the old database open, and the new one's -wal."""
    shape.create(f"{db}.new", EIGHT + ";")
    before = Path(f"{db}.new").read_bytes()
    opened = store._open

    def swapped(*words) -> sqlite3.Connection:
        connection = opened(*words)
        Path(f"{db}.new").replace(db)
        return connection

    monkeypatch.setattr(store, "_open", swapped)
    with pytest.raises(store.StoreError, match="replaced by another file while it was opened"):
        store.connect(db, readonly=readonly)
    assert Path(db).read_bytes() == before


def test_a_command_is_not_acknowledged_where_the_store_was_replaced_meanwhile(
    case, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget, gone = desk.Desk.forget, case.remember()

    def swapped(*words, **more):
        done = forget(*words, **more)
        Path(case.path).rename(f"{case.path}.old")
        shape.create(case.path, EIGHT + ";")
        return done

    monkeypatch.setattr(desk.Desk, "forget", swapped)
    found = case.answer("forget", ids=[gone], only=False, token=None, by="test", terminal=False)
    assert "another file took the place of the store meanwhile" in found["error"]


def test_odd_names_are_names(tmp_path) -> None:
    path = str(tmp_path / "a ?mode=memory#%41&ü.db")
    shape.create(path, EIGHT + ";")
    assert Path(path).exists()
    assert shape.describe(path)["kind"] == "store"


def test_create_keeps_what_is_there_and_leaves_no_half(tmp_path) -> None:
    path = tmp_path / "memory.db"
    with pytest.raises(sqlite3.OperationalError):
        shape.create(str(path), "CREATE TABLE a (x); CREATE NONSENSE;")
    assert list(tmp_path.iterdir()) == []
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        shape.create(str(path), EIGHT + ";")
    assert path.read_text() == "mine"


def test_what_describe_says(tmp_path, db: str) -> None:
    def of(name: str, script: str | None = None, data: bytes | None = None) -> dict:
        path = tmp_path / name
        if script is not None:
            connection = sqlite3.connect(path)
            connection.executescript(script)
            connection.close()
        elif data is not None:
            path.write_bytes(data)
        return shape.describe(str(path))

    assert of("nothing")["kind"] == "missing"
    assert of("text", data=b"hello, this is no database at all")["kind"] == "not sqlite"
    assert of("empty", data=b"")["kind"] == "empty"
    assert shape.describe(str(tmp_path))["kind"] == "not a file"
    assert of("other", "CREATE TABLE notes (x)") | {} == {
        **of("other"),
        "kind": "other",
        "tables": ["notes"],
        "change_log": None,
    }
    log = of("history", "CREATE TABLE history (id, memory_id, old_memory, new_memory, event, is_deleted)")
    assert (log["kind"], log["change_log"]) == ("other", "history")
    short = of("short", "CREATE TABLE memory (id TEXT PRIMARY KEY, fact TEXT)")
    assert short["missing_columns"] == [
        "subject",
        "source",
        "created_at",
        "confirmed_at",
        "expires_at",
        "superseded_by",
    ]
    assert "WITHOUT ROWID" in of("norowid", EIGHT + " WITHOUT ROWID")["why_not"]
    assert "primary key" in of("key", EIGHT.replace("id TEXT PRIMARY KEY", "id TEXT, n INTEGER PRIMARY KEY"))["why_not"]
    assert "view" in of("view", "CREATE VIEW memory AS SELECT 1 AS id")["why_not"]
    whole = shape.describe(db)
    assert (whole["kind"], whole["why_not"], whole["live_view"], whole["journal_mode"]) == (
        "store",
        None,
        False,
        "delete",
    )
    # The unique index of the primary key leads with id only.
    assert whole["indexed"] == ["id"]
    assert whole["indexes"] == ["sqlite_autoindex_memory_1"]


def test_describing_changes_nothing(db: str) -> None:
    def state() -> tuple[int, bytes, set[Path]]:
        return Path(db).stat().st_mtime_ns, Path(db).read_bytes(), set(Path(db).parent.iterdir())

    before = state()
    shape.describe(db)
    assert state() == before


def test_the_journal_mode_is_what_the_store_says(db: str) -> None:
    assert shape.set_journal_mode(db, "wal") == "wal"
    assert shape.describe(db)["journal_mode"] == "wal"
    holder = sqlite3.connect(db)
    try:
        holder.execute("SELECT * FROM memory").fetchall()
        holder.execute("BEGIN IMMEDIATE")
        assert shape.set_journal_mode(db, "delete") == "wal"
    finally:
        holder.close()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("x" * 70, "x" * 63 + "…"),
        ("\udc80", "\\udc80"),
        (7, "7"),
    ],
)
def test_printable(text: object, shown: str) -> None:
    assert store.printable(text) == shown
