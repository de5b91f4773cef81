"""Trying from inside each unit: ``attempts.py`` takes the place of its program, and nothing else of it changes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import profiles
from system.machine import DB, memops, settle

if TYPE_CHECKING:
    from system.server import Server

PROBE = "/usr/local/lib/attempts.py"
OUT = "/var/attempts"
UNITS = "/etc/systemd/system"

LAID_OUT = """
set -e
useradd --create-home agent; useradd --create-home other; useradd second
chmod 755 /home/other /root; echo x >/home/other/secret; echo x >/root/secret; echo x >/tmp/secret
echo x >/etc/memops-attempt; mkdir -p /etc/memops; (umask 077; echo x >/etc/memops/key)
install -d -m 1777 /srv/open /var/open /etc/open /usr/local/open
install -m 4755 /usr/bin/id /usr/local/bin/attempt-id
mknod -m 666 /dev/attempt c 1 3
mkdir -p /var/attempts; chmod 777 /var/attempts
install -d -o agent -m 755 /srv/notes; echo x >/srv/notes/a.md
chown agent /srv/notes/a.md; install -d -o agent -m 700 /srv/agent; install -d -o second -m 700 /srv/second
printf '#!/bin/sh\\n' >/usr/sbin/sendmail; printf '#!/bin/sh\\n' >/usr/bin/restic
chmod 755 /usr/sbin/sendmail /usr/bin/restic
mkdir -p /var/lib/exporter /mnt/copies
printf 'RESTIC_PASSWORD=x\\n' >/etc/offsite.env; chmod 600 /etc/offsite.env
"""

LISTENERS = f"""
import ctypes, os, socket, time
libc = ctypes.CDLL(None)
assert libc.shmget({0x6D656D}, 4096, 0o1000 | 0o666) >= 0
kept = []
for family, address in ((2, ("127.0.0.1", 47811)), (1, "/run/open.sock"), (1, "\\0attempt")):
    each = socket.socket(family)
    each.bind(address)
    each.listen(50)
    kept.append(each)
with open("/etc/open/pid", "w") as file:
    file.write(str(os.getpid()))
os.chmod("/run/open.sock", 0o666)
os.setuid({{uid}})
time.sleep(3600)
"""

# Runs memops itself, with the probe as the program of each unit that it starts.
RUNNER = f"""
import pathlib, sys
from memops import main, owner
real = owner.transient_words
def words(properties, command, timeout, unit=""):
    if "/usr/bin/python3" not in command:
        return real(properties, command, timeout, unit)
    at = max(n for n, word in enumerate(command) if word == "/usr/bin/python3")
    name = pathlib.Path(command[at + 2]).name
    if name == "-c":
        name = "notes.py" if "notes" in sys.argv else "shape.py"
    if target not in (name, " ".join((name, *command[at + 3:at + 4]))):
        return real(properties, command, timeout, unit)
    given = (*properties, f"StandardOutput=append:{OUT}/command")
    probe = (*command[:at], "/usr/bin/python3", "-I", "{PROBE}", target)
    return tuple(word for word in real(given, probe, timeout, unit) if word != "--pipe")
