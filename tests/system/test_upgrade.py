"""A newer memops takes over what an older one installed."""

from __future__ import annotations

import subprocess
import tarfile
from typing import TYPE_CHECKING

from system import images
from system.machine import add_facts, ids, memops, sets, status
from system.server import OFFLINE, Server, install_command

if TYPE_CHECKING:
    from pathlib import Path

OLD = "2020-01-01 00:00:00"


def first_installable(target: Path) -> None:
    """Put the first commit that had scripts/install into ``target``."""
    git = ("git", "-c", f"safe.directory={images.ROOT}", "-C", str(images.ROOT))
    added = subprocess.run(
        [*git, "log", "--diff-filter=A", "--format=%H", "--", "scripts/install"],
        capture_output=True,
        text=True,
        check=True,
    )
    archive = target.with_suffix(".tar")
    with archive.open("wb") as file:
        subprocess.run([*git, "archive", added.stdout.split()[-1]], stdout=file, check=True)
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")


def test_install_by_a_newer_version_upgrades_in_place(memops_server: Server, tmp_path: Path) -> None:
    server = memops_server
    first_installable(tmp_path / "old")
    server.copy_in(tmp_path / "old", "/root/old")
    server.copy_in(images.wheelhouse(), "/root/wheels")
    server.run("/root/old/scripts/install", "--command-only", env=OFFLINE, timeout=300)
    memops(server, "install", "--prune-at", "06:00", "--keep-superseded", "90d")
    server.run("systemctl", "disable", "--now", "memory-backup.timer")
    add_facts(server, [("dead", OLD, None, OLD), ("live", None, None, OLD)])

    install_command(server)
    told = memops(server, "check", code=1).stdout
    for job in ("drill", "digest", "review"):
        assert f"there is no {job} yet: the units are of an earlier version of memops" in told
    memops(server, "install")
    assert server.show("memory-review.timer", "UnitFileState")["UnitFileState"] == "enabled"
    assert "Nothing to do" in memops(server, "install").stdout
    assert "06:00:00" in server.show("memory-prune.timer", "TimersCalendar")["TimersCalendar"]
    assert server.show("memory-backup.timer", "UnitFileState")["UnitFileState"] == "disabled"
    assert "-90 days" in server.read("/etc/memops/default/prune.sql")
    assert server.run("find", "/etc", "-name", "*.memops-new").stdout == ""
    before = len(sets(server))
    server.run("systemctl", "start", "memory-prune.service", "memory-backup.service")
    assert ids(server) == {"live"}
    assert len(sets(server)) == before + 1
    assert [p["what"] for p in status(server)["problems"]] == ["memory-backup.timer is disabled and inactive"]
    memops(server, "uninstall")
    assert server.run("systemctl", "list-units", "--all", "--no-legend", "memory-*").stdout.strip() == ""
