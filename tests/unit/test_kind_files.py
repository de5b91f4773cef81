from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import threading
from pathlib import Path

import pytest

import census
import job
from kinds import _tree, files


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "notes"
    (top / "deep" / "deeper").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "MEMORY.md").write_text("# tea\n")
    (top / "deep" / "deeper" / "ein Märchen ✓.md").write_bytes(b"\0" * 70_000)
    (top / "deep" / "nothing").touch()
    return top


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(_tree, "PAUSE", 0)


def content(top):
    return {
        str(path.relative_to(top)): path.read_bytes() if path.is_file() else None for path in sorted(top.rglob("*"))
    }


def test_a_tree_is_copied_as_it_is_and_verifies(tree, target, limit):
    claim = files.snapshot(str(tree), str(target), limit)
    assert content(target) == content(tree)
    assert claim["counts"] == {"files": 3}
    assert claim["bytes"] == 70_006
    assert claim["left_out"] == {"links": 0, "special": 0, "named": []}
    assert {path.stat().st_mode & 0o777 for path in target.rglob("*") if path.is_file()} == {0o640}
    entry = files.verify(str(target), claim, limit)
    assert files.verify(str(target), entry, limit) == entry
    assert files.ids(str(target)) is None


def test_one_file_is_copied_and_what_lies_beside_it_is_not(tree, target, limit):
    (tree / "store.db").write_bytes(files.MAGIC)
    claim = files.snapshot(str(tree / "MEMORY.md"), str(target), limit)
    assert content(target) == {"MEMORY.md": b"# tea\n"}
    assert files.verify(str(target), claim, limit)["counts"] == {"files": 1}


def test_nothing_but_plain_files_is_opened(tree, target, limit, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("k")
    (tree / "link").symlink_to(secret / "key")
    (tree / "deep" / "way-out").symlink_to(secret)
    (tree / "dangling").symlink_to("nowhere")
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tree / "socket"))
        claim = files.snapshot(str(tree), str(target), limit)
    names = ["dangling", "deep/way-out", "link", "pipe", "socket"]
    assert claim["left_out"] == {"links": 3, "special": 2, "named": names}
    assert set(content(target)) & set(names) == set()
    assert claim["counts"] == {"files": 3}
    assert files.verify(str(target), claim, limit)["left_out"] == claim["left_out"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _: None, "there is nothing at"),
        (lambda top: top.symlink_to(top.parent), "neither a plain file nor a directory"),
        (os.mkfifo, "neither a plain file nor a directory"),
    ],
)
def test_a_source_that_is_neither_file_nor_directory_is_refused(make, words, tmp_path, target, limit):
    make(tmp_path / "source")
    with pytest.raises(job.JobError, match=words):
        files.snapshot(str(tmp_path / "source"), str(target), limit)


def test_a_database_inside_is_refused_and_named(tree, target, limit):
    with sqlite3.connect(tree / "deep" / "state.db") as connection:
        connection.execute("CREATE TABLE t(x)")
    connection.close()
    with pytest.raises(job.JobError, match=r"deep/state\.db is a SQLite database.*--with sqlite=PATH"):
        files.snapshot(str(tree), str(target), limit)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (b"caf\xe9", r"the name of deep/caf\\udce9 is not UTF-8"),
        (b"two\nlines", r"the name of deep/two\\nlines holds a control character"),
        (b"\x1b[2Jclear", "control character"),
    ],
)
def test_a_name_that_no_manifest_can_show_is_refused(name, words, tree, target, limit):
    (tree / "deep" / os.fsdecode(name)).touch()
    with pytest.raises(job.JobError, match=words):
        files.snapshot(str(tree), str(target), limit)


