"""What root takes over from a directory of the agent's."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from pathlib import Path

import pytest

import census
import job
import takeover


@pytest.fixture
def copy(tmp_path, limit):
    """Copy the tree ``part`` of one directory into another."""
    source, target = tmp_path / "incoming", tmp_path / "staging"
    (source / "part").mkdir(parents=True)
    target.mkdir()

    def run():
        descriptors = [census.open_directory(str(path)) for path in (source, target)]
        try:
            return takeover.copy_tree(*descriptors, "part", takeover.Room(descriptors[1]), limit)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    run.part, run.target = source / "part", target
    return run


def test_a_tree_is_copied_with_its_empty_directories(copy):
    (copy.part / "deep" / "empty").mkdir(parents=True)
    (copy.part / "deep" / "a.bin").write_bytes(b"x" * 3_000_000)
    (copy.part / "nothing").touch()
    files, directories = copy()
    assert files == {
        "part/deep/a.bin": {"size": 3_000_000, "sha256": hashlib.sha256(b"x" * 3_000_000).hexdigest()},
        "part/nothing": {"size": 0, "sha256": hashlib.sha256().hexdigest()},
    }
    assert directories == ["part", "part/deep", "part/deep/empty"]
    assert takeover.listing(str(copy.target)) == {*files, *directories}
    assert (copy.target / "part" / "deep" / "a.bin").read_bytes() == b"x" * 3_000_000
    assert all(path.stat().st_mode & 0o077 == 0 for path in (copy.target / "part").rglob("*"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.symlink_to("/etc/shadow"), "is a link"),
        (lambda path: path.symlink_to("/etc"), "is a link"),
        (lambda path: (path.parent / "y").touch() or os.link(path.parent / "y", path), "is not a file of its own"),
        (os.mkfifo, "is not a file of its own"),
        (lambda path: path.joinpath(*"d" * 40).mkdir(parents=True), "directories deep"),
        (lambda path: path.write_bytes(b"") or os.truncate(path, 1 << 43), "no room for the set"),
    ],
)
def test_what_is_no_plain_file_of_the_tree_is_refused(copy, make, words):
    make(copy.part / "x")
    with pytest.raises(job.JobError, match=words):
        copy()


def test_a_part_that_is_no_directory_is_refused(copy):
    copy.part.rmdir()
    with pytest.raises(job.JobError, match="part changed while it was copied, or is missing"):
        copy()
    (copy.target / "part").rmdir()
    copy.part.symlink_to("/etc")
    with pytest.raises(job.JobError, match="is not a directory"):
        copy()


def test_too_many_files_are_refused(copy, monkeypatch):
    monkeypatch.setattr(takeover, "MOST", 10)
    for number in range(20):
        (copy.part / f"{number}").touch()
    with pytest.raises(job.JobError, match="more than 10 files"):
        copy()


def test_swapping_entries_leads_nowhere(copy, tmp_path):
    """Links, directories and files change places all the time; nothing of another place is ever copied."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "inner").write_text("secret")
    stop = threading.Event()
    (copy.part / "inner").mkdir()
    (copy.part / "inner" / "inner").write_text("mine")

    def swap():
        choices = random.Random(7)
        own, link, aside = copy.part / "inner", tmp_path / "link", tmp_path / "aside"
        while not stop.is_set():
            link.symlink_to(elsewhere if choices.random() < 0.5 else elsewhere / "inner")
            own.rename(aside)
            link.rename(own)
            own.unlink()
            aside.rename(own)

    thread = threading.Thread(target=swap)
    thread.start()
    outcomes = set()
    try:
        for number in range(1500):
            try:
                files, _ = copy()
            except (job.JobError, OSError) as error:
                outcomes.add(type(error).__name__)
            else:
                outcomes.add("copied")
                assert set(files) <= {"part/inner/inner"}
            copied = copy.target / "part"
            texts = [path.read_text() for path in copied.rglob("*") if path.is_file()] if copied.exists() else []
            assert set(texts) <= {"mine"}, texts
            copied.rename(Path(f"{copy.target}-{number}"))
    finally:
        stop.set()
        thread.join()
    assert "copied" in outcomes
