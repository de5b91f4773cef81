"""The plan is a pure function: values in, steps out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from memops import manifest, render
from memops.errors import Refused
from memops.host import Entry
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
HEALTHY = {"kind": "store", "journal_mode": "wal", "live_view": True, "indexed": ["expires_at", "superseded_by"]}
FRESH = Facts(STORE, None, None, {"agent": "-"})
THERE = Facts(STORE, 997, 997, {}, HEALTHY)
USERS = {"root": 0, "agent": 997}
FILES = render.all_files(STORES, {"agent": "-"})


def installed() -> Observed:
    """What an installed machine looks like."""
    directories = wanted_directories(STORE, FILES)
    record = manifest.after(manifest.Manifest(), FILES, STORES, (), ("agent",), "installed")
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
    assert '"installing"' in steps[1].file.text
    assert steps[-2].path == manifest.PATH
    assert '"installed"' in steps[-2].file.text
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
    half = replace(seen, manifest=replace(seen.manifest, state="installing"), units={})
    assert EnableTimers in kinds(make_plan(THERE, STORES, FILES, half))
    assert FirstBackup in kinds(make_plan(THERE, STORES, FILES, half))


def test_what_a_store_lacks_is_added_and_nothing_else() -> None:
    bare = replace(THERE, found=HEALTHY | {"live_view": False, "indexed": ["expires_at"], "journal_mode": "delete"})
    steps = [s for s in make_plan(bare, STORES, FILES, installed()) if isinstance(s, ChangeSchema | SwitchToWal)]
    assert [s.title for s in steps] == [
        "add the view live_memory to /srv/agent/memory.db",
        "add an index on superseded_by to /srv/agent/memory.db",
        "switch /srv/agent/memory.db to WAL (it was: delete)",
    ]


def test_keep_leaves_the_journal_mode() -> None:
    store = replace(STORE, journal_mode="keep")
    facts = Facts(store, 997, 997, {}, HEALTHY | {"journal_mode": "delete"})
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
