"""The wheel as a person without root installs it: with pipx or uv below their home, and then through sudo."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import memops
from system import images
from system.machine import add_facts, ids
from system.server import Result, Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENVIRONMENT = {
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "/wheels",
    "UV_OFFLINE": "1",
    "UV_NO_INDEX": "1",
    "UV_FIND_LINKS": "/wheels",
    "UV_PYTHON_DOWNLOADS": "never",
}
COMMAND = "/home/person/.local/bin/memops"

ALTERNATE = True  # each test on one Debian, all on both in the long form


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    options = ("--disable-pip-version-check", "--quiet", "--no-deps", "--wheel-dir", str(directory))
    find = ("--no-index", f"--find-links={images.wheelhouse()}")
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, *find, images.ROOT], check=True, timeout=300)
    (found,) = directory.glob("*.whl")
    return found


@pytest.fixture
def person(suite: str, wheel: Path) -> Iterator[Server]:
    """A server with pipx and uv, wheels, and a user ``person`` who may use sudo."""
    with Server(suite, images.with_installers(suite)) as server:
        server.copy_in(images.wheelhouse(), "/wheels")
        server.copy_in(images.installers(), "/wheels")
        server.copy_in(wheel, f"/wheels/{wheel.name}")
        server.sh("useradd --create-home --shell /bin/bash person")
        server.write("/etc/sudoers.d/person", "person ALL=(ALL) NOPASSWD: ALL\n", mode=0o440)
        yield server


def login(server: Server, command: str, *, check: bool = True) -> Result:
    """Run a line as the person types it after logging in."""
    return server.run("bash", "-lc", command, user="person", env=ENVIRONMENT, check=check, timeout=300)


def test_pipx_and_then_uv(person: Server) -> None:
    server = person
    login(server, "pipx install memops")
    assert login(server, "command -v memops").stdout.strip() == COMMAND
    assert login(server, "memops --version").stdout.split()[-1] == memops.__version__

    lost = login(server, "sudo memops install", check=False)
    assert lost.code == 1
    assert "memops: command not found" in lost.stderr
    refused = login(server, "memops install", check=False)
    assert refused.code == 4
    assert refused.stderr.splitlines() == ["Error: This needs root.", f"Type: sudo {COMMAND} install"]
    login(server, refused.stderr.splitlines()[1].removeprefix("Type: "))
    assert "Nothing to do" in login(server, "sudo $(command -v memops) install").stdout

    login(server, "pipx uninstall memops")
    assert not server.exists(COMMAND)
    assert_jobs_run(server)

    login(server, "pipx install uv && uv tool install --compile-bytecode memops")
    assert login(server, "command -v memops").stdout.strip() == COMMAND
    said = login(server, "sudo $(command -v memops) install").stdout
    assert "Nothing to do" in said, "the same bundle, whoever installs it"
    login(server, "sudo $(command -v memops) status --fresh")
    assert server.sh("find /home/person/.local ! -user person").stdout == ""
    login(server, "uv tool uninstall memops")
    assert not server.exists(COMMAND)
    assert server.sh("find /home/person/.local -path '*memops*'").stdout == ""
    assert_jobs_run(server)


def assert_jobs_run(server: Server) -> None:
    """A dead fact is pruned, a backup is made."""
    add_facts(server, [("dead", "2020-01-01 00:00:00", None, "2020-01-01 00:00:00")])
    server.run("systemctl", "start", "memory-backup.service")
    server.run("systemctl", "start", "memory-prune.service")
    assert ids(server) == set()
