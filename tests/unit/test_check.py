"""The judgement behind memops check, and its line."""

from __future__ import annotations

import calendar
import json
import os
import re
import subprocess

import pytest

from memops import check, exposition, health, records, survey
from memops.store import printable
from prometheus_text import parse
from unit.survey_case import (
    DAY,
    FAILED,
    GONE,
    NEVER,
    NIGHT,
    NOT_FOUND,
    NOW,
    REBOOTED,
    SUNDAY,
    THERE,
    WEEKLY,
    ended,
    look,
    sealed,
    stamp,
    systemd,
)

PAUSED = {**THERE, "ActiveState": "active"}


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs' scripts are not on the machine that runs the tests."""
    monkeypatch.setattr(survey, "SCRIPTS", dict.fromkeys(survey.ORDER, "/"))


def elapses(run: survey.Run, expressions: list[str], since: float) -> list[int]:
    ask = (tuple(expressions), since)
    return survey.elapses(run, [ask])[ask]


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
        (records.Files(None, sealed(result="failed", message="the disk | is full")), 2, "failed: the disk / is full"),
        (records.Files([], None), 2, "there is no verified backup"),
        (records.Files(None, {"seal": {}, "newest": None}), 2, "there is no verified backup"),
        (records.Files(None, None, ("/var/lib/memops/default.sets.json (it is damaged)",)), 3, "cannot read /var"),
        (records.Files(None, sealed(NOW - 26 * 3600)), 0, "newest set 26 hours old"),
        (records.Files(None, sealed(NOW - 38 * 3600)), 1, "newest verified backup is 38 hours old and is late"),
        (records.Files(None, sealed(NOW - 2 * DAY - 60)), 2, "is 2 days old, more than twice its period"),
        (records.Files(None, sealed(NOW + DAY)), 1, "carries a time 24 hours from now"),
        (records.Files(None, {"seal": {"end": 5, "result": "done"}, "newest": {"sealed_at": None}}), 1, "older than"),
        # A record that the agent could have written: a time nobody can have meant is asked of nobody.
        (records.Files([{"job": "prune", "end": "9999-12-31T23:59:59Z", "counts": {}}], sealed()), 1, "clock"),
        (records.Files([{"job": "prune", "end": "0001-01-01T00:00:00Z", "counts": {}}], sealed()), 0, ""),
        (records.Files([{"job": "prune", "end": "x" * 99, "counts": {}}], sealed()), 0, "prune done"),
    ],
)  # fmt: skip
def test_records(files: records.Files, state: int, words: str) -> None:
    quiet = {"backup_timer": REBOOTED}
    judged = look(files, **quiet)
    assert judged[1] == state, judged[0]["problems"]
    assert words in check.line([judged])
    parse(exposition.text([judged]))


@pytest.mark.parametrize(
    ("sets", "changes", "state", "words"),
    [
        (sealed(), {}, 0, "drill done 35 hours ago"),
        (sealed(drill=ended(SUNDAY + 60)), {"drill": GONE}, 0, "drill done 35 hours ago"),
        # It never ran, and is not due, or long since.
        (sealed(), {"drill": GONE, "drill_timer": NEVER}, 0, "drill not due yet"),
        (sealed(), {"drill": GONE, "drill_timer": NEVER | {"ActiveEnterTimestamp": stamp(NIGHT - 20 * DAY)}}, 2,
         "drill has not run for 20 days"),
        # A record of a version that had no drill, and the units of one.
        ({"seal": ended(NIGHT), "newest": sealed()["newest"]}, {"drill": GONE, "drill_timer": NEVER}, 0, "not due yet"),
        (sealed(), {"drill": NOT_FOUND, "drill_timer": NOT_FOUND}, 1, "there is no drill yet"),
        (sealed(), {"drill_timer": NOT_FOUND}, 2, "memory-drill.timer is not-found"),
        # One week is its period.
        (sealed(drill=ended(SUNDAY - 7 * DAY)), {"drill": GONE, "drill_timer": REBOOTED}, 1, "8 days and is late"),
        (sealed(drill=ended(SUNDAY - 14 * DAY)), {"drill": GONE, "drill_timer": REBOOTED}, 2, "more than twice its"),
        # A failed one is an error, and as old as the last good one.
        (sealed(drill=ended(SUNDAY, "a part is missing")), {"drill": GONE}, 2, "drill failed: a part is missing"),
        (sealed(drill=ended(SUNDAY, "no", good=survey.iso(SUNDAY - 7 * DAY))), {"drill": GONE}, 2,
         "drill failed: no; the last good one was 8 days ago"),
        (sealed(drill=ended(SUNDAY, "no", good="\x1b[2J")), {"drill": GONE}, 2, "drill failed: no |"),
        # Away from the machine: a failure is a warning, whatever its age.
        (sealed(offsite=ended(NIGHT + 120)), {"offsite": THERE}, 0, "offsite_age=43080s"),
        (sealed(), {"offsite": THERE}, 0, "default ok"),
        (sealed(offsite=ended(NIGHT, "no route", good=survey.iso(NIGHT - 9 * DAY))), {"offsite": THERE}, 1,
         "offsite failed: no route; the last good one was 9 days ago"),
        (sealed(offsite=ended(NIGHT - 9 * DAY)), {"offsite": THERE}, 1, "offsite has not run for 9 days"),
        # What a server keeps.
        (sealed(), {"remote": THERE | {"ActiveState": "failed", "Result": "timeout"}}, 2, "remote failed: it did not"),
        (sealed(), {"remote": THERE | {"LoadState": "masked"}}, 2, "memory-remote.service is masked"),
        (sealed(), {"pause": THERE | {"ActiveState": "failed", "ExecMainStatus": "1"}}, 2, "pause failed: it ended"),
        # A pause that a copy needs, and one that systemd has overlooked.
        (sealed(), {"pause": PAUSED, "snapshot": THERE | {"ActiveState": "activating", "Job": "7"}}, 0, "default ok"),
        (sealed(), {"pause": PAUSED, "backup": THERE | {"Job": "7"}}, 0, "default ok"),
        (sealed(), {"pause": PAUSED}, 2, "the agent is stopped for a copy, and none is under way"),
        # The sets themselves.
        (sealed(failed=[FAILED]), {}, 2, "backup 2026-11-29T233000Z did not pass its verification: memory.db has"),
        (sealed(loss={"set": "2026-11-29T233000Z", "rows": 1000}), {}, 2, "less than 2026-11-29T233000Z (1000 rows)"),
    ],
)  # fmt: skip
def test_drills_and_sets(sets: dict, changes: dict, state: int, words: str) -> None:
    judged = look(records.Files(None, sets), backup_timer=REBOOTED, **changes)
    assert judged[1] == state, judged[0]["problems"]
    assert words in check.line([judged])
    assert all(problem["type"] for problem in judged[0]["problems"])
    parse(exposition.text([judged]))


