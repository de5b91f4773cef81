"""What the uninstall script takes, and what it leaves: its judgement, in a temporary root."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

import uninstall

if TYPE_CHECKING:
    from pathlib import Path


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root of its own for the places the script knows."""
    units = tmp_path / "units"
    units.mkdir()
    monkeypatch.setattr(uninstall, "UNITS", str(units))
    monkeypatch.setattr(uninstall, "OTHER_FILES", (str(tmp_path / "tmpfiles.conf"),))
    monkeypatch.setattr(uninstall, "OWN_DIRECTORIES", (str(tmp_path / "own"),))
    return tmp_path


def manifest(files: dict[str, dict[str, str]]) -> dict:
    return {"files": files, "directories": [], "users": [], "stores": {}}


def test_a_file_as_it_was_written_goes_and_an_edited_one_is_kept(root: Path) -> None:
    plain, edited = root / "units/memory-prune.service", root / "units/memory-backup.timer"
    plain.write_text("ours")
    edited.write_text("ours, and mine")
    files = {str(plain): {"sha256": sha("ours")}, str(edited): {"sha256": sha("ours")}}
    assert uninstall.own_files(manifest(files)) == ([str(plain)], [str(edited)])


def test_an_upgrade_that_was_killed_left_no_edit(root: Path) -> None:
    unit = root / "units/memory-prune.service"
    unit.write_text("older")
    files = {str(unit): {"sha256": sha("newer"), "was": sha("older")}}
    assert uninstall.own_files(manifest(files)) == ([str(unit)], [])


def test_without_a_manifest_the_first_line_tells(root: Path) -> None:
    ours, stranger = root / "units/memory-prune.timer", root / "units/memory-prune-mine.service"
    ours.write_text("# Written by memops 0.1.0.\n[Timer]\n")
    stranger.write_text("[Service]\n# Written by memops it is not\n")
    (root / "tmpfiles.conf").write_text("# Written by memops 0.1.0.\n")
    assert sorted(uninstall.own_files(manifest({}))[0]) == sorted([str(ours), str(root / "tmpfiles.conf")])


def test_what_is_not_there_and_what_goes_with_its_directory_is_not_listed(root: Path) -> None:
    (root / "own").mkdir()
    (root / "own/job.py").write_text("x")
    files = {str(root / "own/job.py"): {"sha256": sha("x")}, str(root / "units/gone.service"): {"sha256": sha("x")}}
    assert uninstall.own_files(manifest(files)) == ([], [])


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", '{"files": 3}', '{"stores": null}', '{"files": {"/etc/passwd": "x"}}', "[" * 100_000]
)
def test_a_damaged_manifest_is_as_none(root: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = root / "manifest.json"
    path.write_text(text)
    monkeypatch.setattr(uninstall, "MANIFEST", str(path))
    assert uninstall.read_manifest() == manifest({})


def test_a_store_goes_also_where_its_user_cannot_reach_it(tmp_path: Path) -> None:
    """Docker's volumes lie below a directory that only root can pass."""
    closed, srv = tmp_path / "closed", tmp_path / "closed" / "srv"
    srv.mkdir(parents=True)
    (srv / "memory.db").touch()
    (srv / "other.txt").touch()
    for path in (srv, *srv.iterdir()):
        os.chown(path, 65533, 65533)
    closed.chmod(0o700)
    store = {"db": str(srv / "memory.db"), "directory": str(srv), "user": "nobody of this name"}
    uninstall.as_owner(store, uninstall.remove_store)
    assert [path.name for path in srv.iterdir()] == ["other.txt"]
