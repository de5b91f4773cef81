"""What doctor looks at besides discovery, and what it prints."""

# ruff: noqa: S108 - directories for temporary files are told of, not used

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from memops import doctor, doctor_text
from memops.doctor import Step
from memops.findings import findings
from memops.found import Found, Holder
from memops.settings import Store
from unit.test_findings import CARE, CASES, DB, FOUND, MACHINE, PART

ROOT = Path(__file__).resolve().parent.parent.parent
DIR, FILE = stat.S_IFDIR, stat.S_IFREG


def way(*modes: int, uid: int = 1000) -> list[Step]:
    return [Step("/", DIR | 0o755, 0, 0), *(Step(f"/{n}", mode, uid, uid) for n, mode in enumerate(modes))]


@pytest.mark.parametrize(
    ("modes", "exposed"),
    [
        ((DIR | 0o755, FILE | 0o644), True),
        ((DIR | 0o711, FILE | 0o644), True),
        ((DIR | 0o700, FILE | 0o644), False),
        ((DIR | 0o755, FILE | 0o640), False),
        ((DIR | 0o755, DIR | 0o755), True),
        ((DIR | 0o755, DIR | 0o754), False),
        ((DIR | 0o750, DIR | 0o755), False),
    ],
)
def test_what_everybody_can_read(modes: tuple[int, ...], exposed: bool) -> None:
    assert doctor.is_exposed(way(*modes)) is exposed


def test_the_first_directory_that_a_user_cannot_pass_is_named() -> None:
    roots = way(DIR | 0o700, DIR | 0o700, FILE | 0o600, uid=0)
    assert doctor.barred(roots, 1000, [1000]) == "/0"
    assert doctor.barred(roots, 0, []) == ""
    assert doctor.barred(way(DIR | 0o711, DIR | 0o700, FILE | 0o600, uid=0), 1000, []) == "/1"
    assert doctor.barred(way(DIR | 0o710, FILE | 0o600, uid=0), 1000, [0]) == ""
    # The first class that fits decides, as in the kernel: an owner without x is barred though others pass.
    assert doctor.barred(way(DIR | 0o677, FILE | 0o600), 1000, [1000]) == "/0"
    assert doctor.barred(way(DIR | 0o767, FILE | 0o600, uid=0), 1000, [0]) == "/0"
    assert doctor.barred(way(FILE | 0o000), 1000, []) == ""


def test_real_directories_are_looked_at(tmp_path: Path) -> None:
    for place in (tmp_path, *tmp_path.parents):
        if place != Path("/"):
            place.chmod(place.stat().st_mode | 0o711)
    db = tmp_path / "a" / "memory.db"
    db.parent.mkdir(mode=0o755)
    db.write_bytes(b"")
    db.chmod(0o644)
    os.chown(db, 4242, 4242)
    here = replace(PART, path=str(db), seen=str(db), uid=4242)
    store = replace(FOUND, parts=(here,))
    assert doctor._reached(store, here).exposed
    assert doctor._reached(store, here).barred == ""
    db.parent.chmod(0o700)
    assert not doctor._reached(store, here).exposed
    assert doctor._reached(store, here).barred == str(db.parent)
    assert doctor._reached(replace(store, namespace="ada.service"), here) == here
    gone = replace(here, path=f"{db}x")
    assert doctor._reached(store, gone) == gone


def test_a_directory_is_readable_if_something_in_it_is(tmp_path: Path) -> None:
    inner = tmp_path / "collection"
    inner.mkdir(mode=0o755)
    (inner / "storage.sqlite").write_bytes(b"x")
    (inner / "storage.sqlite").chmod(0o600)
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert not doctor._has_readable(str(tmp_path))
    (inner / "storage.sqlite").chmod(0o644)
    assert doctor._has_readable(str(tmp_path))
    inner.chmod(0o700)
    assert not doctor._has_readable(str(tmp_path))


NEWEST = {"age": 3600, "bytes": 5000, "due": {"state": "late"}}
UNSEEN = "/var/lib/memops/default.sets.json (needs root)"


@pytest.mark.parametrize(
    ("shown", "state", "age"),
    [
        ({"newest_set": NEWEST, "unreadable": []}, "late", 3600),
        ({"newest_set": {**NEWEST, "gone": True}, "unreadable": []}, "overdue", None),
        ({"newest_set": {**NEWEST, "due": None}, "unreadable": []}, "unknown", 3600),
        ({"newest_set": None, "unreadable": []}, "none", None),
        ({"newest_set": None, "unreadable": [UNSEEN]}, "unknown", None),
        ({}, "unknown", None),
    ],
)
def test_how_the_sets_are_is_never_guessed(shown: dict, state: str, age: int | None) -> None:
    care = doctor.make_care(Store(), shown, 100, 10)
    assert (care.set_state, care.set_age, care.free) == (state, age, 10)
    assert care.needs == (5000 if shown.get("newest_set") else 100)


