"""The Debian package: built on the release it is for, installed, upgraded, removed, purged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import memops
from package import shipped
from system import images
from system.machine import DB, add_facts, ids, sets, status
from system.server import OFFLINE, Server, copy_checkout

if TYPE_CHECKING:
    from collections.abc import Iterator

DIST = "/root/memops/dist"

_CONTENTS = r"""
import json, sys, tarfile
print(json.dumps([[m.name.removeprefix("./"), m.mode, m.uid, m.gid, m.uname, m.gname, m.isfile(), m.isdir()]
    for m in tarfile.open(fileobj=sys.stdin.buffer, mode="r|")]))
"""


@pytest.fixture
def packaged(suite: str) -> Iterator[Server]:
    """A server with a checkout in /root/memops in which scripts/deb has run."""
    with Server(suite, images.with_package(suite)) as server:
        yield server


def package(server: Server) -> str:
    return f"{DIST}/memops_{memops.__version__}~{server.suite.replace('debian', 'deb')}_all.deb"


def apt(server: Server, *arguments: str) -> str:
    return server.run(
        "apt-get",
        "--yes",
        "--no-install-recommends",
        "--option=DPkg::Options::=--force-unsafe-io",
        *arguments,
        env={"DEBIAN_FRONTEND": "noninteractive"},
    ).stdout


def test_what_it_holds_is_roots_and_it_asks_for_little(packaged: Server) -> None:
    assert packaged.run("ls", DIST).stdout.split() == [package(packaged).rpartition("/")[2]]
    archive = f"dpkg-deb --fsys-tarfile '{package(packaged)}'"
    members = json.loads(packaged.run("sh", "-c", f'{archive} | python3 -c "$1"', "sh", _CONTENTS).stdout)
    executable = {"usr/bin/memops", "usr/lib/memops/memops/jobs/uninstall.py"}
    for name, mode, uid, gid, user, group, is_file, is_directory in members:
        assert (uid, gid, user, group) == (0, 0, "root", "root"), name
        assert is_file != is_directory, name
        assert oct(mode) == oct(0o755 if is_directory or name in executable else 0o644), name
        assert not name.endswith((".so", ".pyc", "__pycache__", "RECORD", "direct_url.json")), name
    files = {name for name, *_, is_file, _ in members if is_file}
    assert {name for name in files if not name.startswith(("usr/lib/memops/", "usr/share/doc/memops/"))} == {
        "usr/bin/memops"
    }
    library = {name.removeprefix("usr/lib/memops/") for name in files if name.startswith("usr/lib/memops/")}
    assert {name for name in library if name.startswith("memops/")} == shipped.modules()
    assert {name.removeprefix("usr/share/doc/memops/") for name in files if "/doc/memops/" in name} == {
        *("README.md", "CHANGELOG.md", "copyright")
    }
    # Beside it lie the packages that are pinned, each in the version that is, and nothing else.
    tops = {name.partition("/")[0] for name in library}
    notes = {name for name in tops if name.endswith(".dist-info")}
    assert tops - notes == {"memops", *shipped.PACKAGES}
    versions = {"==".join(name.removesuffix(".dist-info").split("-")).replace("_", "-").lower() for name in notes}
    assert versions == {*images.pinned("command"), f"memops=={memops.__version__}"}
    assert set(shipped.PACKAGES.values()) == {line.partition("==")[0] for line in images.pinned("command")}
    found = packaged.sh(f"{archive} | tar -xC /mnt; grep -rlE '/root/|/tmp/tmp' /mnt || true; rm -r /mnt/usr").stdout
    assert not [line for line in found.splitlines() if "/memops/memops/" not in line], "where it was built is in it"

    def field(name: str) -> str:
        return packaged.run("dpkg-deb", "--field", package(packaged), name).stdout.strip()

    assert field("Depends") == "python3 (>= 3.11), systemd (>= 252)"
    assert field("Recommends") == "sqlite3"
    assert field("Architecture") == "all"
    assert packaged.run("dpkg", "--compare-versions", field("Version"), "lt", memops.__version__).code == 0


@pytest.mark.parametrize("suite", ["debian13"])
def test_the_same_sources_give_the_same_bytes(packaged: Server) -> None:
    first = packaged.run("sha256sum", package(packaged)).stdout
    packaged.copy_in(images.wheelhouse(), "/root/wheels")
    packaged.run("/root/memops/scripts/deb", env=OFFLINE, timeout=300)
    assert packaged.run("sha256sum", package(packaged)).stdout == first


def test_its_life(packaged: Server) -> None:
    server = packaged
    said = apt(server, "install", package(server))
    assert "nothing runs yet; to set up this server, type: sudo memops install" in said
    assert server.sh("ls /etc/systemd/system").stdout.count("memory-") == 0
    assert not server.exists("/etc/memops")
    server.run("mkdir", "/srv/hostile")
    for name in ("memops", "sh", "typer"):
        server.write(f"/srv/hostile/{name}.py", "raise SystemExit('not this one')\n")
    command = ("sh", "-c", "cd /srv/hostile && memops --version")
    assert (
        server.run(*command, user="nobody", env={"PYTHONPATH": "/srv/hostile"}).stdout.split()[-1] == memops.__version__
    )

    server.run("memops", "install", timeout=300)
    assert "Nothing to do" in server.run("memops", "install").stdout
    add_facts(
        server,
        [("dead", "2020-01-01 00:00:00", None, "2020-01-01 00:00:00"), ("live", None, None, "2020-01-01 00:00:00")],
    )
    server.run("systemctl", "start", "memory-backup.service")
    server.run("systemctl", "start", "memory-prune.service")
    assert ids(server) == {"live"}
    assert status(server)["problems"] == []
    assert server.run("dpkg", "--verify", "memops").stdout == ""
    assert server.sh("find /usr/lib/memops /usr/bin/memops ! -user root -o ! -group root -o -perm /022").stdout == ""

    # The next version, as if it had been built from newer sources.
    server.sh(
        f"dpkg-deb -R '{package(server)}' /root/next; cd /root/next"
        "; sed -i 's/^Version: .*/Version: 99.0~x/' DEBIAN/control;"
        "echo '__version__ = \"99.0\"' >usr/lib/memops/memops/__init__.py; dpkg-deb -b . /root/next.deb"
    )
    prune = "/etc/systemd/system/memory-prune.service"
    before = server.read(prune)
    said = apt(server, "install", "/root/next.deb")
    assert "to bring the nightly jobs up to this version, type: sudo memops install" in said
    assert server.run("memops", "--version").stdout.split()[-1] == "99.0"
    assert server.read(prune) == before
    server.run("memops", "install", timeout=300)
    assert "99.0" in server.read(prune)

    said = apt(server, "remove", "memops")
    assert "the nightly jobs go on without the command; to end them as well, type: sudo apt-get purge memops" in said
    assert not server.exists("/usr/bin/memops")
    assert not server.exists("/usr/lib/memops")
    add_facts(server, [("dead", "2020-01-01 00:00:00", None, "2020-01-01 00:00:00")])
    for timer in ("memory-prune.timer", "memory-backup.timer"):
        assert server.run("systemctl", "is-active", timer).stdout == "active\n"
    server.run("systemctl", "start", "memory-prune.service")
    assert ids(server) == {"live"}

    said = apt(server, "purge", "memops")
    assert f"kept {DB}" in said
    assert_purged(server)
    apt(server, "install", package(server))
    apt(server, "purge", "memops")
    assert_purged(server)


def assert_purged(server: Server) -> None:
    """The bundle and the package are gone, the data is not."""
    for path in ("/usr/bin/memops", "/usr/lib/memops", "/usr/local/lib/memops", "/etc/memops", "/var/lib/memops"):
        assert not server.exists(path), path
    assert server.sh("ls /etc/systemd/system /etc/systemd/system/timers.target.wants").stdout.count("memory-") == 0
    assert server.run("systemctl", "list-units", "--all", "--no-legend", "memory-*").stdout.strip() == ""
    assert server.run("dpkg-query", "--show", "memops", check=False).code == 1
    assert ids(server) == {"live"}
    assert sets(server)


def test_without_venv_it_says_what_is_missing(server: Server) -> None:
    copy_checkout(server)
    refused = server.run("/root/memops/scripts/deb", check=False)
    assert refused.code == 3
    assert refused.stderr.splitlines()[1] == "Type: sudo apt-get install python3-venv"
    assert server.sh("ls /tmp /root/memops").stdout.count("tmp.") == 0
    assert server.run("/root/memops/scripts/deb", "--help").stdout.startswith("Build a Debian package")
