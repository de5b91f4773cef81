"""Servers that are not as one would wish."""

from __future__ import annotations

from typing import TYPE_CHECKING

from system.machine import DB, add_facts, ids, memops, sets, status
from system.test_install import make_store

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form

OLD = "2020-01-01 00:00:00"
FACTS = [("dead", OLD, None, OLD), ("live", None, None, OLD)]


def works(server: Server, db: str, user: str) -> None:
    """Prune, back up and look, on a store that ``memops install`` has taken on."""
    add_facts(server, FACTS, db, user)
    memops(server, "prune")
    assert ids(server, db, user) == {"live"}
    before = len(sets(server))
    server.run("systemctl", "start", "memory-backup.service")
    assert len(sets(server)) == before + 1
    assert status(server)["problems"] == []


def test_a_store_in_a_closed_home_and_one_under_root(memops_server: Server) -> None:
    server = memops_server
    make_store(server, "/home/ada/agent/memory.db")
    server.sh("chmod 700 /home/ada /home/ada/agent")
    memops(server, "install", "--yes", "--db", "/home/ada/agent/memory.db")
    works(server, "/home/ada/agent/memory.db", "ada")
    memops(server, "uninstall")
    server.run("rm", "-rf", "/srv/backup")
    make_store(server, "/root/agent/memory.db", user="root")
    memops(server, "install", "--yes", "--db", "/root/agent/memory.db")
    assert server.show("memory-prune.service", "User")["User"] == "root"
    works(server, "/root/agent/memory.db", "root")


def test_a_docker_volume_owned_by_a_number(memops_server: Server) -> None:
    server = memops_server
    folder = "/var/lib/docker/volumes/mem/_data"
    server.sh(f"mkdir -p {folder}; chmod 710 /var/lib/docker")
    make_store(server, f"{folder}/memory.db", user="root")
    server.sh(f"chown -R 54321:54321 {folder}")
    assert server.run("ls", folder, user="54321", check=False).code != 0
    memops(server, "install", "--yes", "--db", f"{folder}/memory.db")
    assert server.run("id", "-u", "memops-54321").stdout.strip() == "54321"
    server.sql(f"{folder}/memory.db", "PRAGMA user_version", user="root")  # root as a container's own process would
    server.sh(f"chown 54321:54321 {folder}/*")
    add = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit(); c.close()"
    fact = f"INSERT INTO memory (id, subject, fact, source, expires_at) VALUES ('dead', 's', 'f', 'chat', '{OLD}')"
    server.run(
        "systemd-run", "--pipe", "--wait", "--quiet", "-p", "User=memops-54321", "-p", f"BindPaths={folder}:/run/v",
        "python3", "-c", add, "/run/v/memory.db", fact,
    )  # fmt: skip
    assert "1 expired" in memops(server, "prune").stdout
    server.run("systemctl", "start", "memory-backup.service")
    assert server.run("find", folder, "!", "-user", "54321").stdout == ""
    assert "Nothing to do" in memops(server, "install").stdout
    memops(server, "uninstall", "--purge", "--confirm", f"{folder}/memory.db")
    assert server.run("id", "memops-54321", check=False).code != 0


def test_a_store_behind_a_link(memops_server: Server) -> None:
    server = memops_server
    make_store(server, "/home/ada/real/memory.db")
    server.sh("ln -s /home/ada/real /srv/link")
    said = memops(server, "install", "--yes", "--db", "/srv/link/memory.db")
    assert "/srv/link/memory.db is reached through a link; the store is /home/ada/real/memory.db" in said.stderr
    works(server, "/home/ada/real/memory.db", "ada")


def test_a_read_only_etc(memops_server: Server) -> None:
    server = memops_server
    server.sh("mount --bind /etc /etc; mount -o remount,ro,bind /etc")
    refused = memops(server, "install", code=3)
    assert "read-only" in refused.stderr
    assert "memops render" in refused.stderr
    assert not server.exists("/srv/agent")


def test_no_apt_no_journal_and_a_strangers_broken_unit(memops_server: Server) -> None:
    server = memops_server
    server.sh("mv /usr/bin/apt-get /usr/bin/apt-get.away")
    server.run("rm", "-f", "/usr/bin/sqlite3")
    server.sh("mkdir -p /etc/systemd/journald.conf.d")
    server.write("/etc/systemd/journald.conf.d/none.conf", "[Journal]\nStorage=none\n")
    server.sh("systemctl restart systemd-journald; rm -rf /run/log/journal /var/log/journal")
    server.write("/etc/systemd/system/broken.service", "[Service]\nExecStart=relative\nNonsense\n")
    server.write("/etc/systemd/system/broken.timer", "[Timer]\nOnCalendar=never\n[Install]\nWantedBy=timers.target\n")
    server.sh("systemctl daemon-reload; systemctl enable broken.timer || true")
    said = memops(server, "install").stdout
    assert "has no apt" in said
    assert "sealing job's record" in said
    works(server, DB, "agent")
    # A failure is explained all the same.
    server.run("mv", DB, f"{DB}.away")
    server.run("systemctl", "start", "memory-prune.service", check=False)
    assert "the store is not there" in memops(server, "status").stdout


