"""Sets go to the real restic and rclone and come back as they were; and what goes wrong there harms nothing here."""

from __future__ import annotations

import json
import random
import re
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from system import offsite_image
from system.machine import DB, add_facts, ids, memops, sets
from system.server import Server

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

OFFSITE, BACKUP = "memory-offsite.service", "memory-backup.service"
ENVIRONMENT = "/etc/offsite.env"
NOTES = "/srv/agent/notes"
SETS, COPIES = "/srv/backup/default", "/srv/copies"
PASSWORD = "correct-horse-Zq3+/x"  # noqa: S105
RECORD = "/var/lib/memops/default.sets.json"
FUTURE = "2999-01-01 00:00:00"

ALTERNATE = True  # each test on one Debian, all on both in the long form
_TREE = """
import hashlib, os, stat, sys
top = sys.argv[1]
for folder, folders, files in os.walk(top):
    for path in [folder, *(os.path.join(folder, name) for name in files)]:
        s = os.lstat(path)
        text = hashlib.sha256(open(path, "rb").read()).hexdigest() if stat.S_ISREG(s.st_mode) else ""
        print(os.path.relpath(path, top), oct(s.st_mode), s.st_uid, s.st_gid, text)
"""

# What the processes of the machine let this one see of them, until it is told to stop.
_WATCH = """
import glob, json, os, sys, time
words, kinds = json.loads(sys.stdin.readline())
print("ready", flush=True)
seen, programs = set(), set()
while not os.path.exists("/run/watched"):
    for path in [path for kind in kinds for path in glob.glob(f"/proc/[0-9]*/{kind}")]:
        try:
            with open(path, "rb") as file:
                text = file.read().decode(errors="replace")
        except OSError:
            continue
        seen |= {word for word in words if word in text}
        if path.endswith("cmdline"):
            programs.add(os.path.basename(text.split(chr(0))[0]))
    time.sleep(0.005)
print(json.dumps([sorted(seen), sorted(programs)]))
"""


@pytest.fixture
def server(suite: str) -> Iterator[Server]:
    """A server with restic, rclone and the command, where memops looks after a store and some notes."""
    with Server(suite, offsite_image.with_command(suite)) as booted:
        booted.run("useradd", "--system", "agent")
        booted.run("install", "-d", "-o", "agent", "-g", "agent", "-m", "700", "/srv/agent")
        booted.sh(f"umask 077; mkdir -p {NOTES}/empty; echo 'a note' >{NOTES}/note.md", user="agent")
        memops(booted, "install", "--with", f"files={NOTES}")
        add_facts(booted, [(f"fact{n}", FUTURE, None, FUTURE) for n in range(200)])
        booted.run("mkdir", "-m", "700", COPIES)
        yield booted


def hand_to(server: Server, to: str, environment: str = f"RESTIC_PASSWORD={PASSWORD}\n") -> str:
    """Have each good set handed to ``to``; returns the installation's notes."""
    options = ("--offsite", to)
    if environment:
        server.write(ENVIRONMENT, environment, 0o600)
        options += ("--offsite-env", ENVIRONMENT)
    return memops(server, "install", *options).stderr


def ended(server: Server) -> dict[str, Any]:
    """Root's record of the hand-over, once it is through."""
    server.wait_until(lambda: server.show(OFFSITE, "ActiveState")["ActiveState"] in ("inactive", "failed"), 120)
    record: dict[str, Any] = json.loads(server.read(RECORD))["offsite"]
    assert record["invocation"] == server.show(OFFSITE, "InvocationID")["InvocationID"]
    return record


def back_up(server: Server) -> dict[str, Any]:
    """A backup, and the record of the hand-over that it starts."""
    before = server.show(OFFSITE, "InvocationID")["InvocationID"]
    server.run("systemctl", "start", BACKUP)
    server.wait_until(lambda: server.show(OFFSITE, "InvocationID")["InvocationID"] not in ("", before))
    return ended(server)


