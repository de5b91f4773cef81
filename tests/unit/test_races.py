"""Whatever an agent does with the names in its own directories while root works there, root stays inside.

Each test lets another user's process exchange names thousands of times a second, and looks that both came to pass: the
genuine thing was met, and the exchanged one. MEMOPS_LONG=1 makes ten times as many tries.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import census
import job
import restore
import staging
import takeover
import uninstall
from memops import holders, host, records, trees
from races import AGENT, SECRET, TIMES, Canary, give, swapping
from restore_case import Memory, sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRIES = 2000 * TIMES


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Canary]:
    """What must stay as it is and unknown, looked at in the end."""
    for place in (tmp_path, *tmp_path.parents[:3]):
        if place != Path("/tmp"):  # noqa: S108 - pytest's own directories, which the agent must be able to pass
            place.chmod(place.stat().st_mode | 0o011)
    (tmp_path / "outside").mkdir()
    canary = Canary(tmp_path / "outside")
    yield canary
    canary.assert_untouched()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The agent's directory."""
    directory = tmp_path / "own"
    directory.mkdir()
    return directory


def tried(work: Callable[[], str], tries: int, *, needed: int = 2) -> Counter[str]:
    """How often ``work`` came to which end. Each race must have been run, not only one side of it."""
    ends = Counter(work() for _ in range(tries))
    assert ends.total() == tries
    assert len(ends) >= needed, ends
    return ends


# Records, digests and the queue, which root's commands and root's jobs read


@pytest.mark.parametrize("other", ["link", "hard link", "fifo", "directory", "link to a directory"])
def test_no_record_is_anybody_elses_file(own: Path, outside: Canary, other: str) -> None:
    genuine, bait = own / "runs.jsonl", own / "bait"
    genuine.write_text('{"job": "prune"}\n')
    if other == "hard link":  # where the kernel lets the agent make one
        shared = outside.top.parent / "shared"
        shared.write_text(SECRET)
        bait.hardlink_to(shared)
    elif other == "fifo":
        os.mkfifo(bait)
    elif other == "directory":
        bait.mkdir()
    else:
        bait.symlink_to(outside.file if other == "link" else outside.directory)
    give(own)
    if other == "hard link":
        os.chown(bait, 0, 0)

    def read() -> str:
        text = records.read(str(genuine))
        assert text in (None, '{"job": "prune"}\n')
        assert other == "hard link" or host.read(str(genuine)) in (None, '{"job": "prune"}\n')
        return "nothing" if text is None else "genuine"

    with swapping(genuine, bait):
        tried(read, TRIES)


# What is on its way into a set


