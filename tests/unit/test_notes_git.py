"""Dates of notes from git: real repositories, and those that would have git run something."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import blame
import notes

JOBS = Path(notes.__file__).parent
GIT_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(directory: Path, *words: str, day: str = "2024-01-02") -> None:
    dates = {f"GIT_{who}_DATE": f"{day}T12:00:00Z" for who in ("AUTHOR", "COMMITTER")}
    subprocess.run(
        ["git", "-c", "core.fsmonitor=false", *words],
        cwd=directory, check=True, env=GIT_ENVIRONMENT | dates, capture_output=True,
    )  # fmt: skip


@pytest.fixture
def repository(tmp_path):
    """A repository with a file of two commits and a line that is in none."""
    top = tmp_path / "re po"
    (top / "sub").mkdir(parents=True)
    git(top, "init", "--quiet")
    path = top / "sub" / "ME MORY.md"
    path.write_text("- one\n- two\n  more\n")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "-m", "1")
    path.write_text("- one\n- two\n    more\n- three\n")
    git(top, "commit", "--quiet", "-a", "-m", "2", day="2025-03-04")
    path.write_text("- one\n- two\n    more\n- three\n- four\n")
    (top / "sub" / "new.md").write_text("- five\n")
    return top


def blamed(path: Path) -> dict[int, str]:
    found = blame.History().lines(str(path), path.read_bytes())
    return {line: found[line].isoformat() for line in sorted(found)}


def test_git_dates_lines(repository, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    path = repository / "sub" / "ME MORY.md"
    # Only indented anew, the third line is not newer.
    expected = {1: "2024-01-02", 2: "2024-01-02", 3: "2024-01-02", 4: "2025-03-04"}
    assert blamed(path) == expected
    assert blamed(repository / "sub" / "new.md") == {}
    assert list(repository.rglob("*.lock")) == []
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "tree"))
    assert blamed(tmp_path / "tree/sub/ME MORY.md") == expected
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", "shallow")
    # As old as the first commit that a shallow clone has is no age.
    assert blamed(tmp_path / "shallow/sub/ME MORY.md") == {}
    lone = tmp_path / "lone.md"
    lone.write_text("- x\n")
    assert blamed(lone) == {}
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_repository_runs_nothing(repository, tmp_path) -> None:
    path, ran = repository / "sub" / "ME MORY.md", tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >>'{ran}'\ncat\n")
    program.chmod(0o755)
    for name in (
        *("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "core.askPass", "core.gitProxy"),
        *("filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.x.textconv", "diff.x.command"),
        *("diff.external", "alias.blame", "alias.rev-parse", "pager.blame", "uploadpack.packObjectsHook"),
    ):
        subprocess.run(
            ["git", "config", "--file", repository / ".git/config", name, str(program)], check=True, env=GIT_ENVIRONMENT
        )
    (repository / ".gitattributes").write_text("*.md filter=x diff=x\n")
    for hook in ("post-index-change", "fsmonitor-watchman", "pre-auto-gc"):
        shutil.copy(program, repository / ".git/hooks" / hook)
    # Git itself runs them, which is what the detour is for.
    plain = subprocess.run(
        ["git", "blame", "--", "ME MORY.md"], cwd=path.parent, capture_output=True, env=GIT_ENVIRONMENT, timeout=60
    )
    assert ran.exists(), plain
    ran.unlink()
    assert blamed(path)[4] == "2025-03-04"
    assert not ran.exists()


def test_a_repository_that_keeps_git_waiting_is_given_up(repository, monkeypatch) -> None:
    os.mkfifo(repository / "pipe")
    with (repository / ".git/config").open("a") as file:
        file.write("[include]\n\tpath = ../pipe\n")
    monkeypatch.setattr(blame, "SECONDS", 0.2)
    path = repository / "sub" / "ME MORY.md"
    assert blamed(path) == {}
    monkeypatch.setattr(blame, "IN_ALL", -1.0)
    late = blame.History()
    assert late.lines(str(path), path.read_bytes()) == {}
    assert late.late


@pytest.fixture
def owned(repository):
    """The repository of another user than root, in a place which that user can reach, and the script beside it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        top = Path(place)
        top.chmod(0o755)
        shutil.copytree(repository, top / "notes")
        for name in ("notes", "blame", "note_dates", "note_forms"):
            shutil.copy(JOBS / f"{name}.py", top)
        shutil.copy(JOBS.parents[1] / "installer/memops/store.py", top)
        if os.geteuid() == 0:
            for path in (top / "notes", *(top / "notes").rglob("*")):
                os.chown(path, 65534, 65534)
        yield top


def script(top: Path, user: int | None) -> dict:
    """What the script prints when it is run as ``user``."""
    ran = subprocess.run(
        ["/usr/bin/python3", "-I", "-B", str(top / "notes.py"), str(top / "notes"), "--name", "/its/name"],
        capture_output=True, text=True, timeout=60, user=user, cwd="/",
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


def test_the_script_asks_git_as_the_owner_alone(owned) -> None:
    as_root = os.geteuid() == 0
    found = script(owned, 65534 if as_root else None)
    assert [(each["text"], each["date"], each["by"]) for each in found["listed"]] == [
        ("one", "2024-01-02", "git"),
        ("two more", "2024-01-02", "git"),
        ("three", "2025-03-04", "git"),
        ("four", None, ""),
        ("five", None, ""),
    ]
    assert found["listed"][0]["file"] == "/its/name/sub/ME MORY.md"
    if as_root:
        assert script(owned, None)["dated"] == 0
        assert script(owned, 65533)["dated"] == 0
