from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import shutil
import sqlite3
import uuid

import hypothesis
import pytest
from hypothesis import strategies

import job
import kinds
from kinds import _tree, qdrant

ID = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"


class Bomb:
    """What a tampered store may hold: unpickling it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def stored(value):
    return base64.b64encode(pickle.dumps(value, protocol=4)).decode()


def fill(directory, collections, meta=None):
    """A directory as Qdrant's client leaves it; collections: name → ids."""
    for name, ids in collections.items():
        place = directory / "collection" / name
        place.mkdir(parents=True)
        with contextlib.closing(sqlite3.connect(place / "storage.sqlite")) as connection, connection:
            connection.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
            rows = [(stored(each), pickle.dumps({"id": each, "vector": [1.0]})) for each in ids]
            connection.executemany("INSERT INTO points VALUES (?, ?)", rows)
    found = {"collections": {name: {} for name in collections}, "aliases": {}} if meta is None else meta
    (directory / "meta.json").write_text(found if isinstance(found, str) else json.dumps(found))
    (directory / ".lock").write_text("tmp lock file")
    return directory


@pytest.fixture
def source(tmp_path):
    (tmp_path / "qdrant").mkdir()
    return fill(tmp_path / "qdrant", {"mem0": [7, 300, 1 << 63, ID], "mem0_entities": [1], "mem0migrations": [2]})


def change(directory, statement, *values, name="mem0"):
    path = directory / "collection" / name / "storage.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def files(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}


def test_every_collection_and_what_describes_it_is_copied(source, target, limit):
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    claim = qdrant.snapshot(str(source), str(target), limit)
    assert claim["exact"] is True
    assert claim["counts"] == {"mem0": 4, "mem0_entities": 1, "mem0migrations": 1}
    names = ("mem0", "mem0_entities", "mem0migrations")
    assert files(target) == {"meta.json", *(f"collection/{name}/storage.sqlite" for name in names)}
    assert (target / "meta.json").read_bytes() == (source / "meta.json").read_bytes()
    entry = qdrant.verify(str(target), json.loads(json.dumps(claim)), limit)
    assert entry["counts"] == claim["counts"]
    assert qdrant.verify(str(target), json.loads(json.dumps(entry)), limit) == entry
    assert qdrant.ids(str(target)) == ("vectors", {"7", "300", str(1 << 63), ID})
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before


def test_the_order_of_rows_which_decides_between_two_of_one_id_is_kept(source, target, limit):
    for number in range(200):
        change(source, "REPLACE INTO points VALUES (?, ?)", stored(number % 70), str(number))
    rows = "SELECT id, point FROM points ORDER BY rowid"
    qdrant.snapshot(str(source), str(target), limit)
    found = []
    for place in (source, target):
        with contextlib.closing(sqlite3.connect(place / "collection/mem0/storage.sqlite")) as connection:
            found.append(connection.execute(rows).fetchall())
    assert found[0] == found[1]


def test_points_and_ids_that_would_run_code_run_none(source, target, limit, tmp_path):
    bomb = pickle.dumps(Bomb(tmp_path / "ran"), protocol=4)
    change(source, "INSERT INTO points VALUES (?, ?)", base64.b64encode(bomb).decode(), bomb)
    entry = qdrant.verify(str(target), qdrant.snapshot(str(source), str(target), limit), limit)
    assert entry["counts"]["mem0"] == 5
    _, ids = qdrant.ids(str(target))
    assert len(ids) == 5
    assert not (tmp_path / "ran").exists()
    pickle.loads(bomb)  # noqa: S301  (it would have)
    assert (tmp_path / "ran").exists()


def test_an_id_is_read_without_being_unpickled():
    assert qdrant.read_id("gARLBy4=") == "7"  # as qdrant-client 1.20 wrote it
    for each in (0, 255, 65_536, (1 << 64) - 1, ID, "plain words", uuid.UUID(ID)):
        assert qdrant.read_id(stored(each)) == str(each)


LONG = stored(1 << 20_000)


@pytest.mark.parametrize(
    "text",
    [
        "", "7", "not base64!", base64.b64encode(b"\x80\x04").decode(), stored(-1), stored(1 << 64), LONG,
        stored((1, 2)), stored(b"x"), stored(1.5), stored(["a"] * 3), stored(None), stored("✓"),
        base64.b64encode(b"\x80\x04\x8c\xff").decode(), base64.b64encode(b"Vx\\ud800\n.").decode(),
    ],
)  # fmt: skip
def test_what_is_no_id_stays_as_it_is(text):
    assert qdrant.read_id(text) == text


@hypothesis.given(strategies.binary(max_size=200))
def test_no_bytes_make_the_reader_of_ids_fail(data):
    qdrant.read_id(base64.b64encode(data).decode())


def test_a_huge_id_is_not_read_as_a_whole(source, target, limit):
    change(source, "INSERT INTO points VALUES (?, x'00')", "A" * 3_000_000)
    change(source, "INSERT INTO points VALUES (?, x'00')", b"\xff\xfe")
    change(source, "INSERT INTO points VALUES (NULL, x'00')")
    qdrant.verify(str(target), qdrant.snapshot(str(source), str(target), limit), limit)
    _, ids = qdrant.ids(str(target))
    assert max(map(len, ids)) == 4096


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ("", "meta.json is empty, and 3 collections are there"),
        ("  \n", "meta.json is empty, and 3 collections are there"),
        ("{", "meta.json cannot be read"),
        ("[" * 100_000, "meta.json cannot be read"),
        ('{"collections": []}', "meta.json cannot be read"),
        ('{"collections": {"mem0": {}, "mem0_entities": {}}}', "that meta.json does not name: mem0migrations"),
        ('{"collections": {"mem0": {}, "mem0_entities": {}, "mem0migrations": {}, "x": {}}}', "is not on the disk: x"),
    ],
)
def test_a_description_that_does_not_fit_is_a_failure(meta, words, source, target, limit):
    claim = qdrant.snapshot(str(source), str(target), limit)
    (target / "meta.json").write_text(meta)
    with pytest.raises(job.JobError, match=words):
        qdrant.verify(str(target), claim, limit)
    (source / "meta.json").write_text(meta)
    shutil.rmtree(target)
    target.mkdir()
    with pytest.raises(job.JobError, match=words):
        qdrant.snapshot(str(source), str(target), limit)


