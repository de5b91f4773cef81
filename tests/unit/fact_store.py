"""Real stores for the tests of facts: our own schema, and the eight columns that the guide names."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import desk
import shape
from memops import render
from memops.settings import Store

if TYPE_CHECKING:
    from pathlib import Path

EIGHT = (
    "CREATE TABLE memory (id TEXT PRIMARY KEY, subject TEXT NOT NULL, fact TEXT NOT NULL, source TEXT NOT NULL,"
    " created_at TEXT NOT NULL DEFAULT (datetime('now')), confirmed_at TEXT NOT NULL DEFAULT (datetime('now')),"
    " expires_at TEXT, superseded_by TEXT REFERENCES memory(id) ON DELETE CASCADE);"
)
PAST, FUTURE = "2020-01-01 00:00:00", "2199-01-01 00:00:00"


class Case:
    """A store in a directory, and the desk in front of it."""

    def __init__(self, directory: Path, *, eight: bool = False) -> None:
        self.path, self.state, self.sql = str(directory / "memory.db"), directory / "state", directory / "sql"
        self.state.mkdir()
        self.sql.mkdir()
        for name in ("review", "digest"):
            (self.sql / f"{name}.sql").write_text(render.sql(name, Store()))
        schema = EIGHT + render.sql("view", Store(), own=False) if eight else render.sql("schema", Store())
        shape.create(self.path, schema)

    def answer(self, op: str, **arguments: Any) -> dict[str, Any]:
        """What the desk answers."""
        return desk.answer(self.path, str(self.state), str(self.sql), {"op": op, "arguments": arguments})

    def ask(self, op: str, **arguments: Any) -> Any:
        """The value of an answer that is no error."""
        found = self.answer(op, **arguments)
        assert "error" not in found, found
        return found["value"]

    def refused(self, op: str, **arguments: Any) -> str:
        """The words of a refusal, with its hint; nothing may have changed."""
        before = self.rows()
        found = self.answer(op, **arguments)
        assert found.get("exit") == 3, found
        assert self.rows() == before
        return f"{found['error']} | {found['hint']}"

    def remember(self, fact: str = "f", subject: str = "s", source: str = "chat 2026-08-08", **more: Any) -> str:
        """Store a fact; its id."""
        given = {"expires_at": None, "replaces": None, "terminal": False, "by": "test", **more}
        return str(self.ask("remember", subject=subject, fact=fact, source=source, **given)["id"])

    def apply(self, *verdicts: dict[str, Any], terminal: bool = False) -> Any:
        """Carry out verdicts."""
        return self.ask("apply", given=list(verdicts), by="test", terminal=terminal)

    def forget(self, *ids: str, only: bool = False) -> dict[str, Any]:
        """Delete facts."""
        found: dict[str, Any] = self.ask("forget", ids=list(ids), only=only, token=None, by="test", terminal=False)
        return found

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Plain SQL, as any program would send it, with foreign keys off."""
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def many(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        """The same for many rows."""
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executemany(statement, rows)

    def rows(self) -> list[tuple[Any, ...]]:
        """Everything in the store."""
        return self.run("SELECT * FROM memory ORDER BY id")

    def ids(self) -> set[str]:
        """All ids."""
        return {row[0] for row in self.run("SELECT id FROM memory")}

    def live(self) -> set[str]:
        """The ids that retrieval sees."""
        return {row[0] for row in self.run("SELECT id FROM live_memory")}