def test_what_a_restore_put_aside_is_no_part_of_it(tree, target, limit):
    for name in ("before-restore-2026-12-01T000000Z", ".restore-1a2b"):
        shutil.copytree(tree / "deep", tree / name)
    claim = files.snapshot(str(tree), str(target), limit)
    assert claim["counts"] == {"files": 3}
    assert not (target / ".restore-1a2b").exists()
    # In a copy there is nothing that does not belong to it.
    shutil.copytree(tree / "deep", target / ".restore-1a2b")
    with pytest.raises(job.JobError, match="5 files of 140,006 bytes, where 3 of 70,006 bytes were copied"):
        files.verify(str(target), claim, limit)


def test_a_file_that_changes_once_is_copied_as_it_is_then(tree, target, limit, monkeypatch):
    copy, changes = _tree._copy_file, iter(["changed meanwhile\n"])

    def change_first(*arguments):
        for text in changes:
            (tree / "MEMORY.md").write_text(text)
        return copy(*arguments)

    monkeypatch.setattr(_tree, "_copy_file", change_first)
    claim = files.snapshot(str(tree), str(target), limit)
    assert content(target) == content(tree)
    assert (target / "MEMORY.md").read_text() == "changed meanwhile\n"
    files.verify(str(target), claim, limit)


CHANGES = {
    "rewritten in place with its old time": lambda top: _same_time(top / "MEMORY.md", "# tee\n"),
    "replaced": lambda top: ((top / "new").write_text("# tea\n"), (top / "new").replace(top / "MEMORY.md")),
    "swapped for a link": lambda top: (
        (top / "MEMORY.md").unlink(),
        (top / "MEMORY.md").symlink_to("/etc/passwd"),
    ),
    "swapped for a pipe": lambda top: ((top / "MEMORY.md").unlink(), os.mkfifo(top / "MEMORY.md")),
    "removed": lambda top: (top / "MEMORY.md").unlink(missing_ok=True),
    "joined by another": lambda top: (top / f"more{len(list(top.iterdir()))}").touch(),
}


def _same_time(path, text):
    status = path.stat()
    path.write_text(text if path.read_text() != text else "# tea\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_file_that_changes_at_every_try_fails_the_run(what, moment, tree, target, limit, monkeypatch):
    """Just before, or just after its own copy: the sum of all files belongs to one moment or there is none."""
    copy = _tree._copy_file

    def change(source, target, path, *rest):
        if path != "MEMORY.md":
            return copy(source, target, path, *rest)
        if moment == "before":
            CHANGES[what](tree)
        found = copy(source, target, path, *rest)
        if moment == "after":
            CHANGES[what](tree)
        return found

    listing = _tree.listing

    def back(*arguments):
        """Each try starts with the file there."""
        gone = not (tree / "MEMORY.md").is_file() or (tree / "MEMORY.md").is_symlink()
        if gone and not any(target.iterdir()):
            (tree / "MEMORY.md").unlink(missing_ok=True)
            (tree / "MEMORY.md").write_text("# tea\n")
        return listing(*arguments)

    monkeypatch.setattr(_tree, "_copy_file", change)
    monkeypatch.setattr(_tree, "listing", back)
    with pytest.raises(job.JobError, match=r"changed while it was copied, 4 times; --agent-unit"):
        files.snapshot(str(tree), str(target), limit)
    assert b"root:" not in b"".join(data or b"" for data in content(target).values())


def test_a_path_that_is_no_plain_file_any_more_is_not_opened(tree):
    (tree / "link").symlink_to("MEMORY.md")
    (tree / "way").symlink_to("deep")
    os.mkfifo(tree / "pipe")
    top = os.open(tree, os.O_RDONLY)
    try:
        for path in ("link", "way/nothing", "pipe", "deep", "gone", "gone/x", "MEMORY.md/x"):
            assert _tree.open_below(top, path) is None
        os.close(_tree.open_below(top, "deep/nothing"))
    finally:
        os.close(top)


def test_a_directory_swapped_for_a_link_is_not_entered(tree, target, limit, monkeypatch, tmp_path):
    copy = _tree._copy_file
    shutil.copytree(tree / "deep", tmp_path / "elsewhere")

    def swap(*arguments):
        if (tree / "deep").is_dir() and not (tree / "deep").is_symlink():
            shutil.rmtree(tree / "deep")
            (tree / "deep").symlink_to(tmp_path / "elsewhere")
        return copy(*arguments)

    monkeypatch.setattr(_tree, "_copy_file", swap)
    claim = files.snapshot(str(tree), str(target), limit)
    assert claim["counts"] == {"files": 1}
    assert claim["left_out"]["named"] == ["deep"]
    assert not (target / "deep").exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda top: (top / "MEMORY.md").write_text("# tee\n"), "a name or a content differs"),
        (lambda top: (top / "MEMORY.md").rename(top / "memory.md"), "a name or a content differs"),
        (lambda top: (top / "empty").rmdir(), "a name or a content differs"),
        (lambda top: (top / "MEMORY.md").unlink(), "2 files of 70,000 bytes, where 3 of 70,006"),
        (lambda top: (top / "more").touch(), "4 files"),
        (lambda top: (top / "more").symlink_to("x"), "more in the copy is no plain file"),
    ],
)
def test_a_copy_that_is_not_the_one_that_was_made_is_refused(spoil, words, tree, target, limit):
    claim = files.snapshot(str(tree), str(target), limit)
    spoil(target)
    with pytest.raises(job.JobError, match=words):
        files.verify(str(target), claim, limit)