def hand_over(server: Server, *, fails: bool = False) -> dict[str, Any]:
    """Start it as a person may."""
    ran = server.run("systemctl", "start", OFFSITE, check=False, timeout=300)
    assert (ran.code != 0) == fails, server.journal(OFFSITE)
    return ended(server)


def tree(server: Server, path: str) -> list[str]:
    """All that a directory holds: names, modes, owners, contents."""
    return sorted(server.run("python3", "-c", _TREE, path).stdout.splitlines())


def restic(server: Server, *arguments: str, repository: str = COPIES, password: str = PASSWORD) -> str:
    """Run restic as the docs say."""
    environment = {"RESTIC_PASSWORD": password, "RESTIC_REPOSITORY": repository}
    return server.run("restic", *arguments, env=environment, timeout=120).stdout


def snapshots(server: Server, repository: str = COPIES) -> list[str]:
    """The sets that a repository has, each as often as it is there."""
    found = json.loads(restic(server, "snapshots", "--json", "--tag", "memops,store:default", repository=repository))
    return sorted(tag.removeprefix("set:") for s in found or [] for tag in s["tags"] if tag.startswith("set:"))


def put_back(server: Server, path: str) -> None:
    """Lose facts and notes, and restore the set that was fetched to ``path``."""
    kept = ids(server)
    server.sql(DB, "DELETE FROM memory WHERE id < 'fact2'")
    server.sh(f"rm -r {NOTES}/*; echo new >{NOTES}/new.md")
    memops(server, "restore", path, "--yes")
    assert ids(server) == kept
    assert server.read(f"{NOTES}/note.md") == "a note\n"
    left = server.run("ls", NOTES).stdout.split()
    assert [name for name in left if not name.startswith("before-restore-")] == ["empty", "note.md"]
    # The set that a restore takes first holds much less here, so it waits for the next hand-over.
    assert hand_over(server)["exit"] == 0


def alert(server: Server) -> str:
    """What the alert said of the last failure."""
    unit = f"memory-alert@{OFFSITE}.service"
    server.wait_until(lambda: "Finished " in server.journal(unit))
    return server.journal(unit)


def test_restic_takes_each_good_set_and_gives_it_back_as_it_was(server: Server) -> None:
    hand_to(server, f"restic={COPIES}")
    record = back_up(server)
    both = sets(server)
    newest = both[-1]
    assert (len(both), record["set"], record["exit"], record["good"]) == (2, newest, 0, record["end"])
    # The one from before the first hand-over went along.
    assert snapshots(server) == both
    restic(server, "restore", "latest", "--tag", "memops,store:default", "--target", "/srv/back")
    assert server.run("ls", "-A", "/srv/back").stdout.split() == [newest]
    assert tree(server, f"/srv/back/{newest}") == tree(server, f"{SETS}/{newest}")
    put_back(server, f"/srv/back/{newest}")

    both = sets(server)
    newest = both[-1]
    assert hand_over(server)["message"].startswith(f"set {newest} was there already")
    assert snapshots(server) == both
    # What the owner's policy takes away stays away, although the set is still here.
    policy = ("--tag", "memops,store:default", "--group-by", "host", "--keep-last", "1")
    restic(server, "forget", *policy)
    assert snapshots(server) == [newest]
    assert hand_over(server)["exit"] == 0
    assert snapshots(server) == [newest]
    third = back_up(server)["set"]
    assert snapshots(server) == [newest, third]
    assert sets(server)[:3] == both
    # A record that is lost makes no second copy: what is there is looked at.
    server.run("rm", RECORD)
    assert hand_over(server)["exit"] == 0
    assert snapshots(server) == sets(server)
    assert "seccomp" not in server.run("journalctl", "--no-pager", "--output=cat").stdout.lower()