def test_a_drill_that_never_went_well_has_no_age() -> None:
    due = {"state": "overdue", "age": 99}
    for good, age in ((None, None), ("2026-11-29T00:00:00Z", 99)):
        shown = {"newest_set": None, "unreadable": [], "jobs": [{"job": "drill", "good": good, "due": due}]}
        care = doctor.make_care(Store(), shown, 0, None)
        assert (care.drill_state, care.drill_age, care.needs) == ("overdue", age, None)


# What is printed


def seen(*stores: Found, unread: tuple[str, ...] = ()) -> doctor.Seen:
    machine = replace(MACHINE, unread=unread)
    care = {"default": CARE}
    return doctor.Seen(stores, machine, care, tuple(findings(stores, machine, care)))


EVERY = [case[0] for yes, _ in CASES.values() for case in yes]


def test_the_report_fits_80_columns_but_for_what_is_copied() -> None:
    text = doctor_text.text(
        seen(*EVERY, unread=("/home/bob: permission denied, so nothing is known of what lies there",)), 80
    )
    lines = [line for line in text.splitlines() if not line.startswith("    ") or line.startswith("     ")]
    assert max(map(len, lines)) <= 80
    assert len(lines) > 100
    assert "error on-tmp: /tmp/memory.db: The memories lie in /tmp" in text
    assert "\nNot read: /home/bob: permission denied" in text


def test_each_store_is_described() -> None:
    holders = tuple(Holder(n, 0, "root", "", f"agent{n}") for n in range(7))
    database = replace(PART.database, dates={"memory.created_at": {"utc": 2, "iso": 1}})
    one = replace(FOUND, namespace="ada.service", holders=holders, lacking=("vectors",), parts=(
        replace(PART, database=database), replace(PART, what="index", path="/srv/ada/i", rows=None, database=None,
                                                  unread="it is locked")))  # fmt: skip
    text = " ".join(doctor_text.text(seen(one), 80).split())
    for words in (
        f"{DB} found under care; ada.service alone sees it",
        "memories 20.5 kB, 3 rows, ada 0600, journal wal, dates iso and utc",
        "index /srv/ada/i, 20.5 kB, ada 0600, not read: it is locked",
        "missing vectors",
        "process 0 (agent0, root)",
        "and 2 more",
        "care the store default",
        "in 1 store.",
    ):
        assert words in text


def test_nothing_found_is_said() -> None:
    assert doctor_text.text(seen(), 80) == "No memory was found."
    assert doctor_text.text(seen(FOUND), 80).endswith("Nothing wrong in 1 store.")


def test_no_text_of_the_agents_reaches_a_terminal_as_it_is() -> None:
    odd = "/tmp/\x1b[2J\n\u202eerror"
    old = {"mem0ai": "1.0.0\x1b"}
    holder = Holder(1, 0, "ro\x1bot", "a\x1b.service", "py\x1bthon", sqlite="\x1b", deleted=(odd,), versions=old)
    database = replace(PART.database, journal_mode="de\x1blete", violations={"\x1b.b": 1},
                       dates={"\x1b.c": {"\x1b": 1, "odd": 1}})  # fmt: skip
    part = replace(PART, path=odd, seen=odd, owner="a\x1bda", database=database, unread="\x1b", barred="/\x1b",
                   exposed=True, sidecars={"-wal": (7, 1 << 40, 0)}, file_system="nfs\x1b", links=2)  # fmt: skip
    store = Found(
        "sqlite", odd, "\x1b", (part, replace(part, kind="qdrant")), "\x1b", ("\x1b",), "\x1b", "\x1b", (holder,)
    )
    shown = doctor_text.text(seen(store, unread=("\x1b",)), 80)
    assert all(line.isprintable() for line in shown.splitlines())
    json.dumps(doctor.as_data(seen(store)))


def test_every_key_of_the_json_is_on_the_page() -> None:
    page = (ROOT / "docs/findings.md").read_text()
    data = doctor.as_data(seen(*EVERY))
    assert data["version"] == 1
    assert len({each["code"] for each in data["findings"]}) > 25

    def keys(value: object) -> set[str]:
        if isinstance(value, dict):
            return {*value, *(key for name, each in value.items() if name != "dates" for key in keys(each))}
        return {key for each in value for key in keys(each)} if isinstance(value, list) else set()

    named = set(re.findall(r"`(?:\w+\[\]\.)?(\w+)`", page.partition("## The codes")[0]))
    assert keys(data) <= named