@pytest.mark.parametrize("level", ["the part", "a file", "a directory in it"])
def test_nothing_of_another_place_comes_into_a_set(own: Path, outside: Canary, tmp_path: Path, level: str) -> None:
    part = own / "part"
    (part / "inner").mkdir(parents=True)
    (part / "inner" / "secret").write_text("mine")
    (part / "file").write_text("mine")
    one = {"the part": part, "a file": part / "file", "a directory in it": part / "inner"}[level]
    link, fifo, plain = own / "link", own / "fifo", own / "plain"
    link.symlink_to(outside.file if level == "a file" else outside.directory)
    os.mkfifo(fifo)
    plain.write_text("mine")
    give(own)
    source, target = census.open_directory(str(own)), tmp_path / "staging"

    def copy() -> str:
        target.mkdir()
        into = census.open_directory(str(target))
        try:
            takeover.copy_tree(source, into, "part", takeover.Room(into), census.Limit(60))
        except (job.JobError, OSError):
            end = "refused"
        else:
            end = "copied"
        finally:
            os.close(into)
        for path in target.rglob("*"):
            assert not path.is_symlink()
            if path.is_file():
                assert path.read_text() == "mine"
        shutil.rmtree(target)
        return end

    with swapping(one, link, fifo, plain):
        tried(copy, TRIES // 2)
    os.close(source)


# Putting a set back


def test_who_has_a_memory_open_is_asked_of_its_own_files_only(own: Path, outside: Canary) -> None:
    inner, link, fifo = own / "notes", own / "link", own / "fifo"
    inner.mkdir()
    (inner / "inner").mkdir()
    (inner / "inner" / "secret").write_text("mine")
    link.symlink_to(outside.directory)
    os.mkfifo(fifo)
    give(own)
    wanted = holders.Wanted((str(inner / "inner" / "secret"),), (str(inner),))
    status = outside.inner.stat()

    def look() -> str:
        try:
            found = wanted.inodes()
        except holders.Refused:
            return "refused"
        assert (status.st_dev, status.st_ino) not in found
        return f"{len(found)} found"

    with swapping(inner, link, fifo):
        assert "refused" in tried(look, TRIES)


def _as_agent(work: Callable[[], object]) -> int:
    """The code of a process with the rights of the store's owner, as the restore's own unit has them."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(AGENT, AGENT, AGENT)
            os.setresuid(AGENT, AGENT, AGENT)
            work()
            code = 0
        except (job.JobError, OSError, ValueError):
            code = 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_restore_and_its_undoing_reach_nobody_elses_files(own: Path, outside: Canary) -> None:
    """Every step with its own rights, while its directories and files are exchanged for links to outside."""
    memory = Memory(own)
    memory.past()
    chosen = memory.seal()
    stream = sent(chosen, [piece.name for piece in memory.pieces])
    links = own / "links"
    links.mkdir()
    (links / "tree").symlink_to(outside.directory)
    (links / "file").symlink_to(outside.file)
    give(own)
    kept = own.parent / "kept"
    shutil.copytree(memory.srv, kept, symlinks=True)
    targets = [memory.notes, memory.plain, memory.store, memory.history]

    def step(work: Callable[[], object]) -> str:
        return "done" if _as_agent(work) == 0 else "refused"

    ends: Counter[str] = Counter()
    for number in range(40 * TIMES):
        target, limit = targets[number % len(targets)], census.Limit(60)
        with swapping(target, links / ("tree" if target == memory.notes else "file")):
            time.sleep(0.001 * (number % 5))
            ends["prepare " + step(lambda: staging.prepare(memory.task, io.BytesIO(stream), limit))] += 1  # noqa: B023
            ends["commit " + step(lambda: restore.commit(memory.task, limit))] += 1  # noqa: B023
            ends["undo " + step(lambda: restore.undo(memory.task, limit))] += 1  # noqa: B023
        shutil.rmtree(memory.srv)
        shutil.copytree(kept, memory.srv, symlinks=True)
        shutil.rmtree(links)
        links.mkdir()
        (links / "tree").symlink_to(outside.directory)
        (links / "file").symlink_to(outside.file)
        give(own)
    assert {"prepare done", "commit done", "commit refused", "undo done"} <= ends.keys(), ends


# Removing: uninstall, uninstall --purge, release


@pytest.mark.parametrize("remove", [uninstall.remove_tree, lambda path: host.remove_directory(path, whole=True)])
@pytest.mark.parametrize("which", ["", "b", "b/d"])
def test_removing_a_tree_takes_nothing_outside(
    own: Path, outside: Canary, remove: Callable[[str], Any], which: str
) -> None:
    state, links = own / "state", own / "links"
    links.mkdir()
    bait = {"tree": outside.directory, "inner": outside.inner.parent, "file": outside.file}
    give(own)

    def build() -> None:
        with contextlib.suppress(OSError):  # they are as fast as anybody
            for name in ("a", "b/c", "b/d/e"):
                (state / name).parent.mkdir(parents=True, exist_ok=True)
                (state / name).write_text("mine")
        for name, target in bait.items():
            with contextlib.suppress(OSError):
                (links / name).symlink_to(target)

    def take() -> str:
        _as_agent(build)
        with contextlib.suppress(OSError):
            remove(str(state))
        if not os.path.lexists(state):
            return "gone"
        # No link is followed by it.
        subprocess.run(["rm", "-rf", state, *links.iterdir()], check=False, capture_output=True)
        return "left"

    with swapping(state / which, *(links / name for name in bait)):
        ends = tried(take, TRIES // 20, needed=1)
    assert ends["gone"]


def test_purging_a_store_takes_nothing_outside(own: Path, outside: Canary) -> None:
    """It is done with the rights of the store's user, who may lead the path anywhere, and reaches no further."""
    srv, link, theirs = own / "srv", own / "link", outside.top.parent / "theirs"
    theirs.mkdir(mode=0o777)
    theirs.chmod(0o1777)
    for name in ("brain.db", "brain.db-wal"):
        (theirs / name).write_text(SECRET)
    srv.mkdir()
    link.symlink_to(theirs)
    give(own)
    store = {"db": str(srv / "brain.db"), "directory": str(srv), "user": str(AGENT)}
    inside = census.open_directory(str(srv))

    def purge() -> str:
        for name in ("brain.db", "before-restore-2026-11-30T213159Z"):
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=inside))
        uninstall.as_owner(store, uninstall.remove_store)
        return "left" if "brain.db" in os.listdir(inside) else "gone"  # noqa: PTH208 - by descriptor

    with swapping(srv, link):
        tried(purge, TRIES // 20)
    os.close(inside)
    assert {path.name: path.read_text() for path in theirs.iterdir()} == {"brain.db": SECRET, "brain.db-wal": SECRET}


# Making and giving away


def test_a_directory_is_given_to_nobody_who_put_a_link_there(own: Path, outside: Canary) -> None:
    directory, link, fifo = own / "state", own / "link", own / "fifo"
    directory.mkdir()
    link.symlink_to(outside.directory)
    os.mkfifo(fifo)
    give(own)

    def make() -> str:
        try:
            host.make_directory(str(directory), 0o750, AGENT, AGENT)
        except OSError:
            return "refused"
        return "made"

    with swapping(directory, link, fifo):
        tried(make, TRIES)


def test_a_place_is_reached_through_nobody_elses_link(own: Path, outside: Canary) -> None:
    inner, link = own / "inner", own / "link"
    (inner / "inner").mkdir(parents=True)
    link.symlink_to(outside.directory)
    give(own)
    ino = outside.inner.parent.stat().st_ino

    def reach() -> str:
        try:
            with trees.reach(str(inner / "inner")) as descriptor:
                assert os.fstat(descriptor).st_ino != ino
        except OSError:
            return "refused"
        return "reached"

    with swapping(inner, link):
        tried(reach, TRIES)


def test_what_a_tree_holds_is_told_of_that_tree_only(own: Path, outside: Canary) -> None:
    part, link, fifo = own / "part", own / "link", own / "fifo"
    (part / "inner").mkdir(parents=True)
    (part / "inner" / "secret").write_text("mine")
    link.symlink_to(outside.directory)
    os.mkfifo(fifo)
    give(own)
    secret = outside.inner.stat().st_ino

    def look() -> str:
        with trees.reach(str(own)) as top:
            found = dict(trees.below(top, str(own)))
        assert secret not in {status.st_ino for status in found.values()}
        return json.dumps(sorted(found))

    with swapping(part / "inner", link, fifo):
        tried(look, TRIES)
