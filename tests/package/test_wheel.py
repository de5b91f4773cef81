"""What is shipped: the built wheel, on each Python it is for."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

import memops
from package import shipped
from system import images
from system.server import Server

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = {"debian12": "3.11", "debian13": "3.13"}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the source distribution and the wheel that was built from it, not from the checkout."""
    directory = tmp_path_factory.mktemp("dist")
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(images.wheelhouse())}
    command = [sys.executable, "-m", "build", "--outdir", directory, images.ROOT]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    return directory


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_its_name_says_version_and_every_python(wheel: Path) -> None:
    assert wheel.name == f"memops-{memops.__version__}-py3-none-any.whl"


def test_the_wheel_holds_the_package_with_its_templates_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = shipped.modules()
    assert {"memops/store.py", "memops/units/memory-prune.timer.j2", "memops/jobs/prune.py"} < expected
    metadata = f"memops-{memops.__version__}.dist-info/"
    assert {name for name in names if not name.startswith(metadata)} == expected
    assert metadata + "licenses/LICENSE" in names


def test_the_source_distribution_is_the_whole_project(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml", "scripts/install", "scripts/test"} < names
    assert {"units/memory-prune.service.j2", "sql/prune.sql.j2", "installer/memops/store.py"} < names
    assert "tests/package/test_wheel.py" in names


def test_it_runs_in_a_fresh_environment(wheel: Path, suite: str) -> None:
    with Server(suite, images.with_venv(suite)) as server:
        server.copy_in(images.wheelhouse(), "/wheels")
        server.copy_in(wheel, f"/dist/{wheel.name}")
        server.sh("useradd --create-home person")
        install = "python3 -m venv ~/env && ~/env/bin/pip install --quiet --no-index --find-links=/wheels /dist/*.whl"
        server.sh(install, user="person", timeout=300)
        command = "/home/person/env/bin/memops"

        assert server.sh("~/env/bin/python -V", user="person").stdout.startswith(f"Python {PYTHON[suite]}.")
        server.run("/home/person/env/bin/pip", "check", user="person")
        assert memops.__version__ in server.run(command, "--version", user="person").stdout
        usage = server.run(command, "--help", user="person")
        assert "install" in usage.stdout
        assert usage.stderr == ""
        server.run(command, "render", "/home/person/bundle", user="person")
        rendered = server.sh("cd ~/bundle && find . -type f", user="person").stdout
        assert "/memory-prune.timer\n" in rendered
        assert "/prune.sql\n" in rendered
        assert "/store.py\n" in rendered


SLOW = True
OTHER = [suite for suite, python in PYTHON.items() if python != f"{sys.version_info.major}.{sys.version_info.minor}"]


@pytest.mark.parametrize("other", OTHER)
def test_the_unit_tests_pass_on_the_other_python_and_sqlite(other: str) -> None:
    with Server(other, images.with_venv(other)) as server:
        server.copy_in(images.wheelhouse(), "/wheels")
        for name in (*images.SOURCES, "tests"):
            server.copy_in(images.ROOT / name, f"/root/memops/{name}")
        server.sh("apt-get -qq update && apt-get -qqy install --no-install-recommends sqlite3 git", timeout=300)
        server.sh(
            "python3 -m venv /root/env; cd /root/memops;"
            " /root/env/bin/pip install --quiet --no-index --find-links=/wheels . pytest pytest-xdist hypothesis",
            timeout=300,
        )
        # Being killed is the same on every Python, and takes long.
        some = "" if os.environ.get("MEMOPS_LONG") else "-k 'not killed and not swapping and not moment'"
        command = f"cd /root/memops; /root/env/bin/python -m pytest -q -n2 tests/unit {some}"
        done = server.sh(command, check=False, timeout=900)
        assert done.code == 0, done.stdout[-10000:]
        assert " passed" in done.stdout
