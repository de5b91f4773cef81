"""The plan is a pure function: values in, steps out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memops import manifest, render
from memops.errors import Refused
from memops.host import Entry
from memops.install import changes_a_store
from memops.look import Facts
from memops.observe import Observed
from memops.plan import make_plan, wanted_directories
from memops.settings import Store
from memops.steps import (
    ChangeSchema,
    EnableTimers,
    FirstBackup,
    InstallPackage,
    MakeDirectory,
    MakeStore,
    MakeUsers,
    Reload,
    RestartTimers,
    SwitchToWal,
    WriteFile,
)

STORE = Store()
STORES = {"default": STORE}
HEALTHY = {
    "kind": "store",
    "journal_mode": "wal",
    "live_view": True,
    "indexed": ["expires_at", "superseded_by", "subject"],
    "indexes": list(render.INDEXES),
    "full_text": "none",
    "own": False,
    "triggers": [],
}
FRESH = Facts(STORE, {"agent": "-"})
THERE = Facts(STORE, {}, HEALTHY)
USERS = {"root": 0, "agent": 997}
FILES = render.all_files(STORES, {"agent": "-"})


def installed() -> Observed:
    """What an installed machine looks like."""
    directories = wanted_directories(STORE, FILES)
    record = manifest.after(manifest.Manifest(), FILES, STORES, (), ("agent",))
    return Observed(
        texts={path: file.text for path, file in FILES.items()} | {manifest.PATH: record.text()},
        entries={path: Entry("file", file.mode, 0, 0) for path, file in FILES.items()}
        | {d.path: Entry("directory", d.mode, USERS[d.user], 0) for d in directories}
        | {manifest.PATH: Entry("file", 0o600, 0, 0)},
        users=USERS,
        units={
            t: {"UnitFileState": "enabled", "ActiveState": "active", "NeedDaemonReload": "no"} for t in STORE.timers
        },
        manifest=record,
        newest_set={"set": "x"},
        sqlite3=True,
    )


def kinds(steps) -> list[type]:
    return [type(step) for step in steps]


def test_a_machine_that_is_as_it_should_be_needs_nothing() -> None:
    assert make_plan(THERE, STORES, FILES, installed()) == ()


def test_a_fresh_server_gets_everything_in_this_order() -> None:
    steps = make_plan(FRESH, STORES, FILES, Observed(users={"root": 0}))
    order = list(dict.fromkeys(kinds(steps)))
    assert order == [
        MakeDirectory, WriteFile, MakeUsers, MakeStore, InstallPackage, Reload, FirstBackup, SwitchToWal, EnableTimers,
    ]  # fmt: skip
    assert [s.path for s in steps[:2]] == ["/etc/memops", manifest.PATH]
    assert manifest.read(steps[1].file.text).stores["default"]["ready"] is False
    assert steps[-2].path == manifest.PATH
    assert manifest.read(steps[-2].file.text).ready("default")
    # A directory comes after the one it lies in.
    made = [s.path for s in steps if isinstance(s, MakeDirectory)]
    assert all(made.index(a) < made.index(b) for a in made for b in made if b.startswith(a + "/"))


def test_a_changed_schedule_touches_its_timer_only() -> None:
    store = replace(STORE, prune_at="04:00")
    steps = make_plan(
        replace(THERE, store=store),
        {"default": store},
        render.all_files({"default": store}, {"agent": "-"}),
        installed(),
    )
    written = [s.path for s in steps if isinstance(s, WriteFile) and s.path != manifest.PATH]
    assert written == ["/etc/memops/memops.toml", "/etc/systemd/system/memory-prune.timer"]
    assert steps[-1] == RestartTimers(("memory-prune.timer",))
    assert FirstBackup not in kinds(steps)


def test_a_timer_that_was_disabled_later_stays_so() -> None:
    seen = installed()
    seen.units["memory-prune.timer"] = {"UnitFileState": "disabled", "ActiveState": "inactive"}
    assert make_plan(THERE, STORES, FILES, seen) == ()


def test_a_half_installation_is_finished() -> None:
    seen = installed()
    half = replace(seen, manifest=manifest.begun(manifest.Manifest(), seen.manifest), units={})
    assert EnableTimers in kinds(make_plan(THERE, STORES, FILES, half))
    assert FirstBackup in kinds(make_plan(THERE, STORES, FILES, half))


def test_what_a_store_lacks_is_added_and_nothing_else() -> None:
    bare = replace(
        THERE,
        found=HEALTHY
        | {"live_view": False, "indexed": ["expires_at", "subject"], "indexes": [], "journal_mode": "delete"},
    )
    steps = [s for s in make_plan(bare, STORES, FILES, installed()) if isinstance(s, ChangeSchema | SwitchToWal)]
    assert [s.title for s in steps] == [
        "add the view live_memory to /srv/agent/memory.db",
        "add an index on superseded_by to /srv/agent/memory.db",
        "add an index on confirmed_at of live facts to /srv/agent/memory.db",
        "add an index on confirmed_at where it is no date to /srv/agent/memory.db",
        "switch /srv/agent/memory.db to WAL (it was: delete)",
    ]


@pytest.mark.parametrize(
    ("wanted", "there", "begins"),
    [
        (True, "none", "add a full-text index (two fifths more on the disk"),
        (True, "odd", "add a full-text index ("),
        (True, "whole", None),
        (False, "whole", "take the full-text index out of /srv/agent/memory.db"),
        (False, "odd", "take the full-text index out of /srv/agent/memory.db"),
        (False, "none", None),
        (False, "taken", None),
    ],
)
def test_the_full_text_index_is_there_if_it_is_wanted(wanted: bool, there: str, begins: str | None) -> None:
    store = replace(STORE, full_text=wanted)
    facts = Facts(store, {}, HEALTHY | {"full_text": there})
    steps = make_plan(facts, {"default": store}, render.all_files({"default": store}, {"agent": "-"}), installed())
    (*changes,) = (step for step in steps if isinstance(step, ChangeSchema))
    assert [step.title.startswith(begins) for step in changes] == ([True] if begins else [])
    assert {step.back for step in changes} <= {render.sql("full_text", store), render.sql("full_text_drop", store)}


def test_a_new_store_has_the_full_text_index_from_the_start() -> None:
    store = replace(STORE, full_text=True)
    facts = Facts(store, {"agent": "-"})
    steps = make_plan(facts, {"default": store}, render.all_files({"default": store}, {"agent": "-"}), Observed())
    (made,) = (step for step in steps if isinstance(step, MakeStore))
    assert "USING fts5" in made.schema
    assert ChangeSchema not in kinds(steps)


def test_a_store_of_an_earlier_version_gets_what_is_new_without_a_question() -> None:
    found = HEALTHY | {"own": True, "indexes": ["memory_expires", "memory_superseded"]}
    steps = [
        s for s in make_plan(replace(THERE, found=found), STORES, FILES, installed()) if isinstance(s, ChangeSchema)
    ]
    assert [s.title.removesuffix(" to /srv/agent/memory.db") for s in steps] == [
        "add an index on confirmed_at of live facts",
        "add an index on confirmed_at where it is no date",
        "add the triggers that keep where a corrected fact came from",
    ]
    assert changes_a_store(tuple(steps)) == []
    stranger = make_plan(replace(THERE, found=found | {"own": False}), STORES, FILES, installed())
    assert len(changes_a_store(stranger)) == 2


def test_keep_leaves_the_journal_mode() -> None:
    store = replace(STORE, journal_mode="keep")
    facts = Facts(store, {}, HEALTHY | {"journal_mode": "delete"})
    steps = make_plan(facts, {"default": store}, render.all_files({"default": store}, {"agent": "-"}), installed())
    assert SwitchToWal not in kinds(steps)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry("link", 0o777, 0, 0), "systemctl unmask memory-prune.service"),
        (Entry("directory", 0o755, 0, 0), "Move it away"),
        (Entry("file", 0o644, 0, 0), "Move it away"),
    ],
)
def test_what_memops_did_not_write_is_in_the_way(entry: Entry, words: str) -> None:
    path = "/etc/systemd/system/memory-prune.service"
    seen = Observed(users=USERS, entries={path: entry}, texts={path: "[Service]\n"} if entry.kind == "file" else {})
    with pytest.raises(Refused) as caught:
        make_plan(FRESH, STORES, FILES, seen)
    assert words in caught.value.hint


def test_a_file_of_an_older_version_is_removed() -> None:
    seen = installed()
    old = "/usr/local/lib/memops/old.py"
    seen.texts[old] = "x"
    seen.entries[old] = Entry("file", 0o644, 0, 0)
    record = replace(
        seen.manifest,
        files={**seen.manifest.files, old: {"mode": "0644", "sha256": manifest.digest("x"), "store": None}},
    )
    steps = make_plan(THERE, STORES, FILES, replace(seen, manifest=record))
    assert f"remove {old}" in [s.title for s in steps]


UNIT = "/etc/systemd/system/memory-prune.service"


def test_an_edited_file_is_kept_and_the_new_text_goes_beside_it() -> None:
    seen = installed()
    seen.texts[UNIT] += "# mine\n"
    steps = make_plan(THERE, STORES, FILES, seen)
    written = {s.path: s.file.text for s in steps if isinstance(s, WriteFile) and s.path != manifest.PATH}
    assert written == {f"{UNIT}.memops-new": FILES[UNIT].text}
    record = manifest.read(steps[-1].file.text)
    # It is still known as memops' own once, and so is its neighbour, for uninstall to take away.
    assert not record.wrote(UNIT, seen.texts[UNIT])
    assert f"{UNIT}.memops-new" in record.files
    # Once it lies there, nothing is left to do.
    after = replace(seen, manifest=record, texts=seen.texts | written | {manifest.PATH: record.text()})
    after.entries[f"{UNIT}.memops-new"] = Entry("file", 0o644, 0, 0)
    assert make_plan(THERE, STORES, FILES, after) == ()
    # Force replaces it and takes the neighbour away.
    forced = make_plan(THERE, STORES, FILES, after, force=True)
    assert [s.title for s in forced if not isinstance(s, Reload)][1:3] == [
        f"change {UNIT}",
        f"remove {UNIT}.memops-new",
    ]


def test_an_upgrade_that_was_killed_is_not_taken_for_an_edit() -> None:
    seen = installed()
    newer = FILES | {UNIT: replace(FILES[UNIT], text=FILES[UNIT].text + "# newer\n")}
    first = next(s for s in make_plan(THERE, STORES, newer, seen) if s.path == manifest.PATH)
    killed = replace(seen, manifest=manifest.read(first.file.text), texts=seen.texts | {manifest.PATH: first.file.text})
    assert f"change {UNIT}" in [s.title for s in make_plan(THERE, STORES, newer, killed)]


def test_a_second_store_leaves_the_first_alone() -> None:
    work = Store(name="work", db="/srv/work/memory.db", user="agent")
    both = {**STORES, "work": work}
    files = render.all_files(both, {"agent": "-"})
    steps = make_plan(Facts(work), both, files, replace(installed(), newest_set=None))
    written = {s.path for s in steps if isinstance(s, WriteFile)}
    # What all stores share knows of each: the settings, and what the alarms are kept out of.
    shared = {"/etc/memops/memops.toml", "/etc/systemd/system/memory-alert@.service"}
    assert {path for path in written if path in FILES} <= shared
    assert steps[-1] == EnableTimers(work.timers)
    assert [s.store.name for s in steps if isinstance(s, FirstBackup)] == ["work"]


METRICS = "/etc/systemd/system/memory-metrics.timer"
PROM = "/var/lib/prometheus/node-exporter/memops.prom"


def test_a_textfile_brings_a_timer_and_takes_it_away_again() -> None:
    store = replace(STORE, textfile=PROM)
    stores = {"default": store}
    files = render.all_files(stores, {"agent": "-"})
    steps = make_plan(replace(THERE, store=store), stores, files, installed())
    assert METRICS in [s.path for s in steps if isinstance(s, WriteFile)]
    assert steps[-1] == EnableTimers(("memory-metrics.timer",))
    # Killed before the timer was enabled, it is enabled the next time.
    first = next(s for s in steps if isinstance(s, WriteFile) and s.path == manifest.PATH)
    seen = replace(
        installed(),
        manifest=manifest.read(first.file.text),
        texts={path: file.text for path, file in files.items()} | {manifest.PATH: first.file.text},
    )
    assert make_plan(replace(THERE, store=store), stores, files, seen)[-1] == steps[-1]
    # Once it is there nothing is left to do, and without the setting all of it goes, the timer first.
    record = manifest.read(next(s for s in reversed(steps) if isinstance(s, WriteFile)).file.text)
    there = replace(
        seen,
        manifest=record,
        texts=seen.texts | {manifest.PATH: record.text()},
        entries=installed().entries | {path: Entry("file", file.mode, 0, 0) for path, file in files.items()},
    )
    assert make_plan(replace(THERE, store=store), stores, files, there) == ()
    titles = [s.title for s in make_plan(THERE, STORES, FILES, there)]
    assert titles[1] == f"remove {PROM} and disable memory-metrics.timer"
    assert f"remove {METRICS}" in titles
    assert not [title for title in titles if "restart" in title]
    # Another place: the old file goes, the timer stays.
    elsewhere = {"default": replace(STORE, textfile="/var/lib/other.prom")}
    moved = make_plan(
        replace(THERE, store=elsewhere["default"]), elsewhere, render.all_files(elsewhere, {"agent": "-"}), there
    )
    titles = [s.title for s in moved]
    assert titles.index("systemctl daemon-reload") < titles.index(f"remove {PROM}")
    assert EnableTimers not in kinds(moved)


def test_a_timer_that_an_earlier_version_did_not_have_is_enabled() -> None:
    path = "/etc/systemd/system/memory-drill.timer"
    now = installed()

    def without(entries):
        return {each: value for each, value in entries.items() if each != path}

    record = replace(now.manifest, files=without(now.manifest.files))
    units = {timer: shown for timer, shown in now.units.items() if timer != "memory-drill.timer"}
    seen = replace(now, manifest=record, texts=without(now.texts), entries=without(now.entries), units=units)
    steps = make_plan(THERE, STORES, FILES, seen)
    assert [step for step in steps if isinstance(step, EnableTimers)] == [EnableTimers(("memory-drill.timer",))]
