"""The judgement behind memops check, its line, and the figures for Prometheus."""

from __future__ import annotations

import calendar
import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from memops import check, exposition, health, survey
from memops.settings import Store
from memops.store import printable
from prometheus_text import parse

ROOT = Path(__file__).resolve().parent.parent.parent
DAY = 86400
NOW = calendar.timegm((2026, 11, 30, 12, 0, 0))
NIGHT = NOW - 12 * 3600  # the last midnight


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs' scripts are not on the machine that runs the tests."""
    monkeypatch.setattr(survey, "SCRIPTS", ())


def stamp(seconds: float) -> str:
    return time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def systemd(**changes: dict[str, str]) -> survey.Run:
    """A systemd that ran everything last night; ``prune_timer={...}`` changes properties of memory-prune.timer."""
    units = {}
    for job in survey.JOBS:
        units[f"memory-{job}.service"] = {
            "LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "static", "NeedDaemonReload": "no",
            "DropInPaths": "", "Job": "", "Result": "success", "ExecMainStatus": "0",
            "ExecMainExitTimestamp": stamp(NIGHT + 60), "InvocationID": "a" * 32,
        }  # fmt: skip
    for job in survey.TIMED:
        units[f"memory-{job}.timer"] = {
            "LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no",
            "DropInPaths": "", "TimersCalendar": "{ OnCalendar=*-*-* 00:00:00 ; next_elapse=x }",
            "NextElapseUSecRealtime": stamp(NIGHT + DAY), "LastTriggerUSec": stamp(NIGHT),
            "LastTriggerUSecMonotonic": "5d 3h", "ActiveEnterTimestamp": stamp(NIGHT - 9 * DAY),
        }  # fmt: skip
    for name, properties in changes.items():
        units[f"memory-{name.replace('_', '.')}" + ("" if "_" in name else ".service")].update(properties)

    def run(*words: str) -> str:
        if words[:4] == ("env", "TZ=UTC", "systemctl", "show"):
            wanted = words[words.index("--") + 1 :]
            # As systemd does, a pattern stands for the units that are loaded: here no alarm ever ran.
            assert {name for name in wanted if not name.endswith("@*")} == set(units)
            return "\n\n".join("\n".join(f"{k}={v}" for k, v in {"Id": n, **units[n]}.items()) for n in units)
        if words[:2] == ("systemctl", "list-timers"):
            return "[]"
        # The real one, whose answers are what the judgement rests on.
        assert words[:2] == ("systemd-analyze", "calendar")
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        return subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout

    return run


def sealed(at: float = NIGHT + 60, result: str = "done", message: str = "") -> dict:
    newest = {"set": "s", "sealed_at": survey.iso(at), "bytes": 20480, "rows": 3}
    seal = {"end": survey.iso(at), "result": result, "exit": int(result != "done"), "message": message}
    return {"seal": seal, "newest": newest}


def elapses(run: survey.Run, expressions: list[str], since: float) -> list[int]:
    ask = (tuple(expressions), since)
    return survey.elapses(run, [ask])[ask]


FILES = survey.Files(None, sealed(), ("/var/lib/memops/default/runs.jsonl (needs root or the store's user)",))


def look(files: survey.Files = FILES, now: float = NOW, **changes: dict[str, str]) -> check.Judged:
    found = survey.look("default", systemd(**changes), now, files)
    return check.judge({"db": "/srv/agent/memory.db", "user": "agent", "backup_dir": "/srv/backup/default", **found})


