"""A server on which attempts.py runs in place of every job, inside the very units that are installed."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memops import render, settings
from system.machine import add_facts, memops

if TYPE_CHECKING:
    from memops.settings import Store
    from system.server import Server
    from walls import Wall

HERE: Final = "/usr/local/lib/attempts"
OUT: Final = "/run/attempts"
UNITS: Final = "/run/systemd/system"
PROBE: Final = ("/usr/bin/python3", "-I", f"{HERE}/attempts.py")

# Everything that is others', open to everybody where only a unit's own walls should be in the way.
_PREPARE: Final = r"""
useradd --create-home ada
echo secret | tee /home/ada/secret /root/secret /tmp/.marked >/dev/null
chmod 755 /home/ada; chmod 644 /home/ada/secret
for place in /etc/open /usr/local/open /var/lib/open /srv/open /home/open /run/open; do mkdir -m 1777 $place; done
mkdir -p /usr/lib/modules/marked /srv/notes /srv/figures; echo x >/usr/lib/modules/marked/file
mkdir -m 755 /srv/private; echo secret >/srv/private/secret
chmod 600 /srv/private/secret; chown ada: /srv/private/secret
mkdir /var/lib/private-of-ada; cp -a /srv/private/secret /var/lib/private-of-ada/
touch /dev/shm/.marked
cp /usr/bin/id /usr/local/bin/attempts-id
chown games: /usr/local/bin/attempts-id; chmod 6755 /usr/local/bin/attempts-id
"""
_MARK: Final = r"""
mkdir -p /run/attempts /srv/agent/notes
echo note >/srv/agent/notes/one.md
chown -R agent: /srv/agent/notes
for place in /etc/open /usr/local/open /var/lib/open /srv/open /home/open /run/open /srv/agent /srv/figures \
    /var/lib/memops /var/lib/memops/default /var/lib/memops/other /srv/backup/default /srv/backup/other \
    /srv/backup/incoming/default; do
    touch $place/.marked; done
chmod 711 /srv/figures
"""
# Processes of three users, one that listens, and memory that all may use; their numbers are printed.
_CANARIES: Final = r"""
import ctypes, json, os, pwd, socket, sys, time
def start(user):
    pid = os.fork()
    if not pid:
        os.setsid()
        for number in range(3):
            os.dup2(os.open("/dev/null", os.O_RDWR), number)
        if user:
            entry = pwd.getpwnam(user)
            os.setgroups([]); os.setresgid(*[entry.pw_gid] * 3); os.setresuid(*[entry.pw_uid] * 3)
            os.execv("/usr/bin/sleep", ["sleep", "infinity"])
        time.sleep(100000)
    return pid
listening = socket.socket(); listening.bind(("127.0.0.1", 0)); listening.listen(1000)
os.set_inheritable(listening.fileno(), True)
ctypes.CDLL(None).shmget(0x6D656D, 4096, 0o1666)
print(json.dumps({
    "listening": listening.getsockname(), "shm_key": 0x6D656D,
    "process_root": start(None), "process_agent": start("agent"), "process_other": start("ada"),
    "namespaces": {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "user", "ipc")},
}))
"""


def prepare(server: Server) -> Store:
    """Install two stores of two users with all that can be asked for, and what stands for everybody else's."""
    server.sh(_PREPARE)
    options = ("--textfile", "/srv/figures/memops.prom", "--ping-url", "http://127.0.0.1:9/x", "--mail-to", "root")
    memops(server, "install", *options)
    memops(server, "install", "--name", "other", "--db", "/srv/other/memory.db", "--user", "ada")
    add_facts(server, [("a", None, None, "2020-01-01 00:00:00")])
    memops(server, "backup")
    server.sh(_MARK)
    installed = settings.parse(server.read(str(settings.SETTINGS_FILE)))
    store = dataclasses.replace(
        installed["default"],
        parts=("files=/srv/agent/notes/", "files=/srv/notes/", "qdrant=http://127.0.0.1:9"),
        notes=("/srv/agent/notes",),
        agent_unit="agent.service",
        offsite="rclone=box:x",
        offsite_env="/etc/memops-offsite.env",
    )
    strict = store.strict
    places: dict[str, Any] = {
        "home": "/home/ada/secret",
        "root": "/root/secret",
        "key": store.ping_file,
        "offsite_key": store.offsite_env,
        "private": "/srv/private/secret",
        "private_var": "/var/lib/private-of-ada/secret",
        "other_store": "/srv/other/memory.db",
        "other_sets": "/srv/backup/other",
        "other_records": "/var/lib/memops/other",
        "other_state": "/var/lib/memops/other",
        "real_store": store.db if strict else "/nowhere",
        "real_sets": store.sets if strict else "/nowhere",
        "store": store.seen_db,
        "store_directory": str(Path(store.seen_db).parent),
        "state": store.state,
        "sets": store.seen_sets,
        "incoming": store.seen_incoming,
        "sql": f"/etc/memops/{store.name}/prune.sql",
        "part": "/run/memops/parts/notes" if strict else "/srv/agent/notes",
        "notes": "/run/memops/notes/0" if strict else "/srv/agent/notes",
        "figures": "/run/memops/textfile1" if strict else "/srv/figures",
        "setuid": "/usr/local/bin/attempts-id",
        "setuid_is": server.run("id", "-u", "games").stdout.strip(),
        "tunable": "/proc/sys/kernel/domainname",
        **json.loads(server.run("python3", "-Ic", _CANARIES).stdout),
    }
    server.copy_in(Path(__file__).parent / "attempts.py", f"{HERE}/attempts.py")
    server.write(f"{HERE}/attempts.json", json.dumps(places))
    # What needs a server of its own, a program or an agent to be installed is written as the install writes it.
    for name, file in render.all_files({**installed, "default": store}, {}).items():
        if name.startswith(render.UNIT_DIRECTORY):
            server.write(name, file.text)
    server.write(store.offsite_env, "KEY=secret\n", mode=0o600)
    return store


