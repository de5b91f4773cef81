"""Putting a set back, the owner's half: whatever happens at whatever moment, the old state or the new one, whole."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import census
import job
import pieces
import restore
import staging
from backup_case import small_disk
from pieces import Piece, Task
from restore_case import NAMING, SET, STAMP, Memory, ids, killed, make_database, make_set, sent, snapshot

ASIDE = f"before-restore-{STAMP}"
NAMES = ["memory", "history", "notes", "plan"]


def limit() -> census.Limit:
    return census.Limit(600)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    found = Memory(tmp_path)
    found.past()
    found.seal()
    found.present()
    return found


@pytest.fixture
def stream(memory: Memory) -> bytes:
    return sent(memory.sets / SET, NAMES)


def put_back(task: Task, stream: bytes) -> None:
    staging.prepare(task, io.BytesIO(stream), limit())
    restore.commit(task, limit())


class Copies:
    """Copies of the memory's directory, to begin from again."""

    def __init__(self, memory: Memory, top: Path) -> None:
        self.memory, self.top = memory, top

    def save(self, name: str) -> None:
        shutil.rmtree(self.top / name, ignore_errors=True)
        shutil.copytree(self.memory.srv, self.top / name, symlinks=True)

    def load(self, name: str) -> None:
        shutil.rmtree(self.memory.srv)
        shutil.copytree(self.top / name, self.memory.srv, symlinks=True)


@pytest.fixture
def copies(memory: Memory, tmp_path: Path) -> Copies:
    return Copies(memory, tmp_path / "copies")


def test_all_parts_are_as_the_set_has_them_and_the_present_ones_lie_aside(memory: Memory, stream: bytes) -> None:
    before = snapshot(memory.srv)
    put_back(memory.task, stream)
    restore.settle(memory.task)
    assert ids(memory.store) == ["a", "deleted"]
    assert ids(memory.history) == ["h1"]
    assert memory.plain.read_text() == "first plan"
    here = {name for name in snapshot(memory.notes) if not name.startswith("before-restore")}
    assert here == {"both.md", "sub", "sub/old.md", "sub/empty"}
    aside = snapshot(memory.srv / ASIDE)
    assert aside == {name: before[name] for name in before if name.startswith(("brain.db", "history.db", "plan.md"))}
    notes = snapshot(memory.notes / ASIDE)
    assert notes == {name: before[f"notes/{name}"] for name in ("both.md", "newer.md", "sub")}
    assert not [name for name in snapshot(memory.srv) if ".restore-" in name.replace("before-restore-", "")]
    assert (memory.srv / "other.txt").read_text() == "not a part of it"


def test_a_stale_wal_does_not_come_back(memory: Memory, stream: bytes) -> None:
    assert "only in the wal" in ids_of_a_copy(memory.store)
    put_back(memory.task, stream)
    assert ids(memory.store) == ["a", "deleted"]