WEEKLY = {"TimersCalendar": "{ OnCalendar=Mon *-*-* 00:00:00 ; next_elapse=x }"}
WEEKDAYS = {"TimersCalendar": "{ OnCalendar=Mon..Fri *-*-* 00:00:00 ; next_elapse=x }"}
GONE = {"ExecMainExitTimestamp": ""}
REBOOTED = {"LastTriggerUSecMonotonic": "0"}
NEVER = {"LastTriggerUSec": "", "LastTriggerUSecMonotonic": "0", "ActiveEnterTimestamp": stamp(NOW - 60)}


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({}, 0, "prune done 11 hours ago"),
        ({"prune": {"ActiveState": "failed", "Result": "timeout"}}, 2, "prune failed: it did not end in time"),
        ({"snapshot": {"ActiveState": "failed", "ExecMainStatus": "226"}}, 2, "is it mounted"),
        ({"prune": {"ActiveState": "activating"}, "prune_timer": {"NextElapseUSecRealtime": ""}}, 0, "is running"),
        ({"prune": {"Job": "123"}, "prune_timer": {"NextElapseUSecRealtime": ""}}, 0, "is running"),
        ({"prune_timer": {"NextElapseUSecRealtime": ""}}, 2, "has no next run"),
        ({"prune_timer": {"UnitFileState": "disabled", "ActiveState": "inactive"}}, 1, "disabled and inactive"),
        ({"prune_timer": {"ActiveState": "inactive"}}, 1, "enabled and inactive"),
        ({"prune_timer": {"ActiveState": "failed"}}, 2, "memory-prune.timer failed"),
        ({"prune_timer": {"LoadState": "masked"}}, 2, "memory-prune.timer is masked"),
        ({"prune": {"LoadState": "not-found"}}, 2, "memory-prune.service is not-found"),
        ({"backup_timer": {"NeedDaemonReload": "yes"}}, 1, "changed on disk"),
        # A prune that the timer started and that never ran: a mount or the user is missing, nothing is failed.
        ({"prune": {"ExecMainExitTimestamp": stamp(NIGHT - DAY)}}, 2, "systemd did not run it"),
        ({"prune": GONE}, 2, "systemd did not run it"),
        # After a reboot systemd has forgotten the run, and the stamp of the timer remembers it.
        ({"prune": GONE, "prune_timer": REBOOTED}, 0, "prune started 12 hours ago"),
        ({"prune": GONE, "prune_timer": REBOOTED | {"LastTriggerUSec": stamp(NIGHT - DAY)}}, 1, "is late"),
        ({"prune": GONE, "prune_timer": REBOOTED | {"LastTriggerUSec": stamp(NIGHT - 2 * DAY)}}, 2, "twice its period"),
        # Installed a minute ago.
        ({"prune": GONE, "prune_timer": NEVER}, 0, "prune not due yet"),
        ({"prune": GONE, "prune_timer": NEVER | {"ActiveEnterTimestamp": stamp(NOW - 3 * DAY)}}, 2, "for 3 days"),
        # By its own calendar: the last Monday was today.
        ({"prune": {"ExecMainExitTimestamp": stamp(NIGHT - 7 * DAY)}, "prune_timer": REBOOTED | WEEKLY}, 0, "7 days"),
        ({"prune": {"ExecMainExitTimestamp": stamp(NIGHT - 8 * DAY)}, "prune_timer": REBOOTED | WEEKLY}, 1, "is late"),
        ({"prune": {"ExecMainExitTimestamp": stamp(NIGHT - 14 * DAY)}, "prune_timer": REBOOTED | WEEKLY}, 2, "14 days"),
        ({"prune": {"ExecMainExitTimestamp": stamp(NOW + 3600)}}, 1, "is the clock right"),
        ({"prune": {"ExecMainExitTimestamp": "n/a"}, "prune_timer": {"TimersCalendar": ""} | REBOOTED}, 0, ""),
    ],
)  # fmt: skip
def test_units(changes: dict, state: int, words: str) -> None:
    judged = look(**changes)
    assert judged[1] == state, judged[0]["problems"]
    assert words in check.line([judged])


