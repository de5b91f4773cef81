"""The real entry point, as a person types it, on a machine that systemd does not run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
UNITS = "etc/systemd/system"
START = f"import sys; sys.path.insert(0, {str(ROOT / 'installer')!r}); from memops.main import main; main()"


def memops(
    *arguments: str, user: int | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command with this Python from the checkout."""
    return subprocess.run(
        [sys.executable, "-c", START, *arguments],
        capture_output=True, text=True, timeout=60, user=user, cwd="/", env={"PATH": os.environ["PATH"], **(env or {})},
    )  # fmt: skip


def test_every_help_fits_80_columns_and_has_an_example() -> None:
    ran = memops("--help", env={"COLUMNS": "80"})
    assert ran.returncode == 0
    groups = {
        "Set up:": ["adopt", "install", "release", "render", "uninstall"],
        "See how it is:": ["check", "doctor", "inspect", "logs", "status"],
        "Facts:": ["confirm", "forget", "list", "recall", "remember", "replace", "show"],
        "Review:": ["digest", "notes", "review", "scan", "trace"],
        "Upkeep and backups:": ["backup", "drill", "prune", "restore", "sets"],
    }
    sections = re.split(r"^(?=\S.*:$)", ran.stdout.partition("Exit codes")[0], flags=re.MULTILINE)
    shown = {part.partition("\n")[0]: sorted(re.findall(r"^  (\w+)  ", part, re.MULTILINE)) for part in sections}
    assert {title: shown.get(title) for title in groups} == groups
    top = [command for commands in groups.values() for command in commands]
    for command in (*top, "sets verify", "sets pin", "sets unpin"):
        own = memops(*command.split(), "--help", env={"COLUMNS": "80"})
        assert own.returncode == 0, own.stderr
        assert "xample" in own.stdout
        assert max(map(len, own.stdout.splitlines())) <= 80
    assert "Exit codes" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80


def test_version() -> None:
    assert memops("--version").stdout.startswith("memops 0.")


def test_a_wrong_word_is_answered_with_the_right_one() -> None:
    ran = memops("instal")
    assert ran.returncode == 2
    assert "install" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_systemd_install_says_what_to_do_instead() -> None:
    if Path("/run/systemd/system").is_dir():
        pytest.fail("this ring expects a machine that systemd does not run; run it in a container")
    ran = memops("install")
    assert ran.returncode == 3
    assert "memops render" in ran.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["--bogus"], ["more"], ["--name"], ["--name", "x"], ["--prometheus", "x.txt"]]
)
def test_check_answers_as_nagios_expects_whatever_is_wrong(arguments: list[str]) -> None:
    ran = memops("check", *arguments)
    assert ran.returncode == 3
    assert ran.stdout.startswith("MEMOPS UNKNOWN - ")
    assert ran.stdout.count("\n") == 1
    assert "Traceback" not in ran.stderr
    # Of all commands this one alone.
    assert memops("status", "--bogus").returncode == 2
    assert memops("check", "--help").returncode == 0


def test_status_where_nothing_is_installed() -> None:
    ran = memops("status")
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "sudo memops install" in ran.stderr


def test_render_writes_what_systemd_accepts(tmp_path) -> None:
    target = tmp_path / "bundle"
    ran = memops("render", str(target), "--db", "/srv/my agent/m%em.db")
    assert ran.returncode == 0, ran.stderr
    files = sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
    assert ran.stdout.split("\n")[:-1] == [str(target / f) for f in files]
    assert f"{UNITS}/memory-prune.service" in files
    assert os.access(target / "usr/local/lib/memops/uninstall", os.X_OK)
    units = [str(p) for p in (target / UNITS).iterdir()]
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    for unit in units:
        if unit.endswith(".service"):
            most = next(
                (most for word, most in {"backup": "10", "alert": "11", "drill": "11"}.items() if word in unit), "5"
            )
            secure = subprocess.run(
                ["systemd-analyze", "security", "--offline=true", f"--threshold={most}", "--no-pager", unit],
                capture_output=True,
                timeout=60,
            )
            assert secure.returncode == 0, unit


def test_render_keeps_what_is_there(tmp_path) -> None:
    (tmp_path / "mine").write_text("x")
    ran = memops("render", str(tmp_path))
    assert ran.returncode == 3
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_render_refuses_a_path_that_units_cannot_carry(tmp_path) -> None:
    ran = memops("render", str(tmp_path / "x"), "--db", "/srv/a'b/m.db")
    assert ran.returncode == 2
    assert "single quote" in ran.stderr
    assert not (tmp_path / "x").exists()


def test_a_broken_pipe_is_no_error_message() -> None:
    ran = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" --help | true', sys.executable, START], capture_output=True, text=True, timeout=60
    )
    assert ran.stderr == ""


def test_notes_need_nothing_installed_and_are_read_by_their_owner() -> None:
    top = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        top.chmod(0o755)
        (top / "MEMORY.md").write_text("likes tea (2025-03-04)\n§\nlives in \x1b[31mRome\n")
        (top / "closed.md").write_text("- root's\n")
        (top / "closed.md").chmod(0o600)
        for path in (top, top / "MEMORY.md"):
            os.chown(path, 12345, 12345)
        ran = memops("notes", str(top), env={"COLUMNS": "80"})
        assert ran.returncode == 0, ran.stderr
        assert f"{top}/MEMORY.md:1  2025-03-04  likes tea" in ran.stdout
        assert "lives in \\x1b[31mRome" in ran.stdout
        # Root does not read them itself, so what their owner may not see stays unread.
        assert f"! {top}/closed.md: not read: Permission denied" in ran.stdout
        data = json.loads(memops("notes", "--json", "--older-than", "99999", f"{top}/MEMORY.md").stdout)
        assert (data["version"], data["entries"], data["dated"], data["old"]) == (1, 2, 1, 0)
        assert [each["text"] for each in data["listed"]] == ["lives in \x1b[31mRome"]
        for arguments, code, words in (
            ([str(top / "memory.md")], 2, f"Did you mean {top}/MEMORY.md?"),
            ([str(top), "--older-than", "soon"], 2, "not a number of days"),
            (["/usr/share/zoneinfo"], 1, "There are no notes in"),
            ([], 2, "PATH"),
        ):
            ran = memops("notes", *arguments)
            assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
            assert words in ran.stderr
            assert "Traceback" not in ran.stderr
    finally:
        shutil.rmtree(top)