def units(store: Store) -> dict[str, str]:
    """Every unit that can be started, by the job's word."""
    return {
        **{name.removeprefix("memory-").removesuffix(".service"): name for name in store.services},
        "alert": "memory-alert@x.service.service",
        "mail": "memory-mail@x.service.service",
        "ping": f"{store.ping_unit}backup:start.service",
        "metrics": "memory-metrics.service",
    }


def run(server: Server, chosen: dict[str, str], more: dict[str, str] | None = None) -> dict[str, dict[str, str]]:
    """What the attempts in these units came to: the word → attempt → why not, nothing where it could.

    more: further lines of the drop-in, by word.
    """
    script = []
    for word, unit in chosen.items():
        lines = (more or {}).get(word, "")
        text = f"[Service]\nExecStart=\nExecStop=\nRemainAfterExit=no\nExecStart={' '.join(PROBE)}\n{lines}"
        text += f"StandardOutput=file:{OUT}/{word}\n"
        script.append(f"mkdir -p {UNITS}/{unit}.d; rm -f {OUT}/{word}")
        script.append(f"cat >{UNITS}/{unit}.d/attempts.conf <<'END'\n{text}END")
    script.append("systemctl daemon-reload")
    server.sh("\n".join(script))
    ran = server.run("systemctl", "start", "--job-mode=ignore-dependencies", *chosen.values(), check=False, timeout=300)
    assert ran.code == 0, ran.stderr + server.report()
    read = server.sh(f"cd {OUT} && for word in {' '.join(chosen)}; do echo; echo $word; cat $word; done").stdout
    words = [line for line in read.splitlines() if line]
    return {word: json.loads(text) for word, text in zip(words[::2], words[1::2], strict=True)}


def bare(server: Server) -> dict[str, dict[str, str]]:
    """The same without any walls, as root and as the agent: what cannot be done then, this server cannot show."""
    for name, identity in (("root", ""), ("agent", "User=agent\n")):
        text = f"[Service]\nType=oneshot\nExecStart=/bin/true\n{identity}"
        server.write(f"{UNITS}/bare-{name}.service", text)
    return run(server, {"bare-root": "bare-root.service", "bare-agent": "bare-agent.service"})


def run_commands(server: Server) -> dict[str, dict[str, str]]:
    """The same inside the units by which root's commands work."""
    server.copy_in(Path(__file__).parent / "attempts_commands.py", f"{HERE}/attempts_commands.py")
    # The agent by its number, as for a user without a name.
    script = f"exec /opt/memops/*/bin/python -I {HERE}/attempts_commands.py $(id -u agent)"
    found: dict[str, dict[str, str]] = json.loads(server.sh(script, timeout=300).stdout)
    return found


def run_without(
    server: Server, store: Store, walls: dict[str, Wall], off: dict[str, str]
) -> dict[str, tuple[str, str]]:
    """Each wall's attempt in its job, while what denies the same is down: why not with the wall, and without it.

    off: how the directives are taken down that are no walls here.
    """
    script = [f"cd {UNITS}"]
    starts = []
    known = {name: wall.off for name, wall in walls.items()} | off
    for name, wall in walls.items():
        service = server.read(f"{render.UNIT_DIRECTORY}/{_file(units(store)[wall.job])}").partition("[Service]\n")[2]
        down = "\n".join(known[other] for other in wall.others)
        for case, lines in (("with", down), ("without", f"{down}\n{wall.off}")):
            own = f"ExecStart=\nExecStart={' '.join(PROBE)} {shlex.quote(wall.attempt)}\n"
            own += f"ExecStop=\nRemainAfterExit=no\nStandardInput=null\nStandardOutput=file:{OUT}/{name}-{case}\n"
            unit = f"try-{name}-{case}.service"
            script.append(f"cat >{UNITS}/{unit} <<'END'\n[Service]\n{service}\n{lines}\n{own}END")
            starts.append(unit)
    server.run("sh", "-eu", input="\n".join([*script, "systemctl daemon-reload"]))
    server.run("systemctl", "start", *starts, timeout=300)
    said = {unit: json.loads(server.read(f"{OUT}/{unit[4:-8]}")) for unit in starts}
    return {
        name: (said[f"try-{name}-with.service"][wall.attempt], said[f"try-{name}-without.service"][wall.attempt])
        for name, wall in walls.items()
    }


def _file(unit: str) -> str:
    """The file of a unit, which may be one of a template."""
    stem, at, _ = unit.partition("@")
    return f"{stem}@.service" if at else unit
