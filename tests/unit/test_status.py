"""What status makes of what it gathered."""

from __future__ import annotations

import pytest

from memops import plot, report, survey, vitals
from memops.health import problems
from memops.survey import explain

UNIT = {"loaded": "loaded", "drop_ins": [], "reload_needed": False}


FIGURES = {
    "dead_expired": 0, "dead_superseded": 0, "dead_chain": 0, "confirmed_month": 1200, "confirmed_quarter": 300,
    "confirmed_half": 30, "confirmed_year": 10, "confirmed_older": 4, "confirmed_never": 1, "source_person": 1500,
    "source_tool": 5, "source_web": 40, "source_file": 0, "waiting": 45,
}  # fmt: skip


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
            for n in survey.TIMED
        ],
        "jobs": [{**job, "job": n, "unit": f"memory-{n}.service"} for n in survey.JOBS],
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
        "health": vitals.make(FIGURES, "2026-11-30T21:00:05Z", 55),
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


@pytest.mark.parametrize(
    ("size", "waiting", "said"),
    [
        (1 << 30, (64 << 20) + 1, True),
        (1 << 30, 64 << 20, False),
        (8 << 20, (8 << 20) + 1, True),
        (8 << 20, 8 << 20, False),
        (100_000, 4 << 20, False),
        (100_000, (4 << 20) + 1, True),
    ],
)
def test_what_waits_in_the_wal_is_told(size: int, waiting: int, said: bool) -> None:
    sick = healthy()
    sick["counts"] |= {"bytes": size, "wal_bytes": waiting + 1000, "wal_waiting": waiting}
    found = problems(sick)
    assert [p["what"].partition(" MB ")[2] for p in found] == [
        "wait in the -wal, which grows: somebody reads the store, and does not end"
    ] * said


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
    shy["counts"] = shy["health"] = None
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
    good["jobs"][4] |= {"age": 6 * 86400}
    good["timers"][2]["last"] = "2026-11-30T00:00:00Z"
    lines = report.status({"stores": [{**good, "problems": []}]}).splitlines()
    assert [line for line in lines if "drill" in line] == ["  drill        done 6 days ago; next 2026-12-01 00:03 UTC"]
    good["jobs"][4] |= {"result": "never ran", "ended": None, "age": None}
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


def test_the_health_of_the_facts_takes_a_few_lines(monkeypatch) -> None:
    for columns in (80, 50):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = report.status({"stores": [{**healthy(), "problems": []}]}).splitlines()
        assert max(map(len, lines)) <= columns
        start = next(number for number, line in enumerate(lines) if line.startswith("  confirmed"))
        assert [line.split()[-1] for line in lines[start : start + 6]] == ["1,200", "300", "30", "10", "4", "1"]
        assert [line[15:33].strip() for line in lines[start : start + 6]] == [
            "under 30 days", "30 to 90 days", "90 to 180 days", "180 days to a year", "longer ago", "never",
        ]  # fmt: skip
        assert lines[start + 6] == "  sources      1,500 person, 40 web, 5 tool"
    assert "  digest       done 1 min ago; follows each prune" in lines
    sick = healthy()
    sick["health"]["dead"] |= {"superseded": 3}
    monkeypatch.setenv("COLUMNS", "80")
    text = report.status({"stores": [{**sick, "problems": []}]})
    assert "  dead         0 expired, 3 superseded, 0 behind those\n" in text
    assert "  review       45 facts wait, 3 weeks at 20 a week (counted 55 s ago)\n" in text
    assert "confirmed  " not in report.status({"stores": [{**sick, "health": None, "problems": []}]})


@pytest.mark.parametrize(
    ("encoding", "bar"),
    [("utf-8", ["█" * 10, "█▎", "▏", ""]), ("ascii", ["#" * 10, "#", "#", ""]), (None, ["#" * 10, "#", "#", ""])],
)
def test_a_plot_in_what_the_terminal_can_show(encoding: str | None, bar: list[str]) -> None:
    lines = plot.bars([("a", 1000), ("bb", 125), ("c", 1), ("d", 0)], 19, encoding)
    assert lines == [f"{name:<2} {each:<10} {number:>5}" for name, each, number in zip(
        ("a", "bb", "c", "d"), bar, ("1,000", "125", "1", "0"), strict=True)]  # fmt: skip
    assert plot.bars([("a", 0)], 3, "utf-8") == ["a   0"]


@pytest.mark.parametrize(("waiting", "weeks"), [(0, 0), (1, 1), (20, 1), (21, 2)])
def test_weeks_of_review(waiting: int, weeks: int) -> None:
    found = vitals.make({"waiting": waiting}, "x", None)
    assert found["weeks"] == weeks
    assert found["confirmed"] == dict.fromkeys(vitals.CONFIRMED, 0)


def test_the_newest_figures_are_those_of_a_digest_that_counted() -> None:
    old = {"job": "digest", "end": "2026-11-30T00:00:00Z", "counts": {"waiting": 5}}
    records = [old, {**old, "counts": {}}, {**old, "job": "prune", "counts": {"waiting": 9}}]
    found = vitals.newest(records, survey.seconds("2026-11-30T01:00:00Z") or 0)
    assert found is not None
    assert (found["waiting"], found["age"], found["at"]) == (5, 3600, "2026-11-30T00:00:00Z")
    assert vitals.newest(records[1:], 0) is None


@pytest.mark.parametrize("name", ["drill", "digest", "review"])
def test_units_of_an_earlier_version_are_told_to_be_made(name: str) -> None:
    old = healthy()
    for unit in (*old["jobs"], *old["timers"]):
        if unit["unit"].startswith(f"memory-{name}"):
            unit["loaded"] = "not-found"
    assert problems(old) == [
        {"level": "warning", "what": f"there is no {name} yet: the units are of an earlier version of memops",
         "type": "sudo memops install"}
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["digest", "review"])
def test_a_digest_or_reminder_that_failed_is_a_warning(name: str) -> None:
    sick = healthy()
    job = next(job for job in sick["jobs"] if job["job"] == name)
    job |= {"result": "failed", "message": "the disk is full"}
    assert [(p["level"], p["what"]) for p in problems(sick)] == [("warning", f"{name} failed: the disk is full")]
    job |= {"result": "done", "due": {"state": "overdue", "age": 9 * 86400}}
    assert [p["level"] for p in problems(sick)] == ["warning"]


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
