"""Doctor on a real server: real faults are found, worst first, and mended; the mend that is written out works."""

# ruff: noqa: S108 - a server's own directories

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

from system.machine import DB, ids, memops

if TYPE_CHECKING:
    from system.server import Result, Server

ALTERNATE = True

AGENT = """
import os, sqlite3, sys, time
connection = sqlite3.connect(os.environ["NOTES_DB"], isolation_level=None)
connection.execute("PRAGMA journal_mode = wal")
connection.execute("CREATE TABLE IF NOT EXISTS facts (id INTEGER PRIMARY KEY, fact TEXT)")
connection.execute("INSERT INTO facts (fact) VALUES ('Likes tea')")
while True:
    time.sleep(60)
"""
UNIT = """
[Service]
User=ada
PrivateTmp=yes
Environment=NOTES_DB={path}
ExecStart=/usr/bin/python3 /opt/agent.py
"""
HOLD = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('INSERT INTO memory (id, subject, fact, source)"
)
HOLD += ' VALUES ("roots", "s", "f", "chat")\'); c.commit(); import os; os.kill(os.getpid(), 9)'

SUDO = 'sudo() { if [ "$1" = -u ]; then runuser -u "$2" -- "${@:3}"; else "$@"; fi; }'
"""A server of these tests has none."""


def doctor(server: Server, *arguments: str, code: int, **options: Any) -> Result:
    return memops(server, "doctor", *arguments, code=code, env={"COLUMNS": "80"}, **options)


def found(server: Server, *paths: str, code: int = 1) -> dict[str, list[str]]:
    """Code → paths of the findings."""
    codes: dict[str, list[str]] = {}
    for each in json.loads(doctor(server, "--json", *paths, code=code).stdout)["findings"]:
        codes.setdefault(each["code"], []).append(each["path"])
    return codes


def mode(server: Server, path: str) -> str:
    return server.run("stat", "-c", "%a %U", path).stdout.strip()


