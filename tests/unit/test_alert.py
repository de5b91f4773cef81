"""What is said about a failed job, by mail too, and the pings of a monitoring service."""

from __future__ import annotations

import email
import json
import subprocess
import sys
import threading
from email import policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import alert
import ping
import post
from memops import letters, settings, survey
from memops.errors import UsageError
from memops.settings import Store
from memops.store import printable

if TYPE_CHECKING:
    from email.message import EmailMessage

PRUNE, BACKUP, WORK = "memory-prune.service", "memory-backup.service", "memory-prune-work.service"
RUN, OTHER = "0123456789abcdef0123456789abcdef", "f" * 32

JOURNALCTL = """#!/usr/bin/python3 -I
import json, sys
known = ("--no-pager", "--quiet", "--output=json", "--since=-1min", "--since=-1day", "--lines=", "_PID=1", "UNIT=",
    "INVOCATION_ID=", "_SYSTEMD_INVOCATION_ID=", "+")
for argument in sys.argv[1:]:
    if not argument.startswith(known):
        sys.exit(f"unknown argument {argument}")
for entry in json.load(open(__file__ + ".json")):
    wanted = ("--lines=1", f"UNIT={entry.get('UNIT')}")
    if any(a in wanted or a.endswith(f"INVOCATION_ID={entry.get('OF')}") for a in sys.argv):
        print(json.dumps(entry))
"""


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """Sets what a journalctl that refuses unknown arguments has to show."""
    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(JOURNALCTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(alert.time, "sleep", lambda _: None)

    def write(*entries: dict[str, object]) -> None:
        Path(f"{program}.json").write_text(json.dumps(entries))

    write()
    return write


def record(state: Path, store: str = "default", **values: object) -> None:
    """Add a run record of the prune."""
    (state / store).mkdir(exist_ok=True)
    entry = {"job": "prune", "end": "2026-11-30T00:03:04Z", "exit": 1, "message": "m", "invocation": RUN} | values
    with (state / store / "runs.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")


def ended(unit: str = PRUNE, result: str = "exit-code", status: str = "1", run: str = RUN) -> dict[str, str]:
    """The variables that systemd sets."""
    return {
        "MONITOR_UNIT": unit,
        "MONITOR_SERVICE_RESULT": result,
        "MONITOR_EXIT_STATUS": status,
        "MONITOR_INVOCATION_ID": run,
    }


def test_the_reason_is_that_runs_own_word(tmp_path, journal) -> None:
    journal({"UNIT": PRUNE, "JOB_RESULT": "failed"}, {"OF": RUN, "MESSAGE": "prune: the agent held the lock"})
    record(tmp_path, message="the agent held the lock")
    record(tmp_path, message="of another run", invocation=OTHER)
    found = alert.make_report(PRUNE, str(tmp_path), ended())
    assert found.line == "memory-prune.service failed at 2026-11-30T00:03:04Z: the agent held the lock"
    assert found.tail == ("prune: the agent held the lock",)
    assert (found.failed, found.repeats) == (True, False)


def test_the_stores_are_told_apart(tmp_path, journal) -> None:
    record(tmp_path, message="the first store's")
    record(tmp_path, "work", message="the other's")
    assert alert.make_report(WORK, str(tmp_path), ended(WORK)).line.endswith(": the other's")
    assert alert.split("memory-backup-my-own-store.service") == ("backup", "my-own-store")


@pytest.mark.parametrize(
    ("result", "status", "words"),
    [
        ("exit-code", "226", survey.STATUS["226"]),
        ("exit-code", "217", "the user of the unit does not exist (217/USER)"),
        ("exit-code", "1", "it ended with exit code 1 and left no word"),
        ("signal", "KILL", "it was killed by SIGKILL"),
        ("timeout", "TERM", "it did not end in time and was stopped"),
        ("oom-kill", "KILL", "the machine ran out of memory and killed it"),
        ("protocol", "0", "it left no word (systemd: protocol)"),
    ],
)
def test_a_run_without_a_record_is_put_in_words(tmp_path, journal, result, status, words) -> None:
    record(tmp_path, invocation=OTHER, message="of another run")
    assert alert.make_report(PRUNE, str(tmp_path), ended(PRUNE, result, status)).line.endswith(f"Z: {words}")


def test_without_a_journal_the_record_is_shown(tmp_path, journal) -> None:
    record(tmp_path, result="locked")
    (line,) = alert.make_report(PRUNE, str(tmp_path), ended()).tail
    assert line == "the journal has no line of it; its record: end 2026-11-30T00:03:04Z, result locked, exit 1"


@pytest.mark.parametrize("newest", [{"UNIT": BACKUP, "JOB_RESULT": "dependency"}, None])
def test_a_backup_that_never_ran_leaves_the_reason_to_its_first_half(tmp_path, journal, newest) -> None:
    journal(*([newest] if newest else []))
    found = alert.make_report(BACKUP, str(tmp_path), ended(BACKUP, "success", "0", OTHER))
    assert found.line.endswith(": memory-snapshot.service failed before it")
    assert found.repeats


@pytest.mark.parametrize(
    ("unit", "failed", "first"),
    [
        (BACKUP, "memory-remote.service", "memory-remote.service"),
        (BACKUP, "memory-snapshot.service", "memory-snapshot.service"),
        ("memory-backup-work.service", "memory-remote-work.service", "memory-remote-work.service"),
        (BACKUP, "memory-pause.service", "memory-pause.service"),
        ("memory-snapshot.service", "memory-pause.service", "memory-pause.service"),
    ],
)
def test_the_step_that_failed_first_is_named(tmp_path, journal, unit: str, failed: str, first: str) -> None:
    journal({"UNIT": unit, "JOB_RESULT": "dependency"}, {"UNIT": failed, "JOB_RESULT": "failed"})
    found = alert.make_report(unit, str(tmp_path), ended(unit, "success", "0", OTHER))
    assert found.line.endswith(f": {first} failed before it")
    assert found.repeats


def test_a_snapshot_whose_disk_is_not_there_is_not_a_repeat(tmp_path, journal) -> None:
    unit = "memory-snapshot.service"
    journal({"UNIT": unit, "JOB_RESULT": "dependency"}, {"UNIT": "memory-pause.service", "JOB_RESULT": "done"})
    found = alert.make_report(unit, str(tmp_path), ended(unit, "success"))
    assert "systemctl list-dependencies" in found.line
    assert not found.repeats


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("drill", "nothing proves that the newest backup can be restored"),
        ("offsite", "on this machine only"),
        ("remote", "there is no new backup"),
    ],
)
def test_what_a_failure_comes_to(tmp_path, journal, name: str, words: str) -> None:
    unit = f"memory-{name}.service"
    run = {"end": "2026-11-30T00:00:00Z", "exit": 1, "message": "it broke", "invocation": RUN}
    (tmp_path / "default.sets.json").write_text(json.dumps({"drill": run, "offsite": run, "seal": {}}))
    record(tmp_path, job="remote", message="it broke")
    found = alert.make_report(unit, str(tmp_path), ended(unit))
    assert "Z: it broke (so " in found.line
    assert words in found.line
    # Tried by a person, it says how the last run went.
    assert "failed at 2026-11-30" in alert.make_report(unit, str(tmp_path), {}).line


