"""The model of a power cut: what was synced is always there, what was not may be, in no other order than its own."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from faulting import powercut

if TYPE_CHECKING:
    from pathlib import Path

TRIES = 60
OLD = "the inode of old"


def outcomes(top: Path, calls: list[powercut.Record]) -> set[tuple[tuple[str, bytes], ...]]:
    """What many power cuts after these calls leave: names and contents."""
    found = set()
    for seed in range(TRIES):
        disk = start(top)
        inode = str((top / "old").stat().st_ino)
        for letter, words, data in calls:
            disk.call((letter, [inode if word == OLD else word for word in words], data))
        disk.cut(random.Random(seed))
        found.add(tuple(sorted((path.name, path.read_bytes()) for path in top.iterdir())))
    return found


def start(top: Path) -> powercut.Disk:
    for path in top.iterdir():
        path.unlink()
    (top / "old").write_bytes(b"before")
    return powercut.Disk(top)


def written(ino: object, text: bytes, offset: int = 0) -> powercut.Record:
    return ("W", [str(ino), str(offset), str(len(text))], text)


def made(top: Path, name: str) -> powercut.Record:
    return ("O", ["999999999", "100600", str(os.geteuid()), str(os.getegid()), f"{top}/{name}"], b"")


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path.stat().st_ino)


def test_a_rename_of_what_was_not_synced_may_leave_nothing_of_it(tmp_path: Path, directory: str) -> None:
    calls = [made(tmp_path, "new"), written(999999999, b"after"), ("R", [f"{tmp_path}/new", f"{tmp_path}/old"], b"")]
    found = outcomes(tmp_path, calls)
    assert found == {
        (("old", b"before"),),
        (("new", b""), ("old", b"before")),
        (("new", b"after"), ("old", b"before")),
        (("old", b""),),
        (("old", b"after"),),
    }
    synced = [*calls[:2], ("S", ["999999999"], b""), calls[2]]
    assert outcomes(tmp_path, synced) == {
        (("old", b"before"),),
        (("new", b"after"), ("old", b"before")),
        (("old", b"after"),),
    }
    assert outcomes(tmp_path, [*synced, ("S", [directory], b"")]) == {(("old", b"after"),)}


def test_sectors_go_one_by_one_and_a_size_by_itself(tmp_path: Path) -> None:
    long = b"a" * 512 + b"b" * 512
    found = {content for ((_, content),) in outcomes(tmp_path, [written(OLD, long)])}
    assert found == {b"before", b"a" * 512, b"before" + b"\0" * 506 + b"b" * 512, long}
    cut = {content for ((_, content),) in outcomes(tmp_path, [("T", [OLD, "2"], b"")])}
    assert cut == {b"before", b"be"}


def test_a_removed_name_may_come_back_until_its_directory_is_synced(tmp_path: Path, directory: str) -> None:
    gone = ("U", [f"{tmp_path}/old"], b"")
    assert outcomes(tmp_path, [gone]) == {(), (("old", b"before"),)}
    assert outcomes(tmp_path, [gone, ("S", [directory], b"")]) == {()}


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = tmp_path / "calls"
    text = b"W 7 12 5\na\nb W" + b"O 8 100600 0 0 /a b/c d\nR /a b\t/c\nU /x y\nS 7\nT 7 3\n"
    record.write_bytes(text)
    assert powercut.read(record) == [
        ("W", ["7", "12", "5"], b"a\nb W"),
        ("O", ["8", "100600", "0", "0", "/a b/c d"], b""),
        ("R", ["/a b", "/c"], b""),
        ("U", ["/x y"], b""),
        ("S", ["7"], b""),
        ("T", ["7", "3"], b""),
    ]
