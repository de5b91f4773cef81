"""memops check and the figures for Prometheus, on real servers."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from prometheus_text import parse
from system.machine import add_facts, listing, memops, status

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form

SETS = "/var/lib/memops/default.sets.json"
EXPORTER = "/var/lib/prometheus/node-exporter"
PROM = f"{EXPORTER}/memops.prom"


def check(server: Server, code: int, *arguments: str, user: str | None = "nobody") -> str:
    """The one line of ``memops check``, run without any right."""
    ran = memops(server, "check", *arguments, code=code, user=user)
    assert ran.stdout.count("\n") == 1, ran.stdout
    assert ran.stdout.startswith(f"MEMOPS {('OK', 'WARNING', 'CRITICAL', 'UNKNOWN')[code]} - ")
    return ran.stdout


def sealed_ago(server: Server, hours: float) -> None:
    """Let the newest set be this old: the clock of a server cannot be moved."""
    record = json.loads(server.read(SETS))
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - hours * 3600))
    record["newest"]["sealed_at"] = record["seal"]["end"] = at
    server.write(SETS, json.dumps(record))


def test_from_before_the_installation_to_after_its_end(memops_server: Server) -> None:
    server = memops_server
    assert "looks after no store" in check(server, 3)
    server.run("timedatectl", "set-timezone", "America/New_York", check=False)
    memops(server, "install")
    line = check(server, 0)
    assert "default ok: newest set" in line
    assert "rows=" not in line  # the run records are the store's user's
    assert "rows=0;;;0" in check(server, 0, user="agent")
    assert "rows=0;;;0" in check(server, 0, "--name", "default", user=None)

    for arguments in (["--bogus"], ["extra"], ["--name"], ["--name", "nosuch"], ["--prometheus", "/root/x"]):
        check(server, 3, *arguments)
    assert memops(server, "check", "--help").stdout.count("Examples")
    memops(server, "status", "--bogus", code=2)

    # Ages, by the calendar of the timer.
    for hours, code in ((20, 0), (30, 1), (47, 1), (49, 2), (-2, 1)):
        sealed_ago(server, hours)
        assert "newest verified backup" in check(server, code) or code == 0
    assert status(server)["problems"][0]["what"].startswith("backup carries a time")
    memops(server, "install", "--backup-at", "Sun 03:00")
    sealed_ago(server, 6 * 24)
    check(server, 0)
    sealed_ago(server, 15 * 24)
    check(server, 2)
    server.write(SETS, "{")
    assert "cannot read" in check(server, 3)
    server.run("systemctl", "start", "memory-backup.service")
    check(server, 0)
    server.run("chmod", "600", SETS)
    assert "cannot read" in check(server, 3)
    server.run("chmod", "644", SETS)

    # Units that somebody touched.
    server.run("systemctl", "disable", "--now", "memory-prune.timer")
    assert "memory-prune.timer is disabled" in check(server, 1)
    server.run("systemctl", "enable", "--now", "memory-prune.timer")
    server.sh("echo '# mine' >>/etc/systemd/system/memory-prune.service")
    assert "changed on disk" in check(server, 1)
    server.run("systemctl", "daemon-reload")
    check(server, 0)

    # A backup that fails, and what is remembered of it.
    server.run("mv", "/srv/agent/memory.db", "/srv/agent/away.db")
    server.run("systemctl", "start", "memory-backup.service", check=False)
    assert "snapshot failed" in check(server, 2)
    server.run("mv", "/srv/agent/away.db", "/srv/agent/memory.db")
    server.run("systemctl", "start", "memory-backup.service")
    check(server, 0)

    # A sealing that fails is known to everybody after a reboot too.
    server.run("chmod", "777", "/srv/backup/default")
    server.run("systemctl", "start", "memory-backup.service", check=False)
    assert "others may write" in check(server, 2)
    server.reboot()
    assert "others may write" in check(server, 2)
    server.run("chmod", "700", "/srv/backup/default")
    server.run("systemctl", "start", "memory-backup.service")
    line = check(server, 0)
    assert "prune started" in line  # the run is forgotten, the stamp of its timer is not
    assert "prune done" in check(server, 0, user=None)

    # Where systemd does not answer nobody can look.
    server.run("systemctl", "stop", "dbus.socket", "dbus.service", check=False)
    server.run("mv", "/run/dbus/system_bus_socket", "/run/dbus/away")
    assert "systemctl" in check(server, 3)
    server.run("mv", "/run/dbus/away", "/run/dbus/system_bus_socket")
    server.run("systemctl", "start", "dbus.socket", "dbus.service", check=False)

    memops(server, "uninstall")
    check(server, 3)


def test_a_timer_that_starts_nothing_is_seen(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    server.sh("mkdir /etc/systemd/system/memory-prune.service.d /etc/systemd/system/memory-prune.timer.d")
    server.write(
        "/etc/systemd/system/memory-prune.service.d/x.conf",
        "[Unit]\nRequires=broken.service\nAfter=broken.service\n",
    )
    server.write("/etc/systemd/system/broken.service", "[Service]\nType=oneshot\nExecStart=/bin/false\n")
    server.write(
        "/etc/systemd/system/memory-prune.timer.d/x.conf",
        "[Timer]\nOnCalendar=\nOnCalendar=2099-01-01\nOnActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=1s\n",
    )
    server.run("systemctl", "daemon-reload")
    time.sleep(3)  # times are told in seconds, and the prune of the installation has just ended
    server.run("systemctl", "restart", "memory-prune.timer")
    server.wait_until(
        lambda: server.show("memory-prune.timer", "LastTriggerUSecMonotonic")["LastTriggerUSecMonotonic"] != "0"
    )
    server.wait_until(lambda: "did not run it" in server.run("memops", "check", check=False).stdout, timeout=90)
    assert server.show("memory-prune.service", "ActiveState")["ActiveState"] == "inactive"
    assert "prune failed: its timer elapsed" in check(server, 2)


def test_drills_and_what_they_find(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    assert "drill not due yet" in check(server, 0)
    server.run("systemctl", "start", "memory-drill.service")
    assert "drill done" in check(server, 0)
    assert "drill        done" in memops(server, "status", user="nobody").stdout
    found = status(server)
    good = next(job for job in found["jobs"] if job["job"] == "drill")["good"]
    assert good is not None
    assert [job["job"] for job in found["jobs"]] == ["snapshot", "backup", "prune", "digest", "drill", "review"]

    # One byte of the newest set is another one: the drill fails, and the set is named, to everybody and after a reboot.
    database = f"/srv/backup/default/{found['newest_set']['set']}/memory.db"
    server.sh(f"printf x | dd of={database} bs=1 seek=5000 conv=notrunc status=none")
    server.run("systemctl", "start", "memory-drill.service", check=False)
    for _ in range(2):
        line = check(server, 2)
        assert "drill failed: set " in line
        assert f"the backup {found['newest_set']['set']} did not pass its verification" in line
        server.reboot()
    found = status(server)
    assert next(job for job in found["jobs"] if job["job"] == "drill")["good"] == good
    assert [failed["set"] for failed in found["failed_sets"]] == [found["newest_set"]["set"]]
    server.run("rm", "-r", database.rpartition("/")[0])
    server.run("systemctl", "start", "memory-backup.service")
    server.run("systemctl", "start", "memory-drill.service")
    assert "drill done" in check(server, 0)

    # A restore that was cut off, and a unit that only some stores have.
    server.write("/var/lib/memops/default.restore.json", "{}")
    assert "a restore has not come to its end" in check(server, 2)
    assert "sudo memops restore --undo" in memops(server, "status", user="nobody").stdout
    server.run("rm", "/var/lib/memops/default.restore.json")
    server.write("/etc/systemd/system/memory-offsite.service", "[Service]\nType=oneshot\nExecStart=/bin/false\n")
    server.run("systemctl", "daemon-reload")
    check(server, 0)
    server.run("systemctl", "start", "memory-offsite.service", check=False)
    assert "offsite failed: it ended with exit code 1" in check(server, 1)


def test_several_stores_are_one_line(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    memops(server, "install", "--name", "work", "--db", "/srv/work/memory.db")
    line = check(server, 0)
    assert "default ok" in line
    assert "work_set_age=" in line
    server.run("systemctl", "disable", "--now", "memory-backup-work.timer")
    line = check(server, 1)
    assert line.startswith("MEMOPS WARNING - work warning: memory-backup-work.timer is disabled")
    assert check(server, 0, "--name", "default").startswith("MEMOPS OK - default ok")


def test_the_figures_are_written_by_a_timer_and_go_with_it(memops_server: Server) -> None:
    server = memops_server
    assert "no directory" in memops(server, "install", "--textfile", PROM, code=3).stderr
    server.run("useradd", "--system", "prometheus")
    server.run("install", "-d", "-o", "prometheus", EXPORTER)
    before = listing(server)
    for path, code in (("/root/x.txt", 2), ("relative.txt", 2), (f"{EXPORTER}/a'b.prom", 2), ("/srv/agent/x.prom", 3)):
        memops(server, "install", "--textfile", path, code=code)
    server.write(PROM, "somebody_elses 1\n")
    assert "memops did not write it" in memops(server, "install", "--textfile", PROM, code=3).stderr
    server.run("rm", PROM)
    memops(server, "install")
    units = server.run("systemctl", "list-unit-files", "memory-*").stdout
    assert "metrics" not in units
    memops(server, "install", "--textfile", PROM)
    assert "Nothing to do" in memops(server, "install").stdout
    assert server.show("memory-metrics.timer", "ActiveState", "UnitFileState") == {
        "ActiveState": "active",
        "UnitFileState": "enabled",
    }

    # The unit needs nothing of the command's own Python.
    server.run("mv", "/opt/memops", "/opt/away")
    server.run("rm", PROM)
    add_facts(server, [("live", None, None, "2020-01-01 00:00:00"), ("odd", "soon", None, "2020-01-01 00:00:00")])
    server.run("systemctl", "start", "memory-prune.service")
    server.run("systemctl", "start", "memory-metrics.service")
    server.run("mv", "/opt/away", "/opt/memops")
    assert server.run("stat", "-c", "%a %U", PROM).stdout == "644 root\n"
    assert server.run("ls", "-A", EXPORTER).stdout == "memops.prom\n"
    figures = parse(server.read(PROM))
    assert figures["memops_status"] == {'store="default"': 0}
    assert figures["memops_rows"]['store="default",state="all"'] == 2
    assert figures["memops_rows"]['store="default",state="doubtful"'] == 1
    exposure = server.run("systemd-analyze", "security", "--no-pager", "memory-metrics.service").stdout
    assert float(exposure.rsplit(": ", 1)[1].split()[0]) <= 0.9

    # The agent writes its own records; the job that reads them as root follows no link and repeats no text.
    server.run("ln", "-sf", "/etc/shadow", "/var/lib/memops/default/runs.jsonl", user="agent")
    server.run("systemctl", "start", "memory-metrics.service")
    assert "memops_rows" not in parse(server.read(PROM))
    server.run("rm", "/var/lib/memops/default/runs.jsonl")

    # Another store in the same file, and out of it again.
    memops(server, "install", "--name", "work", "--db", "/srv/work/memory.db", "--textfile", PROM)
    assert parse(server.read(PROM))["memops_status"] == {'store="default"': 0, 'store="work"': 0}
    memops(server, "uninstall", "--name", "work")
    server.run("systemctl", "start", "memory-metrics.service")
    assert parse(server.read(PROM))["memops_status"] == {'store="default"': 0}

    # Elsewhere, nowhere, and gone with the bundle.
    memops(server, "install", "--textfile", f"{EXPORTER}/other.prom")
    assert server.run("ls", "-A", EXPORTER).stdout == "other.prom\n"
    memops(server, "install", "--textfile", "")
    assert server.run("ls", "-A", EXPORTER).stdout == ""
    assert "metrics" not in server.run("systemctl", "list-unit-files", "memory-*").stdout
    assert "Nothing to do" in memops(server, "install").stdout
    memops(server, "install", "--textfile", PROM)
    memops(server, "uninstall")
    left = {path for path, line in listing(server).items() if before.get(path) != line}
    assert not [path for path in left if "metrics" in path or ".prom" in path]
    assert server.run("ls", "-A", EXPORTER).stdout == ""
    assert not server.run("systemctl", "list-units", "--all", "--no-legend", "memory-*").stdout.strip()


def test_figures_on_demand(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    line = check(server, 0, "--prometheus", "/root/memops.prom", user=None)
    assert "rows=0" in line
    assert server.run("stat", "-c", "%a", "/root/memops.prom").stdout == "644\n"
    assert parse(server.read("/root/memops.prom"))["memops_up"] == {"": 1}
    assert "cannot be written" in check(server, 3, "--prometheus", "/root/memops.prom")
    assert "does not end in .prom" in check(server, 3, "--prometheus", "/root/memops.txt")
    # Read by all who may read the file, whoever wrote it; the rows are left out.
    check(server, 0, "--prometheus", "/var/tmp/memops.prom")  # noqa: S108
    assert "memops_rows" not in parse(server.read("/var/tmp/memops.prom"))  # noqa: S108
    # A link is replaced, not followed.
    server.sh("echo precious >/root/precious; ln -sf /root/precious /root/memops.prom")
    check(server, 0, "--prometheus", "/root/memops.prom", user=None)
    assert server.read("/root/precious") == "precious\n"
