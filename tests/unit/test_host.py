"""The one door: programs and files, for real."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memops import host
from memops.errors import MemopsError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_program_gets_words_and_input_and_gives_all_it_said() -> None:
    ran = host.run("sh", "-c", 'cat; printf %s "$1" >&2; exit 3', "sh", "a  'b'\n$HOME", stdin="typed", ok=None)
    assert (ran.code, ran.out, ran.err) == (3, "typed", "a  'b'\n$HOME")


def test_a_program_has_no_terminal_and_no_environment_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    out = host.run("sh", "-c", "[ -t 1 ] && echo terminal; env").out
    assert "terminal" not in out
    assert "SECRET" not in out
    assert "LC_ALL=C.UTF-8" in out


def test_what_is_typed_often_starts_the_same_without_sh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    ran = host.ask("sh", "-c", 'cat; env; printf %s "$1" >&2; exit 3', "sh", "a  'b'\n$HOME", stdin="typed\n")
    assert (ran.code, ran.out.splitlines()[0], ran.err) == (3, "typed", "a  'b'\n$HOME")
    assert "LC_ALL=C.UTF-8" in ran.out
    assert "SECRET" not in ran.out
    with pytest.raises(MemopsError, match="not on this machine"):
        host.ask("memops-has-no-such-program", stdin="")
    with pytest.raises(MemopsError, match="did not end within 0 s"):
        host.ask("sleep", "600", stdin="", timeout=0.1)


def test_failures_say_what_the_program_said() -> None:
    with pytest.raises(MemopsError, match="no such thing"):
        host.run("sh", "-c", "echo no such thing >&2; exit 1")
    with pytest.raises(MemopsError, match="not on this machine"):
        host.run("memops-has-no-such-program")
    assert host.run("sh", "-c", "kill -9 $$", ok=None).code == -9


def test_a_program_that_does_not_end_is_stopped() -> None:
    with pytest.raises(MemopsError, match="did not end within 1 s") as caught:
        host.run("sleep", "600", timeout=1)
    assert caught.value.hint


def test_writing_replaces_a_link_and_leaves_what_it_pointed_at(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    target = tmp_path / "target"
    target.symlink_to(precious)
    host.write(str(target), "new", 0o640)
    assert (target.read_text(), target.is_symlink(), precious.read_text()) == ("new", False, "mine")
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "target"]


def test_making_a_directory_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):  # noqa: PT011 - ELOOP or ENOTDIR, as the kernel likes
        host.make_directory(str(tmp_path / "link"), 0o700, 0, 0)
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o755


def test_the_file_system_of_a_path_that_is_not_there_yet(tmp_path: Path) -> None:
    assert host.file_system(str(tmp_path / "a" / "b")) == host.file_system(str(tmp_path))
    assert host.file_system("/proc/self") == "proc"


def test_two_programs_are_joined_without_what_passes_between_them() -> None:
    many = "head -c 3000000 /dev/zero; echo words >&2; exit 3"
    first, second = host.pipe(("sh", "-c", many), ("sh", "-c", "wc -c; exit 4"))
    assert (first.code, first.out, first.err) == (3, "", "words\n")
    assert (second.code, second.out.strip()) == (4, "3000000")


def test_neither_of_two_programs_waits_for_the_other_for_ever() -> None:
    first, second = host.pipe(("sh", "-c", "while echo x; do :; done; echo over >&2"), ("head", "-c", "10"))
    assert (second.code, len(second.out)) == (0, 10)
    assert first.code != 0 or "over" in first.err
    with pytest.raises(MemopsError, match="not on this machine"):
        host.pipe(("sh", "-c", "cat /dev/zero"), ("memops-has-no-such-program",))
    with pytest.raises(MemopsError, match="did not end within 1 s"):
        host.pipe(("sleep", "600"), ("cat",), timeout=1)
