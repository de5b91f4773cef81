"""More than one store, changed options, and what other people did to the units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from system.machine import DB, add_facts, ids, listing, memops, sets, status
from system.test_install import make_store

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form

PRUNE = "/etc/systemd/system/memory-prune.service"
OLD = "2020-01-01 00:00:00"
WORK = "/home/ada/work/memory.db"


def test_a_second_store_beside_the_first(memops_server: Server) -> None:
    server = memops_server
    make_store(server, WORK)
    memops(server, "install")
    first = {k: v for k, v in listing(server).items() if k.startswith(("/etc/systemd", "/etc/memops/default", "/srv"))}
    memops(server, "install", "--name", "work", "--yes", "--db", WORK, "--prune-at", "Mon 05:00")
    now = listing(server)
    # But for the alarms, which are kept out of each store.
    kept = [k for k in first if "memory.db-" not in k and not k.endswith("/memory-alert@.service")]
    assert {k: now.get(k) for k in kept} == {k: first[k] for k in kept}
    assert server.show("memory-prune-work.service", "User")["User"] == "ada"
    assert "05:00:00" in server.show("memory-prune-work.timer", "TimersCalendar")["TimersCalendar"]
    assert len(sets(server, "/srv/backup/work")) == 1

    add_facts(server, [("dead", OLD, None, OLD), ("live", None, None, OLD)])
    add_facts(server, [("dead", OLD, None, OLD), ("live", None, None, OLD)], WORK, "ada")
    memops(server, "prune", "--name", "work")
    assert (ids(server), ids(server, WORK, "ada")) == ({"dead", "live"}, {"live"})
    memops(server, "prune")
    assert ids(server) == {"live"}

    text = memops(server, "status").stdout
    assert "default: ok" in text
    assert "work: ok" in text
    assert "default" not in memops(server, "status", "--name", "work").stdout.split("\n")[0]
    assert "--name work" in memops(server, "status", "--name", "wrok", code=2).stderr
    assert "--name default" in memops(server, "install", "--prune-at", "06:00", code=2).stderr
    assert memops(server, "install").stdout.count("Nothing to do") == 2
    assert "looked after already" in memops(server, "install", "--name", "third", "--db", WORK, code=3).stderr
    # Neither owner sees the other's records or sets.
    for path in ("/var/lib/memops/default", "/srv/backup/default"):
        assert server.run("ls", path, user="ada", check=False).code != 0

    now = listing(server)
    foretold = memops(server, "uninstall", "--name", "work", "--dry-run").stdout
    assert listing(server) == now
    for what in (
        "stop memory-backup-work.timer",
        "remove /etc/systemd/system/memory-prune-work.service",
        "remove /var/lib/memops/work/",
        "remove /var/lib/memops/work.sets.json",
    ):
        assert what in foretold
    memops(server, "uninstall", "--name", "work")
    left = [path for path in listing(server) if "-work" in path or path.endswith("/work")]
    assert not [path for path in left if not path.startswith(("/home", "/srv/backup"))]
    assert ids(server, WORK, "ada") == {"live"}
    assert memops(server, "install").stdout.count("Nothing to do") == 1
    assert status(server)["problems"] == []
    memops(server, "uninstall")
    assert server.run("systemctl", "list-units", "--all", "--no-legend", "memory-*").stdout.strip() == ""


def test_a_store_is_moved_by_installing_with_its_new_path(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install", "--prune-at", "06:00")
    add_facts(server, [("live", None, None, OLD)])
    new = "/srv/new/memory.db"
    assert "move it first" in memops(server, "install", "--db", new, code=3).stderr
    server.sh(f"mkdir -m 700 /srv/new; chown agent: /srv/new; mv {DB}* /srv/new/")
    memops(server, "install", "--db", new)
    assert status(server)["db"] == new
    assert "06:00:00" in server.show("memory-prune.timer", "TimersCalendar")["TimersCalendar"]
    server.run("systemctl", "start", "memory-prune.service", "memory-backup.service")
    assert ids(server, new) == {"live"}
    assert len(sets(server)) == 3

    # To another owner: the records of the old one are not the new one's.
    server.sh("useradd bob; mkdir -m 700 /srv/bob; mv /srv/new/* /srv/bob/; chown -R bob: /srv/bob")
    memops(server, "install", "--db", "/srv/bob/memory.db")
    assert server.show("memory-prune.service", "User")["User"] == "bob"
    server.run("systemctl", "start", "memory-prune.service", "memory-backup.service")
    assert status(server)["problems"] == []


def test_an_edited_unit_is_kept_and_shown(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    server.sh(f"echo '# mine' >>{PRUNE}")
    assert "systemctl daemon-reload" in memops(server, "status").stdout
    server.run("systemctl", "daemon-reload")
    mine = server.read(PRUNE)
    said = memops(server, "install", "--keep-superseded", "90d")
    assert "was edited and is kept" in said.stderr
    assert server.read(PRUNE) == mine
    assert "memops-new" in said.stdout
    assert server.read(f"{PRUNE}.memops-new") == mine.removesuffix("# mine\n")
    again = memops(server, "install")
    assert "Nothing to do" in again.stdout
    assert "was edited and is kept" in again.stderr
    assert "-# mine" in memops(server, "install", "--force", "--dry-run").stdout
    memops(server, "install", "--force")
    assert server.read(PRUNE) == mine.removesuffix("# mine\n")
    assert not server.exists(f"{PRUNE}.memops-new")


def test_a_timer_that_is_only_stopped_is_left_so_and_told(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    server.run("systemctl", "stop", "memory-prune.timer")
    memops(server, "install", "--keep-superseded", "90d")
    assert server.show("memory-prune.timer", "ActiveState")["ActiveState"] == "inactive"
    assert "sudo systemctl enable --now memory-prune.timer" in memops(server, "status").stdout


def test_drop_ins_are_never_touched_and_shown(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    drop_in = "/etc/systemd/system/memory-prune.timer.d/override.conf"
    server.run("mkdir", "-p", drop_in.rpartition("/")[0])
    server.write(drop_in, "[Timer]\nOnCalendar=\nOnCalendar=07:00\n")
    server.run("systemctl", "daemon-reload")
    server.run("systemctl", "restart", "memory-prune.timer")
    memops(server, "install", "--keep-superseded", "90d")
    assert "07:00:00" in server.show("memory-prune.timer", "TimersCalendar")["TimersCalendar"]
    assert drop_in in memops(server, "status").stdout
    assert drop_in in status(server)["timers"][1]["drop_ins"]
    memops(server, "uninstall")
    assert server.exists(drop_in)


def test_what_an_admin_disabled_stays_disabled(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    server.run("systemctl", "disable", "--now", "memory-prune.timer")
    memops(server, "install", "--keep-superseded", "90d")
    assert server.show("memory-prune.timer", "UnitFileState")["UnitFileState"] == "disabled"
    text = memops(server, "status").stdout
    assert "memory-prune.timer is disabled" in text
    assert "sudo systemctl enable --now memory-prune.timer" in text


def test_writing_follows_no_link(memops_server: Server) -> None:
    server = memops_server
    server.write("/root/precious", "mine")
    server.run("ln", "-s", "/root/precious", PRUNE)
    assert f"rm {PRUNE}" in memops(server, "install", code=3).stderr
    server.run("rm", PRUNE)
    server.run("ln", "-s", "/root/precious", "/etc/tmpfiles.d/memops.conf", check=False)
    server.sh("mkdir -p /etc/tmpfiles.d; ln -sf /root/precious /etc/tmpfiles.d/memops.conf")
    assert "Move it away" in memops(server, "install", code=3).stderr
    server.run("rm", "/etc/tmpfiles.d/memops.conf")
    server.sh("mkdir /root/elsewhere; ln -s /root/elsewhere /var/lib/memops")
    assert "/var/lib/memops is a link" in memops(server, "install", code=3).stderr
    assert server.read("/root/precious") == "mine"
    assert server.run("ls", "/root/elsewhere").stdout == ""
