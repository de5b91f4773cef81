"""Installing on servers that are not as they should be, failing half-way, and taking it away again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from system.machine import DB, add_facts, ids, listing, memops, sets, status

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form

SHAPE = (
    "CREATE TABLE memory (id TEXT PRIMARY KEY, subject TEXT NOT NULL, fact TEXT NOT NULL, source TEXT NOT NULL,"
    " created_at TEXT NOT NULL DEFAULT (datetime('now')), confirmed_at TEXT NOT NULL DEFAULT (datetime('now')),"
    " expires_at TEXT, superseded_by TEXT REFERENCES memory(id) ON DELETE CASCADE)"
)
HISTORY = (
    "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT,"
    " created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"
)
ODD = "/srv/an o%Hdd $HOME #1;a:b ünï/mem o%ry $x.db"


def make_store(server: Server, db: str, schema: str = SHAPE, user: str = "ada") -> None:
    """A user and a database of theirs that memops did not make."""
    folder = db.rpartition("/")[0]
    server.sh(f"id {user} 2>/dev/null || useradd --create-home {user}; mkdir -p '{folder}'; chown {user}: '{folder}'")
    script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.close()"
    server.run("python3", "-c", script, db, schema, user=user)


def test_refusals_say_what_is_so_and_write_nothing(memops_server: Server) -> None:
    server = memops_server
    make_store(server, "/home/ada/own.db", "CREATE TABLE notes (x)")
    make_store(server, "/home/ada/history.db", HISTORY)
    make_store(server, "/home/ada/short.db", SHAPE.replace("source TEXT NOT NULL,", "").replace("expires_at TEXT,", ""))
    make_store(server, "/home/ada/norowid.db", SHAPE + " WITHOUT ROWID")
    make_store(server, "/home/ada/good.db")
    server.sh(
        "echo this is text >/home/ada/text.db; : >/home/ada/empty.db; mkdir /home/ada/folder.db; chown ada: /home/ada/*"
    )
    server.sh("ln /home/ada/good.db /home/ada/second-name.db; mkfifo /home/ada/fifo.db; chown ada: /home/ada/fifo.db")
    server.sh("mkdir /srv/roots; echo x >/srv/roots/x")
    before = listing(server)
    cases: list[tuple[list[str], int, str]] = [
        (["--prune-at", "every day"], 2, "systemd-analyze calendar"),
        (["--backup-at", "25:00"], 2, "systemd-analyze calendar"),
        (["--prune-at", "daily\nExecStart=/bin/rm"], 2, "calendar"),
        (["--user", "bob"], 3, "adduser bob"),
        (["--db", "/home/ada/own.db"], 3, "no table named memory"),
        (["--db", "/home/ada/history.db"], 3, "change log"),
        (["--db", "/home/ada/short.db"], 3, "lacks columns: source, expires_at"),
        (["--db", "/home/ada/norowid.db"], 3, "WITHOUT ROWID"),
        (["--db", "/home/ada/text.db"], 3, "not a SQLite database"),
        (["--db", "/home/ada/empty.db"], 3, "empty file"),
        (["--db", "/home/ada/folder.db"], 3, "not a plain file"),
        (["--db", "/home/ada/fifo.db"], 3, "not a plain file"),
        (["--db", "/home/ada/good.db"], 3, "hard links"),
        (["--db", "/home/ada/text.db/below.db"], 3, "not a directory"),
        (["--db", "/home/ada/good.db", "--user", "root"], 3, "belongs to ada"),
        (["--db", "/srv/a'b/x.db"], 2, "single quote"),
        (["--db", '/srv/a"b/x.db'], 2, "double quote"),
        (["--db", "/srv/a\\b/x.db"], 2, "backslash"),
        (["--db", "/srv/a\nb/x.db"], 2, "control character"),
        (["--db", "/srv/a\x1bb/x.db"], 2, "control character"),
        (["--db", "/srv/memory.db"], 3, "directly in /srv"),
        (["--db", "/memory.db"], 3, "directly in /"),
        (["--db", "/etc/memory.db"], 3, "directly in /etc"),
        (["--db", "/root/memory.db"], 3, "directly in /root"),
        (["--db", "/srv/roots/memory.db"], 3, "--user NAME"),
        (["--backup-dir", "/srv/agent/backup"], 3, "one inside the other"),
        (["--backup-dir", "/srv", "--db", "/srv/a/m.db"], 3, "directly in /srv"),
        (["--db", "/srv/backup/agent/m.db"], 3, "one inside the other"),
        (["--journal-mode", "delete"], 2, "--journal-mode wal"),
        (["--keep-superseded", "soon"], 2, "180d"),
        (["--keep-superseded", "0"], 2, "180d"),
        (["--history-from", "birth"], 2, "--history-from created"),
        (["--no-such-option"], 2, "No such option"),
    ]
    for options, code, words in cases:
        refused = memops(server, "install", "--yes", *options, code=code)
        assert words in refused.stderr, (options, refused.stderr)
    memops(server, "install", "--dry-run", "--user", "bob", code=3)
    assert {k: v for k, v in listing(server).items() if "/home/ada/" not in k} == {
        k: v for k, v in before.items() if "/home/ada/" not in k
    }
    assert not server.exists("/srv/agent")


def test_an_odd_path_works_all_the_way(memops_server: Server) -> None:
    server = memops_server
    make_store(server, ODD)
    said = memops(server, "install", "--yes", "--db", ODD, "--backup-dir", "/srv/b ä%n#;:ck").stdout
    assert "memops looks after" in said
    add_facts(
        server,
        [("dead", "2020-01-01 00:00:00", None, "2020-01-01 00:00:00"), ("live", None, None, "2020-01-01 00:00:00")],
        ODD,
        "ada",
    )
    memops(server, "prune")
    assert ids(server, ODD, "ada") == {"live"}
    server.run("systemctl", "start", "memory-backup.service")
    assert len(sets(server, "/srv/b ä%n#;:ck/default")) == 2
    assert status(server)["db"] == ODD
    assert status(server, "--fresh")["counts"]["rows"] == 1
    assert "Nothing to do" in memops(server, "install").stdout
    memops(server, "uninstall")
    assert ids(server, ODD, "ada") == {"live"}


def test_a_store_that_was_there_is_changed_only_with_consent(memops_server: Server) -> None:
    server = memops_server
    db = "/home/ada/agent/memory.db"
    make_store(server, db)
    before = listing(server)
    refused = memops(server, "install", "--db", db, code=2)
    assert "CREATE VIEW" in refused.stderr
    assert "--yes" in refused.stderr
    assert listing(server).keys() - before.keys() <= {f"{db}-wal", f"{db}-shm"}
    said = memops(server, "install", "--db", db, tty=True, input="n\n", code=1)
    assert "Do it?" in said.stdout
    memops(server, "install", "--db", db, tty=True, input="y\n")
    names = {row[0] for row in server.sql(db, "SELECT name FROM sqlite_schema", user="ada")}
    assert {"live_memory", "memory_expires", "memory_superseded"} <= names
    assert server.sql(db, "PRAGMA journal_mode", user="ada") == [["wal"]]
    assert server.show("memory-prune.service", "User")["User"] == "ada"


def test_the_journal_mode_can_be_left_alone(memops_server: Server) -> None:
    server = memops_server
    make_store(server, "/home/ada/agent/memory.db")
    memops(server, "install", "--yes", "--db", "/home/ada/agent/memory.db", "--journal-mode", "keep")
    assert server.sql("/home/ada/agent/memory.db", "PRAGMA journal_mode", user="ada") == [["delete"]]
    assert "Nothing to do" in memops(server, "install").stdout


# Wraps the real steps: the real command, the real machine, one step that breaks or a signal in its middle.
_BREAK = """
import os, signal, sys
from memops import apply, install
how, at = sys.argv[1], int(sys.argv[2])
real = apply.apply
class Broken:
    def __init__(self, step): self.step, self.title = step, step.title
    def __getattr__(self, name): return getattr(self.step, name)
    def do(self, undo):
        self.step.do(undo)
        if how == "fail": raise OSError(28, "No space left on device")
        os.kill(os.getpid(), {"term": signal.SIGTERM, "kill": signal.SIGKILL}[how])
        import time; time.sleep(5)
