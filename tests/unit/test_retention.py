"""Which sets go: the policy against what must hold of it, the guard, and removing."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import retention
import setdir
from retention import Keep


def a_set(name: str, *, ok: bool = True, pinned: bool = False, count: int = 1000) -> setdir.Set:
    part = {"name": "memory", "kind": "sqlite", "count": count}
    return setdir.Set(name, "", 1, count, (part,), pinned, "", ok, "" if ok else "damaged")


def name_of(at: datetime, number: int = 1) -> str:
    return at.strftime("%Y-%m-%dT%H%M%SZ") + (f"-{number}" if number > 1 else "")


def nights(count: int, last: datetime = datetime(2026, 11, 30, 23, 30, tzinfo=UTC)) -> list[str]:
    return [name_of(last - timedelta(days=back)) for back in reversed(range(count))]


def kept(sets, keep: Keep, new: str | None = None) -> list[str]:
    return [each.name for each in retention.decide(sets, keep, new) if each.keep]


def test_a_year_of_nights():
    found = retention.decide([a_set(name) for name in nights(365)], Keep(7, 4, 6))
    stay = {each.name[:10]: each.why for each in found if each.keep}
    assert stay == {
        # The last of each month, the last of each ISO week (its Sunday), and the last days.
        "2026-06-30": "monthly",
        "2026-07-31": "monthly",
        "2026-08-31": "monthly",
        "2026-09-30": "monthly",
        "2026-10-31": "monthly",
        "2026-11-15": "weekly",
        "2026-11-22": "weekly",
        "2026-11-24": "daily",
        "2026-11-25": "daily",
        "2026-11-26": "daily",
        "2026-11-27": "daily",
        "2026-11-28": "daily",
        "2026-11-29": "daily, weekly",
        "2026-11-30": "the newest, daily, weekly, monthly",
    }
    assert {each.why for each in found if not each.keep} == {"newer ones stand for it"}


def test_only_days_that_have_a_set_are_counted():
    names = [f"2026-0{month}-01T120000Z" for month in range(1, 7)]
    assert kept(map(a_set, names), Keep(daily=3)) == names[3:]


def test_of_one_day_the_newest_stays_and_the_tenth_of_a_second_is_newer_than_its_second():
    names = ["2026-01-01T010000Z", *(name_of(datetime(2026, 1, 1, 2, tzinfo=UTC), n) for n in range(1, 11))]
    later = "2026-01-03T000000Z"
    assert kept(map(a_set, [*names, later]), Keep(daily=7)) == ["2026-01-01T020000Z-10", later]


def test_the_sets_of_the_last_24_hours_stay():
    names = ["2026-01-01T010000Z", "2026-01-01T010001Z", "2026-01-01T230000Z", "2026-01-02T010000Z"]
    assert kept(map(a_set, names), Keep(daily=1)) == names[1:]


def test_no_numbers_at_all_keep_every_set():
    sets = [a_set(name) for name in nights(40)]
    assert kept(sets, Keep()) == [each.name for each in sets]


def test_a_year_may_begin_in_the_week_of_the_last_one():
    # 2027-01-01 is a Friday of the ISO week 53 of 2026.
    names = ["2026-12-30T120000Z", "2027-01-01T120000Z"]
    assert kept(map(a_set, names), Keep(weekly=4)) == names[1:]
    assert kept(map(a_set, names), Keep(monthly=4)) == names


def test_a_set_that_failed_stays_and_stands_for_no_day():
    names = nights(3)
    sets = [a_set(names[0]), a_set(names[1]), a_set(names[2], ok=False)]
    found = retention.decide(sets, Keep(daily=1))
    assert [each.keep for each in found] == [False, True, True]
    assert found[2].why == "not whole, so somebody should look at it"


def test_sets_of_a_wrong_clock_neither_go_nor_push_others_out():
    names = nights(10)
    future = "2099-01-01T000000Z"
    assert kept([*map(a_set, names), a_set(future)], Keep(daily=2), names[-1]) == [*names[-2:], future]
    # A clock that began anew in 1970: what was sealed then is all that is counted, and nothing goes.
    assert kept([a_set("1970-01-01T000100Z"), *map(a_set, names)], Keep(1, 1, 1), "1970-01-01T000100Z") == [
        "1970-01-01T000100Z",
        *names,
    ]


_moments = st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1)).map(lambda at: at.replace(microsecond=0))
_sets = st.lists(
    st.builds(
        lambda at, number, ok, pinned: a_set(name_of(at, number), ok=ok, pinned=pinned),
        _moments,
        st.integers(1, 3),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=60,
    unique_by=lambda each: each.name,
)
_numbers = st.integers(0, 10)
_keeps = st.builds(Keep, _numbers, _numbers, _numbers)


@given(_sets, _keeps)
def test_what_must_never_go(sets, keep):
    found = {each.name: each.keep for each in retention.decide(sets, keep)}
    assert found.keys() == {each.name for each in sets}
    good = [each.name for each in sets if each.ok]
    assert all(found[each.name] for each in sets if each.pinned or not each.ok)
    if good:
        assert found[max(good, key=setdir.order)]
    if not any((keep.daily, keep.weekly, keep.monthly)):
        assert all(found.values())
    else:
        recent = setdir.moment(max(good, key=setdir.order)) - timedelta(hours=24) if good else None
        free = sum(found[x.name] for x in sets if x.ok and not x.pinned and setdir.moment(x.name) <= recent)
        assert free <= keep.daily + keep.weekly + keep.monthly


@given(_sets, _keeps)
def test_deciding_again_changes_nothing(sets, keep):
    stay = set(kept(sets, keep))
    left = [each for each in sets if each.name in stay]
    assert set(kept(left, keep)) == stay


@given(_sets, _keeps)
def test_each_day_week_and_month_that_is_to_have_a_set_has_one(sets, keep):
    stay = set(kept(sets, keep))
    for word, period in retention.PERIODS:
        good = {each.name: period(setdir.moment(each.name)) for each in sets if each.ok}
        periods = sorted(set(good.values()), reverse=True)[: getattr(keep, word)]
        assert set(periods) <= {good[name] for name in stay if name in good}


@given(st.lists(_moments, min_size=1, max_size=60, unique=True), _keeps)
def test_night_after_night_the_numbers_bound_what_stays(moments, keep):
    """The policy is applied after each sealing and sees only what it left itself."""
    sets: list[str] = []
    for at in sorted(moments):
        sets = kept(map(a_set, [*sets, name_of(at)]), keep, name_of(at))
        assert sets[-1] == name_of(at)
        if any((keep.daily, keep.weekly, keep.monthly)):
            recent = sum(setdir.moment(name) > setdir.moment(sets[-1]) - timedelta(hours=24) for name in sets)
            assert len(sets) - recent <= keep.daily + keep.weekly + keep.monthly


@pytest.mark.parametrize(
    ("before", "new", "lost"),
    [
        ({"memory": 5000}, {"memory": 5000}, False),
        ({"memory": 5000}, {"memory": 2500}, False),
        ({"memory": 5000}, {"memory": 2499}, True),
        ({"memory": 5000}, {"memory": 0}, True),
        ({"memory": 3}, {"memory": 0}, True),
        ({"memory": 0}, {"memory": 0}, False),
        ({"memory": 150}, {"memory": 50}, False),  # fewer than half, but a hundred rows are no loss to stop for
        ({"memory": 151}, {"memory": 50}, True),
        ({"memory": 10}, {"memory": 5000}, False),
        ({"memory": 9, "qdrant": 900}, {"memory": 9, "qdrant": 0}, True),
        ({"memory": 9, "qdrant": 900}, {"memory": 9}, False),  # its owner took the part out
        ({"memory": 9}, {"memory": 9, "qdrant": 0}, False),
        ({}, {"memory": 0}, False),
    ],
)
def test_when_the_guard_holds(before, new, lost):
    assert (retention.loss(before, new) is not None) is lost


def test_of_plain_files_the_size_counts_too():
    def held(kind, size):
        return retention.holds([{"name": "notes", "kind": kind, "count": 3, "bytes": size}])

    assert held("files", 50_000_000) == {"notes": 3, "notes (kB)": 50_000}
    assert retention.loss(held("files", 50_000_000), held("files", 0)) == "notes (kB) holds 0, where it held 50,000"
    assert retention.loss(held("files", 20), held("files", 0)) is not None
    assert retention.loss(held("files", 9_000), held("files", 900)) is None
    assert held("chroma", 50_000_000) == {"notes": 3}


class Place:
    """A directory of sets with a record, and sealing as far as the rotation sees it."""

    def __init__(self, top):
        self.sets, self.state_file = top / "sets", top / "default.sets.json"
        self.sets.mkdir(mode=0o700)

    def make(self, name: str, rows: int = 1000) -> dict:
        (self.sets / name).mkdir()
        part = {"kind": "sqlite", "name": "memory.db", "file": "memory.db", "size": 4, "sha256": "0" * 64}
        sealed = f"{name[:13]}:{name[13:15]}:{name[15:18]}"
        manifest = {"version": 1, "store": "default", "set": name, "sealed_at": sealed}
        manifest["parts"] = [{**part, "rows": {"memory": rows, "memory_fts": 7}}]
        (self.sets / name / "manifest.json").write_text(json.dumps(manifest))
        (self.sets / name / "memory.db").write_text("four")
        return manifest

    def seal(self, name: str, rows: int = 1000, keep: Keep = Keep(daily=3), *, accept: bool = False):  # noqa: B008
        manifest = self.make(name, rows)
        descriptor = os.open(self.sets, os.O_RDONLY)
        try:
            return retention.after_seal(descriptor, manifest, keep, str(self.state_file), accept_loss=accept)
        finally:
            os.close(descriptor)
            state = self.state()
            self.state_file.write_text(json.dumps({**state, "newest": {"set": name}}))

    def state(self) -> dict:
        return json.loads(self.state_file.read_text()) if self.state_file.exists() else {}

    def names(self) -> list[str]:
        return sorted(path.name for path in self.sets.iterdir())


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_old_sets_go_after_a_sealing(place):
    names = nights(6)
    said = [place.seal(name) for name in names]
    assert place.names() == names[-3:]
    assert [each.words for each in said] == ["", "", "", *["; 1 older set removed"] * 3]
    assert not any(each.held or each.failed for each in said)


def test_pinned_and_foreign_things_stay(place):
    names = nights(8)
    for name in names[:-1]:
        place.make(name)
    (place.sets / f"{names[0]}.pinned").touch()
    (place.sets / "lost+found").mkdir()
    (place.sets / "2026-13-01T000000Z").mkdir()
    (place.sets / "2026-01-01").mkdir()
    (place.sets / "notes.txt").write_text("mine")
    (place.sets / "2025-01-01T000000Z").symlink_to(place.sets / names[0])
    damaged = place.sets / names[1] / "manifest.json"
    damaged.write_text(damaged.read_text()[:40])
    failed = names[2]
    place.state_file.write_text(json.dumps({"verified": {failed: {"at": "", "ok": False}, "gone": {"ok": True}}}))
    place.seal(names[-1])
    foreign = {"lost+found", "2026-13-01T000000Z", "2026-01-01", "notes.txt", "2025-01-01T000000Z"}
    assert set(place.names()) == {*names[:3], f"{names[0]}.pinned", *names[-3:], *foreign}
    assert list(place.state()["verified"]) == [failed]


def test_an_emptied_store_pushes_nothing_out_until_root_accepts_it(place):
    names = nights(9)
    for name in names[:3]:
        place.seal(name, 5000)
    for name in names[3:6]:  # with each night there would be one good set less
        held = place.seal(name, 0)
        assert held.held
        assert "memory holds 0, where it held 5,000 in the set " + names[2] in held.words
        assert "sudo memops backup --accept-loss" in held.words
    assert place.names() == names[:6]
    assert place.state()["loss"] == {"set": names[2], "rows": {"memory": 5000}}
    accepted = place.seal(names[6], 0, accept=True)
    assert (accepted.held, accepted.words) == (False, "; 4 older sets removed; the loss is accepted")
    assert place.names() == names[4:7]
    assert "loss" not in place.state()
    assert not place.seal(names[7], 0).held


def test_the_guard_steps_aside_when_the_rows_are_back(place):
    names = nights(7)
    for name in names[:3]:
        place.seal(name, 5000)
    assert place.seal(names[3], 10).held
    assert place.seal(names[4], 40).held  # four times the night before, and still next to nothing
    assert not place.seal(names[5], 4800).held
    assert place.names() == names[3:6]
    assert "loss" not in place.state()
    assert not place.seal(names[6], 4800).held


def test_the_guard_compares_with_what_was_sealed_last_whatever_its_date(place):
    names = nights(3)
    place.seal("2099-01-01T000000Z", 5000)
    assert place.seal(names[0], 0).held
    # Without a record: with the newest before it.
    place.state_file.unlink()
    assert not place.seal(names[1], 10).held
    assert place.seal(names[2], 0).held


def test_a_damaged_set_is_nothing_to_compare_with(place):
    names = nights(3)
    place.seal(names[0], 5000)
    (place.sets / names[0] / "manifest.json").write_text("{")
    assert not place.seal(names[1], 10).held


def test_a_set_that_is_being_read_stays_until_the_next_time(place):
    names = nights(5)
    for name in names[:3]:
        place.seal(name)
    with setdir.reading(str(place.sets / names[0])):
        assert place.seal(names[3]).words == ""
        assert place.names() == names[:4]
    assert place.seal(names[4]).words == "; 2 older sets removed"


def test_a_set_that_is_being_removed_is_not_read(place):
    place.make("2026-01-01T000000Z")
    holder = os.open(place.sets / "2026-01-01T000000Z", os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with (
        pytest.raises(setdir.job.JobError, match="is being removed"),
        setdir.reading(f"{place.sets}/2026-01-01T000000Z"),
    ):
        pass
    os.close(holder)


def test_what_cannot_be_removed_is_said_and_the_others_go(place):
    names = nights(5)
    for name in names[:4]:
        place.make(name)
    mounted = place.sets / names[0] / "disk"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mounted], check=True)
    said = place.seal(names[4])
    (broken,) = place.sets.glob(".partial-*")
    subprocess.run(["umount", broken / "disk"], check=True)
    assert said.failed
    assert said.words.startswith(f"; 1 older set removed; the set {names[0]} could not be removed: [Errno 16]")
    # It lost its name all the same, so nobody takes what is left for a set.
    assert place.names() == [broken.name, *names[2:]]


def test_a_killed_rotation_leaves_no_half_set(place, lib):
    """Sets of many files, so that a kill lands between two of them."""
    chance = random.Random(4)
    script = (
        f"import sys; sys.path.insert(0, {str(lib)!r}); import os, retention\n"
        f"sets = os.open({str(place.sets)!r}, os.O_RDONLY); print(flush=True)\n"
        "for name in sorted(os.listdir(sets)): retention.remove(sets, name)"
    )
    files, cut, tries = 300, 0, 0
    while cut < 3:
        tries += 1
        assert tries < 200
        for name in nights(6):
            if not (place.sets / name).exists():
                (place.sets / name).mkdir()
                for number in range(files):
                    (place.sets / name / str(number)).touch()
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
            process.stdout.read(1)
            time.sleep(chance.uniform(0, 0.02))
            process.kill()
        for path in place.sets.iterdir():
            held = len(list(path.iterdir()))
            if path.name.startswith(setdir.PARTIAL):
                cut += 0 < held < files
                shutil.rmtree(path)
            else:
                assert held == files
