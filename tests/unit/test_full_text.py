"""The full-text index: it says what the table says, whoever writes; the jobs work on a store that has one."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import backup_case
import desk
import full_text
import shape
from memops import look, store
from memops import settings as options
from memops.errors import Refused
from memops.render import sql
from unit.prune_model import by_hand, ids, judge, make_sql, make_store, query
from unit.test_prune_policy import run_service, stores

if TYPE_CHECKING:
    from collections.abc import Iterator

STORE = options.Store(full_text=True)
FACT = "INSERT {how} INTO memory (id, subject, fact, source) VALUES (:id, 'all', :fact, 'chat') {conflict}"
UPDATE = "ON CONFLICT (id) DO UPDATE SET {what}"
WRITES = {
    "insert": FACT.format(how="OR ABORT", conflict=""),
    "ignore": FACT.format(how="OR IGNORE", conflict=""),
    "replace": FACT.format(how="OR REPLACE", conflict=""),
    "upsert": FACT.format(how="", conflict=UPDATE.format(what="fact = excluded.fact")),
    "confirm": FACT.format(how="", conflict=UPDATE.format(what="confirmed_at = excluded.confirmed_at")),
    "update": "UPDATE memory SET fact = :fact WHERE id = :id",
    "rename": "UPDATE OR IGNORE memory SET id = :other WHERE id = :id AND superseded_by IS NULL",
    "supersede": "UPDATE memory SET superseded_by = :other WHERE id = :id",
    "delete": "DELETE FROM memory WHERE id = :id",
}
"""What an agent may do to a fact, in SQL of its own."""

MIGRATION = f"""
CREATE TABLE old AS SELECT {", ".join(store.COLUMNS)} FROM memory WHERE id > 'a';
DROP TABLE memory;
CREATE TABLE memory ({", ".join(name + " TEXT PRIMARY KEY" * (name == "id") for name in store.COLUMNS)});
INSERT INTO memory SELECT * FROM old;
"""


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = str(tmp_path / "memory.db")
    shape.create(path, sql("schema", STORE))
    return path


@contextlib.contextmanager
def plain(path: str | Path) -> Iterator[sqlite3.Connection]:
    """The store as an agent opens it that knows nothing of memops."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def require_true(connection: sqlite3.Connection) -> None:
    """Fail unless the index holds exactly the words of the table."""
    connection.execute("INSERT INTO memory_text(memory_text, rank) VALUES ('integrity-check', 1)")
    assert connection.execute("SELECT count(*) FROM memory").fetchone() == (
        connection.execute("SELECT count(*) FROM memory_text_docsize").fetchone()
    )


def add(connection: sqlite3.Connection, **facts: str) -> None:
    connection.executemany(
        "INSERT INTO memory (id, subject, fact, source) VALUES (?, 's', ?, 'chat')", list(facts.items())
    )


def found(connection: sqlite3.Connection, word: str) -> list[str]:
    match = "SELECT m.id FROM memory_text AS t JOIN memory AS m ON m.rowid = t.rowid WHERE memory_text MATCH ?"
    return [row[0] for row in connection.execute(match, (word,))]


names, texts = st.sampled_from("abcde"), st.text("xyz ,ß", max_size=9)


@settings(max_examples=150)
@given(
    writes=st.lists(st.tuples(st.sampled_from(sorted(WRITES)), names, names, texts), max_size=25),
    recursive=st.booleans(),
    foreign_keys=st.booleans(),
)
def test_the_index_follows_every_write(writes, recursive: bool, foreign_keys: bool) -> None:
    with plain(":memory:") as connection:
        connection.executescript(sql("schema", STORE))
        connection.execute(f"PRAGMA recursive_triggers = {recursive}")
        connection.execute(f"PRAGMA foreign_keys = {foreign_keys}")
        for write, name, other, fact in writes:
            with contextlib.suppress(sqlite3.IntegrityError):
                connection.execute(WRITES[write], {"id": name, "other": other, "fact": fact})
        require_true(connection)


def test_every_connection_of_memops_writes_to_it(db: str) -> None:
    with store.Memory(db) as memory:
        first = memory.remember("editor", "Ada likes Vim", "chat 2026-08-08")
        memory.remember("editor", "Ada likes Emacs now", "chat 2026-08-09", replaces=first)
        assert [fact.fact for fact in memory.recall("ada EMACS")] == ["Ada likes Emacs now"]
        assert memory.ranked
        require_true(memory.connection)


