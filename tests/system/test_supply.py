"""What is on a machine after an installation: whose it is, that it needs no network, how systemd reads any path."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from memops import render
from memops.settings import Store, check
from system import images
from system.machine import DB, add_facts, ids, memops
from system.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

ALTERNATE = True  # each test on one Debian, all on both in the long form
SLOW = True

TABLE = [
    # What root runs and reads: nobody else may write it, and secrets are root's alone.
    (r"/opt/memops(/.*)?", "root:root", "755 644 777"),  # 777: links
    (r"/usr/local/bin/memops", "root:root", "777"),
    (r"/usr/local/lib/memops/uninstall", "root:root", "755"),
    (r"/usr/local/lib/memops(/kinds|/hands)?", "root:root", "755"),
    (r"/usr/local/lib/memops/(kinds/|hands/)?\w+\.py", "root:root", "644"),
    (r"/etc/systemd/system/memory-[\w@-]+\.(service|timer)", "root:root", "644"),
    (r"/etc/(sysusers|tmpfiles)\.d/memops\.conf", "root:root", "644"),
    (r"/etc/bash_completion\.d/memops", "root:root", "644"),
    (r"/usr/local/share/man/man8/memops\.8", "root:root", "644"),
    (r"/etc/memops(/default)?", "root:root", "755"),
    (r"/etc/memops/(memops\.toml|sources|default/\w+\.sql)", "root:root", "644"),
    (r"/etc/memops/manifest\.json", "root:root", "600"),
    (r"/etc/memops/default/ping-url", "root:root", "600"),
    # What the jobs leave: root's records for all to read, the agent's for the agent and root.
    (r"/run/memops(/store|/sets|/incoming)?", "root:root", "755"),  # where the jobs' mounts go
    (r"/run/memops/restore-default\.lock", "root:root", "600"),
    (r"/var/lib/memops", "root:root", "755"),
    (r"/var/lib/memops/default\.sets\.json", "root:root", "644"),
    (r"/var/lib/memops/default\.before-restore\.json", "root:root", "644"),
    (r"/var/lib/memops/default", "agent:agent", "750"),
    (r"/var/lib/memops/default/(runs\.jsonl|progress\.json|digest.*|review.*|.*\.json)", "agent:agent", "640 644 600"),
    (r"/var/lib/memops/default/verdicts\.jsonl", "agent:agent", "600"),
    # The memory is the agent's alone, the sets are root's alone.
    (r"/srv/agent", "agent:agent", "700"),
    (r"/srv/agent/memory\.db(-wal|-shm)?", "agent:agent", "600"),
    (r"/srv/agent/before-restore-[\dTZ-]+", "agent:agent", "700"),
    (r"/srv/agent/before-restore-[\dTZ-]+/memory\.db(-wal|-shm)?", "agent:agent", "600"),
    (r"/srv/backup(/default)?(/[\dTZ-]+)?", "root:root", "700"),
    (r"/srv/backup/default/[\dTZ-]+/(memory\.db|manifest\.json)", "root:root", "600"),
    (r"/srv/backup/incoming", "root:root", "700"),
    (r"/srv/backup/incoming/default", "agent:root", "2770"),
]
"""Path, owner and group, modes. Every path of memops' on the machine is in here, and every line has a path."""

_FIND = (
    "find /opt/memops /usr/local/bin /usr/local/lib/memops /usr/local/share/man /etc /run/memops /var/lib/memops /srv"
    r" -printf '%p\t%u:%g\t%m\t%y\n' | grep -E 'memops|memory-|^/srv/' | grep -v __pycache__"
)

_WITHOUT_NETWORK = """
import sys
def hook(event, arguments):
    if event.startswith("socket.") and ("getaddrinfo" in event or "gethostby" in event or "INET" in str(arguments)):
        print("NETWORK", event, arguments, file=sys.stderr, flush=True)
        import os
        os._exit(99)
sys.addaudithook(hook)
sys.argv[0] = "memops"
from memops.main import main
main()
"""


