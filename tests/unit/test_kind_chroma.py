"""Directories of the shape that Chroma 1.5 leaves; tests/stores copies those of the product itself."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3

import pytest

import job
from kinds import _tree, chroma

VECTORS, METADATA = "e9468de5-d82d-4582-88f3-9ba4691ce2ef", "2c3b7619-c58b-4c04-a1d7-3ae2fa4217fc"
SCHEMA = f"""
CREATE TABLE collections (id TEXT PRIMARY KEY, name TEXT);
CREATE TABLE segments (id TEXT PRIMARY KEY, type TEXT NOT NULL, scope TEXT NOT NULL,
    collection TEXT REFERENCES collection(id) NOT NULL);
CREATE TABLE embeddings (id INTEGER PRIMARY KEY, segment_id TEXT, embedding_id TEXT, seq_id BLOB);
CREATE TABLE embeddings_queue (seq_id INTEGER PRIMARY KEY, id TEXT, vector BLOB);
CREATE TABLE max_seq_id (segment_id TEXT PRIMARY KEY, seq_id INTEGER);
INSERT INTO collections VALUES ('c1', 'mem'), ('c2', 'mem0migrations'), ('c3', 'mem_entities'), ('c4', 'mementities');
INSERT INTO segments VALUES ('{VECTORS}', 'hnsw', 'VECTOR', 'c1'), ('{METADATA}', 'sqlite', 'METADATA', 'c1'),
    ('s2', 'sqlite', 'METADATA', 'c2'), ('s3', 'sqlite', 'METADATA', 'c3'), ('s4', 'sqlite', 'METADATA', 'c4');
INSERT INTO embeddings (segment_id, embedding_id) VALUES ('{METADATA}', 'a'), ('{METADATA}', 'b'), ('s2', 'telemetry'),
    ('s3', 'ada'), ('s4', 'd');
