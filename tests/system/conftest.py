"""Servers as fixtures."""

from __future__ import annotations

import contextlib
import os
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests of a module with ``ALTERNATE`` on one Debian each, the next test on the other one.

    MEMOPS_LONG=1 runs them on both, as all others always are. Modules with ``SLOW`` come first, or the other workers
    would wait for one of their tests at the end.
    """
    if not os.environ.get("MEMOPS_LONG"):
        _alternate(config, items)
    items.sort(key=lambda item: not getattr(_module(item), "SLOW", False))


def _module(item: pytest.Item) -> object:
    found = item.getparent(pytest.Module)
    return found and found.obj


def _alternate(config: pytest.Config, items: list[pytest.Item]) -> None:
    suites = list(images.SUITES)
    turns: dict[str, int] = {}
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        own = getattr(item, "callspec", None)
        if own is None or "suite" not in own.params or not getattr(_module(item), "ALTERNATE", False):
            kept.append(item)
            continue
        turn = turns.setdefault(f"{item.path}::{getattr(item, 'originalname', '')}", len(turns))
        (kept if own.params["suite"] == suites[turn % len(suites)] else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


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


@pytest.fixture
def without_namespaces(suite: str) -> Iterator[Server]:
    """A server, with the command, on which systemd cannot give a service namespaces, as in some containers."""
    forbidden = "--system-call-filter=~unshare mount_setattr open_tree move_mount"
    with Server(suite, images.with_command(suite), (forbidden,)) as booted:
        yield booted
