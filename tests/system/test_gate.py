"""No scheduled prune without a new backup, by the real timer on real servers."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from system.machine import add_facts, ids, memops, status

if TYPE_CHECKING:
    from system.server import Server


PRUNE, TIMER = "memory-prune.service", "memory-prune.timer"
RUNS = "/var/lib/memops/default/runs.jsonl"
SETS = "/var/lib/memops/default.sets.json"
ADVICE = "Type: sudo memops backup. Or, to prune without one: sudo memops install --prune-without-backup"


def sealed_ago(server: Server, hours: float) -> None:
    """Let the newest set be this old: the clock of a server cannot be moved."""
    record = json.loads(server.read(SETS))
    record["newest"]["sealed_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - hours * 3600))
    server.write(SETS, json.dumps(record))


def scheduled(server: Server) -> dict[str, Any]:
    """Let the timer elapse; the record of the run that it starts."""
    before = len(server.read(RUNS).splitlines())
    # $TRIGGER_UNIT is there only when systemd itself started a run for the timer.
    server.write(
        f"/etc/systemd/system/{TIMER}.d/soon.conf",
        "[Timer]\nOnCalendar=\nOnCalendar=2099-01-01\nOnActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=1s\n",
    )
    server.run("systemctl", "daemon-reload")
    server.run("systemctl", "restart", TIMER)

    def ended() -> dict[str, Any] | None:
        new = [json.loads(line) for line in server.read(RUNS).splitlines()[before:]]
        return next((record for record in new if record["job"] == "prune"), None)

    record: dict[str, Any] = server.wait_until(ended)
    assert record["trigger"] == "timer"
    server.wait_until(lambda: server.show(PRUNE, "ActiveState")["ActiveState"] in ("inactive", "failed"))
    return record


def alerts(server: Server) -> list[str]:
    """What the alert of the prune said at priority err."""
    server.run("journalctl", "--sync")
    alert = f"memory-alert@{PRUNE}.service"
    found = server.run("journalctl", "--quiet", "--output=cat", "-p", "err", "-u", alert, "_COMM=python3")
    return found.stdout.splitlines()


def test_the_timer_prunes_only_with_a_new_backup(memops_server: Server) -> None:
    server = memops_server
    memops(server, "install")
    server.run("mkdir", "-p", f"/etc/systemd/system/{TIMER}.d")
    dead = ("2020-01-01 00:00:00", None, "2020-01-01 00:00:00")
    add_facts(server, [("dead", *dead), ("live", None, None, "2020-01-01 00:00:00")])

    # Three days old: nothing goes, and everybody is told.
    sealed_ago(server, 72.5)
    record = scheduled(server)
    assert (record["exit"], record["result"]) == (8, "no backup")
    assert server.show(PRUNE, "ExecMainStatus") == {"ExecMainStatus": "8"}
    assert ids(server) == {"dead", "live"}
    (line,) = server.wait_until(lambda: alerts(server))
    assert line.startswith(f"{PRUNE} failed at 20")
    assert line.endswith(f"Z: {record['message']}")
    assert "nothing deleted: the newest verified backup is 3 days old" in line
    assert ADVICE in line
    said = memops(server, "check", code=2, user="nobody").stdout
    assert "prune failed" in said
    assert "prune failed: nothing deleted" in memops(server, "check", code=2).stdout

    # A person may, and is told how old it is; though systemd goes on naming the timer that started the run before.
    assert "the newest verified backup is 3 days old" in memops(server, "prune").stdout
    prunes = [run for run in map(json.loads, server.read(RUNS).splitlines()) if run["job"] == "prune"]
    record = prunes[-1]
    assert (record["trigger"], record["result"]) == ("person", "done")
    assert record["message"].endswith("; the newest verified backup is 3 days old")
    assert ids(server) == {"live"}
    server.run("systemctl", "start", PRUNE)
    assert len(alerts(server)) == 1

    # No record at all, a damaged one, and one from a clock that was wrong.
    for spoil, words in (
        (("rm", SETS), "there is no verified backup"),
        (("sh", "-c", f"echo '{{' >{SETS}"), f"{SETS} is damaged"),
    ):
        server.run(*spoil)
        assert words in scheduled(server)["message"]
    server.run("systemctl", "start", "memory-backup.service")
    sealed_ago(server, -24)
    assert "from now, so the clock may be wrong" in scheduled(server)["message"]

    # With a new one it deletes.
    add_facts(server, [("dead", *dead)])
    server.run("systemctl", "start", "memory-backup.service")
    assert scheduled(server)["result"] == "done"
    assert ids(server) == {"live"}
    assert status(server)["problems"] == []

    # And without any, where the owner said so.
    memops(server, "install", "--prune-without-backup")
    assert "--sets-record" not in server.read(f"/etc/systemd/system/{PRUNE}")
    add_facts(server, [("dead", *dead)])
    sealed_ago(server, 500)
    assert scheduled(server)["result"] == "done"
    assert ids(server) == {"live"}
