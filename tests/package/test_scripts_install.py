"""scripts/install: the README's first command, without what memops install does after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import memops
from system import images
from system.server import OFFLINE, Result, Server, copy_checkout, install_command

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = "/root/memops/scripts/install"
LINK = "/usr/local/bin/memops"

ALTERNATE = True  # each test on one Debian, all on both in the long form


@pytest.fixture
def prepared(suite: str) -> Iterator[Server]:
    """A server with python3-venv, a clone of the checkout in /root/memops, and wheels."""
    with Server(suite, images.with_venv(suite)) as server:
        copy_checkout(server)
        server.copy_in(images.wheelhouse(), "/root/wheels")
        yield server


def install(server: Server, *options: str, **given: bool) -> Result:
    return server.run(SCRIPT, *options, env=OFFLINE, timeout=300, **given)  # type: ignore[arg-type]


def environments(server: Server) -> list[str]:
    return server.run("ls", "/opt/memops", check=False).stdout.split()


def test_on_a_fresh_server_it_brings_what_python_lacks(server: Server) -> None:
    install_command(server)
    server.sh("useradd --create-home person")
    assert server.run("memops", "--version", user="person").stdout.split()[-1] == memops.__version__
    assert server.sh("find /opt/memops ! -user root -o -perm /022 ! -type l").stdout == ""
    assert server.sh("ls -A /root /tmp").stdout.count("pip") == 0
    assert server.sh("find /root/memops -newer /opt/memops -type f").stdout == "", "the checkout is left alone"


def test_again_is_an_upgrade_and_remove_takes_all_away(prepared: Server) -> None:
    install(prepared, "--command-only")
    first = environments(prepared)
    init = "/root/memops/installer/memops/__init__.py"
    prepared.write(init, prepared.read(init).replace(memops.__version__, "99.0"))
    install(prepared, "--command-only")
    second = environments(prepared)
    assert len(first) == len(second) == 1
    assert first != second
    assert prepared.run("memops", "--version").stdout.split()[-1] == "99.0"

    removed = install(prepared, "--remove")
    assert "is removed" in removed.stdout
    assert "nightly" not in removed.stdout
    assert not prepared.exists(LINK)
    assert not prepared.exists("/opt/memops")
    assert install(prepared, "--remove").code == 0, "twice is fine"

    prepared.sh("mkdir /etc/memops; echo {} >/etc/memops/manifest.json")
    assert "sudo /usr/local/lib/memops/uninstall" in install(prepared, "--remove").stdout


def test_a_failed_upgrade_leaves_the_command_that_was_there(prepared: Server) -> None:
    install(prepared, "--command-only")
    before, temporary = environments(prepared), prepared.sh("ls -A /tmp").stdout
    main = "/root/memops/installer/memops/main.py"
    prepared.write(main, "raise SystemExit('broken')\n")
    failed = install(prepared, "--command-only", check=False)
    assert failed.code == 1
    assert "memops could not be installed; what was there before is as it was." in failed.stderr
    assert environments(prepared) == before
    assert memops.__version__ in prepared.run("memops", "--version").stdout
    assert prepared.sh("ls -A /tmp").stdout == temporary


def test_an_interrupted_one_leaves_nothing(prepared: Server) -> None:
    process = prepared.popen(SCRIPT, "--command-only", env=OFFLINE)
    prepared.wait_until(lambda: environments(prepared))
    prepared.sh(f"pkill -TERM -f '^/bin/sh {SCRIPT}'")
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert not prepared.exists("/opt/memops")
    assert not prepared.exists(LINK)


def test_what_another_put_there_is_refused(prepared: Server) -> None:
    prepared.write(LINK, "#!/bin/sh\n", mode=0o755)
    refused = install(prepared, "--command-only", check=False)
    assert refused.code == 3
    assert f"{LINK} is there" in refused.stderr
    install(prepared, "--remove")
    assert prepared.read(LINK) == "#!/bin/sh\n"


def test_only_root_may(prepared: Server) -> None:
    prepared.sh("useradd --create-home person; cp -r /root/memops /home/person/memops")
    refused = prepared.run("/home/person/memops/scripts/install", user="person", check=False)
    assert refused.code == 4
    assert refused.stderr.splitlines() == [
        "Error: Installing needs root.",
        "Type: sudo /home/person/memops/scripts/install",
    ]


def test_usage(prepared: Server) -> None:
    assert "--command-only" in install(prepared, "--help").stdout
    assert install(prepared, "--remove", "--yes", check=False).code == 2


def test_options_reach_memops_install(prepared: Server) -> None:
    refused = install(prepared, "--db", "/etc/memory.db", check=False)
    assert refused.code == 3
    assert memops.__version__ in prepared.run("memops", "--version").stdout
    assert not prepared.exists("/etc/memops")
