"""Sets on real servers: made, listed, proven, pinned, rotated and tried by the units and commands that ship."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from system.machine import DB, add_facts, memops, sets, status
from system.test_install import make_store

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form
DIRECTORY = "/srv/backup/default"
STATE = "/var/lib/memops/default.sets.json"
OLD = "2020-01-01 00:00:00"

# A set under another date, as if it had been sealed then: the names in its manifest, its checksum and its directory.
_COPY = """
import sys
sys.path.insert(0, "/usr/local/lib/memops")
import json, os, shutil, manifests
directory, source, *names = sys.argv[1:]
for name in names:
    target = os.path.join(directory, name)
    shutil.copytree(os.path.join(directory, source), target)
    with open(os.path.join(target, "manifest.json"), "r+b") as file:
        manifest = json.load(file)
        manifest |= {"set": name, "sealed_at": f"{name[:13]}:{name[13:15]}:{name[15:18]}"}
        file.seek(0)
        file.truncate()
        file.write(manifests.write(manifest))
"""


def back_date(server: Server, source: str, *names: str) -> None:
    server.run("/usr/bin/python3", "-c", _COPY, DIRECTORY, source, *names)


def facts(count: int, prefix: str = "m") -> list[tuple[str, None, None, str]]:
    return [(f"{prefix}{number}", None, None, OLD) for number in range(count)]


def listed(server: Server, *arguments: str) -> list[dict[str, Any]]:
    data = json.loads(memops(server, "sets", "--json", *arguments).stdout)
    assert data["version"] == 1
    found: list[dict[str, Any]] = data["stores"][0]["sets"]
    return found


def state(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(server.read(STATE))
    return found


def digests(server: Server) -> str:
    """Every file of the sets with its sum, mode, owner and times: what looking must not alter."""
    return server.sh(
        f"cd {DIRECTORY}; find . -type f -exec sha256sum {{}} + | sort; find . -printf '%p %m %U %G %T@ %C@\\n' | sort"
    ).stdout


def change_a_byte(server: Server, path: str) -> None:
    code = "f = open(path, 'r+b'); f.seek(4000); b = f.read(1)[0]; f.seek(4000); f.write(bytes([b ^ 1]))"
    server.run("/usr/bin/python3", "-c", f"path = {path!r}; {code}")


def test_backup_sets_verify_pin_and_drill(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, facts(300))
    said = memops(server, "backup").stdout
    assert "sealed: 300 rows" in said
    first, second = sets(server)
    text = memops(server, "sets").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[0] == f"default: {DIRECTORY}/"
    assert text.splitlines()[2].startswith(second)
    newest = listed(server)[-1]
    assert (newest["name"], newest["latest"], newest["rows"], newest["ok"]) == (second, True, 300, True)
    assert [part["count"] for part in newest["parts"]] == [300]
    assert newest["verified_at"] == newest["sealed_at"]

    before = digests(server)
    mounts = server.sh("ls -A /run/memops").stdout
    assert memops(server, "sets", "verify").stdout == f"default {second}: verified\n"
    assert memops(server, "sets", "verify", "--all").stdout.splitlines() == [
        f"default {name}: verified" for name in (first, second)
    ]
    assert digests(server) == before
    assert server.sh("ls -A /run/memops").stdout == mounts
    assert state(server)["verified"].keys() == {first, second}
    assert all(each["verified_at"] >= newest["sealed_at"] for each in listed(server))

    said = memops(server, "drill").stdout
    assert said.startswith(f"set {second} restored and opened: 300 rows, 300 live facts")
    # But for the directory of the sets itself, in which the drill had its own for a while.
    assert re.sub(r"^\. .*\n", "", digests(server), flags=re.MULTILINE) == re.sub(
        r"^\. .*\n", "", before, flags=re.MULTILINE
    )
    assert sets(server) == [first, second]
    assert (state(server)["drill"]["set"], state(server)["drill"]["exit"]) == (second, 0)
    assert f"drill: set {second} restored" in server.journal("memory-drill.service")

    memops(server, "sets", "pin", first)
    memops(server, "sets", "pin", "latest")
    assert [each["pinned"] for each in listed(server)] == [True, True]
    memops(server, "sets", "unpin", second[:10])
    memops(server, "sets", "unpin", "latest")
    assert [each["pinned"] for each in listed(server)] == [True, False]
    assert server.show("memory-backup.service", "Result")["Result"] == "success"
    memops(server, "backup")
    assert len(sets(server)) == 4  # three sets and a pin

    for wanted, words in (("2001-01-01", "There is no set 2001-01-01"), ("../etc", "neither a set nor a date")):
        for command in ("pin", "unpin", "verify"):
            assert words in memops(server, "sets", command, wanted, code=2).stderr
    for words in (("backup",), ("sets",), ("sets", "verify"), ("sets", "pin", "latest"), ("drill",)):
        refused = memops(server, *words, code=4, user="agent").stderr
        assert f"Type: sudo memops {' '.join(words[:2])}" in refused


def test_a_changed_byte_is_found_and_the_set_is_the_latest_no_more(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, facts(300))
    memops(server, "backup")
    first, second = sets(server)
    change_a_byte(server, f"{DIRECTORY}/{second}/memory.db")
    failed = memops(server, "sets", "verify", code=1)
    assert f"default {second}: FAILED: memory.db has changed" in failed.stdout
    text = memops(server, "sets").stdout
    assert "FAILED" in text.splitlines()[2]
    assert f"! {second}: memory.db has changed" in text
    assert [each["latest"] for each in listed(server)] == [True, False]
    assert memops(server, "drill").stdout.startswith(f"set {first} restored and opened")
    problems = [problem["what"] for problem in status(server)["problems"]]
    assert any(second in what for what in problems), problems
    # It was found by the drill where nobody looked before.
    change_a_byte(server, f"{DIRECTORY}/{first}/memory.db")
    failed = memops(server, "drill", code=1)
    assert f"set {first}: memory.db has changed" in failed.stderr
    assert server.show("memory-drill.service", "Result")["Result"] == "exit-code"
    assert "there is no verified set to try" in memops(server, "drill", code=1).stderr
    memops(server, "backup")
    memops(server, "drill")
    # Neither failed set goes by itself.
    assert {first, second} <= set(sets(server))


@pytest.mark.parametrize("what", ["missing", "extra", "manifest"])
def test_a_set_with_a_file_missing_extra_or_cut_off(memops_server: Server, what: str) -> None:
    server = memops_server
    memops(server, "install")
    (name,) = sets(server)
    script, words = {
        "missing": (f"rm {DIRECTORY}/{name}/memory.db", "memory.db is missing"),
        "extra": (f"touch {DIRECTORY}/{name}/memory.db-wal", "memory.db-wal is in the set, and not in its manifest"),
        "manifest": (f"truncate -s 100 {DIRECTORY}/{name}/manifest.json", "manifest.json cannot be read"),
    }[what]
    server.sh(script)
    assert words in memops(server, "sets", "verify", name, code=1).stdout
    assert words in memops(server, "sets").stdout
    assert memops(server, "drill", code=1).stderr.startswith("Error: The drill failed: there is no verified set")


def test_old_sets_go_by_their_dates(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install", "--keep-daily", "2", "--keep-weekly", "2", "--keep-monthly", "2")
    (source,) = sets(server)
    nights = ["2020-01-30", "2020-01-31", *(f"2020-02-{day:02}" for day in range(1, 21))]
    back_date(server, source, *(f"{night}T233000Z" for night in nights))
    memops(server, "sets", "pin", "2020-02-03")
    change_a_byte(server, f"{DIRECTORY}/2020-02-05T233000Z/memory.db")
    memops(server, "sets", "verify", "2020-02-05", code=1)
    said = memops(server, "backup").stdout
    # What is of the last 24 hours stays; the newest is a day, a week and a month. The next of each is of 2020-02-20.
    kept = [f"2020-02-{rest}" for rest in ("03T233000Z", "03T233000Z.pinned", "05T233000Z", "20T233000Z")]
    assert sets(server)[:-1] == [*kept, source]
    assert "19 older sets removed" in said
    assert memops(server, "sets", "verify", "2020-02-05", code=1)


def test_an_emptied_store_rotates_nothing_until_it_is_accepted(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install", "--keep-daily", "1", "--keep-weekly", "0", "--keep-monthly", "0")
    add_facts(server, facts(400))
    memops(server, "backup")
    *_, good = sets(server)
    back_date(server, good, "2020-01-01T000000Z", "2020-01-02T000000Z")
    server.sql(DB, "DELETE FROM memory")
    for _ in range(2):
        held = memops(server, "backup", code=6)
        assert f"memory holds 0, where it held 400 in the set {good}" in held.stderr
        assert "sudo memops backup --accept-loss" in held.stderr
    assert server.show("memory-backup.service", "Result", "ExecMainStatus") == {
        "Result": "exit-code",
        "ExecMainStatus": "6",
    }
    kept = sets(server)
    assert (len(kept), kept[:2]) == (6, ["2020-01-01T000000Z", "2020-01-02T000000Z"])
    assert state(server)["loss"] == {"set": good, "rows": {"memory": 400}}
    # It is not the agent's to accept.
    write = 'echo \'{"mode": "accept-loss"}\' >/run/memops/backup-default.json'
    assert server.run("sh", "-c", write, user="agent", check=False).code != 0
    assert "the loss is accepted" in memops(server, "backup", "--accept-loss").stdout
    assert not server.exists("/run/memops/backup-default.json")
    left = sets(server)
    assert left[:-1] == kept[2:]
    assert "loss" not in state(server)
    # A store that grows again is no loss.
    add_facts(server, facts(5))
    memops(server, "backup")


def test_two_backups_in_the_same_second_are_two_sets(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, facts(3))
    (first,) = sets(server)
    for ahead in range(120):  # whatever second the next one falls into has a set
        server.run("mkdir", f"{DIRECTORY}/{time.strftime('%Y-%m-%dT%H%M%SZ', time.gmtime(time.time() + ahead))}")
    memops(server, "backup")
    (second,) = (name for name in sets(server) if name.endswith("-2"))
    assert f"set {second} sealed" in server.journal("memory-backup.service")
    server.sh(f"find {DIRECTORY} -mindepth 1 -maxdepth 1 -type d -empty -delete")
    assert sets(server) == [first, second]
    assert [(each["name"], each["latest"]) for each in listed(server)] == [(first, False), (second, True)]
    memops(server, "sets", "verify", "--all")
    assert second in memops(server, "drill").stdout


def test_a_run_under_way_is_waited_for_and_a_failed_copy_is_told(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    with server.popen("systemctl", "start", "memory-backup.service") as running:
        memops(server, "backup")
        assert running.wait(timeout=60) == 0
    assert len(sets(server)) >= 2
    server.sh(f"mv {DB} {DB}.away; mv {DB}-wal {DB}-wal.away || true; mv {DB}-shm {DB}-shm.away || true")
    before = sets(server)
    failed = memops(server, "backup", code=1).stderr
    assert "The backup failed: " in failed
    assert "there is no store at" in failed
    assert sets(server) == before


def test_several_stores_each_in_turn(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    make_store(server, "/home/ada/work/memory.db")
    odd = "/home/back up/100 %d $x"
    memops(server, "install", "--name", "work", "--yes", "--db", "/home/ada/work/memory.db", "--backup-dir", odd)
    said = memops(server, "backup").stdout.splitlines()
    assert [line.split(":")[0] for line in said] == ["default", "work"]
    assert [line.split(":")[0] for line in memops(server, "drill").stdout.splitlines()] == ["default", "work"]
    assert len(memops(server, "backup", "--name", "work").stdout.splitlines()) == 1
    (work,) = json.loads(memops(server, "sets", "--json", "--name", "work").stdout)["stores"]
    names = [each["name"] for each in work["sets"]]
    memops(server, "sets", "pin", names[0])
    memops(server, "sets", "--name", "work", "pin", "latest")
    assert "--name default, --name work" in memops(server, "sets", "pin", "latest", code=2).stderr
    assert server.exists(f"{odd}/work/{names[0]}.pinned")
    assert server.exists(f"{odd}/work/{names[-1]}.pinned")
    assert len(memops(server, "sets", "verify").stdout.splitlines()) == 2
    # One that fails keeps the others from nothing.
    server.sh("rm -r /srv/backup/default/*")
    both = memops(server, "drill", code=1)
    assert "work: set " in both.stdout
    assert "default: The drill failed: there is no verified set to try" in both.stderr


def test_a_terminal_sees_how_far_the_copies_are(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    server.sql(
        DB,
        "INSERT INTO memory (id, subject, fact, source) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        " WHERE i < 300000) SELECT 'm' || i, 's', hex(randomblob(150)), 'chat' FROM n",
    )
    shown = server.run("memops", "backup", tty=True, timeout=300).stdout
    assert re.search(r"[\d.]+ MB of about [\d.]+ MB copied", shown)
    assert re.search(r"[\d.]+ MB of about [\d.]+ MB sealed", shown)
    assert "300,000 rows" in shown.replace("\r", "\n").splitlines()[-1]
    assert "of about" not in memops(server, "backup").stderr


def test_sets_of_more_than_one_part(memops_server: Server) -> None:
    server = memops_server
    server.sh(
        "useradd --system --create-home agent; install -d -o agent -g agent -m 700 /srv/agent /srv/agent/notes"
        " /srv/agent/notes/deep; for n in 1 2 3; do echo note $n >/srv/agent/notes/deep/$n.md; done;"
        " chown -R agent: /srv/agent"
    )
    server.sql("/srv/agent/history.db", "CREATE TABLE history (memory_id TEXT, event TEXT)")
    server.sql("/srv/agent/history.db", "INSERT INTO history VALUES (?, 'ADD')", many=[[f"h{n}"] for n in range(250)])
    memops(
        server, "install", "--yes", "--with", "sqlite=/srv/agent/history.db", "--with", "files=/srv/agent/notes/"
    )  # fmt: skip
    (name,) = sets(server)
    (found,) = listed(server)
    assert [(part["name"], part["kind"]) for part in found["parts"]] == [
        ("memory", "sqlite"),
        ("history", "sqlite"),
        ("notes", "files"),
    ]
    assert found["parts"][1]["count"] == 250
    assert memops(server, "sets").stdout.splitlines()[2].split()[-1] == "3"
    memops(server, "sets", "verify")
    assert "in 3 parts" in memops(server, "drill").stdout
    # One of the parts is emptied.
    server.sql("/srv/agent/history.db", "DELETE FROM history")
    held = memops(server, "backup", code=6)
    assert f"history holds 0, where it held 250 in the set {name}" in held.stderr
    change_a_byte(server, f"{DIRECTORY}/{name}/history/history.db")
    assert "history/history.db has changed" in memops(server, "sets", "verify", name, code=1).stdout
    server.sh(f"rm {DIRECTORY}/{name}/notes/deep/2.md")
    assert "notes/deep/2.md is missing" in memops(server, "sets", "verify", name, code=1).stdout


def test_a_machine_without_namespaces(without_namespaces: Server) -> None:
    server = without_namespaces
    memops(server, "install")
    memops(server, "backup")
    before = digests(server)
    memops(server, "sets", "verify", "--all")
    assert digests(server) == before
    assert all(each["ok"] for each in listed(server))
    memops(server, "drill")
    assert len(sets(server)) == 2


def test_the_walls_of_those_who_open_sets(memops_server: Server) -> None:
    """A set's content is the agent's: what opens it has no network, no capability to speak of, and cannot alter it."""
    server = memops_server
    memops(server, "install")
    assert (
        float(server.run("systemd-analyze", "security", "--no-pager", "memory-drill.service").stdout.split()[-3]) <= 0.9
    )
    script = "/usr/local/lib/memops/setdir.py"
    probe = (
        "import os, socket, sys\n"
        "found = {'write': os.access('/run/memops/sets', os.W_OK), 'store': os.path.exists('/srv/agent/memory.db')}\n"
        "found['caps'] = [l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')]\n"
        "found['home'] = os.access('/root', os.R_OK) and bool(os.listdir('/root'))\n"
        "try: socket.socket(); found['socket'] = True\n"
        "except OSError: found['socket'] = False\n"
        "import json; print('[' + json.dumps(found) + ']')\n"
    )
    server.write(script, probe)
    (found,) = json.loads(memops(server, "sets", "--json").stdout)["stores"][0]["sets"] or [{}]
    assert found == {"write": False, "store": False, "caps": ["0000000000000000"], "home": False, "socket": False}
