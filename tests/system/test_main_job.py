"""The main job, on a real systemd: install, prune, back up, look, take away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from system.images import ROOT
from system.machine import DB, add_facts, ids, listing, memops, sets, status
from system.server import copy_checkout

if TYPE_CHECKING:
    from system.server import Server

OLD, YOUNG, PAST, FUTURE = "2020-01-01 00:00:00", "2026-11-01 00:00:00", "2021-05-05 05:05:05", "2999-01-01 00:00:00"


def test_the_readme_from_the_first_command_to_the_last(server: Server) -> None:
    """A fresh VPS, with Debian's packages and the package index as a user has them."""
    copy_checkout(server)
    before = listing(server)
    said = server.run("/root/memops/scripts/install", timeout=600)
    assert "memops looks after /srv/agent/memory.db now" in said.stdout
    timers = json.loads(server.run("systemctl", "list-timers", "--output=json", "memory-*").stdout)
    assert {t["unit"] for t in timers if t["next"]} == {
        f"memory-{job}.timer" for job in ("prune", "backup", "drill", "review")
    }

    facts = [("live", None), ("later", "'2999-01-01 00:00:00'"), ("dead", "datetime('now', '-1 minute')")]
    for name, expires in facts:
        server.run(
            "sqlite3", "-cmd", ".timeout 5000", DB,
            "PRAGMA foreign_keys = ON; INSERT INTO memory (id, subject, fact, source, expires_at)"
            f" VALUES ('{name}', 's', 'f', 'chat', {expires or 'NULL'})",
            user="agent",
        )  # fmt: skip
    server.run("systemctl", "start", "memory-prune.service")
    assert ids(server) == {"live", "later"}
    seen = status(server)
    assert (seen["counts"]["expired"], seen["counts"]["rows"], seen["counts"]["live"]) == (1, 2, 2)
    assert seen["newest_set"]["set"] in sets(server)
    assert "1 expired" in server.run("journalctl", "-u", "memory-prune.service", "-n", "20").stdout

    memops(server, "uninstall")
    after = listing(server)
    kept = {path for path in after if path.startswith(("/srv/agent", "/srv/backup"))}
    users = {"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"}
    changed = {path for path in after.keys() | before.keys() if after.get(path) != before.get(path)} - kept - users
    assert {path for path in changed if not path.startswith("/usr/local/bin")} == set()
    assert server.run("systemctl", "list-units", "--all", "--no-legend", "memory-*").stdout.strip() == ""
    assert ids(server) == {"live", "later"}
    server.run("/root/memops/scripts/install", "--remove")
    assert not server.exists("/opt/memops")
    assert not server.exists("/usr/local/bin/memops")


def test_a_dry_run_writes_nothing_and_a_second_install_changes_nothing(memops_server: Server) -> None:
    server = memops_server
    before = listing(server)
    plan = memops(server, "install", "--dry-run").stdout
    assert listing(server) == before
    assert "+OnCalendar=daily" in plan
    assert "make the system user agent" in plan
    memops(server, "install")
    installed = listing(server)
    runs = server.read("/var/lib/memops/default/runs.jsonl")
    assert "Nothing to do" in memops(server, "install").stdout
    assert memops(server, "install", "--dry-run").stdout.startswith("Nothing to do")
    # Looking at a WAL store makes its sidecars, as any reader does.
    assert {k: v for k, v in listing(server).items() if "memory.db-" not in k} == {
        k: v for k, v in installed.items() if "memory.db-" not in k
    }
    assert server.read("/var/lib/memops/default/runs.jsonl") == runs