def test_faults_are_found_ranked_and_mended(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    memops(server, "drill")
    assert not {"no-set", "wal-off", "readable-by-others"} & found(server, DB, code=0).keys()

    # No set, and an old drill.
    server.sh("rm -r /srv/backup/default/2* /var/lib/memops/default.sets.json")
    assert "Mended: no-set" in doctor(server, "--fix", "no-set", DB, "--yes", code=0).stdout
    memops(server, "drill")
    record = json.loads(server.read("/var/lib/memops/default.sets.json"))
    record["drill"] |= {"end": "2026-10-01T00:00:00Z", "good": "2026-10-01T00:00:00Z"}
    server.write("/var/lib/memops/default.sets.json", json.dumps(record))
    server.sh("touch -d 2026-10-01 /var/lib/systemd/timers/stamp-memory-drill.timer")
    assert "old-drill" in found(server, DB, code=7)
    assert "Mended: old-drill" in doctor(server, "--fix", "old-drill", DB, "--yes", code=0).stdout

    # A store that only its unit sees, in the unit's own /tmp.
    server.run("useradd", "--create-home", "ada")
    server.write("/opt/agent.py", AGENT)
    server.write("/etc/systemd/system/notes.service", UNIT.format(path="/tmp/notes.db"))
    server.sh("systemctl daemon-reload && systemctl start notes")
    # And faults in the store under care.
    now = "'chat', '2026-11-01 00:00:00'"
    rows = [
        f"('round', {now}, NULL, 'trip')", f"('trip', {now}, NULL, 'round')", f"('self', {now}, NULL, 'self')",
        f"('lost', {now}, NULL, 'nowhere')", f"('behind', {now}, NULL, 'lost')",
        f"('for ever', {now}, NULL, 'a week')", f"('a week', {now}, '2199-01-01 00:00:00', NULL)",
        "('odd', '', '2026-11-01T00:00:00Z', NULL, NULL)", f"('fine', {now}, NULL, NULL)",
    ]  # fmt: skip
    values = ", ".join(row.replace("(", "('s', 'f', ", 1) for row in rows)
    insert = f"INSERT INTO memory (subject, fact, id, source, created_at, expires_at, superseded_by) VALUES {values}"
    server.sql(DB, f"PRAGMA foreign_keys = OFF; {insert};", script=True)
    server.sql(DB, "PRAGMA journal_mode = delete")
    server.sh(f"chmod 755 /srv/agent && chmod 644 {DB}")

    ran = doctor(server, code=1)
    data = json.loads(doctor(server, "--json", code=1).stdout)
    assert max(len(line) for line in ran.stdout.splitlines() if not line.startswith("    ")) <= 80
    told = re.findall(r"^(error|warning|note) ([a-z0-9-]+): ", ran.stdout, re.MULTILINE)
    assert told == [(each["level"], each["code"]) for each in data["findings"]]
    assert told[0] == ("error", "on-tmp")
    assert data["findings"][0]["path"] == "/tmp/notes.db"
    codes = {each["code"] for each in data["findings"] if each["path"] == DB}
    assert codes >= {
        "cycle", "self-reference", "chain-into-nothing", "temporary-replaces-permanent", "doubtful-dates",
        "vague-sources", "wal-off", "readable-by-others",
    }  # fmt: skip
    assert "the /tmp that notes.service alone has" in " ".join(ran.stdout.split())
    # Whoever may not look hears what was not seen.
    ran = server.run("memops", "doctor", user="nobody", check=False)
    assert ran.code in (0, 1, 7), ran.stderr
    assert "\nNot read: " in ran.stdout

    # Nothing is mended unasked.
    assert (
        "chmod 0640 /srv/agent/memory.db (is 0644)"
        in doctor(server, "--fix", "readable-by-others", DB, "--dry-run", code=0).stdout
    )
    assert "--yes" in doctor(server, "--fix", "readable-by-others", DB, code=2).stderr
    doctor(server, "--fix", "cycle", DB, code=3)
    doctor(server, "--fix", "wal-off", DB, code=4, user="nobody")
    assert mode(server, DB) == "644 agent"
    # Mended, after a set, and looked at again.
    ran = doctor(server, "--fix", "readable-by-others", DB, "--yes", code=0)
    assert f"Mended: readable-by-others, {DB}" in ran.stdout
    assert "To undo the modes: sudo chmod 0644 /srv/agent/memory.db" in ran.stderr
    assert mode(server, DB) == "640 agent"
    doctor(server, "--fix", "wal-off", DB, "--yes", code=0)
    assert server.sql(DB, "PRAGMA journal_mode") == [["wal"]]
    before = ids(server)
    ran = doctor(server, "--fix", "chain-into-nothing", DB, "--yes", code=0)
    assert before - ids(server) == {"lost", "behind"}
    undo = re.search(r"To undo this: sudo memops (restore \S+)$", ran.stderr, re.MULTILINE)
    assert undo, ran
    assert not {"wal-off", "readable-by-others", "chain-into-nothing"} & found(server, DB, code=7).keys()
    memops(server, *undo[1].split(), "--yes")
    assert ids(server) == before

    # Root opened the store and was killed: its owner is locked out, until the files are given back.
    server.run("setpriv", "--inh-caps=-chown", "--bounding-set=-chown", "python3", "-c", HOLD, DB, check=False)
    assert mode(server, f"{DB}-wal").endswith(" root")
    assert found(server, DB)["foreign-sidecar"] == [DB]
    ran = doctor(server, "--fix", "foreign-sidecar", DB, "--yes", code=0)
    assert f"Mended: foreign-sidecar, {DB}" in ran.stdout
    server.sql(DB, "DELETE FROM memory WHERE id = 'odd'")
    assert "roots" in ids(server)

    # The mend of the store in /tmp, typed as it is written.
    mend = next(each["mend"] for each in data["findings"] if each["code"] == "on-tmp")
    unit = UNIT.format(path="/srv/ada/notes.db")
    lines = [SUDO, "set -eux", *mend]
    start = next(n for n, line in enumerate(lines) if line.startswith("sudo systemctl start"))
    lines.insert(start, f"printf %s {shlex.quote(unit)} >/etc/systemd/system/notes.service; systemctl daemon-reload")
    server.run("bash", "-c", "\n".join(lines))
    server.wait_until(lambda: server.sql("/srv/ada/notes.db", "SELECT count(*) FROM facts", user="ada") == [[2]])
    assert mode(server, "/srv/ada/notes.db") == "644 ada"
    assert "on-tmp" not in found(server, "/srv/ada/notes.db", code=0)