def test_rclone_takes_each_good_set_and_gives_it_back_as_it_was(server: Server) -> None:
    hand_to(server, f"rclone={COPIES}", "")
    record = back_up(server)
    newest = sets(server)[-1]
    assert (record["set"], record["exit"]) == (newest, 0)
    assert server.run("ls", f"{COPIES}/default").stdout.split() == sets(server)
    server.sh(f"umask 077; rclone copy --create-empty-src-dirs {COPIES}/default/{newest} /srv/back/{newest}")
    assert tree(server, f"/srv/back/{newest}") == tree(server, f"{SETS}/{newest}")
    put_back(server, f"/srv/back/{newest}")
    # As docs/backups.md has it, and as an object store gives it back: without what is empty.
    server.sh(f"umask 077; rclone copy {COPIES}/default/{newest} /srv/bare/{newest}")
    assert not server.exists(f"/srv/bare/{newest}/notes/empty")
    put_back(server, f"/srv/bare/{newest}")

    # Cut off before the manifest, in the middle of it, or of the store: taken again; whole sets are left alone.
    before = tree(server, COPIES)
    for damage in (
        "rm {}/manifest.json",
        "truncate -s 10 {}/manifest.json",
        "cd {} && rm manifest.json && echo x >memory.db",
    ):
        server.sh(damage.format(f"{COPIES}/default/{newest}"))
        server.run("rm", RECORD)
        assert hand_over(server)["exit"] == 0
        assert tree(server, COPIES) == before
    # Another machine's set of the same name is not written over.
    server.sh(f"echo '{{}}' >{COPIES}/default/{newest}/manifest.json; rm {RECORD}")
    assert "another set" in hand_over(server, fails=True)["message"]
    assert server.read(f"{COPIES}/default/{newest}/manifest.json") == "{}\n"
    # Nor does what is damaged there count as there.
    server.sh(
        f"cp {SETS}/{newest}/manifest.json {COPIES}/default/{newest}/; echo x >>{COPIES}/default/{newest}/memory.db"
    )
    assert "not there as it is here" in hand_over(server, fails=True)["message"]
    assert sets(server) == [name for name in sets(server) if server.exists(f"{SETS}/{name}/memory.db")]


def test_a_wrong_password_is_told_and_harms_nothing(server: Server) -> None:
    hand_to(server, f"restic={COPIES}")
    good = back_up(server)
    before = tree(server, COPIES)
    server.write(ENVIRONMENT, "RESTIC_PASSWORD=wrong-battery-staple\n", 0o600)
    record = back_up(server)
    newest = sets(server)[-1]
    assert "wrong password" in record["message"]
    assert (record["exit"], record["good"]) == (1, good["end"])
    assert server.show(OFFSITE, "Result")["Result"] == "exit-code"
    assert server.show(BACKUP, "Result", "ExecMainStatus") == {"Result": "success", "ExecMainStatus": "0"}
    assert "wrong password" in alert(server)
    assert server.sql(f"{SETS}/{newest}/memory.db", "SELECT count(*) FROM memory", user="root") == [[200]]
    assert [line for line in tree(server, COPIES) if "locks" not in line] == [
        line for line in before if "locks" not in line
    ]
    everything = server.run("journalctl", "--no-pager", "--output=export").stdout + server.read(RECORD)
    assert "battery-staple" not in everything
    assert PASSWORD not in everything

    # Once it is right again the set of that night goes along.
    server.write(ENVIRONMENT, f"RESTIC_PASSWORD={PASSWORD}\n", 0o600)
    assert hand_over(server)["exit"] == 0
    assert snapshots(server) == sets(server)
    # No file, no password, no program: said in words, and no other repository is made instead.
    server.write(ENVIRONMENT, "\n", 0o600)
    assert "no RESTIC_PASSWORD" in hand_over(server, fails=True)["message"]
    server.write(ENVIRONMENT, f"RESTIC_PASSWORD={PASSWORD}\n", 0o600)
    server.run("mv", "/usr/bin/restic", "/usr/bin/restic.away")
    assert "apt-get install restic" in hand_over(server, fails=True)["message"]
    server.run("mv", "/usr/bin/restic.away", "/usr/bin/restic")
    server.sh(f"mv {COPIES} {COPIES}.away")
    assert "is its disk mounted?" in hand_over(server, fails=True)["message"]
    server.sh(f"mkdir -m 700 {COPIES}")
    assert "that took sets before cannot be opened" in hand_over(server, fails=True)["message"]
    assert server.run("ls", "-A", COPIES).stdout == ""
    server.run("rm", ENVIRONMENT)
    server.run("systemctl", "start", OFFSITE, check=False)
    assert server.show(OFFSITE, "ActiveState", "Result") == {"ActiveState": "failed", "Result": "resources"}


