"""Who has a memory open, seen in real processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from memops import holders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLD = """
import mmap, os, sys
how, path = sys.argv[1:]
descriptor = os.open(path, os.O_RDONLY | (os.O_DIRECTORY if how == "directory" else 0))
if how == "map":
    memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    os.close(descriptor)
if how == "chdir":
    os.close(descriptor)
    os.chdir(os.path.dirname(path))
print("open", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def process(how: str, path: Path | str, *prefix: str) -> Iterator[int]:
    """A process that holds ``path``; its number here."""
    command = [*prefix, sys.executable, "-c", HOLD, how, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"open\n"
        yield started.pid
        started.kill()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "notes" / "deep").mkdir(parents=True)
    for name in ("memory.db", "memory.db-wal", "other.db", "memory.db2", "notes/deep/a.md"):
        (tmp_path / name).write_text("x" * 5000)
    return tmp_path


def wanted(files: Path) -> holders.Wanted:
    return holders.Wanted((str(files / "memory.db"),), (str(files / "notes"),))


@pytest.mark.parametrize("how", ["open", "map"])
@pytest.mark.parametrize("name", ["memory.db", "memory.db-wal", "notes/deep/a.md"])
def test_a_holder_is_named(files: Path, how: str, name: str) -> None:
    with process(how, files / name) as pid:
        (found,) = holders.find(wanted(files))
        assert (found.pid, found.file) == (pid, str(files / name))
        assert found.command.startswith(sys.executable)
        assert f"process {pid} ({sys.executable}" in found.text
    assert holders.find(wanted(files)) == []


@pytest.mark.parametrize("how", ["open", "map"])
@pytest.mark.parametrize("name", ["memory.db-wal", "notes/deep/a.md"])
def test_what_was_deleted_is_held_all_the_same(files: Path, how: str, name: str) -> None:
    with process(how, files / name) as pid:
        (files / name).unlink()
        (files / name).write_text("a new one")
        (found,) = holders.find(wanted(files))
        assert (found.pid, found.file) == (pid, f"{files / name} (deleted)")


@pytest.mark.parametrize("deleted", [False, True])
def test_a_holder_in_a_place_of_its_own_is_found(
    files: Path, deleted: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A container sees the directory elsewhere."""
    other = tmp_path_factory.mktemp("container")
    script = 'mount --bind "$1" "$2"; shift 2; exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-euc", script, "sh", str(files), str(other))
    with process("open", other / "memory.db-wal", *prefix) as pid:
        assert not list(other.iterdir())
        if deleted:
            (files / "memory.db-wal").unlink()
        assert [holder.pid for holder in holders.find(wanted(files))] == [pid]


@pytest.mark.parametrize(
    ("how", "name"),
    [("open", "other.db"), ("open", "memory.db2"), ("directory", "notes"), ("chdir", "memory.db"), ("directory", ".")],
)
def test_what_is_beside_it_is_nobodys_business(files: Path, how: str, name: str) -> None:
    with process(how, files / name):
        if how == "open":
            (files / name).unlink()
        assert holders.find(wanted(files)) == []


def test_links_in_the_directory_are_not_followed(files: Path) -> None:
    (files / "notes" / "link").symlink_to(files / "other.db")
    (files / "notes" / "way").symlink_to("/")
    os.mkfifo(files / "notes" / "pipe")
    with process("open", files / "other.db"):
        assert holders.find(wanted(files)) == []


def test_nothing_there_has_no_holder(tmp_path: Path) -> None:
    assert holders.find(holders.Wanted((str(tmp_path / "no" / "memory.db"),), (str(tmp_path / "nothing"),))) == []