@pytest.mark.parametrize(
    "change", [{"counts": 3}, {"counts": {"files": True}}, {"digest": None}, {"left_out": []}, {"bytes": 1 << 70}]
)
def test_a_claim_of_another_form_is_refused(change, tree, target, limit):
    claim = files.snapshot(str(tree), str(target), limit)
    with pytest.raises(job.JobError, match="the claim cannot be read"):
        files.verify(str(target), claim | change, limit)


def test_a_claim_cannot_speak_to_the_terminal(tree, target, limit):
    claim = files.snapshot(str(tree), str(target), limit)
    claim["left_out"]["named"] = ["\x1b[2J" * 1000] * 1000
    named = files.verify(str(target), claim, limit)["left_out"]["named"]
    assert len(named) == 20
    assert all(name.isprintable() and len(name) <= 200 for name in named)


def test_too_large_a_file_is_refused_before_anything_is_written(tree, target, limit):
    os.truncate(tree / "MEMORY.md", 1 << 43)
    with pytest.raises(job.JobError, match=r"no room for the copy: it needs 8796\.1 GB"):
        files.snapshot(str(tree), str(target), limit)
    assert content(target) == {}


def test_a_full_disk_is_said_plainly():
    with pytest.raises(job.JobError, match="the disk of the backups is full"), census.full_disk_named():
        Path("/dev/full").write_bytes(b"x")


def test_a_tree_that_is_too_deep_is_refused(tree, target, limit):
    (tree / "/".join(["d"] * 40)).mkdir(parents=True)
    with pytest.raises(job.JobError, match="lies more than 32 directories deep"):
        files.snapshot(str(tree), str(target), limit)


def test_a_writer_that_never_rests_leaves_no_mixed_copy(tree, target, limit):
    """Two files that belong together are written one after the other: never is the second newer in a copy."""
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            for name in ("a", "b"):
                (tree / f"{name}.new").write_text(str(number))
                (tree / f"{name}.new").replace(tree / name)
            stop.wait(0.25)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            shutil.rmtree(target)
            target.mkdir()
            try:
                files.snapshot(str(tree), str(target), limit)
            except job.JobError as error:
                assert "changed while it was copied" in str(error)  # noqa: PT017  (either way is right)
            else:
                pair = content(target)
                assert int(pair["a"]) - int(pair["b"]) in (0, 1)
    finally:
        stop.set()
        writer.join()
