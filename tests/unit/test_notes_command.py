"""Notes in plain files: what the command and the monthly look make of them."""

from __future__ import annotations

import json
import os
import pwd
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import note_month
from memops import notes as reading
from memops.errors import MemopsError, NotPermitted, Refused, UsageError
from memops.host import Ran
from memops.render import settings_file
from memops.settings import Store, check, parse

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC).timestamp()


def test_a_closed_directory_is_a_matter_of_rights() -> None:
    with tempfile.TemporaryDirectory() as directory:
        closed = Path(directory) / "closed"
        closed.mkdir(mode=0o700)
        Path(directory).chmod(0o755)
        os.seteuid(65534)
        try:
            for path in (closed, closed / "a.md"):
                with pytest.raises(NotPermitted):
                    reading.place(str(path))
        finally:
            os.seteuid(0)
    with pytest.raises(UsageError, match="empty"):
        reading.place("")


def test_a_place_is_looked_at_before_it_is_read(tmp_path, monkeypatch) -> None:
    top = Path(os.path.realpath(tmp_path))
    (top / "memory.md").write_text("- x\n")
    (top / "link").symlink_to(top)
    (top / "link.md").symlink_to(top / "memory.md")
    os.mkfifo(top / "pipe")
    monkeypatch.chdir(top)
    for typed, path in (
        ("memory.md", top / "memory.md"),
        ("link/memory.md", top / "memory.md"),
        (".", top),
        ("x/..", top),
    ):
        assert reading.place(typed).path == str(path)
    for typed, hint in (
        ("memry.md", f"Did you mean {top}/memory.md"),
        ("nowhere/at/all", f"ls {top}"),
        ("link.md", f"leads to: {top}/memory.md"),
        ("pipe", "Name a file"),
        ("a\0b", "See what there is"),
        ("memory.md/x", "ls "),
    ):
        with pytest.raises(UsageError) as caught:
            reading.place(typed)
        assert hint in caught.value.hint, typed


def test_what_a_unit_sees_of_a_repository(tmp_path) -> None:
    """The top of the owner's own repository, so that git finds it; else the path alone."""
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / "repo/sub").mkdir()
    (tmp_path / "repo/sub/a.md").write_text("- x\n")
    uid = 12345
    for path in (tmp_path / "repo", *(tmp_path / "repo").rglob("*")):
        os.chown(path, uid, uid)
    place = reading.place(str(tmp_path / "repo/sub/a.md"))
    assert (place.uid, place.root, place.seen(3)) == (uid, f"{tmp_path}/repo", "/run/memops/notes/3/sub/a.md")
    os.chown(tmp_path / "repo/.git", 0, 0)
    place = reading.place(str(tmp_path / "repo/sub/a.md"))
    assert (place.root, place.seen(0)) == (place.path, "/run/memops/notes/0")


def test_notes_in_the_settings() -> None:
    store = Store(notes=("/home/ada/repo/./sub/a.md", "/srv/b"))
    check(store)
    assert store.note_places == (
        ("/home/ada/repo", "/run/memops/notes/0/sub/a.md", "/home/ada/repo/sub/a.md"),
        ("/srv/b", "/run/memops/notes/1", "/srv/b"),
    )
    assert replace(store, sandbox="reduced").note_places[0][1] == "/home/ada/repo/sub/a.md"
    assert parse(settings_file({"default": store}).text) == {"default": store}
    for wrong in (("a",), ("/a'b",), (3,), ("/a\nb",)):
        with pytest.raises(UsageError):
            check(Store(notes=wrong))


def test_what_is_no_place_for_monthly_notes(tmp_path) -> None:
    (tmp_path / "a.md").write_text("- x\n")
    me = pwd.getpwuid(os.getuid()).pw_name
    assert reading.settle(Store(user=me, notes=(str(tmp_path),)), exists=False) == ((str(tmp_path),), [])
    for error, store in (
        ("is no place for notes", Store(user=me, notes=("/etc/ssl",))),
        ("is no place for notes", Store(user=me, notes=("/",))),
        ("is no place for notes", Store(user=me, backup_dir=str(tmp_path), notes=(str(tmp_path / "a.md"),))),
        ("and the store to agent", Store(notes=(str(tmp_path),))),
        ("given twice", Store(user=me, notes=(str(tmp_path), f"{tmp_path}/"))),
    ):
        with pytest.raises((Refused, UsageError), match=error):
            reading.settle(store, exists=False)


