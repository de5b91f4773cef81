"""The example role, by the ansible of each Debian, on a server that it looks after itself (connection ``local``)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from system import images
from system.machine import listing
from system.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTS = "[agents]\nlocalhost ansible_connection=local ansible_python_interpreter=/usr/bin/python3\n"

ALTERNATE = True  # each test on one Debian, all on both in the long form


@pytest.fixture
def controller(suite: str) -> Iterator[Server]:
    """A server with ansible, the checkout and a package built from it, and a user ``work``."""
    with Server(suite, images.with_package(suite)) as server:
        server.copy_in(images.ROOT / "contrib", "/root/memops/contrib")
        server.write("/root/hosts", HOSTS)
        server.sh("useradd --create-home work")
        yield server


def play(server: Server, *options: str) -> tuple[int, str]:
    """Run the example playbook; returns what its recap counts as changed, and all output."""
    command = ("ansible-playbook", "--inventory=/root/hosts", "/root/memops/contrib/ansible/playbook.yml", *options)
    played = server.run(*command, env={"ANSIBLE_PIPELINING": "1"}, timeout=300)
    recap = re.search(r"changed=(\d+)", played.stdout)
    assert recap, played.stdout
    return int(recap[1]), played.stdout


def test_the_example_is_idempotent_and_check_mode_does_not_lie(controller: Server) -> None:
    server = controller
    before = listing(server)
    changed, _ = play(server, "--check")
    assert changed > 0
    assert new_or_changed(before, listing(server)) == set()
    assert not server.exists("/usr/bin/memops")

    changed, _ = play(server)
    assert changed > 0
    assert "/srv/work/memory.db" in server.read("/etc/memops/memops.toml")
    assert server.show("memory-prune-work.timer", "ActiveState") == {"ActiveState": "active"}
    assert server.show("memory-prune-work.service", "User") == {"User": "work"}
    assert "04:00" in server.read("/etc/systemd/system/memory-prune-work.timer")
    assert server.show("memory-prune.timer", "ActiveState") == {"ActiveState": "active"}
    server.sh("mkdir -p /srv/agent/notes /srv/agent/more; chown agent /srv/agent/notes /srv/agent/more")
    installed = listing(server)
    assert play(server)[0] == 0, "the second run changes nothing"
    assert new_or_changed(installed, listing(server)) == set()

    options = {"prune_at": "05:00", "with": ["/srv/agent/notes", "files=/srv/agent/more"], "prune_without_backup": True}
    new = "--extra-vars=" + json.dumps({"memops_stores": {"default": options}})
    changed, said = play(server, new, "--check")
    assert changed == 1
    assert "+OnCalendar=05:00" in said
    assert new_or_changed(installed, listing(server)) == set()
    assert play(server, new)[0] == 1
    assert "05:00" in server.read("/etc/systemd/system/memory-prune.timer")
    settings = server.read("/etc/memops/memops.toml")
    assert 'parts = ["files=/srv/agent/notes/", "files=/srv/agent/more/"]' in settings
    assert "prune_without_backup = true" in settings


def new_or_changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """The paths that differ, without ansible's own."""
    return {path for path, line in after.items() if before.get(path) != line and not path.startswith("/root/.ansible")}