INSERT INTO embeddings_queue VALUES (3, 'b', x'00');
INSERT INTO max_seq_id VALUES ('{METADATA}', 3), ('{VECTORS}', 2);
"""


@pytest.fixture
def source(tmp_path):
    top = tmp_path / "chroma"
    (top / VECTORS).mkdir(parents=True)
    for name in ("data_level0.bin", "header.bin", "length.bin", "link_lists.bin", "index_metadata.pickle"):
        (top / VECTORS / name).write_bytes(name.encode() * 100)
    run(top, SCHEMA)
    return top


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(_tree, "PAUSE", 0)


def run(top, script):
    with contextlib.closing(sqlite3.connect(top / "chroma.sqlite3")) as connection:
        connection.executescript(script)


def files(top):
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def test_the_database_and_its_segments_are_copied(source, target, limit):
    before = files(source)
    (source / "notes.txt").write_text("not Chroma's")
    (source / "before-restore-2026-12-01T000000Z").mkdir()
    claim = chroma.snapshot(str(source), str(target), limit)
    assert claim["exact"] is True
    assert claim["counts"] == {"collections": 4, "embeddings": 5, "embeddings_queue": 1, "files": 5}
    copied = files(target)
    assert set(copied) == set(before)
    assert {name: data for name, data in copied.items() if name != "chroma.sqlite3"} == {
        name: data for name, data in before.items() if name != "chroma.sqlite3"
    }
    entry = chroma.verify(str(target), json.loads(json.dumps(claim)), limit)
    assert entry["counts"] == claim["counts"]
    assert chroma.verify(str(target), json.loads(json.dumps(entry)), limit) == entry
    assert chroma.ids(str(target)) == ("vectors", {"a", "b", "d"})
    assert set(files(target)) == set(copied)


def test_a_store_whose_vectors_are_all_in_the_queue_has_no_directory(source, target, limit):
    shutil.rmtree(source / VECTORS)
    run(source, f"DELETE FROM max_seq_id WHERE segment_id = '{VECTORS}'")
    claim = chroma.snapshot(str(source), str(target), limit)
    assert chroma.verify(str(target), claim, limit)["counts"]["files"] == 0


def test_a_segment_that_the_database_needs_must_be_there(source, target, limit):
    shutil.rmtree(source / VECTORS)
    claim = chroma.snapshot(str(source), str(target), limit)
    with pytest.raises(job.JobError, match=f"the directory of segment {VECTORS} is missing from the copy"):
        chroma.verify(str(target), claim, limit)


def test_segments_that_are_written_while_they_are_copied_are_copied_again(source, target, limit, monkeypatch):
    """Both at once, as Chroma does it: the queue into the files. What is copied is both from after it."""
    copy, times = chroma.sqlite.copy_database, []

    def flush(*arguments):
        found = copy(*arguments)
        if not times:
            (source / VECTORS / "data_level0.bin").write_bytes(b"flushed")
            run(
                source, f"DELETE FROM embeddings_queue; UPDATE max_seq_id SET seq_id = 3 WHERE segment_id = '{VECTORS}'"
            )
        times.append(1)
        return found

    monkeypatch.setattr(chroma.sqlite, "copy_database", flush)
    claim = chroma.snapshot(str(source), str(target), limit)
    assert len(times) == 2
    assert claim["counts"]["embeddings_queue"] == 0
    assert (target / VECTORS / "data_level0.bin").read_bytes() == b"flushed"
    chroma.verify(str(target), claim, limit)


def test_rows_that_are_written_meanwhile_do_not_matter(source, target, limit, monkeypatch):
    copy = _tree._copy_file

    def write(*arguments):
        run(source, "INSERT INTO embeddings_queue (id, vector) VALUES ('new', x'00')")
        return copy(*arguments)

    monkeypatch.setattr(_tree, "_copy_file", write)
    claim = chroma.snapshot(str(source), str(target), limit)
    assert claim["counts"]["embeddings_queue"] == 1
    chroma.verify(str(target), claim, limit)


def test_segments_that_never_rest_fail_the_run(source, target, limit, monkeypatch):
    copy = _tree._copy_file

    def touch(*arguments):
        (source / VECTORS / "header.bin").write_bytes(b"x")
        return copy(*arguments)

    monkeypatch.setattr(_tree, "_copy_file", touch)
    with pytest.raises(job.JobError, match=r"header\.bin changed while it was copied, 4 times"):
        chroma.snapshot(str(source), str(target), limit)


def _swap(path, make):
    path.unlink()
    make(path)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda top: (top / "chroma.sqlite3").unlink(), r"there is no chroma\.sqlite3 in the directory"),
        (lambda top: _swap(top / "chroma.sqlite3", lambda path: path.symlink_to("/etc/passwd")), "is a link"),
        (lambda top: _swap(top / "chroma.sqlite3", os.mkfifo), "is a link, or no plain file"),
    ],
)
def test_a_directory_without_its_database_is_refused(spoil, words, source, target, limit):
    spoil(source)
    with pytest.raises(job.JobError, match=words):
        chroma.snapshot(str(source), str(target), limit)


def test_links_and_pipes_in_a_segment_are_not_opened(source, target, limit):
    (source / VECTORS / "out").symlink_to("/etc/passwd")
    os.mkfifo(source / VECTORS / "pipe")
    (source / METADATA).symlink_to("/etc")
    claim = chroma.snapshot(str(source), str(target), limit)
    assert claim["left_out"] == {"links": 2, "special": 1, "named": [METADATA, f"{VECTORS}/out", f"{VECTORS}/pipe"]}
    assert claim["counts"]["files"] == 5
    chroma.verify(str(target), claim, limit)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda top: (top / "chroma.sqlite3").unlink(), r"chroma\.sqlite3 is missing from the copy"),
        (lambda top: run(top, "DELETE FROM embeddings WHERE id = 1"), "4 rows in embeddings, where the store had 5"),
        (lambda top: (top / VECTORS / "header.bin").write_bytes(b""), "not those that were copied"),
        (lambda top: (top / VECTORS / "header.bin").unlink(), "not those that were copied"),
        (lambda top: (top / "more").touch(), "not those that were copied"),
        (lambda top: (top / VECTORS / "more").symlink_to("x"), "more in the copy is no plain file"),
    ],
)
def test_a_copy_that_is_not_the_one_that_was_made_is_refused(spoil, words, source, target, limit):
    claim = chroma.snapshot(str(source), str(target), limit)
    spoil(target)
    with pytest.raises(job.JobError, match=words):
        chroma.verify(str(target), claim, limit)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("DROP TABLE max_seq_id", "has no table max_seq_id"),
        ("DROP TABLE segments; CREATE VIEW segments AS SELECT 1", "has no table segments"),
        ("ALTER TABLE segments RENAME COLUMN scope TO other", "cannot be read"),
    ],
)
def test_another_database_of_that_name_is_told(script, words, source, target, limit):
    run(source, script)
    claim = chroma.snapshot(str(source), str(target), limit)
    with pytest.raises(job.JobError, match=words):
        chroma.verify(str(target), claim, limit)


def test_ids_that_are_no_text_are_read_all_the_same(source, target, limit):
    run(source, f"UPDATE embeddings SET embedding_id = CAST(x'ff' AS TEXT) WHERE segment_id = '{METADATA}'")
    chroma.verify(str(target), chroma.snapshot(str(source), str(target), limit), limit)
    assert chroma.ids(str(target)) == ("vectors", {"\ufffd", "d"})