def test_an_agent_goes_on_when_the_index_is_taken_out(db: str) -> None:
    with store.Memory(db) as memory:
        memory.remember("editor", "Ada likes Vim", "chat 2026-08-08")
        assert memory.ranked
        shape.change_schema(db, sql("full_text_drop", STORE))
        assert [fact.fact for fact in memory.recall("likes")] == ["Ada likes Vim"]
        shape.change_schema(db, sql("full_text", STORE))
        memory.remember("editor", "Ada likes Emacs", "chat 2026-08-08")
        assert len(memory.recall("likes")) == 2
        require_true(memory.connection)


def test_a_vacuum_moves_no_row_away_from_its_words(db: str, tmp_path: Path) -> None:
    with plain(db) as connection:
        add(connection, **{f"m{n}": f"common w{n}" for n in range(50)})
        connection.execute("DELETE FROM memory WHERE rowid % 3 = 0 OR rowid < 20")
        before = connection.execute("SELECT rowid, id FROM memory").fetchall()
        connection.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
        connection.execute("VACUUM")
    for path in (db, tmp_path / "copy.db"):
        with plain(path) as connection:
            assert connection.execute("SELECT rowid, id FROM memory").fetchall() == before
            require_true(connection)
            assert found(connection, "w30") == ["m30"]


