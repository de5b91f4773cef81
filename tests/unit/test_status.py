"""What status makes of what it gathered."""

from __future__ import annotations

from memops import report
from memops.health import problems
from memops.survey import explain

UNIT = {"loaded": "loaded", "drop_ins": [], "reload_needed": False}


def healthy() -> dict:
    job = {
        **UNIT,
        "result": "done",
        "message": "",
        "ended": "2026-11-30T21:00:00Z",
        "age": 60,
        "good": None,
        "due": None,
    }
    return {
        "name": "default",
        "db": "/srv/agent/memory.db",
        "user": "agent",
        "backup_dir": "/srv/backup/default",
        "timers": [
            {
                "unit": f"memory-{n}.timer",
                "enabled": "enabled",
                "active": "active",
                "next": "2026-12-01T00:03:11Z",
                "last": None,
                **UNIT,
            }
            for n in ("backup", "prune", "drill")
        ],
        "jobs": [{**job, "job": n, "unit": f"memory-{n}.service"} for n in ("snapshot", "backup", "prune", "drill")],
        "counts": {
            "rows": 3,
            "live": 2,
            "gap": 1,
            "dead": 0,
            "doubtful": 0,
            "violations": 0,
            "age": 61,
            "journal_mode": "wal",
        },
        "newest_set": {"set": "2026-11-30T210000Z", "rows": 3, "bytes": 20480, "parts": 1, "age": 3600},
        "failed_sets": [],
        "loss": None,
        "restore_unfinished": False,
        "agent_paused": False,
        "journal": {"memory-prune.service": ["2026-11-30T21:00:00Z prune: 0 expired"]},
        "failed_alarms": [],
        "missing_scripts": [],
        "unreadable": [],
    }


def test_health_has_no_problems() -> None:
    assert problems(healthy()) == []


def test_the_worst_comes_first_and_each_says_what_to_type() -> None:
    sick = healthy()
    sick["timers"][0]["enabled"] = "disabled"
    sick["jobs"][2] |= {"result": "failed", "message": "the agent held the write lock"}
    sick["newest_set"] = None
    sick["counts"]["doubtful"] = 2
    found = problems(sick)
    assert [p["level"] for p in found] == ["error", "error", "warning", "warning"]
    assert "the agent held the write lock" in found[0]["what"]
    assert all(p["type"] for p in found)


def test_an_old_set_is_a_problem() -> None:
    sick = healthy()
    sick["newest_set"]["age"] = 49 * 3600
    assert "older than two days" in problems(sick)[0]["what"]


def test_a_set_that_root_does_not_find_any_more_is_a_problem() -> None:
    sick = healthy()
    sick["newest_set"]["gone"] = True
    assert problems(sick)[0] == {
        "level": "error",
        "what": f"the newest verified backup, {sick['newest_set']['set']}, is not there any more",
        "type": "sudo systemctl start memory-backup.service",
    }


def test_what_was_not_read_is_not_called_a_failure() -> None:
    shy = healthy()
    shy["jobs"][0] |= {"result": "not read", "ended": None}
    shy["counts"] = None
    shy["unreadable"] = ["the journal"]
    assert problems(shy) == []
    text = report.status({"stores": [{**shy, "problems": []}]})
    assert "never" not in text
    assert "not counted" in text
    assert "not read     the journal" in text


def test_the_screen_fits_80_columns_and_has_no_colour_off_a_terminal(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    sick = healthy()
    sick["jobs"][2] |= {"result": "failed", "message": "the agent held the write lock for longer than 30 s " * 3}
    text = report.status({"stores": [{**sick, "problems": problems(sick)}]})
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert text.splitlines()[0] == "default: not well"


def test_a_drill_takes_one_line(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    good = healthy()
    good["jobs"][3] |= {"age": 6 * 86400}
    good["timers"][2]["last"] = "2026-11-30T00:00:00Z"
    lines = report.status({"stores": [{**good, "problems": []}]}).splitlines()
    assert [line for line in lines if "drill" in line] == ["  drill        done 6 days ago; next 2026-12-01 00:03 UTC"]
    good["jobs"][3] |= {"result": "never ran", "ended": None, "age": None}
    text = report.status({"stores": [{**good, "problems": []}]})
    assert "  drill        never ran; next 2026-12-01 00:03 UTC" in text


def test_a_set_of_several_parts_and_jobs_that_only_some_stores_have() -> None:
    good = healthy()
    good["newest_set"]["parts"] = 3
    for name in ("remote", "offsite"):
        good["jobs"].append({**good["jobs"][0], "job": name, "unit": f"memory-{name}.service"})
    assert problems(good) == []
    text = report.status({"stores": [{**good, "problems": []}]})
    assert "newest set   2026-11-30T210000Z, 3 parts, 3 rows, 20.5 kB, 60 min old" in text
    assert "remote       done 1 min ago; the backup starts it" in text
    assert "offsite      done 1 min ago; follows each backup" in text


def test_ages_and_sizes() -> None:
    assert [report.age(s) for s in (None, 0, 59, 61, 7200, 86400 * 3)] == ["?", "0 s", "59 s", "1 min", "2 h", "3 days"]
    assert [report.size(n) for n in (0, 999, 20480, 5_000_000, "?")] == ["0 B", "999 B", "20.5 kB", "5.0 MB", "0 B"]


def test_what_others_did_to_the_units_is_shown() -> None:
    odd = healthy()
    odd["jobs"][2] |= {"reload_needed": True, "drop_ins": ["/etc/systemd/system/memory-prune.service.d/override.conf"]}
    odd["timers"][1] |= {"loaded": "masked"}
    found = problems(odd)
    assert [p["type"] for p in found] == ["sudo systemctl unmask memory-prune.timer", "sudo systemctl daemon-reload"]
    assert "memory-prune.service.d/override.conf" in report.status({"stores": [{**odd, "problems": found}]})


def test_a_failure_without_a_record_is_explained_from_systemds_properties() -> None:
    assert "is it mounted" in explain({"Result": "exit-code", "ExecMainStatus": "226"})
    assert "did not end in time" in explain({"Result": "timeout", "ExecMainStatus": "15"})
    assert explain({"Result": "exit-code", "ExecMainStatus": "9"}) == "it ended with exit code 9"


def test_an_alarm_that_did_not_get_through_is_told() -> None:
    deaf = healthy()
    deaf["failed_alarms"] = ["memory-mail@memory-prune.service.service"]
    assert [(p["level"], p["type"]) for p in problems(deaf)] == [
        ("warning", "journalctl -u memory-mail@memory-prune.service.service")
    ]
