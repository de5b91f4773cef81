"""Judgements that need no machine."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest

from memops import look, manifest, places
from memops.errors import Refused
from memops.settings import Store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("normal_form", "has_dst", "warns"),
    [
        ("*-*-* 02:30:00", True, True),
        ("Mon *-*-* 03:59:00", True, True),
        ("*-*-* 02:30:00", False, False),
        ("*-*-* 02:30:00 UTC", True, False),
        ("*-*-* 00:00:00", True, False),
        ("*-*-* 04:00:00", True, False),
        ("*-*-* 23:30:00", True, False),
        ("*-*-* 12:02:30", True, False),
    ],
)
def test_schedules_in_the_hours_of_summer_time(normal_form: str, has_dst: bool, warns: bool) -> None:
    assert bool(look.calendar_note("--prune-at", normal_form, has_dst=has_dst)) == warns


@pytest.mark.parametrize(
    ("db", "backup"),
    [
        ("/srv/memory.db", "/b/x"),
        ("/home/memory.db", "/b/x"),
        ("/srv/agent/memory.db", "/srv"),
        ("/srv/agent/memory.db", "/srv/agent"),
        ("/srv/agent/memory.db", "/srv/agent/backup"),
        ("/srv/backup/a/memory.db", "/srv/backup"),
    ],
)
def test_places_that_are_refused(db: str, backup: str) -> None:
    with pytest.raises(Refused) as caught:
        places.check(Store(db=db, backup_dir=backup))
    assert caught.value.hint


def test_places_that_are_fine() -> None:
    for db, backup in (("/srv/agent/memory.db", "/srv/agent-backup"), ("/root/agent/m.db", "/root/backup")):
        places.check(Store(db=db, backup_dir=backup))


def test_two_stores_are_kept_apart() -> None:
    first = Store()
    with pytest.raises(Refused, match="looked after already"):
        places.apart(Store(name="work"), {"default": first})
    with pytest.raises(Refused, match="beside the store"):
        places.apart(Store(name="work", db="/srv/w/m.db", backup_dir="/srv/agent"), {"default": first})
    places.apart(Store(name="work", db="/srv/w/m.db"), {"default": first})
    places.apart(first, {"default": first})


def test_a_link_is_resolved_and_both_names_are_told(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(look.owner, "has_namespaces", lambda: True)  # asks systemd, which does not run here
    real = tmp_path / "real.db"
    real.write_text("")
    (tmp_path / "link.db").symlink_to(real)
    store, new, notes = look.decide({"db": str(tmp_path / "link.db")}, None, "default")
    assert (store.db, store.user, new) == (str(real), pwd.getpwuid(os.getuid()).pw_name, {})
    assert str(real) in notes[0]
    assert "link.db" in notes[0]


def test_an_owner_without_a_name_gets_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(look.owner, "has_namespaces", lambda: True)
    db = tmp_path / "memory.db"
    db.write_text("")
    os.chown(db, 54321, 54321)
    store, new, _ = look.decide({"db": str(db)}, None, "default")
    assert (store.user, new) == ("memops-54321", {"memops-54321": "54321"})
    # The same once it was made, and when it is typed as a number.
    assert look.decide({"db": str(db), "user": "54321"}, None, "default")[0].user == "memops-54321"
    with pytest.raises(Refused, match="belongs to"):
        look.decide({"db": str(db), "user": "root"}, None, "default")


def test_sudo_is_told_a_path_where_it_would_not_find_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, own = tmp_path / "bin/memops", tmp_path / "my home/.local/bin/memops"
    for file in (usual, own):
        file.parent.mkdir(parents=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    monkeypatch.setattr(look, "SUDO_PATH", str(usual.parent))
    assert look.name_for_sudo(str(usual)) == "memops"
    assert look.name_for_sudo("-c") == "memops"
    assert look.name_for_sudo(str(own)) == f"'{own}'"
    usual.unlink()
    usual.symlink_to(own)
    assert look.name_for_sudo(str(own)) == "memops"
    usual.unlink()
    monkeypatch.chdir(own.parent)
    assert look.name_for_sudo("./memops") == f"'{own}'"


def test_backups_lie_where_only_root_can_change_the_way(tmp_path) -> None:
    theirs = tmp_path / "ada"
    theirs.mkdir()
    os.chown(theirs, 54321, 54321)
    with pytest.raises(Refused, match="others than root can change"):
        places.check(Store(backup_dir=str(theirs / "backup")))
    os.chown(theirs, 0, 0)
    theirs.chmod(0o777)
    with pytest.raises(Refused, match="others than root can change"):
        places.check(Store(backup_dir=str(theirs / "backup")))


@pytest.mark.parametrize("place", ["/var/lib/memops", "/usr/local/lib/memops/sets", "/etc/cron.d", "/run/x"])
def test_nothing_lies_among_the_systems_own_files(place: str) -> None:
    with pytest.raises(Refused, match="keeps its own files"):
        places.check(Store(backup_dir=place))
    with pytest.raises(Refused, match="keeps its own files"):
        places.check(Store(db=f"{place}/memory.db"))


def test_a_remembered_place_that_became_a_link_is_asked_about(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(look.owner, "has_namespaces", lambda: True)
    (tmp_path / "link").symlink_to("/etc/cron.d")
    with pytest.raises(Refused, match="has become a link"):
        look.decide({}, Store(user="root", backup_dir=str(tmp_path / "link")), "default")


ENTRY = {"db": "/home/ada/m/memory.db", "user": "ada", "backup_dir": "/srv/b x", "ready": True}


def test_lost_settings_are_not_replaced_by_the_defaults() -> None:
    old = manifest.Manifest(stores={"default": ENTRY})
    with pytest.raises(Refused) as caught:
        look.still_there("default", False, {}, old)
    assert "--db /home/ada/m/memory.db --user ada --backup-dir '/srv/b x'" in caught.value.hint
    look.still_there("default", False, {"db": "/home/ada/m/memory.db"}, old)
    look.still_there("default", True, {}, old)
    look.still_there("default", False, {}, manifest.Manifest(stores={"default": {**ENTRY, "ready": False}}))
    look.still_there("work", False, {}, old)


def test_a_store_that_is_gone_is_not_replaced_by_an_empty_one() -> None:
    old = manifest.Manifest(stores={"default": ENTRY})
    gone = look.Facts(Store(db=ENTRY["db"], user="ada"), found={"kind": "missing"})
    with pytest.raises(Refused, match="is gone"):
        look.not_emptied(gone, old)
    look.not_emptied(gone, manifest.Manifest(stores={"default": {**ENTRY, "ready": False}}))
    look.not_emptied(gone, manifest.Manifest())