@pytest.fixture
def alone(suite: str) -> Iterator[Server]:
    """A server with the command, on which from then on there is no network."""
    with Server(suite, images.with_command(suite), ("--private-network",)) as server:
        yield server


def test_without_a_network_all_goes_and_everything_is_whose_it_should_be(alone: Server) -> None:
    server = alone
    assert server.run("ls", "/sys/class/net").stdout.split() == ["lo"]
    (python,) = server.sh("echo /opt/memops/*/bin/python").stdout.split()
    checked = server.run(python, "-I", "-m", "pip", "--disable-pip-version-check", "freeze").stdout
    pinned = images.pinned("command")
    names = {line.partition(" @ ")[0].lower().replace("_", "-") for line in checked.splitlines()}
    assert names == {*pinned, "memops"}

    def run(*words: str) -> str:
        ran = server.run(python, "-I", "-c", _WITHOUT_NETWORK, *words, check=False, timeout=300)
        assert ran.code == 0, f"{words} → {ran.code}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    run("install", "--ping-url", "http://127.0.0.1:9/x", "--mail-to", "ops@example.org")
    run("install", "--ping-url", "", "--mail-to", "")
    run("install", "--ping-url", "http://127.0.0.1:9/x")
    run("remember", "editor", "Uses Helix", "--source", "chat 1")
    add_facts(server, [("old", "2020-01-01 00:00:00", None, "2020-01-01 00:00:00"), ("kept", None, None, "2020-01-01")])
    run("backup")
    run("prune")
    assert "old" not in ids(server)
    run("confirm", "kept")
    run("drill")
    run("restore", "latest", "--yes")
    for words in (("status", "--fresh"), ("list",), ("recall", "helix"), ("review", "--json"), ("digest",), ("sets",)):
        run(*words)
    # What was given an address has no network either, which is told, and is no failure of a job.
    said = memops(server, "check", code=1).stdout.partition(" | ")[0]
    assert "memory-ping@backup:start.service failed, so an alarm did not get through" in said
    assert said.count("failed") == said.count("so an alarm did not get through")

    require_table(server)
    require_paths(server)
    run("uninstall")
    assert server.exists(DB)
    assert server.sh(_FIND + " | grep -vE '^/(srv|opt)/|^/usr/local/bin' || true").stdout == ""


def require_table(server: Server) -> None:
    used, odd = set(), []
    for line in server.sh(_FIND).stdout.splitlines():
        path, owner, mode, kind = line.split("\t")
        if path == "/srv" or path.endswith(".wants") or "/timers.target.wants/" in path:
            continue
        row = next((number for number, row in enumerate(TABLE) if re.fullmatch(row[0], path)), None)
        if row is None or kind not in "fdl" or owner != TABLE[row][1] or mode not in TABLE[row][2].split():
            odd.append((line, None if row is None else TABLE[row]))
        used.add(row)
    assert odd == []
    assert [row for number, row in enumerate(TABLE) if number not in used] == []


_PROPERTIES = """
import json, subprocess, sys
BUS = ["busctl", "--json=short", "call", "org.freedesktop.systemd1"]
def call(*words):
    return json.loads(subprocess.run([*BUS, *words], check=True, stdout=subprocess.PIPE).stdout)["data"]
found = {}
for unit in json.load(sys.stdin):
    path = call("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "LoadUnit", "s", unit)[0]
    interface = "org.freedesktop.systemd1." + unit.rpartition(".")[2].capitalize()
    shown = call(path, "org.freedesktop.DBus.Properties", "GetAll", "s", interface)[0]
    shown |= call(path, "org.freedesktop.DBus.Properties", "GetAll", "s", "org.freedesktop.systemd1.Unit")[0]
    found[unit] = {name: value["data"] for name, value in shown.items()}
json.dump(found, sys.stdout)
"""
ODD = [
    " ",
    "  ",
    "%",
    "%h",
    "%%",
    "$",
    "${HOME}",
    "$$",
    "#",
    ";",
    ":",
    "~",
    "!",
    "@",
    "+",
    "-",
    "&",
    "|",
    "*",
    "?",
    "[a]",
    "{b}",
]
ODD += ["(c)", "<", ">", ",", "=", "ü", "日本", "\u00a0", "🧠", "^", "`id`", "._", "x"]


