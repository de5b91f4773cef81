"""Where one memory lives: on real files, and the conclusions from what is there."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import trail
from memops import render, tracing
from memops.settings import Store
from unit.fact_store import Case

WORD = "likes green tea very much"


class Memory:
    """A store with a change log, vectors and notes beside it."""

    def __init__(self, top: Path) -> None:
        (top / "agent").mkdir()
        self.case = Case(top / "agent")
        self.directory = top / "agent"

    def look(self, what: str = WORD) -> dict[str, Any]:
        here = str(self.directory)
        databases = [
            self.case.path,
            *(f"{here}/{name}" for name in ("history.db",) if (self.directory / name).exists()),
        ]
        task = {
            "state": str(self.case.state),
            "databases": [(path, path) for path in databases],
            "parts": [(f"{here}/qdrant", f"{here}/qdrant")],
            "notes": [(f"{here}/notes", f"{here}/notes")],
            "beside": [(here, here)],
        }
        answer = trail.answer({"task": task, "given": {"what": what}})
        assert "value" in answer, answer
        return {**answer["value"], "sets": [], "root": True}

    def sql(self, script: str, name: str = "") -> None:
        with contextlib.closing(sqlite3.connect(self.directory / name if name else self.case.path)) as connection:
            connection.executescript(script)

    def fact(self, name: str, text: str = WORD, created: str = "2026-01-01 00:00:00", more: str = "NULL") -> None:
        self.sql(
            "INSERT INTO memory (id, subject, fact, source, created_at, superseded_by)"
            f" VALUES ('{name}', 's', '{text}', 'chat', '{created}', {more})"
        )


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path)


def kinds(memory: Memory, found: dict[str, Any]) -> dict[str, bool]:
    return {place.what: place.recalled for place in tracing.places(Store(), found)}


def test_every_place_and_whether_it_is_recalled_from_there(memory: Memory) -> None:
    memory.fact("new")
    memory.fact("old", more="'new'")
    (memory.directory / "qdrant").mkdir()
    (memory.directory / "qdrant" / "storage.sqlite").write_text(f"vectors of {WORD}")
    (memory.directory / "notes").mkdir()
    (memory.directory / "notes" / "a.md").write_text(f"- {WORD}")
    (memory.directory / "before-restore-2026-01-01T000000Z").mkdir()
    (memory.directory / "before-restore-2026-01-01T000000Z" / "memory.db").write_text(WORD)
    memory.sql(
        "CREATE TABLE history (memory_id, event, created_at, old_memory, new_memory);"
        f"INSERT INTO history VALUES ('u', 'ADD', '2026', NULL, '{WORD}')",
        "history.db",
    )
    found = memory.look()
    there = [(place.what, place.recalled) for place in tracing.places(Store(), found)]
    assert set(there) >= {
        ("fact", True), ("fact", False), ("vectors", True), ("file", True), ("kept by a restore", False),
        ("change log", False),
    }  # fmt: skip
    text = tracing.describe(Store(), found, 80)
    # A path is never cut.
    assert max(len(line) for line in text.splitlines() if "/" not in line) <= 80
    assert "Deleting it in one of these 3 places leaves the others" in " ".join(text.split())


def test_of_what_a_program_keeps_values_are_told_from_bytes(memory: Memory) -> None:
    """A point that was deleted leaves bytes, from which nothing is recalled; a queue is not the index."""
    (memory.directory / "qdrant").mkdir()
    memory.sql(
        f"PRAGMA secure_delete = OFF; CREATE TABLE points (id, point); INSERT INTO points VALUES (1, '{WORD}');"
        " DELETE FROM points;",
        "qdrant/storage.sqlite",
    )
    assert kinds(memory, memory.look()) == {"free pages": False}
    memory.sql(f"CREATE TABLE embeddings_queue (id, metadata); INSERT INTO embeddings_queue VALUES (1, '{WORD}')",
               "qdrant/chroma.sqlite3")  # fmt: skip
    assert kinds(memory, memory.look()) == {"free pages": False, "queue": False}
    memory.sql(f"INSERT INTO points VALUES (2, '{WORD}')", "qdrant/storage.sqlite")
    assert kinds(memory, memory.look())["vectors"]


def test_a_fact_that_was_forgotten_is_known_by_its_digest(memory: Memory) -> None:
    place = Path(memory.case.state)
    (place / "digests.jsonl").write_text(json.dumps({"facts": [{"id": "m_gone", "fact": WORD}]}) + "\n")
    line = {"at": "2026-11-01T10:00:00Z", "by": "ada", "id": "m_gone", "verdict": "forget", "new": None}
    (place / "verdicts.jsonl").write_text(json.dumps(line) + "\n")
    memory.fact("m_new", created="2026-11-05 00:00:00")
    found = memory.look()
    assert any("learnt anew" in reason for reason in tracing.reasons(Store(), found)), found["verdicts"]


def test_a_level_that_has_no_ledger_has_its_own_facts(memory: Memory) -> None:
    memory.fact("a")
    own = Store(level="own", product="sqlite", adopted=("table=memory",))
    assert [(place.what, place.recalled) for place in tracing.places(own, memory.look())] == [("fact", True)]


def test_an_id_stands_for_its_words(memory: Memory) -> None:
    memory.fact("m_1")
    assert memory.look("m_1")["texts"] == [WORD]
    assert kinds(memory, memory.look("m_1")) == {"fact": True}


def test_nowhere(memory: Memory) -> None:
    found = memory.look("never heard of that")
    assert tracing.places(Store(), found) == []
    assert "nowhere" in tracing.describe(Store(), found, 80)


BASE: dict[str, Any] = {
    "places": [], "facts": [], "verdicts": [], "restores": [], "logged": [], "sets": [], "unread": [], "said": "x",
}  # fmt: skip
FACT = {"kind": "fact", "where": "a (fact)", "id": "a", "how": "whole"}
LIVE = {"id": "a", "state": "live", "created_at": "2026-11-05 00:00:00", "superseded_by": None}
FORGET = {"at": "2026-11-01T10:00:00Z", "by": "ada", "id": "a", "verdict": "forget", "new": None}
VECTORS = {"kind": "part", "where": "/srv/qdrant/collection/x/storage.sqlite", "how": "whole"}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            {"places": [FACT], "facts": [LIVE], "verdicts": [FORGET], "restores": ["2026-11-02T000000Z"]},
            "the restore of 2026-11-02T000000Z brought it back",
        ),
        (
            {"places": [FACT], "facts": [LIVE], "verdicts": [FORGET], "restores": ["2026-10-02T000000Z"]},
            "wrote it anew under its id",
        ),
        ({"places": [FACT], "facts": [{**LIVE, "id": "b"}], "verdicts": [FORGET]}, "learnt anew on 2026-11-05"),
        (
            {"places": [VECTORS], "logged": [{"file": "h", "id": "u", "event": "DELETE", "at": "2026"}]},
            "was deleted (2026), and /srv/qdrant/collection/x/storage.sqlite still has it",
        ),
        (
            {"places": [VECTORS], "logged": [{"file": "h", "id": "u", "event": e, "at": "2026"}
                                             for e in ("ADD", "DELETE", "ADD")]},
            "was deleted and added anew",
        ),
        (
            {"places": [VECTORS], "logged": [{"file": "h", "id": n, "event": e, "at": "2026"}
                                             for n, e in (("u", "ADD"), ("u", "DELETE"), ("v", "ADD"))]},
            "learnt anew as v",
        ),
        ({"places": [VECTORS]}, "deleted in one half only"),
        ({"places": [{"kind": "row", "where": "q", "table": "embeddings_queue", "how": "whole"}]}, "waits in a queue"),
    ],
)  # fmt: skip
def test_why_it_came_back(found: dict[str, Any], words: str) -> None:
    assert any(words in reason for reason in tracing.reasons(Store(), {**BASE, **found})), words


def test_what_is_well_has_no_reason() -> None:
    assert tracing.reasons(Store(), {**BASE, "places": [FACT], "facts": [LIVE]}) == []
    assert tracing.reasons(Store(), {**BASE, "places": [FACT], "facts": [{**LIVE, "state": "replaced"}]}) == []


def test_a_full_text_index_is_told_from_a_table(memory: Memory) -> None:
    memory.sql(render.sql("full_text", Store()))
    memory.fact("a")
    found = kinds(memory, memory.look())
    assert found["fact"]
    assert not found.get("full-text index", False)


def test_words_that_are_too_short_are_refused(memory: Memory) -> None:
    task = {"state": str(memory.case.state), "databases": [(memory.case.path, memory.case.path)]}
    answer = trail.answer({"task": task, "given": {"what": "a"}})
    assert answer["exit"] == 3