def watch(server: Server, words: list[str], kinds: list[str], user: str | None) -> subprocess.Popen[str]:
    """Begin to look for ``words`` in these files of every process; they stand in no command line here either."""
    process = server.popen("python3", "-c", _WATCH, user=user, empty_input=False)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([words, kinds]) + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_secrets_are_seen_nowhere_while_it_runs(server: Server) -> None:
    key = "AWSKEY-hunter2"
    hand_to(server, f"restic={COPIES}", f"RESTIC_PASSWORD='{PASSWORD}'\nAWS_SECRET_ACCESS_KEY={key}\n")
    grow(server, 15_000)  # so that it takes a while
    watchers = [
        watch(server, [PASSWORD, key], kinds, user)
        for kinds, user in ((["cmdline"], None), (["cmdline", "environ"], "agent"))
    ]
    record = back_up(server)
    server.run("touch", "/run/watched")
    for watcher in watchers:
        seen, programs = json.loads(watcher.communicate(timeout=30)[0])
        assert seen == []
        assert "restic" in programs
    assert record["exit"] == 0
    texts = {
        "journal": server.run("journalctl", "--no-pager", "--output=export").stdout,
        "properties": server.run("systemctl", "show", "--all", OFFSITE, BACKUP).stdout,
        "units": server.sh("cat /etc/systemd/system/memory-* /run/systemd/transient/* 2>/dev/null || true").stdout,
        "records": server.sh("cat /var/lib/memops/*.json /var/lib/memops/*/*").stdout,
        "settings": server.read("/etc/memops/memops.toml"),
        "copies": server.run("grep", "-rlaE", f"{key}|{re.escape(PASSWORD)}", COPIES, check=False).stdout,
    }
    assert [name for name, text in texts.items() if PASSWORD in text or key in text] == []
    assert texts["copies"] == ""
    assert server.run("cat", ENVIRONMENT, user="agent", check=False).code != 0
    assert "memops-offsite" not in server.sh("find /var/tmp").stdout


def grow(server: Server, rows: int) -> None:
    """Add facts of two kilobytes each, which nothing compresses below one."""
    server.sql(
        DB,
        "INSERT INTO memory (id, subject, fact, source)"
        f" WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
        " SELECT 'big' || i, 's', hex(randomblob(1000)), 'x' FROM n",
    )


