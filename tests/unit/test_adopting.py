"""Which table and which level: what adopt decides, what it refuses, and the SQL of a table that it takes under care."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import shape
from memops import adopted, adopting, discover, plan, products, render, settings
from memops.adopting import Wish
from memops.errors import Refused, UsageError
from memops.found import Found, Part
from memops.settings import Store

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = "CREATE TABLE facts (id INTEGER PRIMARY KEY, body TEXT, topic TEXT, created TEXT, updated REAL)"


def make(path: Path, *statements: str) -> str:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return str(path)


def run(path: str, statement: str, *values: object) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def found(path: str, product: str = "sqlite", what: str = "memories", kind: str = "sqlite", **more: Any) -> Found:
    part = Part(what, kind, path, path, 1, 1000, more.pop("owner", "ada"), 0o600)
    return Found(product, path, "named", (part,), settings={"tables": json.dumps(shape.tables(path))}, **more)


def reached(path: str, level: str = "own", **wish: Any) -> dict[str, str]:
    return adopting._table(found(path), level, Wish((path,), **wish))[0]


def test_the_columns_of_a_table_are_known_by_their_names_or_named(tmp_path: Path) -> None:
    path = make(tmp_path / "facts.db", PLAIN, "CREATE TABLE log (at TEXT)")
    assert reached(path) == {
        "table": "facts", "id": "id", "text": "body", "created": "created", "updated": "updated", "subject": "topic",
        "added": "source confirmed_at expires_at superseded_by",
    }  # fmt: skip
    assert reached(path, "observe") == {
        "path": path, "table": "facts", "id": '"id"', "text": '"body"', "created": '"created"',
        "updated": '"updated"', "subject": '"topic"',
    }  # fmt: skip
    assert reached(path, columns={"text": "topic", "subject": ""})["text"] == "topic"
    odd = make(tmp_path / "odd.db", "CREATE TABLE a (x TEXT, Source TEXT)", "CREATE TABLE b (k TEXT PRIMARY KEY, v, w)")
    for wish, words in (
        ({}, "Which table of"),
        ({"table": "c"}, "has no table c"),
        ({"table": "b"}, "Which column of b is the memory"),
        ({"table": "b", "columns": {"text": "v"}}, "Which column of b is the date of a memory"),
        ({"table": "b", "columns": {"text": "nope"}}, "has no column nope"),
        ({"table": "b", "columns": {"colour": "v"}}, "knows no 'colour'"),
    ):
        with pytest.raises(UsageError, match=words):
            reached(odd, **wish)
    with pytest.raises(Refused, match="no primary key of one column"):
        reached(odd, table="a", columns={"text": "x", "created": "x"})
    assert "source" in reached(odd, table="b", columns={"text": "v", "created": "w"})["added"]


def test_a_table_whose_columns_would_be_in_the_way_is_not_owned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discover, "ask_owner", lambda path, function, *rest: getattr(shape, function)(path, *rest))
    for number, (more, words) in enumerate(
        (
            (["CREATE TABLE memory (id TEXT PRIMARY KEY)"], "has a table named memory already"),
            (
                ["ALTER TABLE facts ADD COLUMN expires_at", "INSERT INTO facts (expires_at) VALUES (1790000000)"],
                "holds dates in another format",
            ),
        )
    ):
        path = make(tmp_path / f"{number}.db", PLAIN, *more)
        with pytest.raises(Refused, match=words) as raised:
            reached(path, table="facts")
        assert "--level observe" in raised.value.hint
        assert reached(path, "observe", table="facts")
    ours = str(tmp_path / "ours.db")
    shape.create(ours, render.sql("schema", Store()))
    with pytest.raises(Refused, match="is a store as memops makes them"):
        reached(ours, table="memory", columns={"created": "created_at"})


def test_a_level_is_the_products_or_a_milder_one() -> None:
    every = products.known()
    assert {name: adopting._level(each, "") for name, each in every.items()} == {
        name: each.level for name, each in every.items()
    }
    assert adopting._level(every["mem0"], "observe") == "observe"
    assert adopting._level(every["sqlite"], "observe") == "observe"
    for product, level in (("mem0", "own"), ("notes", "ledger"), ("notes", "own"), ("sqlite", "ledger")):
        with pytest.raises(Refused, match="is not adopted at the level"):
            adopting._level(every[product], level)
    with pytest.raises(UsageError):
        adopting._level(every["mem0"], "all")


def test_what_is_lost_half_or_under_care_or_roots_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "facts.db", PLAIN)
    whole = replace(found(path), parts=(replace(found(path).parts[0], path="/srv/ada/facts.db"),))
    adopting._require_whole(whole, products.known()["sqlite"])
    with pytest.raises(Refused, match="one half of what mem0"):
        adopting._require_whole(replace(whole, lacking=("vectors",)), products.known()["mem0"])
    lost = replace(whole, parts=(replace(whole.parts[0], path="/tmp/facts.db"),))  # noqa: S108
    with pytest.raises(Refused, match="emptied at boot") as raised:
        adopting._require_whole(lost, products.known()["sqlite"])
    assert "memops doctor /tmp/facts.db" in raised.value.hint
    for kept in (
        Store(db="/srv/ada/facts.db"),
        Store(parts=("files=/srv/ada/",)),
        Store(parts=("sqlite=/srv/ada/facts.db",)),
    ):
        with pytest.raises(Refused, match="looked after already"):
            adopting._require_free(whole, {"default": kept})
    adopting._require_free(whole, {"default": Store(), "b": Store(parts=("files=/srv/adam/",))})
    assert adopting._owner(whole, "") == "ada"
    for owners, words in ((("root",), "belongs to root"), (("ada", "bob"), "several users: ada, bob")):
        several = replace(whole, parts=tuple(replace(whole.parts[0], owner=owner) for owner in owners))
        with pytest.raises(Refused, match=words):
            adopting._owner(several, "")
    with pytest.raises(UsageError):
        adopting._owner(whole, "bob")
    assert adopting._owner(replace(whole, parts=()), "") == settings.DEFAULT_USER


def test_names_are_those_of_products_and_of_files(tmp_path: Path) -> None:
    path = make(tmp_path / "My facts.db", PLAIN)
    plain = found(path)
    known = products.known()
    assert adopting._name(plain, known["sqlite"], "", {}) == "my-facts"
    assert adopting._name(plain, known["mem0"], "", {"mem0": Store()}) == "mem0-2"
    with pytest.raises(UsageError):
        adopting._name(plain, known["mem0"], "mem0", {"mem0": Store()})
    for name in (*known, "my-facts", "mem0-2"):
        settings.check(Store(name=name))


def test_what_a_hand_is_told_fits_no_unit_and_is_a_file() -> None:
    for product in products.known().values():
        if product.level != "observe":
            continue
        store = Store(
            name="other", level="observe", product=product.name, adopted=("path=/srv/a",), db=adopted.ledger("other")
        )
        files = render.store_files(store)
        config = json.loads(files[adopted.config_file(store)].text)
        assert config["path"] == "/srv/a"
        assert adopted.hand(store) != "rows" or {"table", "id", "text"} <= config.keys()
        unit = files["/etc/systemd/system/memory-prune-other.service"].text
        assert adopted.config_file(store) in unit
        assert "json_extract" not in unit


# The SQL of a table that is taken under care


class Owned:
    """A plain table at the level own."""

    def __init__(self, directory: Path, *statements: str) -> None:
        self.path = make(directory / "facts.db", PLAIN, *statements)
        config = reached(self.path)
        self.store = Store(
            name="facts", db=self.path, level="own", product="sqlite",
            adopted=tuple(f"{key}={value}" for key, value in config.items() if value),
        )  # fmt: skip
        settings.check(self.store)
        self.step = plan.adopt_table(self.store, self.described())
        shape.change_schema(self.path, self.step.script)

    def described(self) -> dict[str, Any]:
        return shape.describe(self.path, "memory", "facts")

    def prune(self) -> None:
        text = render.sql("prune", self.store)
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            script = "\n".join(line for line in text.splitlines() if not line.startswith("."))
            connection.executescript(script.replace(":first", "NULL").replace(":last", "NULL"))


@pytest.fixture
def owned(tmp_path: Path) -> Owned:
    return Owned(
        tmp_path,
        "INSERT INTO facts VALUES (1, 'tea', 'food', '2026-01-02T03:04:05+02:00', NULL)",
        "INSERT INTO facts VALUES (2, 'rome', NULL, '2026-01-02', 1767323045.5)",
        "INSERT INTO facts VALUES (3, 'odd', 'x', 'yesterday', NULL)",
    )


def test_an_owned_table_is_shown_under_memops_names_with_its_dates(owned: Owned) -> None:
    assert run(owned.path, "SELECT id, subject, fact, source, created_at, confirmed_at FROM memory ORDER BY id") == [
        ("1", "food", "tea", "", "2026-01-02 01:04:05", "2026-01-02 01:04:05"),
        ("2", "", "rome", "", "2026-01-02 00:00:00", "2026-01-02 03:04:05"),
        ("3", "x", "odd", "", "yesterday", "yesterday"),
    ]
    described = owned.described()
    assert (described["kind"], described["adopted"], described["rows"]) == ("store", True, 3)
    assert run(owned.path, "SELECT count(*) FROM live_facts") == [(3,)]


def test_an_owned_table_is_pruned_and_its_program_goes_on(owned: Owned) -> None:
    run(owned.path, "INSERT INTO facts (body, created) VALUES ('new', '2026-05-05')")
    run(owned.path, "UPDATE memory SET expires_at = '2020-01-01 00:00:00' WHERE id IN ('2', '3')")
    owned.prune()
    # What has no date that can be trusted stays.
    assert [row[0] for row in run(owned.path, "SELECT body FROM facts ORDER BY id")] == ["tea", "odd", "new"]
    run(owned.path, "DELETE FROM memory WHERE id = '1'")
    assert [row[0] for row in run(owned.path, "SELECT body FROM facts ORDER BY id")] == ["odd", "new"]
    for change in ("fact = 'x'", "id = '9'", "source = 'x'", "subject = 'y'", "created_at = '2020-01-01 00:00:00'"):
        with pytest.raises(sqlite3.IntegrityError, match="changed by the agent's own program"):
            run(owned.path, f"UPDATE memory SET {change}")


def test_a_view_of_another_table_is_not_taken_for_an_adoption(owned: Owned) -> None:
    make_other = "CREATE TABLE others (id INTEGER PRIMARY KEY, body TEXT, created TEXT)"
    run(owned.path, make_other)
    assert shape.describe(owned.path, "memory", "others")["adopted"] is False


def test_what_was_added_goes_again(owned: Owned) -> None:
    shape.change_schema(owned.path, owned.step.back)
    assert run(owned.path, "SELECT name FROM sqlite_schema") == [("facts",)]
    assert [row[0] for row in run(owned.path, "SELECT name FROM pragma_table_info('facts')")] == [
        "id", "body", "topic", "created", "updated",
    ]  # fmt: skip
    assert run(owned.path, "SELECT count(*) FROM facts") == [(3,)]


def test_a_table_whose_updates_are_watched_is_not_backfilled(tmp_path: Path) -> None:
    watched = Owned(
        tmp_path,
        "INSERT INTO facts VALUES (1, 'tea', 'food', '2026-01-02', NULL)",
        "CREATE TABLE seen (id)",
        "CREATE TRIGGER watch AFTER UPDATE ON facts BEGIN INSERT INTO seen VALUES (NEW.id); END",
    )
    assert run(watched.path, "SELECT count(*) FROM seen") == [(0,)]
    assert run(watched.path, "SELECT confirmed_at FROM memory") == [("2026-01-02 00:00:00",)]