owner.transient_words = words
target = sys.argv.pop(1)
sys.argv[0] = "memops"
sys.exit(main.main())
"""


REMOTE = """
from dataclasses import replace
from memops import render, settings
store = replace(settings.load()["default"], parts=("qdrant=http://127.0.0.1:6333",))
print(render.template("memory-remote.service.j2", store=store, lib=settings.LIBRARY))
"""


def python(server: Server) -> str:
    """The Python that the command runs with."""
    return server.sh("head -n 1 /usr/local/bin/memops").stdout.strip().removeprefix("#!")


def lay_out(server: Server) -> None:
    server.copy_in(Path(__file__).with_name("attempts.py"), PROBE)
    server.sh(LAID_OUT)
    uid = server.run("id", "-u", "other").stdout.strip()
    server.write("/usr/local/lib/listeners.py", LISTENERS.format(uid=uid))
    server.run("systemd-run", "--unit=listeners", "/usr/bin/python3", "/usr/local/lib/listeners.py")
    server.write("/etc/systemd/system/agent.service", "[Service]\nUser=agent\nExecStart=/bin/sleep infinity\n")
    server.run("systemctl", "daemon-reload")
    server.run("systemctl", "start", "agent.service")
    server.wait_until(lambda: server.exists("/run/open.sock"))


def install(server: Server) -> None:
    memops(server, "install", "--user", "agent", "--agent-unit", "agent.service", "--mail-to", "root",
           "--ping-url", "http://127.0.0.1:9/{job}", "--textfile", "/var/lib/exporter/memops.prom",
           "--offsite", "restic=/mnt/copies", "--offsite-env", "/etc/offsite.env")  # fmt: skip
    memops(server, "install", "--name", "second", "--user", "second", "--db", "/srv/second/memory.db")
    server.sql(DB, "INSERT INTO memory (id, subject, fact, source) VALUES ('a', 's', 'a zebra crossing', 'chat')")
    # A job that only stores with a part on a server have; there is no need of such a server.
    server.sh(f"{python(server)} -c '{REMOTE}' >{UNITS}/memory-remote.service")
    memops(server, "backup")
    settle(server)


def units(server: Server) -> list[str]:
    shown = server.sh("cd /etc/systemd/system && ls memory-*.service").stdout.split()
    return [name for name in shown if "second" not in name]


def probe_units(server: Server) -> dict[str, set[str]]:
    names = units(server)
    for name in names:
        # What takes a step before the program goes on doing so.
        line = next(line for line in server.read(f"{UNITS}/{name}").splitlines() if line.startswith("ExecStart="))
        before = line.removeprefix("ExecStart=").partition("/usr/bin/python3")[0]
        drop_in = (
            "[Unit]\nRequires=\nWants=\nOnFailure=\nOnSuccess=\n"
            f"[Service]\nExecStart=\nExecStop=\nRemainAfterExit=no\nStandardOutput=append:{OUT}/{name}\n"
            f"ExecStart={before}/usr/bin/python3 -I {PROBE} {name}\n"
        )
        server.sh(f"mkdir -p '{UNITS}/{name}.d'")
        server.write(f"{UNITS}/{name}.d/zz-attempt.conf", drop_in)
    server.run("systemctl", "daemon-reload")
    started = [name.replace("@.", "@attempt.") for name in names]
    server.run("systemctl", "start", *started, timeout=300)
    return results(server)


def results(server: Server) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in server.sh(f"cat {OUT}/*").stdout.splitlines():
        each = json.loads(line)
        found[each["unit"]] = found.get(each["unit"], set()) | set(each["found"])
    return found


def probe_commands(server: Server) -> dict[str, set[str]]:
    """The transient units of root's commands; what they answer is nonsense, so the commands fail."""
    server.write("/root/runner.py", RUNNER)
    for target, words in COMMANDS.items():
        server.run(python(server), "/root/runner.py", target, *words, check=False, timeout=120)
    return results(server)


COMMANDS: dict[str, tuple[str, ...]] = {
    "shape.py": ("install", "--dry-run"),
    "desk.py": ("list", "--name", "default"),
    "scan.py": ("scan", "--name", "default"),
    "erase.py": ("forget", "--name", "default", "--erase", "--matching", "zebra crossing", "--dry-run"),
    "erase_sets.py": ("forget", "--name", "default", "--erase", "--matching", "zebra crossing", "--dry-run"),
    "notes.py": ("notes", "/srv/notes"),
    "setdir.py list": ("sets",),
    "setdir.py verify": ("sets", "verify", "latest"),
    "comparison.py list": ("restore", "--name", "default", "latest", "--dry-run"),
    "comparison.py compare": ("restore", "--name", "default", "latest", "--dry-run"),
    "setcopy.py send": ("restore", "--name", "default", "latest", "--yes"),
    "restore.py prepare": ("restore", "--name", "default", "latest", "--yes"),
    "restore.py settle": ("restore", "--name", "default", "latest", "--yes"),
}


def tried(server: Server) -> dict[str, set[str]]:
    lay_out(server)
    install(server)
    found = probe_units(server)
    server.sh("rm /var/attempts/*")
    return found | probe_commands(server)


def compare(found: dict[str, set[str]], table: dict[str, set[str]]) -> None:
    """Raise AssertionError with all that is not as the table has it."""
    wrong = []
    for name in sorted(found.keys() | table.keys()):
        there, wanted = found.get(name), table.get(name)
        if there != wanted:
            more, less = (
                sorted(each or ())
                for each in ((there or set()) - (wanted or set()), (wanted or set()) - (there or set()))
            )
            wrong.append(f"{name}: can {more}, cannot {less}, was tried: {there is not None}")
    assert not wrong, "\n".join(wrong)


def without_each(server: Server, unit: str) -> dict[str, set[str]]:
    """Setting → what comes through in that unit without it, beyond what always does."""
    lines = server.read(f"{UNITS}/{unit}").replace("\\\n", " ").splitlines()
    lines = [line for line in lines if not line.startswith(("Requires=", "Wants=", "OnFailure=", "OnSuccess="))]
    for setting in ("-", *profiles.DENIES[unit]):
        probe = f"ExecStart=/usr/bin/python3 -I {PROBE} {setting}\nStandardOutput=append:{OUT}/without"
        text = "\n".join(line for line in lines if not line.startswith(f"{setting}="))
        server.write(f"{UNITS}/without-{setting}.service", re.sub(r"(?m)^ExecStart=.*$", probe, text))
    server.sh(f"rm -f {OUT}/*; systemctl daemon-reload; cd {UNITS} && systemctl start without-*.service", timeout=300)
    found = results(server)
    always = found.pop("-")
    return {setting: through - always for setting, through in found.items()}