def ids_of_a_copy(path: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        for end in ("", "-wal", "-shm"):
            shutil.copy(f"{path}{end}", directory)
        return ids(Path(directory, path.name))


def test_modes_and_journal_modes_are_as_before(memory: Memory, stream: bytes) -> None:
    put_back(memory.task, stream)
    modes = {name: entry[0][-3:] for name, entry in snapshot(memory.srv).items()}
    assert (modes["brain.db"], modes["history.db"]) == ("660", "644")
    assert (modes["notes/both.md"], modes["notes/sub/old.md"], modes["notes/sub"]) == ("640", "640", "750")
    # Both were in WAL, and the set's copies are not.
    assert (staging.header_mode(str(memory.store)), staging.header_mode(str(memory.history))) == ("wal", "wal")


def test_a_missing_store_gets_the_default_modes(memory: Memory, stream: bytes) -> None:
    for path in [*memory.srv.glob("brain.db*"), *memory.srv.glob("history.db*")]:
        path.unlink()
    put_back(memory.task, stream)
    assert memory.store.stat().st_mode & 0o777 == 0o600
    assert (staging.header_mode(str(memory.store)), staging.header_mode(str(memory.history))) == ("wal", "delete")
    assert ids(memory.store) == ["a", "deleted"]


def test_a_damaged_store_is_replaced(memory: Memory, stream: bytes) -> None:
    memory.store.write_bytes(b"\0" * 5000)
    put_back(memory.task, stream)
    assert ids(memory.store) == ["a", "deleted"]
    assert (memory.srv / ASIDE / "brain.db").read_bytes() == b"\0" * 5000


def test_undo_after_success_brings_the_present_state_back(memory: Memory, stream: bytes) -> None:
    before = snapshot(memory.srv)
    put_back(memory.task, stream)
    restore.undo(memory.task, limit())
    assert snapshot(memory.srv) == before
    restore.undo(memory.task, limit())
    assert snapshot(memory.srv) == before


def test_killed_before_every_single_step_and_undone(memory: Memory, stream: bytes) -> None:
    before, at = snapshot(memory.srv), 0
    while killed(lambda: put_back(memory.task, stream), at):
        restore.undo(memory.task, limit())
        assert snapshot(memory.srv) == before, f"killed before step {at}"
        at += 1
    assert at > 60
    assert ids(memory.store) == ["a", "deleted"]


def test_killed_while_it_is_undone_and_undone_once_more(memory: Memory, stream: bytes, copies: Copies) -> None:
    before = snapshot(memory.srv)
    staging.prepare(memory.task, io.BytesIO(stream), limit())
    copies.save("prepared")
    at = tried = 0
    while killed(lambda: restore.commit(memory.task, limit()), at, NAMING):
        copies.save("killed")
        back = at % 2
        while killed(lambda: restore.undo(memory.task, limit()), back, NAMING):
            restore.undo(memory.task, limit())
            assert snapshot(memory.srv) == before, f"killed before step {at}, and on the way back before step {back}"
            copies.load("killed")
            back += 2
            tried += 1
        copies.load("prepared")
        at += 1
    assert tried > 100


@pytest.mark.parametrize("when", [3, 6, 10])
def test_what_somebody_makes_meanwhile_is_kept_apart(
    memory: Memory, stream: bytes, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """An agent that starts in between finds no store and makes an empty one."""
    before, rename, count = snapshot(memory.srv), os.rename, 0

    def renamed(*words: Any, **more: Any) -> None:
        nonlocal count
        rename(*words, **more)
        count += str(words[0]).startswith(str(memory.srv)) and ASIDE in str(words[1])
        if count == when and not memory.store.exists():
            count += 1
            make_database(memory.store, ["stray"])

    staging.prepare(memory.task, io.BytesIO(stream), limit())
    monkeypatch.setattr(os, "rename", renamed)
    with pytest.raises(job.JobError, match=r"made a new brain\.db meanwhile"):
        restore.commit(memory.task, limit())
    monkeypatch.undo()
    after = snapshot(memory.srv)
    strays = {name for name in after if name.startswith(f".restore-{STAMP}.stray")}
    assert {name: entry for name, entry in after.items() if name not in strays} == before
    assert ids(memory.srv / f".restore-{STAMP}.stray" / "brain.db") == ["stray"]


def test_what_was_written_beside_the_new_store_is_kept_with_it(memory: Memory, stream: bytes) -> None:
    """It may have facts that were told since; what says nothing goes."""
    before = snapshot(memory.srv)
    put_back(memory.task, stream)
    (memory.srv / "brain.db-wal").write_text("left by somebody who was killed")
    (memory.srv / "history.db-wal").touch()
    (memory.srv / "history.db-shm").write_bytes(bytes(32768))
    restore.undo(memory.task, limit())
    assert apart(memory, before) == {"brain.db", "brain.db-wal"}


def apart(memory: Memory, before: dict[str, Any]) -> set[str]:
    """What is kept apart; the rest is as before."""
    top = f".restore-{STAMP}.stray"
    after = snapshot(memory.srv)
    assert {name: entry for name, entry in after.items() if top not in name} == before
    return {name.partition(f"{top}/")[2] for name in after if f"{top}/" in name}


def test_what_somebody_puts_in_the_place_of_the_new_files_is_kept(
    memory: Memory, stream: bytes, copies: Copies
) -> None:
    """Undoing takes away what memops laid there and nothing else, wherever it is killed."""
    before = snapshot(memory.srv)
    put_back(memory.task, stream)
    memory.store.unlink()
    make_database(memory.store, ["theirs"], unflushed="in their wal")
    memory.plain.write_text("their plan")
    (memory.notes / "sub" / "added.md").write_text("into a directory that the set has")
    (memory.notes / "more.md").write_text("beside")
    copies.save("theirs")
    at = 0
    while True:
        struck = killed(lambda: restore.undo(memory.task, limit()), at, NAMING)
        restore.undo(memory.task, limit())
        kept = apart(memory, before)
        assert {"brain.db", "brain.db-wal", "plan.md", "sub", "sub/added.md", "more.md"} <= kept, f"before step {at}"
        assert ids_of_a_copy(memory.srv / f".restore-{STAMP}.stray" / "brain.db") == ["in their wal", "theirs"]
        if not struck:
            break
        copies.load("theirs")
        at += 1
    assert at > 20


def test_nothing_takes_the_place_of_what_somebody_makes_in_that_moment(
    memory: Memory, stream: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways: a file that is there when a restore renames one to its name."""
    before, move, made = snapshot(memory.srv), restore.move, 0

    def late(source: str, target: str) -> None:
        nonlocal made
        if target == str(memory.plain) and made < 3:
            made += 1
            memory.plain.write_text(f"made in that moment, {made}")
        move(source, target)

    staging.prepare(memory.task, io.BytesIO(stream), limit())
    monkeypatch.setattr(restore, "move", late)
    with pytest.raises(job.JobError, match=r"made a new plan\.md meanwhile"):
        restore.commit(memory.task, limit())
    assert apart(memory, before) == {"plan.md", "plan.md-2", "plan.md-3"}


def test_a_file_system_that_cannot_rename_without_replacing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_NO_REPLACE", 1 << 30)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        pieces.move(str(tmp_path / "a"), str(tmp_path / "b"))
    pieces.move(str(tmp_path / "a"), str(tmp_path / "c"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"b": "b", "c": "a"}


def test_new_files_that_somebody_removed_do_not_mislead_the_way_back(
    memory: Memory, stream: bytes, copies: Copies
) -> None:
    before = snapshot(memory.srv)
    put_back(memory.task, stream)
    memory.store.unlink()
    (memory.notes / "both.md").unlink()
    copies.save("in place")
    at = 0
    while killed(lambda: restore.undo(memory.task, limit()), at, NAMING):
        restore.undo(memory.task, limit())
        assert snapshot(memory.srv) == before, f"killed before step {at}"
        copies.load("in place")
        at += 1
    assert at > 10


def test_what_arrives_damaged_changes_nothing(memory: Memory, stream: bytes) -> None:
    before = snapshot(memory.srv)
    header, _, body = stream.partition(b"\n")
    changed = bytearray(body)
    changed[5000] ^= 1
    for wrong, why in (
        (header + b"\n" + bytes(changed), "did not arrive as the set has it"),
        (stream[:-1], "broke off"),
        (stream + b"x", "more arrived"),
        (header[:-9] + b"\n", "list of files did not arrive"),
        (b"", "list of files did not arrive"),
        (sent(memory.sets / SET, NAMES[:3]), "disagree about the part plan"),
    ):
        with pytest.raises(job.JobError, match=why):
            staging.prepare(memory.task, io.BytesIO(wrong), limit())
        assert snapshot(memory.srv) == before


def test_a_database_that_is_not_what_the_manifest_says_is_not_put_in(memory: Memory, stream: bytes) -> None:
    before = snapshot(memory.srv)
    header, _, body = stream.partition(b"\n")
    data = json.loads(header)
    data["parts"][0]["claim"]["rows"]["memory"] = 3
    with pytest.raises(job.JobError, match="memory: the copy is not what the store was: 2 rows in memory"):
        staging.prepare(memory.task, io.BytesIO(json.dumps(data).encode() + b"\n" + body), limit())
    assert snapshot(memory.srv) == before


def test_there_must_be_room_for_all_of_it(memory: Memory, stream: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(memory.srv)
    status = os.fstatvfs

    def little(descriptor: int) -> Any:
        found = list(status(descriptor))
        found[4] = (census.RESERVE + 20_000) // found[1]
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "fstatvfs", little)
    with pytest.raises(job.JobError, match="no room beside the present files for the set"):
        staging.prepare(memory.task, io.BytesIO(stream), limit())
    assert snapshot(memory.srv) == before


def test_a_disk_that_fills_up_all_the_same(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else took the room that was there when it was looked at."""
    with small_disk(memory.notes, "64k"):
        (memory.notes / "both.md").write_text("as it is")
        big = memory.sets.parent / "big"
        big.mkdir()
        (big / "large.md").write_bytes(b"x" * 200_000)
        sources = {"memory": ("sqlite", memory.history), "notes": ("files", big)}
        stream = sent(make_set(memory.sets / "2026-11-28T233000Z", sources), ["notes"])
        before = snapshot(memory.srv)  # copying a database in WAL mode leaves marks in its -shm
        monkeypatch.setattr(census, "free_bytes", lambda _: 1 << 40)
        with pytest.raises(OSError, match="No space left"):
            staging.prepare(Task(STAMP, memory.pieces[2:3], ()), io.BytesIO(stream), limit())
        assert snapshot(memory.srv) == before


def test_a_link_in_place_of_the_store_is_moved_and_not_followed(memory: Memory, stream: bytes, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("not ours")
    target.chmod(0o777)
    memory.store.unlink()
    memory.store.symlink_to(target)
    put_back(memory.task, stream)
    assert (memory.srv / ASIDE / "brain.db").is_symlink()
    assert target.read_text() == "not ours"
    assert memory.store.stat().st_mode & 0o777 == 0o600
    assert not memory.store.is_symlink()


NAME = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="/"), min_size=1)
LEAF = st.one_of(st.binary(max_size=15), st.none())
FILES = st.dictionaries(
    st.one_of(st.sampled_from(["a", "b", "a-wal", "plan.json", "before", ".restor"]), NAME).filter(
        lambda name: (
            name not in (".", "..")
            and len(name.encode()) < 100
            and not name.startswith(("before-restore-", ".restore-"))
        )
    ),
    st.one_of(LEAF, st.dictionaries(st.sampled_from(["x", "y", "z"]), LEAF, max_size=3)),
    max_size=5,
)


def build(top: Path, content: dict[str, Any]) -> None:
    for name, inner in content.items():
        if isinstance(inner, dict):
            (top / name).mkdir()
            build(top / name, inner)
        elif inner is None:
            (top / name).mkdir()
        else:
            (top / name).write_bytes(inner)


@settings(max_examples=60)
@given(old=FILES, new=FILES, at=st.integers(0, 60), back=st.integers(0, 40))
def test_any_files_at_any_moment(old: dict[str, Any], new: dict[str, Any], at: int, back: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        notes, past = top / "notes", top / "past"
        for directory, content in ((notes, old), (past, new)):
            directory.mkdir()
            build(directory, content)
        make_database(top / "memory.db", ["a"])
        chosen = make_set(
            top / "2026-11-29T233000Z", {"memory": ("sqlite", top / "memory.db"), "notes": ("files", past)}
        )
        wanted, before = snapshot(past), snapshot(notes)
        task = Task(STAMP, (Piece("notes", "files", str(notes), ""),), ())
        stream = sent(chosen, ["notes"])
        if killed(lambda: put_back(task, stream), at):
            killed(lambda: restore.undo(task, limit()), back)
            restore.undo(task, limit())
            assert snapshot(notes) == before
        else:
            restore.settle(task)
            after = snapshot(notes)
            contents = {name: entry[1] for name, entry in after.items() if not name.startswith("before-restore-")}
            assert contents == {name: entry[1] for name, entry in wanted.items()}
            assert {name: entry[1] for name, entry in snapshot(notes / ASIDE).items()} == {
                name: entry[1] for name, entry in before.items()
            }