def test_it_can_be_added_to_a_store_and_taken_out_again(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.db")
    shape.create(path, sql("schema", options.Store()))
    with plain(path) as connection:
        add(connection, a="tea", b="coffee")
        schema = connection.execute("SELECT * FROM sqlite_schema ORDER BY name").fetchall()
    assert shape.describe(path)["full_text"] == "none"
    shape.change_schema(path, sql("full_text", STORE))
    assert shape.describe(path)["full_text"] == "whole"
    with plain(path) as connection:
        assert found(connection, "coffee") == ["b"]
        add(connection, c="water")
        require_true(connection)
    shape.change_schema(path, sql("full_text_drop", STORE))
    assert shape.describe(path)["full_text"] == "none"
    with plain(path) as connection:
        columns = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
        assert connection.execute(columns).fetchall() == [(*row[:3], row[4]) for row in schema]


@pytest.mark.parametrize(
    "odd",
    [
        "DROP TRIGGER memory_text_delete",
        # What an agent's own migration does.
        MIGRATION,
        # What a connection does that runs no triggers.
        "INSERT INTO memory_text(memory_text, rowid, subject, fact) VALUES ('delete', 1, 's', 'tea')",
    ],
)
def test_one_that_is_not_whole_is_made_anew(db: str, odd: str) -> None:
    with plain(db) as connection:
        add(connection, a="tea", b="coffee")
        connection.executescript(odd)
    assert shape.describe(db)["full_text"] == "odd"
    shape.change_schema(db, sql("full_text", STORE))
    assert shape.describe(db)["full_text"] == "whole"
    with plain(db) as connection:
        require_true(connection)


@pytest.mark.parametrize("own", ["TABLE {}(id)", "VIEW {} AS SELECT 1", "VIRTUAL TABLE {} USING fts5(fact)"])
def test_what_else_has_its_name_is_left_alone(tmp_path: Path, own: str) -> None:
    path = str(tmp_path / "memory.db")
    shape.create(path, sql("schema", options.Store()) + f"CREATE {own.format('memory_text')};")
    found = shape.describe(path)
    assert found["full_text"] == "taken"
    assert look._wrong_shape(options.Store(), found) is None
    refusal = look._wrong_shape(STORE, found)
    assert refusal is not None
    assert "--no-full-text" in refusal.hint


def test_an_index_that_is_there_is_kept_until_somebody_decides() -> None:
    unset = options.Store()
    assert look.full_text(unset, {"full_text": "whole"}, decided=False).full_text
    assert not look.full_text(unset, {"full_text": "whole"}, decided=True).full_text
    assert not look.full_text(unset, {"full_text": "odd"}, decided=False).full_text
    assert look.full_text(STORE, {"kind": "missing"}, decided=True) == STORE


def test_where_sqlite_cannot_make_one_it_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(look, "_has_fts5", lambda: False)
    assert look.full_text(STORE, {"full_text": "whole"}, decided=True) == STORE
    assert look.full_text(options.Store(), {"full_text": "none"}, decided=True) == options.Store()
    for there in ({"full_text": "none"}, {"kind": "missing"}):
        with pytest.raises(Refused, match="lacks FTS5"):
            look.full_text(STORE, there, decided=True)


def test_the_choice_is_remembered() -> None:
    assert options.parse(f"version = {options.VERSION}\n[store.default]\nfull_text = true\n") == {"default": STORE}
    assert options.as_table(STORE)["full_text"] is True


# The jobs


@settings(max_examples=50)
@given(rows=stores(), journal_mode=st.sampled_from(["wal", "delete"]))
def test_the_prune_takes_the_words_along(rows, journal_mode: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        policy = make_sql(top / "prune.sql")
        mine = make_store(top / "service.db", rows, journal_mode, full_text=True)
        hand = Path(shutil.copy(mine, top / "hand.db"))
        gone, _ = judge(rows, "created")
        run_service(mine, policy)
        by_hand(hand, policy)
        for path in (mine, hand):
            assert ids(path) == {row.id for row in rows} - set(gone)
            with plain(path) as connection:
                require_true(connection)


@pytest.fixture
def secret(db: str) -> str:
    """The id of the one fact of two hundred with a word of its own."""
    with store.Memory(db) as memory:
        words = ["xyzzyplugh" if n == 50 else f"common w{n}" for n in range(200)]
        return [memory.remember("s", word, "chat 2026-08-08") for word in words][50]


@pytest.mark.parametrize("by", ["expiry", "agent", "forget", "forget_all"])
def test_the_words_of_what_was_deleted_leave_the_file(db: str, secret: str, by: str, tmp_path: Path) -> None:
    assert b"xyzzyplugh" in Path(db).read_bytes()
    with contextlib.closing(store.connect(db)) as connection:
        desk_of = desk.Desk(connection, str(tmp_path), str(tmp_path))
        if by == "forget":
            desk_of.forget([secret], only=False, token=None, by="ada", terminal=True)
        elif by == "forget_all":
            connection.execute("UPDATE memory SET subject = 'gone' WHERE id = ?", (secret,))
            assert desk_of.forget_all("gone", None, None, by="ada", terminal=True) == {"count": 1}
        elif by == "agent":
            connection.execute("DELETE FROM memory WHERE id = ?", (secret,))
        else:
            connection.execute("UPDATE memory SET expires_at = '2020-01-01 00:00:00' WHERE id = ?", (secret,))
    if by in ("expiry", "agent"):
        run_service(Path(db), make_sql(tmp_path / "prune.sql"))
    assert b"xyzzyplugh" not in Path(db).read_bytes()
    with plain(db) as connection:
        require_true(connection)
        # Told to stop, it says that it is not done; a store without an index has nothing to do.
        assert not full_text.settle(connection, lambda: False)
        connection.executescript(sql("full_text_drop", STORE))
        assert full_text.settle(connection, lambda: False)


@pytest.fixture
def case(lib):
    with backup_case.case(lib) as made:
        yield made


def test_a_backup_counts_facts_and_not_the_index(case) -> None:
    case.fill(300, more=sql("full_text", STORE), journal_mode="wal")
    assert (case.snapshot().returncode, case.seal().returncode) == (0, 0)
    (name,) = case.whole_sets()
    (part,) = json.loads((case.sets / name / "manifest.json").read_text())["parts"]
    assert part["rows"] == {"memory": 300, "memory_text_replaced": 0}
    assert part["uncounted"] == ["memory_text", *(f"memory_text_{own}" for own in ("config", "data", "docsize", "idx"))]
    with plain(case.sets / name / "memory.db") as connection:
        require_true(connection)


def test_a_claim_of_a_version_that_counted_the_index_still_holds(case) -> None:
    case.fill(300, more=sql("full_text", STORE))
    assert case.snapshot().returncode == 0
    claim = case.claim()
    with plain(case.source) as connection:
        for end in ("before", "after"):
            counted = [name for name in claim[end]["uncounted"] if name != "memory_text"]
            claim[end]["rows"] |= {n: connection.execute(f"SELECT count(*) FROM {n}").fetchone()[0] for n in counted}
            claim[end]["uncounted"] = ["memory_text"]
    case.write_claim(claim)
    sealed = case.seal()
    assert sealed.returncode == 0, sealed.stderr


def test_schema_sql_makes_a_store_with_it_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "by-hand.db"
    shell = subprocess.run(
        ["sqlite3", "-init", "/dev/null", path], input=sql("schema", STORE), capture_output=True, text=True, check=True
    )
    assert shell.stderr == ""
    assert shape.describe(str(path))["full_text"] == "whole"
    insert = "INSERT INTO memory (id, subject, fact, source) VALUES ('a', 's', 'by hand', 'typed')"
    subprocess.run(["sqlite3", "-init", "/dev/null", path, insert], check=True)
    assert query(path, "SELECT rowid FROM memory_text WHERE memory_text MATCH 'hand'") == [(1,)]