@pytest.mark.parametrize(
    ("files", "state", "words"),
    [
        (survey.Files(None, sealed(result="failed", message="the disk | is full")), 2, "failed: the disk / is full"),
        (survey.Files([], None), 2, "there is no verified backup"),
        (survey.Files(None, {"seal": {}, "newest": None}), 2, "there is no verified backup"),
        (survey.Files(None, None, ("/var/lib/memops/default.sets.json (it is damaged)",)), 3, "cannot read /var"),
        (survey.Files(None, sealed(NOW - 26 * 3600)), 0, "newest set 26 hours old"),
        (survey.Files(None, sealed(NOW - 38 * 3600)), 1, "newest verified backup is 38 hours old and is late"),
        (survey.Files(None, sealed(NOW - 2 * DAY - 60)), 2, "is 2 days old, more than twice its period"),
        (survey.Files(None, sealed(NOW + DAY)), 1, "carries a time 24 hours from now"),
        (survey.Files(None, {"seal": {"end": 5, "result": "done"}, "newest": {"sealed_at": None}}), 1, "older than"),
        # A record that the agent could have written: a time nobody can have meant is asked of nobody.
        (survey.Files([{"job": "prune", "end": "9999-12-31T23:59:59Z", "counts": {}}], sealed()), 1, "clock"),
        (survey.Files([{"job": "prune", "end": "0001-01-01T00:00:00Z", "counts": {}}], sealed()), 0, ""),
        (survey.Files([{"job": "prune", "end": "x" * 99, "counts": {}}], sealed()), 0, "prune done"),
    ],
)  # fmt: skip
def test_records(files: survey.Files, state: int, words: str) -> None:
    quiet = {"backup_timer": REBOOTED}
    judged = look(files, **quiet)
    assert judged[1] == state, judged[0]["problems"]
    assert words in check.line([judged])
    parse(exposition.text([judged]))


def test_what_runs_on_weekdays_is_not_late_on_sunday() -> None:
    friday = calendar.timegm((2026, 11, 27, 0, 5, 0))
    coming = elapses(systemd(), ["Mon..Fri *-*-* 00:00:00"], friday)
    state = [survey.make_due(friday, coming, friday + days * DAY + 2 * 3600)["state"] for days in range(6)]
    assert state == ["ok", "ok", "ok", "ok", "overdue", "overdue"]
    assert survey.make_due(friday, coming, friday + 3 * DAY + 6 * 3600)["state"] == "late"


@pytest.mark.parametrize(("day", "hours"), [((2026, 3, 28), 47), ((2026, 10, 24), 49)])
def test_the_day_the_clocks_change(day: tuple[int, int, int], hours: int) -> None:
    def berlin(*words: str) -> str:
        env = {"PATH": os.environ["PATH"], "TZ": "Europe/Berlin", "LC_ALL": "C.UTF-8"}
        return subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout

    local_midnight = calendar.timegm((*day, 0, 0, 0)) - (3600 if day[1] == 3 else 7200)
    coming = elapses(berlin, ["*-*-* 00:00:00"], local_midnight)
    assert coming[1] - local_midnight == hours * 3600
    late, overdue = survey.limits(local_midnight, coming) or (0, 0)
    assert 24 * 3600 < late < 28 * 3600
    assert 46 * 3600 <= overdue <= 52 * 3600


def test_a_calendar_with_no_second_time_has_no_limits() -> None:
    assert elapses(systemd(), ["2020-01-01"], NOW) == []
    assert survey.limits(NOW, elapses(systemd(), ["2026-12-24"], NOW)) is None


def test_several_calendars_of_one_timer_are_one_schedule() -> None:
    coming = elapses(systemd(), ["*-*-* 00:00:00", "*-*-* 12:00:00"], NIGHT)
    assert [at - NIGHT for at in coming][:3] == [12 * 3600, 24 * 3600, 36 * 3600]


# One store beside others

PERFORMANCE = re.compile(
    r"(?:'(?:[^'=]|'')+'|[^\s'=]+)=-?[0-9]+(?:\.[0-9]+)?(?:s|us|ms|%|B|KB|MB|GB|TB|c)?"
    r"(?:;(?:@?(?:-?[0-9.]+|~)?:?-?[0-9.]*)?){0,2}(?:;-?[0-9.]*){0,2}"
)