def answer(**values):
    found = {"older_than": 31, "entries": 2, "dated": 1, "undated": 1, "old": 1, "unsaid": 0, "problems": []}
    found["files"] = [{"file": "a\x1b.md", "form": "hermes", "entries": 2, "dated": 1, "undated": 1, "old": 1}]
    found["listed"] = [
        {"file": "a.md", "line": 3, "date": "2025-03-04", "by": "heading", "text": "x" * 300},
        {"file": "long" * 20, "line": 1, "date": None, "by": "", "text": "\x1b[31mred\nred" + "y" * 300},
    ]
    return found | values


def test_the_text_for_a_terminal() -> None:
    found = answer(problems=[{"where": "b\n.md", "what": "no plain file"}] * 30, unsaid=5)
    lines = list(reading.describe(found, 80))
    assert all(line.isprintable() for line in lines)
    assert lines[1].split() == ["2", "1", "1", "1", "a\\x1b.md", "(hermes)"]
    entry = next(line for line in lines if line.startswith("a.md:3"))
    assert entry.startswith("a.md:3  2025-03-04 (heading)  xxx")
    assert len(entry) == 80
    assert next(line for line in lines if "red" in line).startswith("    \\x1b[31mred\\nred")
    assert lines[-2:] == ["! b\\n.md: no plain file", "! … and 15 more of these"]
    assert "… and 1 more (--limit)." in reading.describe(answer(old=2), 80)
    fresh = list(reading.describe(answer(old=0, undated=0, listed=[]), 80))
    assert fresh[-1] == "Nothing is older than 31 days."
    many = list(reading.describe(answer(files=[*answer()["files"]] * 50), 80))
    assert "… and 10 more files; --json lists all." in many


def test_what_the_owner_made_of_the_answer_is_checked() -> None:
    place = reading.Place("a", "/a", 0, "/a")

    def checked(text: str):
        return reading._checked(Ran(0, text, ""), [place])

    assert checked(json.dumps(answer())) == answer()
    for wrong in (
        "",
        "[]",
        "{}",
        "[" * 100_000,
        json.dumps(answer(entries="\x1b")),
        json.dumps(answer(old=True)),
        json.dumps(answer(files=[{}])),
        json.dumps(answer(files=3)),
        json.dumps(answer(problems=[{"where": 1, "what": ""}])),
        json.dumps(answer(listed=[{**answer()["listed"][0], "date": 3}])),
    ):
        with pytest.raises(MemopsError, match="could not be read as its owner"):
            checked(wrong)
    both = reading.merged([answer(), answer(older_than=31)], 3)
    assert (both["entries"], len(both["files"]), [each["date"] for each in both["listed"]]) == (
        4,
        2,
        ["2025-03-04", "2025-03-04", None],
    )


def test_the_look_once_a_month(tmp_path) -> None:
    state, top = tmp_path / "state", tmp_path / "notes"
    state.mkdir()
    top.mkdir()
    (top / "a.md").write_text("- key sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD 2024-01-02\n- \x1b[31m\n")
    pairs = [(str(top), "/home/ada/notes"), (str(tmp_path / "gone"), "/gone"), ("/", "/root")]
    if os.geteuid() == 0:
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 65534, 65534)
        pairs[2] = (str(tmp_path / "theirs"), "/root")
    lines, counts = note_month.look(str(state), pairs, NOW)
    assert counts == {"notes": 2, "notes_old": 1, "notes_undated": 1, "notes_unread": 2}
    assert note_month.line(counts).startswith(
        "notes in plain files: 2, 1 older than 31 days, 1 without a date, 2 things"
    )
    assert lines[1].startswith("/home/ada/notes/a.md: 2, 1 older than 31 days")
    assert lines[2].startswith("/home/ada/notes/a.md:1  2024-01-02  key ")
    assert "abcdefghijklm" not in "".join(lines)
    assert all(line.isprintable() for line in lines)
    assert sum("it is gone, or belongs to another user now" in line for line in lines) == 2
    # Not again for four weeks, but when there are others to look at, or the clock went back.
    assert note_month.look(str(state), pairs, NOW + 21 * 86400) == ([], {})
    assert note_month.look(str(state), pairs, NOW + 28 * 86400 - 3600)[1]["notes"] == 2
    assert note_month.look(str(state), pairs[:1], NOW + 29 * 86400)[1]["notes"] == 2
    assert note_month.look(str(state), pairs[:1], NOW)[1]["notes"] == 2
    assert note_month.look(str(state), [], NOW) == ([], {})
    for odd in ("", "[]", '{"at": "x"}', '{"at": NaN, "places": []}', "[" * 100_000, '{"at": 1e999, "places": 3}'):
        (state / note_month.STAMP).write_text(odd)
        assert note_month.due(str(state), ["x"], NOW)