@pytest.mark.parametrize("tool", ["restic", "rclone"])
def test_a_full_place_keeps_what_it_has_and_takes_the_rest_later(server: Server, tool: str) -> None:
    server.run("mount", "-t", "tmpfs", "-o", "size=4M,mode=700", "tmpfs", COPIES)
    hand_to(server, f"{tool}={COPIES}")
    assert back_up(server)["exit"] == 0
    first = sets(server)
    grow(server, 6_000)
    record = back_up(server)
    newest = sets(server)[-1]
    assert record["exit"] == 1
    said = "no space left on device" if tool == "restic" else "too big for remaining disk space"
    assert said in record["message"]
    assert said in alert(server)
    assert server.show(BACKUP, "Result")["Result"] == "success"
    assert server.sql(f"{SETS}/{newest}/memory.db", "SELECT count(*) FROM memory", user="root") == [[6200]]
    if tool == "rclone":
        assert not server.exists(f"{COPIES}/default/{newest}/manifest.json")
    server.run("mount", "-o", "remount,size=200M", COPIES)
    assert hand_over(server)["set"] == newest
    if tool == "restic":
        assert snapshots(server) == [*first, newest]
        restic(server, "restore", "latest", "--target", "/srv/back")
        restic(server, "check")
    else:
        server.sh(f"umask 077; rclone copy --create-empty-src-dirs {COPIES}/default/{newest} /srv/back/{newest}")
    assert tree(server, f"/srv/back/{newest}") == tree(server, f"{SETS}/{newest}")


def test_it_can_be_stopped_and_killed_in_the_middle(server: Server) -> None:
    hand_to(server, f"restic={COPIES}")
    assert hand_over(server)["exit"] == 0
    grow(server, 40_000)
    server.run("systemctl", "start", BACKUP)
    server.wait_until(lambda: "restic" in server.run("ps", "-eo", "comm").stdout, 60)
    server.run("systemctl", "stop", OFFSITE)
    record = ended(server)
    assert (record["exit"], record["message"]) == (1, "told to stop before the end")
    assert "restic" not in server.run("ps", "-eo", "comm").stdout
    newest = sets(server)[-1]
    for _ in range(3):
        server.run("systemctl", "start", "--no-block", OFFSITE)
        server.wait_until(lambda: "restic" in server.run("ps", "-eo", "comm").stdout)
        time.sleep(random.uniform(0, 2))
        server.run("systemctl", "kill", "--signal=KILL", OFFSITE, check=False)
        server.wait_until(lambda: server.show(OFFSITE, "ActiveState")["ActiveState"] in ("inactive", "failed"))
    assert hand_over(server)["exit"] == 0
    assert newest in snapshots(server)
    restic(server, "restore", "latest", "--target", "/srv/back")
    assert tree(server, f"/srv/back/{newest}") == tree(server, f"{SETS}/{newest}")
    assert "memops-offsite" not in server.sh("find /var/tmp").stdout