def test_the_line_has_the_form_of_the_guidelines() -> None:
    counts = {"rows": 5, "live": 4, "gap": 1, "dead": 0, "doubtful": 1, "violations": 0}
    record = {"job": "prune", "end": survey.iso(NIGHT + 60), "result": "done", "message": "", "counts": counts}
    good = look(survey.Files([record], sealed()))
    text = check.line([good])
    words, data = text.split(" | ")
    assert words.startswith("MEMOPS OK - default ok: newest set 11 hours old")
    assert "\n" not in text
    for part in data.split(" "):
        assert PERFORMANCE.fullmatch(part), part
    assert f"set_age={NOW - NIGHT - 60}s;95040;172800;0" in data.split(" ")
    assert "rows=5;;;0" in data.split(" ")
    # A doubtful row is the agent's affair, and an unprivileged check could not know of it.
    assert good[1] == 0


def test_the_worst_store_comes_first() -> None:
    stores = [
        ({**look()[0], "name": "good"}, 0),
        ({**look(prune_timer={"UnitFileState": "disabled"})[0], "name": "warned"}, 1),
        ({**look(prune={"ActiveState": "failed"})[0], "name": "failed"}, 2),
        ({**look()[0], "name": "unseen"}, 3),
    ]
    text = check.line(stores)
    assert text.startswith("MEMOPS CRITICAL - failed critical: prune failed")
    assert [text.index(f"{name} ") for name in ("failed", "unseen", "warned", "good")] == sorted(
        text.index(f"{name} ") for name in ("failed", "unseen", "warned", "good")
    )
    labels = [part.split("=")[0] for part in text.split(" | ")[1].split(" ")]
    assert len(labels) == len(set(labels))
    assert {"good_set_age", "failed_prune_age"} <= set(labels)
    assert [check.worst(stores[n:]) for n in range(4)] == [2, 2, 2, 3]
    assert check.worst(stores[:2]) == 1


# Prometheus


def full() -> dict[str, dict[str, float]]:
    counts = {"rows": 5, "live": 4, "gap": 1, "dead": 0, "doubtful": 1, "violations": 0, "journal_mode": "wal"}
    record = {"job": "prune", "end": survey.iso(NIGHT), "result": "done", "message": "hunter2", "counts": counts}
    text = exposition.text([look(survey.Files([record], sealed()))])
    assert "hunter2" not in text
    return parse(text)


def test_the_figures_are_whole_and_documented() -> None:
    found = full()
    assert found.keys() == exposition.METRICS.keys()
    assert found["memops_up"] == {"": 1}
    assert found["memops_set_timestamp_seconds"] == {'store="default"': NIGHT + 60}
    assert found["memops_rows"]['store="default",state="live"'] == 4
    document = (ROOT / "docs/metrics.md").read_text()
    rows = dict(re.findall(r"^\| `(memops_\w+)` \|([^|]*)\|", document, re.MULTILINE))
    assert rows.keys() == found.keys()
    for name, samples in found.items():
        labels = {re.sub(r'="[^"]*"', "", each) for each in samples}
        assert ",".join(re.findall(r"`(\w+)`", rows[name])) in labels, name


def test_figures_when_nothing_could_be_asked() -> None:
    assert parse(exposition.text([], up=False)) == {"memops_up": {"": 0}}


