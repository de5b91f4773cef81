"""What is decided before and after restic and rclone run; what they do themselves is shown by the tests on servers."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import census
import job
import offsite
import tools
from memops import host
from memops import offsite as installer
from memops.errors import Refused, UsageError
from memops.settings import Store

OLD, MIDDLE, NEW = "2026-11-28T233000Z", "2026-11-29T233000Z", "2026-11-30T233000Z"


def make_set(top: Path, name: str) -> Path:
    directory = top / name
    (directory / "notes" / "empty").mkdir(parents=True)
    (directory / "memory.db").write_bytes(b"x" * 100)
    (directory / "notes" / "a b.md").write_text("note")
    (directory / "manifest.json").write_text("{}")
    return directory


def tool(name: str, tmp_path: Path, seconds: float = 30, **environment: str) -> tools.Tool:
    return tools.Tool(name, str(tmp_path), census.Limit(seconds), environment)


def test_the_sets_are_taken_newest_first_but_for_what_is_none_or_known_as_bad(tmp_path):
    for name in (OLD, NEW, f"{NEW}-2", f"{NEW}-10", MIDDLE):
        make_set(tmp_path, name)
    make_set(tmp_path, ".partial-0123")
    make_set(tmp_path, "2026-12-24T233000Z.old")
    (tmp_path / "2026-12-01T000000Z").mkdir()  # without a manifest
    (tmp_path / f"{NEW}.pinned").touch()
    state = {"verified": {MIDDLE: {"ok": False}, OLD: {"ok": True}}}
    assert offsite.good_sets(str(tmp_path), state) == [f"{NEW}-10", f"{NEW}-2", NEW, OLD]
    assert offsite.good_sets(str(tmp_path), {"verified": "nonsense"})[-2:] == [MIDDLE, OLD]


@pytest.mark.parametrize(
    ("before", "there", "wanted"),
    [
        ([], [], [NEW, MIDDLE, OLD]),
        ([OLD], [OLD], [NEW, MIDDLE]),
        ([OLD, MIDDLE, NEW], [OLD, MIDDLE, NEW], []),
        # Half of it may be there: it is looked at again.
        ([OLD], [OLD, MIDDLE, NEW], [NEW, MIDDLE]),
        # Its owner lets it forget old ones, which is not undone.
        ([OLD, MIDDLE, NEW], [NEW], []),
        # But the newest has to be there.
        ([OLD, MIDDLE, NEW], [OLD], [NEW]),
        # Nothing is left: another disk, another server.
        ([OLD, MIDDLE, NEW], [], [NEW, MIDDLE, OLD]),
        ([OLD, MIDDLE], ["2020-01-01T000000Z"], [NEW, MIDDLE, OLD]),
    ],
)
def test_what_is_handed_over(before, there, wanted):
    assert offsite.chosen([NEW, MIDDLE, OLD], set(before), set(there)) == wanted


class Shelf:
    """A place with a directory's ways: it has what was handed to it."""

    def __init__(self, fails: str = "") -> None:
        self.taken: list[str] = []
        self.fails = fails
        self.known: list[bool] = []

    def prepare(self, known: bool) -> str:
        self.known.append(known)
        return "shelf"

    def there(self) -> set[str]:
        return set(self.taken)

    def hand(self, name: str) -> None:
        if name == self.fails:
            raise job.JobError(f"the set {name} was not taken")
        self.taken.append(name)


def run(place: Shelf, sets: Path, state: dict) -> job.Outcome | job.JobError:
    """A run with its record, as ``main`` does both."""
    done: list[job.Outcome | job.JobError] = []

    def work() -> job.Outcome:
        try:
            done.append(offsite.hand_over(place, "restic=/x", str(sets), state, census.Limit(60)))
        except job.JobError as error:
            done.append(error)
            raise
        return done[0]

    job.run_recorded("offsite", work, lambda record: offsite.note(state, "restic=/x", record))
    return done[0]


