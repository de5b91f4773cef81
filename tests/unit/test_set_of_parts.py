"""Both halves of a backup on a memory of several parts: all of them in a set, or no set."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import time

import pytest

import backup_case
from backup_case import AGENT

HISTORY = "CREATE TABLE history (id TEXT, memory_id TEXT, event TEXT); INSERT INTO history VALUES ('1', 'a', 'ADD');"


class Parts:
    """A case with a database and notes beside the store."""

    def __init__(self, case):
        self.case = case
        self.history, self.notes = case.source.parent / "history.db", case.source.parent / "notes"
        with contextlib.closing(sqlite3.connect(self.history)) as connection:
            connection.executescript(HISTORY)
        (self.notes / "deep").mkdir(parents=True)
        (self.notes / "one.md").write_text("one")
        (self.notes / "deep" / "two.md").write_text("two")
        for path in (self.history, self.notes, *self.notes.rglob("*")):
            os.chown(path, AGENT, AGENT)
        self.options = ("--part", "history", "sqlite", self.history, "--part", "notes", "files", f"{self.notes}/")

    def snapshot(self, code=0):
        done = self.case.snapshot(*self.options)
        assert done.returncode == code, done.stderr
        return done

    def seal(self, code=0):
        done = self.case.seal(*self.options)
        assert done.returncode == code, done.stderr
        return done

    def manifest(self):
        newest = self.case.saved()["newest"]["set"]
        return json.loads((self.case.sets / newest / "manifest.json").read_text())

    def claim(self, name):
        return json.loads((self.case.incoming / f"{name}.json").read_text())


@pytest.fixture
def parts(lib):
    with backup_case.case(lib) as case:
        case.fill(50)
        yield Parts(case)


def test_every_part_is_in_the_set_and_nothing_else(parts):
    done = parts.snapshot()
    assert "50 rows in 1 tables, " in done.stdout
    assert "and history (1 rows), notes (2 files)" in done.stdout
    assert "in 3 parts, 0 s apart, verified" in parts.seal().stdout.replace("1 s apart", "0 s apart")
    manifest = parts.manifest()
    top = parts.case.sets / manifest["set"]
    found = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
    assert found == {"manifest.json", "memory.db", "history/history.db", "notes/one.md", "notes/deep/two.md"}
    assert (top / "notes" / "deep" / "two.md").read_text() == "two"
    assert [part["name"] for part in manifest["parts"]] == ["memory.db", "history", "notes"]
    assert manifest["parts"][2]["directories"] == ["notes", "notes/deep"]
    assert parts.case.saved()["newest"]["parts"] == 3
    assert list(parts.case.incoming.iterdir()) == []


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda parts: (parts.case.incoming / "notes.json").unlink(), "notes.json is missing"),
        (
            lambda parts: shutil.rmtree(parts.case.incoming / "notes"),
            "notes changed while it was copied, or is missing",
        ),
        (lambda parts: (parts.case.incoming / "notes" / "one.md").write_text("other"), "notes: "),
        (lambda parts: (parts.case.incoming / "notes" / "three.md").write_text("more"), "notes: "),
        (lambda parts: (parts.case.incoming / "notes" / "one.md").unlink(), "notes: "),
        (lambda parts: (parts.case.incoming / "history" / "history.db").write_bytes(b"x" * 4096), "history: "),
        (lambda parts: (parts.case.incoming / "history" / "more").write_text("x"), ""),
        (lambda parts: (parts.case.incoming / "notes" / "link").symlink_to("/etc/shadow"), "is a link"),
        (lambda parts: os.mkfifo(parts.case.incoming / "notes" / "pipe"), "is not a file of its own"),
    ],
)
def test_a_part_that_is_not_what_its_claim_says_makes_no_set(parts, spoil, words):
    parts.snapshot()
    parts.seal()
    before = parts.case.digest()
    parts.snapshot()
    spoil(parts)
    if words:
        assert words in parts.seal(1).stderr
        assert parts.case.digest() == before
    else:
        # A file that the claim does not speak of is no lie: it is in the set, listed and hashed.
        parts.seal()
        assert "history/more" in parts.manifest()["parts"][1]["files"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda claim: claim["before"]["rows"].update(history=5), "history: the copy is not what the store was"),
        (lambda claim: claim.update(file="../memory.db"), "names no file of the part"),
        (lambda claim: claim.update(file="/etc/passwd"), "names no file of the part"),
        (lambda claim: claim.update(file="none.db"), "none.db"),
        (lambda claim: claim.pop("file"), "file is not of type str"),
        (lambda claim: claim.update(taken_at="now"), "history.json cannot be read"),
        (lambda claim: claim.update(version=2), "version"),
    ],
)
def test_a_claim_that_lies_is_refused(parts, change, words):
    parts.snapshot()
    claim = parts.claim("history")
    change(claim)
    parts.case.put("history.json", json.dumps(claim).encode())
    assert words in parts.seal(1).stderr
    assert parts.case.whole_sets() == []


def test_a_part_that_cannot_be_copied_leaves_nothing_and_is_named(parts):
    parts.notes.rename(parts.notes.with_name("away"))
    done = parts.snapshot(1)
    assert done.stderr.startswith("snapshot: notes: ")
    assert list(parts.case.incoming.iterdir()) == []
    assert "there is no finished snapshot" in parts.seal(1).stderr


@pytest.mark.parametrize(
    ("put", "words"),
    [
        (lambda path: path.symlink_to("/etc"), "there is a link at its path now"),
        (lambda path: path.mkdir(), "belongs to another user now"),
        (lambda path: path.touch() or os.chown(path, AGENT, AGENT), "there is a file at its path now"),
        (lambda _: None, "there is nothing at its path any more"),
    ],
)
def test_what_came_in_the_place_of_a_part_is_not_copied(parts, put, words):
    parts.notes.rename(parts.notes.with_name("away"))
    put(parts.notes)
    assert words in parts.snapshot(1).stderr
    assert list(parts.case.incoming.iterdir()) == []


def test_a_store_of_another_user_is_not_copied(parts):
    os.chown(parts.case.source, 65532, AGENT)
    parts.case.source.chmod(0o660)
    assert "belongs to another user" in parts.snapshot(1).stderr


def test_a_set_is_of_the_parts_that_root_named(parts):
    parts.snapshot()
    # One more in incoming is not sealed, and one less is no set.
    assert parts.case.seal(*parts.options[:4]).returncode == 0
    assert [part["name"] for part in parts.manifest()["parts"]] == ["memory.db", "history"]
    parts.case.snapshot(*parts.options[:4])
    shutil.rmtree(parts.case.incoming / "notes", ignore_errors=True)
    assert "notes" in parts.seal(1).stderr


def test_halves_that_do_not_match_are_listed(parts):
    chroma = parts.case.source.parent / "chroma"
    chroma.mkdir()
    with contextlib.closing(sqlite3.connect(chroma / "chroma.sqlite3")) as connection:
        connection.executescript(
            "CREATE TABLE collections (id TEXT, name TEXT); INSERT INTO collections VALUES ('c', 'mem0');"
            "CREATE TABLE segments (id TEXT, type TEXT, scope TEXT, collection TEXT);"
            "INSERT INTO segments VALUES ('s', 'sqlite', 'METADATA', 'c');"
            "CREATE TABLE embeddings (id INTEGER PRIMARY KEY, segment_id TEXT, embedding_id TEXT);"
            "INSERT INTO embeddings (segment_id, embedding_id) VALUES ('s', 'm_00000001'), ('s', 'ghost');"
            "CREATE TABLE embeddings_queue (seq_id INTEGER PRIMARY KEY, id TEXT);"
            "CREATE TABLE max_seq_id (segment_id TEXT, seq_id INTEGER);"
        )
    for path in (chroma, *chroma.iterdir()):
        os.chown(path, AGENT, AGENT)
    columns = ("source", "created_at", "confirmed_at", "expires_at")
    with contextlib.closing(sqlite3.connect(parts.case.source)) as connection:
        for column in columns:
            connection.execute(f"ALTER TABLE memory ADD COLUMN {column} TEXT")
        connection.commit()
    parts.options = ("--part", "chroma", "chroma", f"{chroma}/")
    parts.snapshot()
    assert "1 ghosts, 49 orphans" in parts.seal().stdout
    pairs = parts.manifest()["pairs"]
    assert (pairs["facts"], pairs["vectors"], pairs["ghosts"]["ids"]) == (["memory.db"], ["chroma"], ["ghost"])


def test_being_killed_at_any_moment_leaves_no_half_set(parts):
    """Each half at random moments: whatever is there under a set's name is whole, and the next run mends itself."""
    for number in range(300):
        (parts.notes / f"{number}.md").write_text("x" * 2000)
        os.chown(parts.notes / f"{number}.md", AGENT, AGENT)
    commands = [parts.case.snapshot_command(*parts.options), parts.case.seal_command(*parts.options)]
    usual = []
    for command in commands:
        clock = time.monotonic()
        assert backup_case.run(command).returncode == 0
        usual.append(time.monotonic() - clock)
    kept, chance = parts.case.digest(), random.Random(9)
    for _ in range(50 if os.environ.get("MEMOPS_LONG") else 5):
        for killed in (0, 1):
            for number, command in enumerate(commands):
                if number != killed:
                    backup_case.run(command)
                    continue
                with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                    time.sleep(chance.uniform(0.02, usual[number]))
                    process.kill()
            found = {name: digest for name, digest in parts.case.digest().items() if not name.startswith(".")}
            assert kept.items() <= found.items()
            kept = found
    parts.snapshot()
    parts.seal()
    assert not [path for path in parts.case.sets.iterdir() if path.name.startswith(".partial-")]
    for path in parts.case.sets.iterdir():
        manifest = json.loads((path / "manifest.json").read_text())
        assert len(manifest["parts"]) == 3
        assert len(manifest["parts"][2]["files"]) == 302