def require_paths(server: Server) -> None:
    """Whatever allowed path is in whatever directive, systemd reads it as it was meant, and nothing else with it."""
    chance = random.Random(6)
    plain = Store(
        name="plain0",
        db="/srv/PLAINHOME/PLAINFILE.db",
        backup_dir="/mnt/PLAINSETS",
        parts=("sqlite=/srv/PLAINHOME/PLAINPART.db", "files=/srv/PLAINNOTES/"),
        notes=("/srv/PLAINLOOK/CLAUDE.md",),
        textfile="/srv/PLAINFIGURES/memops.prom",
    )
    marks = ("PLAINHOME", "PLAINFILE", "PLAINSETS", "PLAINPART", "PLAINNOTES", "PLAINLOOK", "PLAINFIGURES")
    stores, names = {"plain0": plain}, {}
    for number in range(1, 13):
        odd = {mark: f"{mark[5]}{''.join(chance.choices(ODD, k=4))}{number}" for mark in marks}
        store = Store(
            **json.loads(replaced(json.dumps(dataclasses.asdict(plain)), {**odd, "plain0": f"odd{number:03}"}))
        )
        store = dataclasses.replace(store, parts=tuple(store.parts), notes=tuple(store.notes), secrets=())
        check(store)
        called = {mine.name: part.name for mine, part in zip(plain.all_parts, store.all_parts, strict=True)}
        stores[store.name], names[store.name] = store, {**odd, **called}
    texts = {}
    for store in stores.values():
        files = render.all_files({store.name: store}, {}, {})
        texts |= {path.rpartition("/")[2]: file.text for path, file in files.items() if f"-{store.name}." in path}
    for unit, text in texts.items():
        server.write(f"/run/systemd/system/{unit}", text)
    server.run("systemctl", "daemon-reload")
    found = json.loads(server.run("python3", "-c", _PROPERTIES, input=json.dumps(list(texts))).stdout)
    compared = 0
    for unit, properties in found.items():
        assert properties["LoadState"] == "loaded", (unit, properties["LoadError"])
        name = next(name for name in stores if f"-{name}." in unit)
        if name == "plain0":
            continue
        for key, meant in found[unit.replace(name, "plain0")].items():
            text = json.dumps(meant, ensure_ascii=False)
            if "PLAIN" in text:
                words = {**names[name], "plain0": name}
                if key.startswith("Exec"):  # a $ is resolved when the job starts
                    words = {mark: word.replace("$", "$$") for mark, word in words.items()}
                wanted = json.loads(replaced(text, words))
                seen = properties[key]
                if key.endswith("MountsFor"):  # which systemd adds, in an order of its own
                    seen, wanted = sorted(seen), sorted(wanted)
                assert without_times(seen) == without_times(wanted), (unit, key)
                compared += 1
    assert compared > 12 * 10
    server.sh("rm -f /run/systemd/system/memory-*; systemctl daemon-reload")


def replaced(text: str, by: dict[str, str]) -> str:
    """A JSON text with other words in its strings."""
    for mark, word in by.items():
        text = text.replace(mark, json.dumps(word, ensure_ascii=False)[1:-1])
    return text


def without_times(value: Any) -> Any:
    """A property without numbers, which are times and process ids."""
    if isinstance(value, list):
        return [without_times(each) for each in value]
    return 0 if type(value) is int else value