def test_a_directory_without_collections_is_copied_too(tmp_path, target, limit):
    (tmp_path / "new").mkdir()
    claim = qdrant.snapshot(str(fill(tmp_path / "new", {})), str(target), limit)
    assert qdrant.verify(str(target), claim, limit)["counts"] == {}
    assert qdrant.ids(str(target)) == ("vectors", set())


def swap(path, replacement):
    path.unlink()
    replacement(path)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda top: (top / "meta.json").unlink(), "meta.json cannot be opened: No such file"),
        (
            lambda top: swap(top / "meta.json", lambda path: path.symlink_to("/etc/passwd")),
            "meta.json cannot be opened",
        ),
        (lambda top: swap(top / "meta.json", os.mkfifo), "meta.json is empty"),
        (lambda top: (top / "collection/mem0/storage.sqlite").unlink(), "collection mem0 has no storage.sqlite"),
        (
            lambda top: (top / "collection/mem0/storage.sqlite").rename(top / "collection/mem0/storage.dbm"),
            "collection mem0 is a storage.dbm, as qdrant-client wrote it before 1.1.7",
        ),
        (
            lambda top: swap(top / "collection/mem0/storage.sqlite", lambda path: path.symlink_to("/etc/passwd")),
            "collection mem0: storage.sqlite is a link",
        ),
        (
            lambda top: swap(top / "collection/mem0/storage.sqlite", os.mkfifo),
            "collection mem0: storage.sqlite is a link, or no plain file",
        ),
        (lambda top: (top / "collection/x").symlink_to("mem0"), "collection/x is no directory"),
        (lambda top: (top / "collection" / "a\nb").mkdir(), "holds a control character"),
    ],
)
def test_what_is_no_whole_qdrant_directory_is_refused(spoil, words, source, target, limit):
    spoil(source)
    with pytest.raises(job.JobError, match=words):
        qdrant.snapshot(str(source), str(target), limit)


def test_a_file_that_is_no_database_is_an_error(source, target, limit):
    (source / "collection/mem0/storage.sqlite").write_text("not a database, but long enough to be taken for one " * 20)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        qdrant.snapshot(str(source), str(target), limit)


def test_a_collection_made_meanwhile_is_in_the_copy(source, target, limit, monkeypatch):
    copy = qdrant.sqlite.copy_database

    def make(*arguments):
        if not (source / "collection" / "new").exists():
            fill(
                source, {"new": [1]}, {"collections": dict.fromkeys(["mem0", "mem0_entities", "mem0migrations", "new"])}
            )
        return copy(*arguments)

    monkeypatch.setattr(qdrant.sqlite, "copy_database", make)
    claim = qdrant.snapshot(str(source), str(target), limit)
    assert claim["counts"]["new"] == 1
    qdrant.verify(str(target), claim, limit)


def test_a_description_that_never_rests_fails_the_run(source, target, limit, monkeypatch):
    copy = qdrant.sqlite.copy_database
    monkeypatch.setattr(_tree, "PAUSE", 0)

    def touch(*arguments):
        with (source / "meta.json").open("a") as file:
            file.write(" ")
        return copy(*arguments)

    monkeypatch.setattr(qdrant.sqlite, "copy_database", touch)
    with pytest.raises(job.JobError, match=r"meta\.json changed while it was copied, 4 times"):
        qdrant.snapshot(str(source), str(target), limit)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda top: change(top, "DELETE FROM points WHERE rowid = 1"), "3 rows in points, where the store had 4"),
        (lambda top: change(top, "DROP TABLE points"), "another schema"),
        (
            lambda top: os.truncate(top / "collection/mem0/storage.sqlite", 4096),
            "collection mem0: the copy cannot be verified",
        ),
        (lambda top: (top / "collection/mem0/more").touch(), "collection/mem0/more does not belong to the copy"),
        (lambda top: (top / ".lock").touch(), ".lock does not belong to the copy"),
    ],
)
def test_a_copy_that_is_not_the_one_that_was_made_is_refused(spoil, words, source, target, limit):
    claim = qdrant.snapshot(str(source), str(target), limit)
    spoil(target)
    with pytest.raises(job.JobError, match=words):
        qdrant.verify(str(target), claim, limit)


def test_another_collection_than_the_claims_is_refused(source, target, limit):
    claim = qdrant.snapshot(str(source), str(target), limit)
    del claim["collections"]["mem0"]
    with pytest.raises(
        job.JobError, match=r"the collections are mem0, .* where mem0_entities, mem0migrations were copied"
    ):
        qdrant.verify(str(target), claim, limit)


def test_modules_that_kinds_share_are_no_kinds():
    assert kinds.known() == ["chroma", "files", "postgres", "qdrant", "sqlite"]
    with pytest.raises(job.JobError, match="'_tree' is no kind"):
        kinds.load("_tree")