def test_a_prune_whose_disk_is_not_there(tmp_path, journal) -> None:
    journal({"UNIT": PRUNE, "JOB_RESULT": "dependency"})
    record(tmp_path, exit=0)
    found = alert.make_report(PRUNE, str(tmp_path), ended(PRUNE, "success"))
    assert "did not run" in found.line
    assert "systemctl list-dependencies memory-prune.service" in found.line
    assert (found.failed, found.repeats) == (True, False)


def test_tried_by_a_person_it_says_how_the_last_run_went(tmp_path, journal) -> None:
    (tmp_path / "default.sets.json").write_text(
        json.dumps({"seal": {"end": "2026-11-30T00:00:00Z", "exit": 0, "message": "sealed"}})
    )
    found = alert.make_report(BACKUP, str(tmp_path), {})
    assert found.line == "memory-backup.service did not fail; its last run at 2026-11-30T00:00:00Z: sealed"
    assert not found.failed
    assert "is not on record" in alert.make_report(PRUNE, str(tmp_path), {}).line


def test_what_others_wrote_is_escaped_and_cannot_harm(tmp_path, journal) -> None:
    journal({"OF": RUN, "MESSAGE": [104, 105, 27, 10, 255]}, {"OF": RUN, "MESSAGE": None})
    record(tmp_path, message="\x1b[2J\n<0>all is well" + "x" * 5000, end=["\x1b"])
    found = alert.make_report(PRUNE, str(tmp_path), ended())
    for text in (found.line, *found.tail):
        assert text.isprintable()
        assert len(text) < 500
    state = tmp_path / "default" / "runs.jsonl"
    for content in ("[" * 100_000, "7\n[]\n{}\n", '{"job": "prune", "message": {"a": 1}}\n'):
        state.write_text(content)
        assert "failed at" in alert.make_report(PRUNE, str(tmp_path), ended()).line
    state.unlink()
    state.symlink_to("/etc/passwd")
    assert alert.kept_records(str(tmp_path), "prune", "default") == []