def test_a_run_is_noted_and_the_next_one_hands_over_only_what_is_new(tmp_path):
    state: dict = {"newest": {"set": OLD}}
    place = Shelf()
    for name in (OLD, MIDDLE):
        make_set(tmp_path, name)
    assert str(run(place, tmp_path, state).message).startswith(
        f"set {MIDDLE} and 1 older handed over and seen there whole"
    )
    assert (state["offsite"]["set"], state["offsite"]["exit"]) == (MIDDLE, 0)
    assert state["offsite"]["good"] == state["offsite"]["end"]
    assert state["handed"] == {"shelf": [MIDDLE, OLD]}
    assert state["newest"] == {"set": OLD}
    assert "there already" in run(place, tmp_path, state).message
    place.taken.remove(OLD)  # as a policy of its owner's would
    make_set(tmp_path, NEW)
    assert run(place, tmp_path, state).message.startswith(f"set {NEW} handed over")
    assert place.taken == [MIDDLE, NEW]
    assert place.known == [False, True, True]


def test_a_failure_keeps_what_was_reached_and_when_it_was_good(tmp_path):
    state: dict = {}
    for name in (OLD, MIDDLE, NEW):
        make_set(tmp_path, name)
    place = Shelf(fails=MIDDLE)
    assert isinstance(run(place, tmp_path, state), job.JobError)
    assert state["handed"] == {"shelf": [NEW]}
    assert (state["offsite"]["exit"], state["offsite"]["good"]) == (1, None)
    place.fails = ""
    run(place, tmp_path, state)
    good = state["offsite"]["good"]
    assert good is not None
    place.fails = "2026-12-01T233000Z"
    make_set(tmp_path, place.fails)
    run(place, tmp_path, state)
    assert (state["offsite"]["exit"], state["offsite"]["good"]) == (1, good)
    # Another place was never good.
    record = dict.fromkeys(offsite.setstate.ENDING, "") | {"counts": {}, "exit": 1}
    offsite.note(state, "rclone=box:", record)
    assert state["offsite"]["good"] is None


def test_a_set_that_the_rotation_took_meanwhile_is_no_failure(tmp_path):
    make_set(tmp_path, NEW)
    gone = make_set(tmp_path, OLD)

    class Slow(Shelf):
        def hand(self, name: str) -> None:
            if name == OLD:
                subprocess.run(["rm", "-r", gone], check=True)
                raise job.JobError("cannot read it")
            super().hand(name)

    state: dict = {}
    assert isinstance(run(Slow(), tmp_path, state), job.Outcome)
    assert state["handed"] == {"shelf": [NEW]}


def test_there_is_nothing_to_hand_over(tmp_path):
    assert "no good set" in str(run(Shelf(), tmp_path, {}))


def test_only_some_places_are_remembered_and_only_sets_that_are_here():
    state: dict = {"handed": {f"place {n}": [OLD] for n in range(20)}}
    ending = dict.fromkeys(offsite.setstate.ENDING, "")
    counts = {"set": NEW, "place": "place 3", "handed": [NEW], "sets": [NEW, MIDDLE]}
    offsite.note(state, "restic=/x", {**ending, "end": "now", "exit": 0, "counts": counts})
    assert len(state["handed"]) == offsite.PLACES
    assert list(state["handed"].items())[-1] == ("place 3", [NEW])


def test_what_a_set_holds(tmp_path):
    make_set(tmp_path, NEW)
    assert offsite.tree(str(tmp_path), NEW) == {
        f"/{NEW}": None,
        f"/{NEW}/manifest.json": 2,
        f"/{NEW}/memory.db": 100,
        f"/{NEW}/notes": None,
        f"/{NEW}/notes/a b.md": 4,
        f"/{NEW}/notes/empty": None,
    }


SECRETS = {
    "RESTIC_PASSWORD": 'corr%ct "horse"\tbattery',
    "AWS_SECRET_ACCESS_KEY": "Zq3+/x",
    "RESTIC_REPOSITORY": "rest:https://me:hunter2@backup.example.org/",
    "RCLONE_CONFIG_BOX_TYPE": "webdav",
    "RCLONE_CONFIG_BOX_URL": "https://you:swordfish@dav.example.org/x",
    "PATH": "/usr/bin",
    "LANG": "C.UTF-8",
    "EMPTY": "",
    "SHORT": "ab",
}


@pytest.mark.parametrize("secret", ["corr%ct", "battery", "Zq3+/x", "Zq3%2B%2Fx", "hunter2", "swordfish"])
def test_no_secret_is_shown(secret):
    texts = [
        f"wrong password {SECRETS['RESTIC_PASSWORD']}",
        f"key {SECRETS['AWS_SECRET_ACCESS_KEY']} or Zq3%2B%2Fx",
        "Get https://me:hunter2@backup.example.org/config: refused",
        f"cannot open {SECRETS['RESTIC_REPOSITORY']}",
        "https://you:swordfish@dav.example.org/x/y: 404",
        r'corr%ct "horse"\tbattery',
    ]
    shown = [tools.scrub(text, tools.secrets(SECRETS)) for text in texts]
    assert any(secret in text for text in texts)
    assert not [text for text in shown if secret in text]


