"""Carrying a set elsewhere: what is fetched belongs to anybody, and what is written must be whole or nothing."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

import census
import job
import setcopy
from restore_case import SET, Memory, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    found = Memory(tmp_path)
    found.past()
    found.seal()
    return found


def limit() -> census.Limit:
    return census.Limit(60)


def test_a_set_is_extracted_whole_or_not_at_all(memory: Memory, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    chosen = memory.sets / SET
    setcopy.extract(str(chosen), str(target), limit())
    contents = {name: entry[1] for name, entry in snapshot(chosen).items()}
    assert {name: entry[1] for name, entry in snapshot(target).items()} == contents
    assert {entry[0] for entry in snapshot(target).values()} == {"0o100600", "0o40700"}
    with pytest.raises(job.JobError, match="not empty"):
        setcopy.extract(str(chosen), str(target), limit())
    assert {name: entry[1] for name, entry in snapshot(target).items()} == contents
    other = tmp_path / "other"
    other.mkdir()
    (chosen / "notes" / "both.md").write_text("as it wos")
    with pytest.raises(job.JobError, match=r"notes/both.md has changed"):
        setcopy.extract(str(chosen), str(other), limit())
    assert list(other.iterdir()) == []


def test_check_reads_every_byte(memory: Memory) -> None:
    chosen = memory.sets / SET
    assert setcopy.check(str(chosen), limit()) == {"ok": True, "message": ""}
    content = bytearray((chosen / "memory.db").read_bytes())
    content[5000] ^= 1
    (chosen / "memory.db").write_bytes(content)
    found = setcopy.check(str(chosen), limit())
    assert not found["ok"]
    assert found["message"].startswith("memory.db has changed")
    (chosen / "manifest.json").unlink()
    assert "manifest.json is missing" in setcopy.check(str(chosen), limit())["message"]


def test_a_fetched_set_is_taken_over_and_its_own_left_alone(memory: Memory, tmp_path: Path) -> None:
    fetched = shutil.move(memory.sets / SET, tmp_path / "brought back")
    before = snapshot(fetched)
    found = setcopy.fetch(str(fetched), str(memory.sets), limit())
    assert (found["name"], found["store"], found["ok"]) == (SET, "default", True)
    assert [part["name"] for part in found["parts"]] == ["memory", "history", "notes", "plan"]
    assert {n: e[1] for n, e in snapshot(memory.sets / found["path"]).items()} == {n: e[1] for n, e in before.items()}
    assert snapshot(fetched) == before
    setcopy.discard(str(memory.sets))
    assert list(memory.sets.iterdir()) == []


def _link(top: Path) -> None:
    (top / "plan" / "plan.md").unlink()
    (top / "plan" / "plan.md").symlink_to("/etc/passwd")


def _directory_link(top: Path) -> None:
    shutil.rmtree(top / "notes")
    (top / "notes").symlink_to("/etc")


def _pipe(top: Path) -> None:
    os.mkfifo(top / "more")


def _name(top: Path) -> None:
    text = (top / "manifest.json").read_text().replace(SET, "../../../etc")
    (top / "manifest.json").write_text(text)


def _file(top: Path) -> None:
    (top / "notes" / "more.md").write_text("more")


def _database(top: Path) -> None:
    (top / "memory.db").write_bytes(b"\0" * (top / "memory.db").stat().st_size)


def _deep(top: Path) -> None:
    (top / "/".join("d" * 40 for _ in range(40))).mkdir(parents=True)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_link, "plan.md is a link"),
        (_directory_link, "notes is a link"),
        (_pipe, "more is not a file of its own"),
        (_name, "checksum is another one"),
        (_file, "notes/more.md is in the set, and not in its manifest"),
        (_database, "memory.db has changed"),
        (_deep, "directories deep"),
    ],
)
def test_a_fetched_set_of_another_form_is_refused(
    memory: Memory, tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    fetched = shutil.move(memory.sets / SET, tmp_path / "brought back")
    spoil(fetched)
    with pytest.raises(job.JobError, match=why):
        setcopy.fetch(str(fetched), str(memory.sets), limit())
    assert list(memory.sets.iterdir()) == []


def test_a_link_to_a_set_is_not_followed(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(memory.sets / SET)
    with pytest.raises(job.JobError, match="link is not a directory"):
        setcopy.fetch(str(tmp_path / "link"), str(memory.sets), limit())
    assert [path.name for path in memory.sets.iterdir()] == [SET]