def test_the_service_prunes_by_the_policy(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(
        server,
        [
            ("live", None, None, OLD),
            ("expired", PAST, None, OLD),
            ("later", FUTURE, None, OLD),
            ("head", None, None, YOUNG),
            ("long-superseded", None, "head", OLD),
            ("just-superseded", None, "head", YOUNG),
            ("dead-head", PAST, None, YOUNG),
            ("behind-dead-head", None, "dead-head", YOUNG),
            ("further-behind", FUTURE, "behind-dead-head", YOUNG),
            ("never", "never", None, OLD),
            ("iso", "2021-05-05T05:05:05Z", None, OLD),
            ("no-such-day", "2021-02-31 00:00:00", None, OLD),
            ("doubtful-chain-head", PAST, None, OLD),
            ("doubtful-behind", None, "doubtful-chain-head", "yesterday"),
        ],
    )
    listed = memops(server, "prune", "--dry-run").stdout
    doomed = {"expired", "long-superseded", "dead-head", "behind-dead-head", "further-behind"}
    assert {line.split()[0] for line in listed.splitlines()[:-1] if "kept" not in line} == doomed
    before = ids(server)
    said = memops(server, "prune").stdout
    assert "2 expired, 1 superseded, 2 in chains, 5 kept as doubtful" in said
    assert ids(server) == before - doomed
    assert "2 expired, 1 superseded, 2 in chains" in server.journal("memory-prune.service")
    # Nothing is done twice, and the gap is told.
    assert "0 expired, 0 superseded" in memops(server, "prune").stdout


def test_sets_are_sealed_and_out_of_the_agents_reach(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, [("a", None, None, YOUNG), ("b", None, None, YOUNG)])
    server.run("systemctl", "start", "memory-backup.service")
    server.run("systemctl", "start", "memory-backup.service")
    first, second, third = sets(server)
    assert first < second < third
    manifest = json.loads(server.read(f"/srv/backup/default/{third}/manifest.json"))
    part = manifest["parts"][0]
    assert (manifest["version"], part["rows"]["memory"], part["exact"]) == (1, 2, True)
    digest = server.run("sha256sum", f"/srv/backup/default/{third}/memory.db").stdout.split()[0]
    assert part["sha256"] == digest
    assert server.sql(f"/srv/backup/default/{third}/memory.db", "SELECT count(*) FROM memory", user="root") == [[2]]
    for attempt in (
        ("ls", "/srv/backup"),
        ("cat", f"/srv/backup/default/{third}/memory.db"),
        ("rm", "-rf", f"/srv/backup/default/{third}"),
        ("touch", "/srv/backup/incoming/default/memory.db"),
        ("mv", "/srv/backup/default", "/srv/backup/gone"),
    ):
        assert server.run(*attempt, user="agent", check=False).code != 0, attempt
    assert server.run("ls", "-A", "/srv/backup/incoming/default").stdout == ""
    assert server.run(
        "stat", "-c", "%U:%G %a", f"/srv/backup/default/{third}", f"/srv/backup/default/{third}/memory.db"
    ).stdout.split("\n")[:2] == ["root:root 700", "root:root 600"]


def test_a_set_is_put_back_as_the_docs_say(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, [("kept", None, None, OLD), ("deleted", None, None, OLD)])
    server.run("systemctl", "start", "memory-backup.service")
    newest = sets(server)[-1]
    server.sql(DB, "DELETE FROM memory WHERE id = 'deleted'")
    page = (ROOT / "docs" / "backups.md").read_text().partition("**memops itself is broken.**")[2].partition("\n## ")[0]
    commands = [
        line.removeprefix("$ sudo ").partition("   #")[0] for line in page.splitlines() if line.startswith("$ ")
    ]
    assert len(commands) == 6
    for command in commands:
        server.sh(command.replace("2026-11-30T213159Z", newest), timeout=300)
    assert ids(server) == {"kept", "deleted"}
    assert server.sql(DB, "PRAGMA journal_mode") == [["wal"]]
    assert status(server)["problems"] == []


def test_a_failed_backup_leaves_no_set_and_shows(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    before = sets(server)
    server.run("mv", DB, f"{DB}.away")
    assert server.run("systemctl", "start", "memory-backup.service", check=False).code != 0
    assert sets(server) == before
    seen = status(server)
    assert seen["problems"][0]["level"] == "error"
    assert "snapshot failed" in seen["problems"][0]["what"]
    assert not server.exists(DB)
    server.run("mv", f"{DB}.away", DB)
    server.run("systemctl", "start", "memory-backup.service")
    assert len(sets(server)) == len(before) + 1
    assert status(server)["problems"] == []


def test_the_jobs_outlive_the_command(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    server.run("rm", "-rf", "/opt/memops", "/usr/local/bin/memops")
    add_facts(server, [("dead", PAST, None, OLD), ("live", None, None, OLD)])
    server.run("systemctl", "start", "memory-prune.service", "memory-backup.service")
    assert ids(server) == {"live"}
    assert len(sets(server)) == 2
    server.run("/usr/local/lib/memops/uninstall")
    assert server.run("systemctl", "list-units", "--all", "--no-legend", "memory-*").stdout.strip() == ""
    assert not server.exists("/usr/local/lib/memops")
    assert ids(server) == {"live"}


BEHIND = """
import os, sqlite3, sys, tempfile
sys.path.insert(0, "/usr/local/lib/memops")
import store
path = os.path.join(tempfile.mkdtemp(), "memory.db")
with sqlite3.connect(path) as connection:
    connection.executescript(
        "CREATE VIRTUAL TABLE words USING fts5(a); CREATE TABLE memory (id);"
        "CREATE TRIGGER evil AFTER INSERT ON memory BEGIN DELETE FROM words_data; END;"
    )
try:
    store.connect(path).execute("INSERT INTO memory VALUES (1)")
    done = "written"
except sqlite3.Error as error:
    done = "refused" if "may not be modified" in str(error) else repr(error)
print(f"{sys.version_info[0]}.{sys.version_info[1]:02}", done)
"""


def test_jobs_are_as_closed_as_promised(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    for unit, most in (("memory-prune", 0.2), ("memory-snapshot", 0.2), ("memory-backup", 0.7)):
        said = server.run("systemd-analyze", "security", "--no-pager", f"{unit}.service").stdout
        assert float(said.rpartition("Overall exposure level for")[2].split()[1]) <= most

    # What this machine's Python has against a trigger that writes behind a full-text index.
    said = server.run("python3", "-I", "-c", BEHIND, user="agent").stdout.split()
    assert said[1] == ("refused" if said[0] >= "3.12" else "written")
