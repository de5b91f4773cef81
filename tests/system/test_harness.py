"""The throwaway servers themselves: what every other test in this ring stands on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from system import images, sandbox
from system.server import CommandError, Server, copy_checkout

VERSIONS = {"debian12": ("12", "3.11", "252"), "debian13": ("13", "3.13", "257")}


def test_a_fresh_server_is_a_small_debian(server: Server) -> None:
    debian, python, systemd = VERSIONS[server.suite]
    assert f'VERSION_ID="{debian}"' in server.read("/etc/os-release")
    assert server.run("/usr/bin/python3", "-V").stdout.startswith(f"Python {python}.")
    assert server.run("systemctl", "--version").stdout.startswith(f"systemd {systemd} ")
    assert server.run("stat", "-fc", "%T", "/sys/fs/cgroup").stdout == "cgroup2fs\n"
    assert server.sh("command -v sqlite3 memops || true").stdout == ""
    assert server.run("/usr/bin/python3", "-c", "import ensurepip", check=False).code == 1
    assert server.run("hostname").stdout.strip() == server.suite


def test_commands(server: Server) -> None:
    assert server.run("cat", input="ü\n").stdout == "ü\n"
    assert server.run("cat").stdout == ""
    result = server.sh("echo out; echo err >&2; exit 7", check=False)
    assert (result.stdout, result.stderr, result.code) == ("out\n", "err\n", 7)
    with pytest.raises(CommandError, match="ended with 7"):
        server.sh("exit 7")
    with pytest.raises(subprocess.TimeoutExpired):
        server.run("sleep", "60", timeout=0.2)
    assert "HERE" not in server.run("env").stdout
    assert "HERE=1\n" in server.run("env", env={"HERE": "1"}).stdout


def test_users(server: Server) -> None:
    server.sh("useradd --system --create-home agent")
    assert server.sh('id -un; id -Gn; echo "$HOME"', user="agent").stdout == "agent\nagent\n/home/agent\n"
    assert server.sh("id -u; id -G", user="4321").stdout == "4321\n4321\n"
    with pytest.raises(CommandError):
        server.run("id", user="nobody-of-that-name")
    assert server.run("sudo", "-n", "-u", "agent", "id", "-un").stdout == "agent\n"


def test_a_terminal(server: Server) -> None:
    assert server.run("tty", check=False).code == 1
    server.sh("useradd --system agent")
    script = 'test -t 0 && test -t 1; printf "Sure? "; read answer; echo "said $answer"; exit 3'
    result = server.sh(script, tty=True, input="yes\n", user="agent", check=False)
    assert "Sure? " in result.stdout
    assert "said yes\n" in result.stdout
    assert result.code == 3


def test_files(server: Server, tmp_path: Path) -> None:
    server.write("/etc/a b", "text\n", mode=0o640, owner="root:daemon")
    assert server.read("/etc/a b") == "text\n"
    assert server.run("stat", "-c", "%a %U %G", "/etc/a b").stdout == "640 root daemon\n"
    server.run("ln", "-s", "nowhere", "/etc/dangling")
    assert server.exists("/etc/dangling")
    assert not server.exists("/etc/nowhere")
    (tmp_path / "directory").mkdir()
    program = tmp_path / "directory" / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    server.copy_in(tmp_path, "/opt/copied")
    server.copy_in(program, "/opt/new/program")
    assert server.run("/opt/copied/directory/program").stdout == "ran\n"
    assert server.run("/opt/new/program").stdout == "ran\n"


def test_a_store(server: Server) -> None:
    server.sh("useradd --system --create-home agent")
    db = "/home/agent/a.db"
    server.sql(db, "PRAGMA journal_mode = WAL; CREATE TABLE t (x, y);", script=True)
    server.sql(db, "INSERT INTO t VALUES (?, ?)", many=[[1, "a"], [2, None]])
    assert server.sql(db, "SELECT * FROM t") == [[1, "a"], [2, None]]
    assert server.run("stat", "-c", "%U", db).stdout == "agent\n"


def test_units_and_their_journal(server: Server) -> None:
    server.write(
        "/etc/systemd/system/say.service", "[Service]\nType=oneshot\nExecStart=/bin/echo hello\nProtectSystem=strict\n"
    )
    server.run("systemctl", "daemon-reload")
    server.run("systemctl", "start", "say.service")
    assert server.show("say.service", "Result", "ExecMainStatus") == {"Result": "success", "ExecMainStatus": "0"}
    assert server.wait_until(lambda: "hello\n" in server.journal("say.service"))
    with pytest.raises(AssertionError, match="still not so"):
        server.wait_until(lambda: False, timeout=0.1)
    assert "say.service" in server.report()


@pytest.mark.parametrize("way", ["reboot", "stop", "cut_power"])
def test_the_disk_outlives_the_boot(server: Server, way: str) -> None:
    server.write("/etc/kept", "kept\n")
    server.sh("echo 1 >/run/lost; systemd-run --quiet --unit=said --wait echo before; journalctl --sync")
    machine = server.read("/etc/machine-id")
    first_start = server.read("/proc/1/stat").split()[21]
    getattr(server, way)()
    if way != "reboot":
        assert server not in Server.running
        server.start()
    assert server.read("/proc/1/stat").split()[21] != first_start
    assert server.read("/etc/machine-id") == machine
    assert server.read("/etc/kept") == "kept\n"
    assert not server.exists("/run/lost")
    assert "before\n" in server.journal("said.service")


def test_servers_do_not_meet() -> None:
    with Server("debian12") as one, Server("debian12") as other:
        for server in (one, other):
            server.run("systemd-run", "--quiet", "--unit=same", "sleep", "infinity")
        assert other.read("/etc/machine-id") != one.read("/etc/machine-id")
        main = [int(server.show("same", "MainPID")["MainPID"]) for server in (one, other)]
        listed = [
            server.read("/sys/fs/cgroup/system.slice/same.service/cgroup.procs").split() for server in (one, other)
        ]
        assert listed == [[str(pid)] for pid in main]
        one.run("systemctl", "kill", "--signal=KILL", "same")
        one.wait_until(lambda: one.show("same", "ActiveState")["ActiveState"] == "failed")
        assert other.show("same", "ActiveState")["ActiveState"] == "active"


def test_nothing_on_a_server_changes_this_machine(server: Server) -> None:
    before = time.time()
    assert server.run("date", "--set=2001-01-01", check=False).code == 1
    assert abs(time.time() - before) < 60


UNPROTECTED = ("systemd-run", "--quiet", "--wait", "--property=ProtectSystem=strict", "touch", "/usr/written")


def test_a_server_with_namespaces(server: Server) -> None:
    assert server.run(*UNPROTECTED, check=False).code == 1


def test_a_server_without_namespaces(suite: str) -> None:
    with Server(suite, nspawn=["--system-call-filter=~unshare mount_setattr open_tree move_mount"]) as server:
        server.run(*UNPROTECTED)
        assert server.exists("/usr/written")


def test_packages_can_be_downloaded(server: Server) -> None:
    server.run("apt-get", "update", timeout=300)
    assert "Candidate: (none)" not in server.run("apt-cache", "policy", "sqlite3").stdout


KILLED = """
import sys, time
from system.server import Server
server = Server("debian12")
server.start()
server.run("systemd-run", "--quiet", "sleep", "infinity")
print(server._sandbox.name, flush=True)
time.sleep(600)
"""


def processes_in(name: str) -> list[int]:
    found = []
    for cgroup in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            if f"/{name}/" in cgroup.read_text():
                found.append(int(cgroup.parent.name))
    return found


def test_nothing_stays_of_a_run_that_was_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        name = run.stdout.readline().strip()
        path = sandbox.cache() / "run" / name
        assert len(processes_in(name)) > 3
        sandbox.clean_up()
        assert path.exists(), "a run that is alive keeps its servers"
        run.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while (left := processes_in(name)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert name not in Path("/proc/self/mountinfo").read_text()
    sandbox.clean_up()
    assert not path.exists()
    assert [hierarchy for hierarchy in sandbox.hierarchies() if (hierarchy / name).exists()] == []


FAILS = """
def test_fails(server):
    server.run("systemd-cat", "echo", "said in the journal")
    server.run("journalctl", "--sync")
    assert False
"""


def test_a_failure_shows_the_journal(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from system.conftest import *\n")
    (tmp_path / "test_inner.py").write_text(FAILS)
    output = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path, "-k", "debian12"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        timeout=300,
    ).stdout
    assert "journal of debian12" in output
    assert "said in the journal" in output


def test_the_checkout_on_a_server(server: Server) -> None:
    copy_checkout(server)
    assert server.read("/root/memops/pyproject.toml") == (images.ROOT / "pyproject.toml").read_text()
    assert server.run("stat", "-c", "%U %a", "/root/memops/scripts/install").stdout == "root 755\n"


def test_the_command_from_the_checkout(installed_command: Server) -> None:
    assert installed_command.run("memops", "--version").stdout
    assert not installed_command.exists("/etc/memops")


def test_the_command_from_the_layer(memops_server: Server) -> None:
    assert memops_server.run("memops", "--version").stdout
    assert not memops_server.exists("/etc/memops")
    assert not memops_server.exists("/source")
