"""Servers as fixtures."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

import pytest

from system import images, sandbox
from system.server import CommandError, Server, install_command

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


def pytest_sessionstart() -> None:
    """Remove what runs that were killed have left."""
    sandbox.clean_up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of every server's journal beside a failure."""
    report = yield
    if report.failed and report.when != "teardown":
        for server in Server.running:
            with contextlib.suppress(CommandError, subprocess.SubprocessError, OSError):
                report.sections.append((f"journal of {server.suite}", server.report()))
    return report


@pytest.fixture(params=list(images.SUITES))
def suite(request: pytest.FixtureRequest) -> str:
    """Each Debian in turn."""
    return str(request.param)


@pytest.fixture
def server(suite: str) -> Iterator[Server]:
    """A fresh VPS: neither sqlite3 nor python3-venv nor memops."""
    with Server(suite) as booted:
        yield booted


@pytest.fixture
def installed_command(server: Server) -> Server:
    """The fresh VPS of this test after ``scripts/install --command-only``, run from /root/memops."""
    install_command(server)
    return server


@pytest.fixture
def memops_server(suite: str) -> Iterator[Server]:
    """A server with the command on PATH and nothing else of memops; from a prepared layer, so it is there at once."""
    with Server(suite, images.with_command(suite)) as booted:
        yield booted