def serve(server: Server, *command: str) -> int:
    """Start a server of rclone's that listens on a free port, and return the port. Servers share this machine's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    rclone = ("rclone", "serve", command[0], "--addr", f"127.0.0.1:{port}", *command[1:])
    server.run("systemd-run", "--quiet", "--unit=other-side", "--", *rclone)
    script = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
    server.wait_until(lambda: server.run("python3", "-c", script, str(port), check=False).code == 0)
    return port


def test_restic_over_the_network_with_a_password_in_the_address(server: Server) -> None:
    server.run("mkdir", "-m", "700", "/srv/other")
    # The other side lets nothing be deleted, and that is no hindrance.
    port = serve(server, "restic", "--append-only", "--user", "me", "--pass", "swordfish", "/srv/other")
    address = f"rest:http://me:swordfish@localhost:{port}/"
    hand_to(server, "restic=", f"RESTIC_PASSWORD={PASSWORD}\nRESTIC_REPOSITORY={address}\n")
    assert back_up(server)["exit"] == 0
    newest = sets(server)[-1]
    assert snapshots(server, address) == sets(server)
    restic(server, "restore", "latest", "--target", "/srv/back", repository=address)
    assert tree(server, f"/srv/back/{newest}") == tree(server, f"{SETS}/{newest}")
    wrong = address.replace("swordfish", "flounder-7")
    server.write(ENVIRONMENT, f"RESTIC_PASSWORD={PASSWORD}\nRESTIC_REPOSITORY={wrong}\n", 0o600)
    record = back_up(server)
    assert (record["exit"], "401" in record["message"]) == (1, True)
    assert server.show(BACKUP, "Result")["Result"] == "success"
    everything = server.run("journalctl", "--no-pager", "--output=export", f"--unit={OFFSITE}").stdout
    everything += alert(server) + server.read(RECORD) + server.run("systemctl", "show", "--all", OFFSITE).stdout
    assert [word for word in ("swordfish", "flounder-7", PASSWORD) if word in everything] == []


def test_rclone_over_the_network(server: Server) -> None:
    server.run("mkdir", "-m", "700", "/srv/other")
    port = serve(server, "webdav", "--user", "me", "--pass", "swordfish", "/srv/other")
    hidden = server.run("rclone", "obscure", "swordfish").stdout.strip()
    options = {"TYPE": "webdav", "URL": f"http://localhost:{port}", "VENDOR": "other", "USER": "me", "PASS": hidden}
    lines = "".join(f"RCLONE_CONFIG_BOX_{key}={value}\n" for key, value in options.items())
    hand_to(server, "rclone=box:memory", lines)
    assert back_up(server)["exit"] == 0
    newest = sets(server)[-1]
    assert server.run("ls", "/srv/other/memory/default").stdout.split() == sets(server)
    server.sh(
        f"umask 077; rclone copy --create-empty-src-dirs box:memory/default/{newest} /srv/back/{newest}",
        env={f"RCLONE_CONFIG_BOX_{key}": value for key, value in options.items()},
    )
    assert tree(server, f"/srv/back/{newest}") == tree(server, f"{SETS}/{newest}")
    server.write(ENVIRONMENT, lines.replace("USER=me", "USER=you"), 0o600)
    record = back_up(server)
    assert record["exit"] == 1
    assert "401" in record["message"]
    everything = server.run("journalctl", "--no-pager", "--output=export", f"--unit={OFFSITE}").stdout + server.read(
        RECORD
    )
    assert [word for word in ("swordfish", hidden) if word in everything] == []

    # restic goes by way of rclone as well; so it reaches whatever rclone reaches.
    hand_to(server, "restic=rclone:box:repository", lines + f"RESTIC_PASSWORD={PASSWORD}\n")
    assert hand_over(server)["exit"] == 0
    assert snapshots(server, "/srv/other/repository") == sets(server)


def test_the_unit_is_as_closed_as_it_can_be(server: Server) -> None:
    assert "on the same disk" in hand_to(server, f"restic={COPIES}")
    shown = server.run("systemd-analyze", "security", "--no-pager", OFFSITE).stdout
    assert float(shown.rpartition(": ")[2].split()[0]) <= 1.6, shown
    odd = "/srv/a b%c$d"
    server.run("mkdir", "-m", "700", odd)
    places = {
        f"restic={odd}": f"RESTIC_PASSWORD={PASSWORD}\n",
        f"rclone={COPIES}": "",
        "rclone=box:x": "RCLONE_CONFIG_BOX_TYPE=s3\n",
    }
    for to, environment in places.items():
        hand_to(server, to, environment)
        unit = f"/etc/systemd/system/{OFFSITE}"
        verified = server.run("systemd-analyze", "verify", "--recursive-errors=no", "--man=no", unit)
        assert (verified.stdout, verified.stderr) == ("", "")
    hand_to(server, f"restic={odd}")
    assert hand_over(server)["exit"] == 0
    assert snapshots(server, odd) == sets(server)
    memops(server, "install", "--offsite", "", "--offsite-env", "")
    assert not server.exists(f"/etc/systemd/system/{OFFSITE}")
    assert server.show(BACKUP, "OnSuccess")["OnSuccess"] == ""


def test_an_installation_without_the_program_is_refused(memops_server: Server) -> None:
    server = memops_server
    server.run("mkdir", "-m", "700", COPIES)
    refused = memops(server, "install", "--offsite", f"rclone={COPIES}", code=3).stderr
    assert "apt-get install rclone" in refused
    assert not server.exists("/etc/memops")