def apply_broken(steps, say):
    print("STEPS", len(steps), flush=True)
    return real([Broken(s) if i == at else s for i, s in enumerate(steps)], say)
install.apply.apply = apply_broken
sys.argv = ["memops", "install", "--yes"]
from memops.main import main
main()
"""


def _break(server: Server, how: str, at: int) -> tuple[int, int]:
    """Run an installation that breaks in step ``at``: its exit code, and how many steps come before the timers."""
    python = server.run("sh", "-c", "head -1 $(readlink -f /usr/local/bin/memops) | cut -c3-").stdout.strip()
    result = server.run(python, "-c", _BREAK, how, str(at), check=False, timeout=300)
    assert "Traceback" not in result.stderr, result.stderr
    return result.code, int(result.stdout.split("STEPS ")[1].split()[0]) - 1


@pytest.mark.parametrize("how", ["fail", "term"])
def test_a_step_that_breaks_leaves_the_machine_as_it_was(memops_server: Server, how: str) -> None:
    server = memops_server
    before = listing(server)
    _, count = _break(server, how, 0)
    every = range(count) if os.environ.get("MEMOPS_LONG") else [*range(0, count, 4), count - 2, count - 1]
    for at in every:
        code, _ = _break(server, how, at)
        assert code == 1, at
        assert listing(server) == before, at
        assert server.run("id", "agent", check=False).code != 0
    assert server.run("systemctl", "list-units", "--all", "--no-legend", "memory-*").stdout.strip() == ""
    memops(server, "install")


def test_a_killed_installation_can_be_finished_or_removed(memops_server: Server) -> None:
    server = memops_server
    before = listing(server)
    data = (
        "/srv/",
        "/etc/passwd",
        "/etc/group",
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/sysusers.d",
        "/etc/tmpfiles.d",
        "/etc/bash_completion.d",
    )
    code, count = _break(server, "kill", 0)
    assert code < 0
    every = range(count + 1) if os.environ.get("MEMOPS_LONG") else [1, 5, 12, 17, 25, count - 3, count]
    for at in every:
        _break(server, "kill", at)
        memops(server, "uninstall")
        left = {
            path for path, line in listing(server).items() if before.get(path) != line and not path.startswith(data)
        }
        assert left == set(), at
        _break(server, "kill", at)
        memops(server, "install")
        assert status(server)["problems"] == []
        memops(server, "uninstall", "--purge", "--confirm", DB)


def test_uninstall_keeps_what_others_made(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    add_facts(server, [("live", None, None, "2020-01-01 00:00:00")])
    server.sh("echo '# mine' >>/etc/systemd/system/memory-prune.service")
    server.sh("mkdir /etc/systemd/system/memory-backup.service.d")
    server.write("/etc/systemd/system/memory-backup.service.d/override.conf", "[Service]\nNice=5\n")
    server.run("systemctl", "daemon-reload")
    before = listing(server)
    foretold = memops(server, "uninstall", "--dry-run").stdout
    assert "would remove /etc/systemd/system/memory-backup.service\n" in foretold
    assert listing(server) == before
    said = memops(server, "uninstall").stdout
    assert "kept /etc/systemd/system/memory-prune.service.memops-edited" in said
    assert "kept /etc/systemd/system/memory-backup.service.d" in said
    assert ids(server) == {"live"}
    assert "Nothing to do" in memops(server, "uninstall").stdout


def test_purge_wants_the_path_typed(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    assert f"--confirm {DB}" in memops(server, "uninstall", "--purge", code=3).stderr
    assert (
        "nothing was changed" in memops(server, "uninstall", "--purge", tty=True, input="/srv/agent\n", code=3).stdout
    )
    assert status(server)["problems"] == []
    server.sh("mkdir /srv/agent/before-restore-2026-01-01T000000Z", user="agent")
    server.sh("echo a fact >/srv/agent/before-restore-2026-01-01T000000Z/memory.db", user="agent")
    memops(server, "uninstall", "--purge", tty=True, input=f"{DB}\n")
    assert not server.exists("/srv/agent")
    assert not server.exists("/srv/backup")
    assert server.run("id", "agent", check=False).code != 0


def test_what_is_in_the_way_is_named_and_kept(memops_server: Server) -> None:
    server = memops_server
    guide = "[Service]\nExecStart=/bin/true\n"
    server.write("/etc/systemd/system/memory-prune.service", guide)
    refused = memops(server, "install", code=3)
    assert "memops did not write it" in refused.stderr
    assert server.read("/etc/systemd/system/memory-prune.service") == guide
    server.run("rm", "/etc/systemd/system/memory-prune.service")
    server.run("systemctl", "mask", "memory-prune.service")
    assert "systemctl unmask memory-prune.service" in memops(server, "install", code=3).stderr
    server.run("systemctl", "unmask", "memory-prune.service")
    memops(server, "install")


def test_undoing_goes_on_when_nobody_reads_any_more(memops_server: Server) -> None:
    server = memops_server
    before = listing(server)
    server.run("sh", "-c", "memops install | head -3", timeout=300)
    server.wait_until(lambda: server.run("pgrep", "-f", "bin/memops install", check=False).code != 0)
    assert listing(server) == before
    assert server.run("id", "agent", check=False).code != 0


def test_a_store_or_settings_that_vanish_are_not_replaced_by_new_ones(memops_server: Server) -> None:
    server = memops_server
    make_store(server, "/home/ada/agent/memory.db")
    memops(server, "install", "--yes", "--db", "/home/ada/agent/memory.db", "--prune-at", "06:00")
    server.run("mv", "/home/ada/agent/memory.db", "/home/ada/memory.db")
    refused = memops(server, "install", code=3)
    assert "is gone" in refused.stderr
    assert not server.exists("/home/ada/agent/memory.db")
    server.run("mv", "/home/ada/memory.db", "/home/ada/agent/memory.db")
    server.run("rm", "/etc/memops/memops.toml")
    assert "is missing" in memops(server, "status", code=1).stderr
    refused = memops(server, "install", code=3)
    assert "--db /home/ada/agent/memory.db --user ada --backup-dir /srv/backup" in refused.stderr
    memops(server, "install", "--db", "/home/ada/agent/memory.db", "--user", "ada", "--prune-at", "06:00")
    assert status(server)["problems"] == []


def test_uninstall_leaves_no_link_behind_a_unit_that_is_gone(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    server.run("rm", "-r", "/etc/systemd/system/memory-prune.timer", "/usr/local/lib/memops")
    memops(server, "uninstall")
    assert server.run("find", "/etc/systemd", "-name", "memory-*").stdout == ""


def test_schedules_that_never_come_are_refused(memops_server: Server) -> None:
    assert "in the past" in memops(memops_server, "install", "--prune-at", "2020-01-01", code=2).stderr
    assert not memops_server.exists("/etc/memops")


def test_a_proof_that_fails_leaves_the_installation_and_says_so(memops_server: Server) -> None:
    server = memops_server
    server.run("mkdir", "-p", "/etc/systemd/system/memory-prune.service.d")
    server.write("/etc/systemd/system/memory-prune.service.d/x.conf", "[Service]\nExecStart=\nExecStart=/bin/false\n")
    said = memops(server, "install", code=7)
    assert "memops is installed and its timers run, but: memory-prune.service left no record" in said.stderr
    assert "sudo memops install" in said.stderr
    assert server.show("memory-prune.timer", "ActiveState")["ActiveState"] == "active"
    assert len(sets(server)) == 1
    server.run("rm", "-r", "/etc/systemd/system/memory-prune.service.d")
    server.run("systemctl", "daemon-reload")
    server.run("systemctl", "start", "memory-prune.service")
    assert status(server)["problems"] == []