def test_the_metrics_job_says_when_systemd_does_not_answer(lib: Path, tmp_path: Path) -> None:
    file = tmp_path / "memops.prom"
    file.write_text("old")
    file.chmod(0o600)
    # Without /run no systemd is found, whether or not one runs this machine.
    away = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh")
    ran = subprocess.run(
        [*away, "/usr/bin/python3", "-I", lib / "metrics.py", "--file", file, "default"], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "systemd did not answer" in ran.stderr
    assert parse(file.read_text()) == {"memops_up": {"": 0}}
    assert file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["memops.prom"]


def test_labels_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    store, state = look()
    text = exposition.text([({**store, "name": odd}, state)])
    assert 'store="a\\"b\\\\c\\nd"' in text
    parse(text)


# What the keys of status --json mean is promised in docs/status.md


def keys(value: object, prefix: str = "") -> set[str]:
    if isinstance(value, dict):
        return {f"{prefix}.{k}".lstrip(".") for k in value} | {
            deeper for k, v in value.items() for deeper in keys(v, f"{prefix}.{k}")
        }
    if isinstance(value, list):
        return {deeper for v in value for deeper in keys(v, f"{prefix}[]")}
    return set()


def test_every_key_of_status_is_documented_and_no_other(monkeypatch) -> None:
    from memops import host, status
    from memops import systemd as asking

    counts = {
        "expired": 0, "superseded": 0, "chain": 0, "refused": 0, "doubtful": 0, "rows": 5, "live": 4, "gap": 1,
        "dead": 0, "violations": 0, "journal_mode": "wal",
    }  # fmt: skip
    record = {"job": "prune", "end": survey.iso(NIGHT), "result": "done", "message": "", "counts": counts}
    run = systemd(prune={"ActiveState": "failed"})
    monkeypatch.setattr(host, "run", lambda *words, **_: host.Ran(0, run(*words), ""))
    monkeypatch.setattr(survey, "read_files", lambda *_: survey.Files([record], sealed()))
    monkeypatch.setattr(asking, "journal", lambda *_: [])
    data = json.loads(json.dumps(status.gather([Store()], now=NOW)))
    real = {re.sub(r"journal\..*", "journal.UNIT", key) for key in keys(data)}
    document = (ROOT / "docs/status.md").read_text().split("## memops status")[1].split("\n## ")[0]
    documented = re.findall(r"^\| `([^`]+)` \|", document, re.MULTILINE)
    assert len(documented) == len(set(documented))
    assert set(documented) == real


def test_every_label_of_the_performance_data_is_documented() -> None:
    counts = {"rows": 5, "live": 4, "gap": 1, "dead": 0, "doubtful": 1}
    record = {"job": "prune", "end": survey.iso(NIGHT), "result": "done", "message": "", "counts": counts}
    data = check.line([look(survey.Files([record], sealed()))]).split(" | ")[1]
    document = (ROOT / "docs/status.md").read_text().split("## memops check")[1]
    documented = re.findall(r"^\| `(\w+)` \|", document, re.MULTILINE)
    assert sorted(documented) == sorted(part.split("=")[0] for part in data.split(" "))


# Reading the records


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", ValueError), ("{", ValueError), ("[]", ValueError), ("[" * 100_000, (ValueError, RecursionError))],
)
def test_a_damaged_sealing_record_is_not_taken_for_none(tmp_path, text: str, expected) -> None:
    path = tmp_path / "default.sets.json"
    path.write_text(text)
    with pytest.raises(expected):
        survey.seal_record(str(path), printable)


def test_a_link_in_the_place_of_a_record_is_not_followed(tmp_path) -> None:
    target = tmp_path / "secret"
    target.write_text(json.dumps({"job": "prune", "end": "x"}))
    link = tmp_path / "runs.jsonl"
    link.symlink_to(target)
    assert survey.run_records(str(link), printable) == []
    with pytest.raises(ValueError, match="plain file"):
        survey.seal_record(str(link), printable)
    assert survey.seal_record(str(tmp_path / "missing"), printable) is None


def test_states_are_those_of_nagios() -> None:
    assert [check.WORDS[n] for n in (health.OK, health.WARNING, health.CRITICAL, health.UNKNOWN)] == [
        "OK", "WARNING", "CRITICAL", "UNKNOWN",
    ]  # fmt: skip


def test_scripts_that_are_gone_are_critical(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SCRIPTS", ("/usr/local/lib/memops/no-such.py",))
    store, state = look()
    assert state == 2
    assert "no-such.py is missing" in check.line([(store, state)])


def test_one_question_for_several_gives_each_its_own_answer() -> None:
    asks = [
        (("*-*-* 00:00:00",), NIGHT),
        (("Mon *-*-* 05:00:00",), NIGHT + 9 * DAY),
        (("*-*-* 00:00:00",), NIGHT + 30 * DAY),
    ]
    together = survey.elapses(systemd(), asks)
    assert together == {ask: elapses(systemd(), list(ask[0]), ask[1]) for ask in asks}
    assert all(len(times) == 3 and times[0] > ask[1] for ask, times in together.items())
    assert survey.elapses(systemd(), []) == {}