def test_what_is_no_secret_stays_and_control_characters_go():
    hidden = tools.secrets(SECRETS)
    assert tools.scrub("no webdav in /usr/bin about it \x1b[31m", hidden) == r"no webdav in /usr/bin about it \x1b[31m"
    assert len(tools.scrub("x" * 5000, hidden)) == 300


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Fatal: unable to open config file: EOF\nIs there a repository?\n/srv/x\n", "unable to open config file: EOF"),
        (json.dumps({"message_type": "exit_error", "message": "Fatal: wrong password\nmore"}), "wrong password"),
        ("2026/12/01 00:21:27 ERROR : listing\n2026/12/01 00:21:27 Failed to lsf: no\n", "Failed to lsf: no"),
        ("2026/12/01 00:21:27 NOTICE: only this\n", "only this"),
        ("", "exit code 9"),
        ("17\n[1]\nnull\n", "null"),
    ],
)  # fmt: skip
def test_the_line_that_says_why(said, words):
    assert tools.last_words(tools.Ran(9, "", said)) == words


def test_a_program_gets_the_environment_and_an_end_with_all_it_started(tmp_path):
    ran = tool("env", tmp_path, RCLONE_KEY="pass").run()
    environment = dict(line.split("=", 1) for line in ran.out.splitlines())
    assert (ran.code, environment["RCLONE_KEY"], environment["TZ"]) == (0, "pass", "UTC")
    assert {environment[key] for key in ("HOME", "TMPDIR", "XDG_CACHE_HOME")} == {str(tmp_path)}
    assert environment["RCLONE_CONFIG"] == "/dev/null"
    begin = time.monotonic()
    script = f"sleep 1000 & echo $! >{tmp_path}/pid; wait"
    with pytest.raises(job.JobError, match=r"not done after 0.5 s"):
        tool("sh", tmp_path, 0.5).run("-c", script)
    assert time.monotonic() - begin < tools.GRACE
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().rpartition(")")[2][:3]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_program_that_was_told_to_stop_together_with_the_job_is_no_failure_of_its_own(tmp_path):
    child = f"kill -TERM {os.getpid()}; exit 130"
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(job.JobError, match="told to stop before the end"):
            tool("sh", tmp_path).done("-c", child, what="it was not taken")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_program_that_fails_or_is_missing_says_so(tmp_path):
    with pytest.raises(job.JobError, match="it was not taken: sh says: no \\*\\*\\* today"):
        tool("sh", tmp_path, KEY="secret-key").done("-c", "echo no $KEY today >&2; exit 3", what="it was not taken")
    with pytest.raises(job.JobError, match="not on this machine; install the Debian package memops-no-such"):
        tool("memops-no-such", tmp_path).run()


# What the installer looks at


@pytest.mark.parametrize(
    ("offsite_text", "environment", "words"),
    [
        ("", "/etc/memops/x.env", "not what it is for"),
        ("borg=/x", "", "neither restic= nor rclone="),
        ("restic", "/x", "neither restic= nor rclone="),
        ("restic=repo", "/x", "neither a whole path nor an address"),
        ("restic=local:/x", "/x", "neither a whole path nor an address"),
        ("restic=/mnt/x", "", "needs a password"),
        ("restic=/mnt/x", "secrets.env", "not an absolute path"),
        ("restic=/mnt/\"x\"", "/x", "holds a quote"),
        ("restic=/mnt/x", "/etc/a\nb", "control character"),
        ("restic=rest:https://me:hunter2@example.org/", "/x", "holds a password"),
        ("rclone=", "", "names no remote"),
        ("rclone=box", "", "names no remote"),
        ("rclone=:sftp,host=x,pass=hunter2:/y", "/x", "names no remote"),
        ("rclone=box,pass=hunter2:y", "/x", "names no remote"),
    ],
)  # fmt: skip
def test_what_cannot_be_right(offsite_text, environment, words):
    with pytest.raises(UsageError, match=words) as raised:
        installer.check_text(offsite_text, environment)
    assert raised.value.hint
    assert "hunter2@" not in raised.value.message + raised.value.hint


