"""What is pinned: all that the command needs, on each Python it is for, and nothing that has another hash."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from typing import TYPE_CHECKING

import pytest

from package import shipped
from system import images

if TYPE_CHECKING:
    from pathlib import Path

PINS = images.ROOT / "scripts/requirements"


def pip(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-m", "pip", "--isolated", "--disable-pip-version-check", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def resolved(python: str, *words: object) -> set[str]:
    """What pip would install, from the wheels that are here and nowhere else."""
    options = ("--ignore-installed", "--dry-run", "--quiet", "--report=-", "--no-index", "--only-binary=:all:")
    where = (f"--find-links={images.wheelhouse()}", f"--python-version={python}", "--target=/nowhere")
    ran = pip("install", *options, *where, *words)
    assert ran.returncode == 0, ran.stderr
    found = [entry["metadata"] for entry in json.loads(ran.stdout)["install"]]
    return {f"{each['name'].lower().replace('_', '-')}=={each['version']}" for each in found}


@pytest.mark.parametrize("python", images.PYTHONS)
def test_what_is_pinned_is_all_that_is_needed(python: str) -> None:
    """After a change of pyproject.toml that this does not pass: scripts/pin."""
    project = tomllib.loads((images.ROOT / "pyproject.toml").read_text())
    for name, ranges in (
        ("command", project["project"]["dependencies"]),
        ("build", [*project["build-system"]["requires"], "setuptools"]),
    ):
        pinned = resolved(python, "--require-hashes", "--requirement", PINS / f"{name}.txt")
        assert pinned == images.pinned(name)
        # With the ranges the answer is the same, and so are the names without the pins: they fit, and are all.
        assert resolved(python, *ranges, *pinned) == pinned
        needed = {line.partition("==")[0] for line in resolved(python, *ranges)}
        assert needed == {line.partition("==")[0] for line in pinned}


def test_another_file_under_the_same_name_is_refused(tmp_path: Path) -> None:
    real = next(images.wheelhouse().glob("shellingham-*.whl"))
    for wheel in images.wheelhouse().glob("*.whl"):
        (tmp_path / wheel.name).symlink_to(wheel)
    (tmp_path / real.name).unlink()
    with zipfile.ZipFile(real) as source, zipfile.ZipFile(tmp_path / real.name, "w") as forged:
        for name in source.namelist():
            forged.writestr(name, source.read(name) + (b"\nimport os\n" if name.endswith("__init__.py") else b""))
    options = ("--dry-run", "--ignore-installed", "--no-index", f"--find-links={tmp_path}", "--target", tmp_path / "x")
    ran = pip("install", *options, "--require-hashes", "--requirement", PINS / "command.txt")
    assert ran.returncode == 1
    assert "DO NOT MATCH THE HASHES" in ran.stderr
    assert "shellingham" in ran.stderr


def test_scripts_install_nothing_else() -> None:
    """Each pip in them takes hashes, or no dependencies at all."""
    for name, installs in (("install", 3), ("deb", 3)):
        lines = (images.ROOT / "scripts" / name).read_text().splitlines()
        calls = [line.strip() for line in lines if line.strip().startswith("pip -")]
        assert len(calls) == installs, calls
        assert all("--require-hashes" in call or "--no-deps --no-build-isolation" in call for call in calls), calls
    assert set(shipped.PACKAGES.values()) == {line.partition("==")[0] for line in images.pinned("command")}