SENDMAIL = """#!/bin/sh
[ "$#" = 2 ] && [ "$1" = -i ] || { echo "unknown arguments: $*" >&2; exit 64; }
{ echo "X-Argument: $2"; cat; } >"$0.taken"
"""


@pytest.fixture
def sendmail(tmp_path):
    program = tmp_path / "sendmail"
    program.write_text(SENDMAIL)
    program.chmod(0o755)
    return program


def taken(sendmail: Path) -> EmailMessage:
    """The mail that was taken."""
    return email.message_from_bytes(Path(f"{sendmail}.taken").read_bytes(), policy=policy.default)


def test_the_mail(sendmail) -> None:
    line = "memory-prune.service failed at …: " + "ü" * 300
    assert post.send(letters.failure(PRUNE, line, ("one", "x" * 200)), "ops@example.org", str(sendmail)) == ""
    letter = taken(sendmail)
    assert (letter["To"], letter["X-Argument"]) == ("ops@example.org", "ops@example.org")
    assert letter["Subject"].endswith(": memory-prune.service failed")
    assert letter["Auto-Submitted"] == "auto-generated"
    assert letter.get_content().splitlines()[:4] == [line, "", "one", "x" * 200]


def test_a_mail_program_that_refuses_or_is_not_there(tmp_path, sendmail) -> None:
    letter = letters.failure(PRUNE, "line", ())
    assert "has no " in post.send(letter, "root", str(tmp_path / "none"))
    sendmail.write_text("#!/bin/sh\necho 'relaying\033 denied' >&2; exit 75\n")
    assert post.send(letter, "root", str(sendmail)) == "relaying\\x1b denied"


# ---- what a good run left


DIGEST, REVIEW = "memory-digest.service", "memory-review.service"
FACT = {"id": "m_1", "subject": "s\x1b[2J", "fact": "a\nb", "source": "web page", "class": "web", "created_at": "x"}


def leave(state: Path, run: str = RUN, **more: object) -> None:
    """A digest and a queue as their jobs leave them, of this run."""
    (state / "default").mkdir(exist_ok=True)
    kept = {"at": "2026-11-30T00:00:00Z", "since": "2026-11-29 00:00:00", "invocation": run, "new": 1, "marked": 1,
            "facts": [FACT], "waiting": 41, "live": 50} | more  # fmt: skip
    with (state / "default/digests.jsonl").open("a") as file:
        file.write(json.dumps(kept) + "\n")
    (state / "default/review.json").write_text(json.dumps(kept) + "\n")


@pytest.mark.parametrize(
    ("unit", "subject"), [(DIGEST, "1 new fact, 1 not from a person"), (REVIEW, "41 facts to review")]
)
def test_what_a_good_run_left_is_mailed(tmp_path, journal, sendmail, capsys, unit: str, subject: str) -> None:
    toml = tmp_path / "memops.toml"
    toml.write_text('[store.default]\nmail_to = "ops@example.org"\n')
    places = alert.Places(str(toml), str(tmp_path), str(sendmail))
    leave(tmp_path)
    assert alert.mail(f"{unit}:left", places, ended(unit, "success", "0")) == 0
    letter = taken(sendmail)
    assert letter["Subject"].endswith(f": {subject}")
    body = letter.get_content()
    assert "! m_1  [web] s\\x1b[2J" in body
    assert "    a\\nb\n    source: web page\n" in body
    assert all(line.isprintable() for line in body.splitlines())
    assert f"{unit} to ops@example.org was handed to" in capsys.readouterr().out

    # A run that left nothing, and one that failed, though an earlier one left something.
    Path(f"{sendmail}.taken").unlink()
    assert alert.mail(f"{unit}:left", places, ended(unit, "success", "0", OTHER)) == 0
    assert capsys.readouterr().out == f"no mail about {unit}: it left nothing to tell\n"
    assert not Path(f"{sendmail}.taken").exists()
    assert alert.mail(unit, places, ended(unit, run=OTHER)) == 0
    assert taken(sendmail)["Subject"].endswith(f"{unit} failed")
    # Tried by a person it is what was left last.
    assert alert.mail(f"{unit}:left", places, {}) == 0
    assert taken(sendmail)["Subject"].endswith(f": {subject}")
    # Other jobs leave nothing.
    assert alert.mail(f"{PRUNE}:left", places, {}) == 0
    assert "it left nothing to tell" in capsys.readouterr().out