def test_a_container_without_namespaces(without_namespaces: Server) -> None:
    server = without_namespaces
    said = memops(server, "install")
    assert "no namespaces" in said.stderr
    assert 'sandbox = "reduced"' in server.read("/etc/memops/memops.toml")
    works(server, DB, "agent")
    assert "Nothing to do" in memops(server, "install").stdout
    for attempt in (("ls", "/srv/backup"), ("ls", "/srv/backup/default"), ("ls", "/srv/backup/incoming")):
        assert server.run(*attempt, user="agent", check=False).code != 0
    # A part more, the agent's pause, a drill and a restore need no namespaces either.
    server.sh("mkdir /srv/agent/notes && echo one >/srv/agent/notes/one.md", user="agent")
    server.write("/etc/systemd/system/agent.service", "[Service]\nUser=agent\nExecStart=/bin/sleep infinity\n")
    server.run("systemctl", "daemon-reload")
    server.run("systemctl", "start", "agent.service")
    memops(server, "install", "--with", "/srv/agent/notes", "--agent-unit", "agent.service")
    assert "2 parts" in memops(server, "backup").stdout
    memops(server, "drill")
    before = ids(server)
    server.sql(DB, "DELETE FROM memory")
    server.sh("echo two >/srv/agent/notes/one.md", user="agent")
    memops(server, "restore", "latest", "--yes")
    assert (ids(server), server.read("/srv/agent/notes/one.md")) == (before, "one\n")
    assert server.show("agent.service", "ActiveState")["ActiveState"] == "active"
    server.run("mv", DB, f"{DB}.away")
    server.run("systemctl", "start", "memory-prune.service", check=False)
    alarm = ("journalctl", "-p", "err", "-o", "cat", "-u", "memory-alert@*")
    server.wait_until(lambda: "memory-prune.service" in server.run(*alarm, check=False).stdout)
    memops(server, "uninstall")


def test_a_reboot_in_the_middle_of_a_prune(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, [(f"dead{n}", OLD, None, OLD) for n in range(40_000)])
    add_facts(server, [(f"live{n}", None, None, OLD) for n in range(50_000)])
    server.run("systemctl", "start", "--no-block", "memory-prune.service")
    count = "SELECT count(*) FROM memory"
    server.wait_until(lambda: server.sql(DB, count)[0][0] < 90_000)
    server.cut_power()
    server.start()
    left = server.sql(DB, count)[0][0]
    assert 50_000 < left < 90_000
    assert server.sql(DB, "PRAGMA integrity_check") == [["ok"]]
    memops(server, "prune")
    assert server.sql(DB, count) == [[50_000]]
    assert server.show("memory-prune.timer", "ActiveState")["ActiveState"] == "active"
    assert status(server)["problems"] == []


def test_a_backup_disk_that_is_absent_today(memops_server: Server) -> None:
    server = memops_server
    mount = "[Mount]\nWhat=tmpfs\nWhere=/mnt/disk\nType=tmpfs\nOptions=size=30M,mode=700\n"
    server.write("/etc/systemd/system/mnt-disk.mount", mount)
    server.sh("mkdir -p /mnt/disk; systemctl daemon-reload; systemctl start mnt-disk.mount")
    said = memops(server, "install", "--backup-dir", "/mnt/disk/backup").stdout
    assert "same file system" not in said
    server.sh("systemctl stop mnt-disk.mount; rm /etc/systemd/system/mnt-disk.mount; systemctl daemon-reload")
    assert server.run("systemctl", "start", "memory-backup.service", check=False).code != 0
    assert server.run("ls", "-A", "/mnt/disk").stdout == ""
    text = memops(server, "status").stdout
    assert "snapshot failed" in text
    assert "is it mounted?" in text
    add_facts(server, FACTS)
    memops(server, "prune")
    assert ids(server) == {"live"}


def test_a_full_disk(memops_server: Server) -> None:
    server = memops_server
    server.sh("mkdir -p /mnt/disk; mount -t tmpfs -o size=40M,mode=700 tmpfs /mnt/disk")
    memops(server, "install", "--backup-dir", "/mnt/disk/backup")
    before = sets(server, "/mnt/disk/backup/default")
    server.sh("head -c 100M /dev/zero >/mnt/disk/filler || true")
    assert server.run("systemctl", "start", "memory-backup.service", check=False).code != 0
    assert sets(server, "/mnt/disk/backup/default") == before
    assert "room" in memops(server, "status").stdout
    server.run("rm", "/mnt/disk/filler")
    server.run("systemctl", "start", "memory-backup.service")
    assert len(sets(server, "/mnt/disk/backup/default")) == len(before) + 1


def test_a_clock_far_off(memops_server: Server) -> None:
    server = memops_server
    library = server.run("sh", "-c", "ls /usr/lib/*/faketime/libfaketime.so.1").stdout.strip()
    memops(server, "install")
    now = server.run("date", "-u", "+%Y-%m-%d %H:%M:%S").stdout.strip()
    add_facts(server, [("temporary", "2030-01-01 00:00:00", None, now), ("live", None, None, now)])
    drop_in = "/etc/systemd/system/memory-prune.service.d/clock.conf"
    for offset in ("+10y", "-10y"):
        server.run("mkdir", "-p", drop_in.rpartition("/")[0])
        server.write(drop_in, f'[Service]\nEnvironment="LD_PRELOAD={library}" "FAKETIME={offset}"\n')
        server.run("systemctl", "daemon-reload")
        refused = memops(server, "prune", code=6)
        assert "clock" in refused.stderr
        assert ids(server) == {"temporary", "live"}
    server.run("rm", drop_in)
    server.run("systemctl", "daemon-reload")
    memops(server, "prune")
    assert status(server)["problems"] == []


def test_nothing_of_the_host_is_needed_after_install(memops_server: Server) -> None:
    """What is installed belongs to root, and nobody else can write it."""
    server = memops_server
    memops(server, "install")
    places = ("/etc/memops", "/usr/local/lib/memops", "/etc/systemd/system", "/usr/local/share/man")
    found = server.run("find", *places, "-type", "f", "-printf", "%U %m %p\\n").stdout.splitlines()
    assert len(found) > 15
    assert not [line for line in found if not line.startswith("0 ") or int(line.split()[1], 8) & 0o22]