@pytest.mark.parametrize(
    "text",
    ["restic=/mnt/a b", "restic=", "restic=s3:s3.amazonaws.com/bucket", "restic=rest:https://me@example.org:8000/x/",
     "restic=rclone:box:memory", "rclone=/mnt/x", "rclone=box:", "rclone=my-box:a/b c"],
)  # fmt: skip
def test_what_may_be_right(text):
    installer.check_text(text, "/etc/memops/offsite.env")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A store whose places are below a directory of root's, with both programs and a file of secrets."""
    monkeypatch.setattr(host, "has", lambda program: program in installer.TOOLS)
    # The directory of the tests lies in /tmp.
    monkeypatch.setattr(installer, "_HIDDEN", ("/home",))
    for name in ("agent", "backup", "copies"):
        (tmp_path / name).mkdir()
    file = tmp_path / "offsite.env"
    file.write_text("# a comment\nRESTIC_PASSWORD='a=b'\nRCLONE_CONFIG_BOX_TYPE = sftp\n")
    file.chmod(0o600)
    return Store(
        db=f"{tmp_path}/agent/memory.db",
        backup_dir=f"{tmp_path}/backup",
        offsite=f"restic={tmp_path}/copies",
        offsite_env=str(file),
    )


def test_a_machine_that_is_ready_and_what_the_owner_should_know(machine):
    assert installer.check(dataclasses.replace(machine, offsite="", offsite_env="")) == []
    (note,) = installer.check(machine)
    assert "same disk" in note
    assert installer.check(dataclasses.replace(machine, offsite="restic=s3:x/y")) == []
    (note,) = installer.check(dataclasses.replace(machine, offsite="rclone=box:x"))
    assert "every fact can be read at box" in note
    path = installer.local(machine.offsite)
    notes = installer.check(dataclasses.replace(machine, offsite=f"rclone={path}", offsite_env=""))
    assert [("same disk" in note, "can be read" in note) for note in notes] == [(True, False), (False, True)]
    Path(machine.offsite_env).write_text("RCLONE_CONFIG_BOX_TYPE=crypt\n")
    assert installer.check(dataclasses.replace(machine, offsite="rclone=box:x")) == []


@pytest.mark.parametrize(
    ("offsite_text", "script", "words"),
    [
        ("restic=TOP/copies", "rm offsite.env", "There is no file"),
        ("restic=TOP/copies", "chmod 640 offsite.env", "nobody else may read"),
        ("restic=TOP/copies", "chown 1234 offsite.env", "nobody else may read"),
        ("restic=TOP/copies", "mv offsite.env x; ln -s x offsite.env", "nobody else may read"),
        ("restic=TOP/copies", "chown 1234 .", "changed by others than root"),
        ("restic=TOP/copies", "echo RESTIC_PASSWORD= >offsite.env", "does not set RESTIC_PASSWORD"),
        ("restic=TOP/copies", "chmod 777 copies", "changed by others than root"),
        ("restic=TOP/copies", "rmdir copies", "There is no directory"),
        ("restic=", "", "names a repository"),
        ("restic=", "echo RESTIC_REPOSITORY=/x >>offsite.env", "a directory of this machine"),
        ("rclone=other:x", "", "Nothing says what rclone's remote other is"),
        ("rclone=box:x", "echo RCLONE_CONFIG_BOX_TYPE=local >offsite.env", "a directory of this machine"),
        ("restic=TOP/backup/x", "", "lie one inside the other"),
        ("restic=TOP", "", "lie one inside the other"),
        ("restic=TOP/agent", "", "lie one inside the other"),
        ("rclone=TOP/notes/x", "", "lie one inside the other"),
        ("restic=/home/x", "", "cannot write to"),
    ],
)
def test_a_machine_that_is_not_ready(machine, offsite_text, script, words):
    top = Path(machine.offsite_env).parent
    subprocess.run(["sh", "-euc", script], cwd=top, check=True)
    store = dataclasses.replace(machine, offsite=offsite_text.replace("TOP", str(top)), parts=(f"files={top}/notes/",))
    with pytest.raises(Refused, match=words) as raised:
        installer.check(store)
    assert raised.value.hint


def test_a_program_that_is_missing_is_named(machine, monkeypatch):
    monkeypatch.setattr(host, "has", {"rclone"}.__contains__)
    with pytest.raises(Refused, match="restic is not on this machine") as raised:
        installer.check(machine)
    assert "apt-get install restic" in raised.value.hint