def test_a_rotation_that_was_held_is_told_once() -> None:
    sets = sealed(result="guard", message="set s sealed; older ones stay", loss={"set": "r", "rows": 1000})
    store, state = look(records.Files(None, sets))
    assert state == 2
    assert [problem["type"] for problem in store["problems"]] == ["sudo memops backup --accept-loss"]
    # Without that reason it is a failure like any other.
    assert "backup failed: set s sealed" in check.line([look(records.Files(None, {**sets, "loss": None}))])


def test_only_what_is_there_is_shown() -> None:
    def jobs(**changes: dict) -> list[str]:
        return [job["job"] for job in look(**changes)[0]["jobs"]]

    last = ["prune", "digest", "drill", "review"]
    assert jobs() == ["snapshot", "backup", *last]
    assert jobs(offsite=THERE, remote=THERE) == ["remote", "snapshot", "backup", "offsite", *last]


def test_a_look_starts_two_programs_however_long_ago_the_drill_was() -> None:
    started = []

    def counting(*words: str) -> str:
        started.append(words[0] if words[0] != "env" else words[2])
        return systemd(offsite=THERE, drill=GONE)(*words)

    sets = sealed(drill=ended(NIGHT - 6 * DAY), offsite=ended(NIGHT))
    survey.look("default", counting, NOW, records.Files([], sets))
    assert started == ["systemctl", "systemd-analyze"]


def test_a_restore_that_did_not_end_is_critical() -> None:
    store, state = look(records.Files(None, sealed(), restoring=True))
    assert state == 2
    (problem,) = store["problems"]
    assert "a restore has not come to its end" in problem["what"]
    assert problem["type"] == "sudo memops restore --undo"
    (problem,) = check.judge({**store, "name": "work"})[0]["problems"]
    assert problem["type"] == "sudo memops restore --undo --name work"


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
    good = look(records.Files([record], sealed()))
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


# Reading the records


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", ValueError), ("{", ValueError), ("[]", ValueError), ("[" * 100_000, (ValueError, RecursionError))],
)
def test_a_damaged_sealing_record_is_not_taken_for_none(tmp_path, text: str, expected) -> None:
    path = tmp_path / "default.sets.json"
    path.write_text(text)
    with pytest.raises(expected):
        records.sets_record(str(path), printable)


def test_a_link_in_the_place_of_a_record_is_not_followed(tmp_path) -> None:
    target = tmp_path / "secret"
    target.write_text(json.dumps({"job": "prune", "end": "x"}))
    link = tmp_path / "runs.jsonl"
    link.symlink_to(target)
    assert records.run_records(str(link), printable) == []
    with pytest.raises(ValueError, match="plain file"):
        records.sets_record(str(link), printable)
    assert records.sets_record(str(tmp_path / "missing"), printable) is None


def test_states_are_those_of_nagios() -> None:
    assert [check.WORDS[n] for n in (health.OK, health.WARNING, health.CRITICAL, health.UNKNOWN)] == [
        "OK", "WARNING", "CRITICAL", "UNKNOWN",
    ]  # fmt: skip


def test_scripts_that_are_gone_are_critical(monkeypatch: pytest.MonkeyPatch) -> None:
    there = dict.fromkeys(survey.ORDER, "/")
    monkeypatch.setattr(survey, "SCRIPTS", {**there, "prune": "/usr/local/lib/memops/no-such.py"})
    store, state = look()
    assert state == 2
    assert "no-such.py is missing" in check.line([(store, state)])
    # No script is missed whose unit is not there.
    monkeypatch.setattr(survey, "SCRIPTS", {**there, "offsite": "/usr/local/lib/memops/no-such.py"})
    assert look()[1] == 0
    assert look(offsite=THERE)[1] == 2


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