def test_what_the_stores_user_wrote_cannot_harm_a_mail(tmp_path) -> None:
    odd: list[object] = [
        None,
        5,
        "x",
        [],
        {},
        {"facts": [5, {"id": {}, "fact": "\x1b" * 5000}], "new": "many", "left": -1},
    ]
    for found in odd:
        text = json.dumps(found) + "\n" + "[" * 100_000
        (tmp_path / "digests.jsonl").write_text(text)
        (tmp_path / "review.json").write_text(text)
        for left in alert.digests(str(tmp_path)):
            assert all(line.isprintable() for line in letters.digest(left, "work", printable).lines)
        for left in alert.queues(str(tmp_path)):
            assert all(line.isprintable() for line in letters.review(left, "work", printable).lines)
    assert len(alert.digests(str(tmp_path))) == 1
    (tmp_path / "review.json").unlink()
    (tmp_path / "review.json").symlink_to("/etc/passwd")
    assert alert.queues(str(tmp_path)) == []


def test_the_scripts_as_the_units_run_them(lib, tmp_path) -> None:
    toml = tmp_path / "memops.toml"
    toml.write_text('version = 1\n[store.default]\nmail_to = "root"\n')
    record(tmp_path, exit=5, message="the agent held the lock")
    command = [sys.executable, "-I", str(lib / "alert.py"), PRUNE, f"--settings={toml}", f"--state={tmp_path}"]
    done = subprocess.run([*command, "--sendmail=/nonexistent"], env={"PATH": "/bin"}, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.endswith("the agent held the lock (no mail: this machine has no /nonexistent)\n")
    toml.write_text("damaged = = =")
    done = subprocess.run(command, env={"PATH": "/bin"}, capture_output=True, text=True)
    assert (done.returncode, done.stderr.endswith("the agent held the lock\n")) == (0, True)
    done = subprocess.run([*command[:3], "../../x.service"], env={}, capture_output=True, text=True)
    assert done.returncode == 2


# ---- pings


@pytest.fixture
def service():
    """A monitoring service: its address, what it was asked for, and the status codes it will answer (else 200)."""
    asked: list[str] = []
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(answers.pop(0) if answers else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked, answers
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_ping_is_tried_again(service) -> None:
    address, asked, answers = service
    answers += [500, 404]
    assert ping.ping(f"{address}/id", (0, 0)) == ""
    assert asked == ["/id"] * 3
    answers += [503, 503]
    assert ping.ping(f"{address}/id", (0,)) == "the service answered 503"


def test_the_ping_script_reads_the_url_from_standard_input(lib, service) -> None:
    address, asked, _ = service
    for event in ("backup:start", "backup:success", "prune:fail"):
        done = subprocess.run(
            [sys.executable, "-I", str(lib / "ping.py"), event], input=f"{address}/key/{{job}}\n",
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert address not in done.stdout + done.stderr
    assert asked == ["/key/backup/start", "/key/backup", "/key/prune/fail"]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://host/SECRETID",
        "file:///etc/SECRETID",
        "http:///SECRETID",
        "http://127.0.0.1:1/SECRETID",
        "http://127.0.0.1:xy/SECRETID",
    ],
)
def test_a_ping_that_cannot_be_sent_does_not_name_the_url(lib, url) -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(lib / "ping.py"), "prune:start"], input=url, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("ping: ")
    assert "SECRETID" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_addresses() -> None:
    assert ping.make_address("https://hc.example/id/\n", "backup", "start") == "https://hc.example/id/start"
    assert ping.make_address("https://hc.example/id?create=1", "prune", "fail") == "https://hc.example/id/fail?create=1"


# ---- settings


@pytest.mark.parametrize(
    ("url", "jobs"),
    [("", ""), ("https://hc-ping.com/uuid", "backup"), ("http://10.0.0.1:8000/ping/key/m-{job}", "backup prune")],
)
def test_which_jobs_ping(url: str, jobs: str) -> None:
    assert settings.pinging(url) == jobs


@pytest.mark.parametrize(
    "url",
    [
        "hc-ping.com/SECRETID",
        "ftp://x/SECRETID",
        "https:///SECRETID",
        "https://u:SECRETID@x/",
        "https://x/SECRETID#a",
        "https://x/SECRETID a",
        "https://x/SECRETID\n/b",
        "https://x/SECRETIDü",
    ],
)
def test_what_is_no_check(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings.pinging(url)
    assert "SECRETID" not in f"{caught.value.message}{caught.value.hint}"


@pytest.mark.parametrize(
    "address",
    ["-oQ/tmp", "a b@x", "a@b\nBcc: c@d", "a,b@x", "|/bin/sh", "/etc/passwd", "a@", "@b", "a@-b", ":include:/x"],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UsageError):
        settings.check(Store(mail_to=address))


def test_what_is_an_address() -> None:
    for address in ("", "root", "ops@example.org", "first.last+memops@sub.example.org"):
        settings.check(Store(mail_to=address))
