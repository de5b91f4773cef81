"""What an installation has to change: a pure function of the settings, the files they mean, and the machine as it is.

An empty plan means that the machine is as it should be.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from memops import manifest
from memops.errors import Refused
from memops.render import INDEXES, SYSUSERS, UNIT_DIRECTORY, File, sql
from memops.steps import (
    ChangeSchema,
    EnableTimers,
    FirstBackup,
    InstallPackage,
    MakeDirectory,
    MakeStore,
    MakeUsers,
    Reload,
    RemoveFile,
    RestartTimers,
    Step,
    SwitchToWal,
    WriteFile,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memops.look import Facts
    from memops.observe import Observed
    from memops.settings import Store


def wanted_directories(store: Store, files: Iterable[str]) -> tuple[MakeDirectory, ...]:
    """The directories that a store and these files need, outermost first."""
    user, group = store.user, store.user
    return (
        # First, so that the manifest can say what a killed installation had begun.
        MakeDirectory("/etc/memops", 0o755, ours=True),
        *(MakeDirectory(str(p), 0o755) for p in reversed(PurePosixPath(store.directory).parents) if str(p) != "/"),
        MakeDirectory(store.directory, 0o700, user, group),
        *(MakeDirectory(str(p), 0o755) for p in reversed(PurePosixPath(store.backup_dir).parents) if str(p) != "/"),
        MakeDirectory(store.backup_dir, 0o700),
        MakeDirectory(store.sets, 0o700, ours=True),
        MakeDirectory(f"{store.backup_dir}/incoming", 0o700, ours=True),
        # Root's group lets the sealing job, which has no capability, read the copy and remove it.
        MakeDirectory(store.incoming, 0o2770, user, "root", ours=True),
        MakeDirectory(f"/etc/memops/{store.name}", 0o755, ours=True),
        MakeDirectory("/usr/local/lib/memops", 0o755, ours=True),
        *(MakeDirectory(path, 0o755) for path in sorted({str(PurePosixPath(path).parent) for path in files})),
        MakeDirectory("/run/memops", 0o755, ours=True),
        MakeDirectory("/var/lib/memops", 0o755, ours=True),
        MakeDirectory(store.state, 0o750, user, group, ours=True),
    )


def make_plan(facts: Facts, stores: Mapping[str, Store], files: Mapping[str, File], seen: Observed) -> tuple[Step, ...]:
    """The steps from the machine as ``seen`` to the one that ``stores`` and ``files`` describe, in their order.

    Raises Refused when something that is not memops' own is in the way.
    """
    _nothing_in_the_way(files, seen)
    store = facts.store
    users = tuple(sorted(name for name in facts.new_user if name not in seen.users))
    etc, *directories = _directories(facts, files, seen)
    writes = _writes(files, seen)
    made = tuple(step.path for step in (etc, *directories) if step is not None and not step.exists)
    record = manifest.after(seen.manifest, files, stores, made, users, "installed")
    fresh = seen.manifest.state != "installed" or store.name not in seen.manifest.stores

    steps: list[Step] = []
    steps += [step for step in directories if step is not None and step.user == "root"]
    if users:
        early = [step for step in writes if step.path == SYSUSERS]
        writes = [step for step in writes if step not in early]
        steps += [*early, MakeUsers(users)]
    steps += [step for step in directories if step is not None and step.user != "root"]
    steps += _store_steps(facts)
    if not seen.sqlite3:
        steps.append(InstallPackage("sqlite3", "for people to look with"))
    steps += writes
    unit_names = {PurePosixPath(step.path).name for step in writes if step.path.startswith(UNIT_DIRECTORY)}
    if unit_names or any(unit.get("NeedDaemonReload") == "yes" for unit in seen.units.values()):
        steps.append(Reload())
    if fresh or seen.newest_set is None or store.sets in made:
        steps.append(FirstBackup(store))
    mode = facts.found.get("journal_mode", "delete")
    if store.journal_mode == "wal" and mode != "wal":
        steps.append(SwitchToWal(store, mode))

    last: list[Step] = []
    if fresh and any(not _runs(seen.units.get(timer, {})) for timer in store.timers):
        last = [EnableTimers(store.timers)]  # whoever disabled a timer after the installation meant it
    elif changed := tuple(timer for timer in store.timers if timer in unit_names):
        last = [RestartTimers(changed)]
    if not steps and not last and etc is None and seen.texts.get(manifest.PATH) == record.text():
        return ()
    return (*([etc] if etc else []), *_recorded(steps, record, seen), *last)


def _runs(timer: Mapping[str, str]) -> bool:
    return timer.get("UnitFileState") == "enabled" and timer.get("ActiveState") == "active"


def _recorded(steps: list[Step], record: manifest.Manifest, seen: Observed) -> list[Step]:
    """The steps between two writes of the manifest: an installation that was killed must be removable, too."""
    old = seen.texts.get(manifest.PATH)
    begun = replace(record, files={**seen.manifest.files, **record.files}, state="installing").text()
    first = WriteFile(manifest.PATH, File(begun, 0o600), old, 0o600)
    final = WriteFile(manifest.PATH, File(record.text(), 0o600), begun, 0o600)
    return [first, *steps, final]


def _nothing_in_the_way(files: Mapping[str, File], seen: Observed) -> None:
    for path, file in files.items():
        entry, name = seen.entries.get(path), PurePosixPath(path).name
        if entry is None:
            continue
        aside = f"Move it away: mv {path} {path}.old"
        if entry.kind == "link" and path.startswith(UNIT_DIRECTORY):
            raise Refused(
                f"{path} is a link, as a masked unit is.", f"If it is masked: systemctl unmask {name}. Else: rm {path}"
            )
        if entry.kind != "file":
            raise Refused(f"{path} is a {entry.kind}, and a file of memops belongs there.", aside)
        if path not in seen.manifest.files and seen.texts.get(path) != file.text:
            raise Refused(f"{path} is there already, and memops did not write it.", aside)


def _directories(facts: Facts, files: Iterable[str], seen: Observed) -> list[MakeDirectory | None]:
    """A step, or None where nothing is to be done, for each wanted directory."""
    steps: dict[str, MakeDirectory | None] = {}
    for step in wanted_directories(facts.store, files):
        entry = seen.entries.get(step.path)
        if step.path in steps:
            continue
        steps[step.path] = None
        if entry is None:
            steps[step.path] = step
        elif step.ours and entry.kind != "directory":
            raise Refused(
                f"{step.path} is a {entry.kind}, and a directory belongs there.",
                f"Move it away: mv {step.path} {step.path}.old",
            )
        elif (entry.mode, entry.uid) != (step.mode, seen.users.get(step.user)):
            # An empty directory of root's where the store will be is what mkdir leaves.
            empty_of_root = step.path == facts.store.directory and entry.uid == 0 and facts.found["kind"] == "missing"
            if step.ours or empty_of_root:
                steps[step.path] = replace(step, exists=True)
    return list(steps.values())


def _writes(files: Mapping[str, File], seen: Observed) -> list[WriteFile | RemoveFile]:
    steps: list[WriteFile | RemoveFile] = []
    for path, file in files.items():
        old, entry = seen.texts.get(path), seen.entries.get(path)
        mode = entry.mode if entry else file.mode
        if old != file.text or mode != file.mode:
            steps.append(WriteFile(path, file, old, mode))
    steps += [
        RemoveFile(path, seen.texts[path], seen.entries[path].mode)
        for path in seen.manifest.files
        if path not in files and path in seen.texts
    ]
    return steps


def _store_steps(facts: Facts) -> list[Step]:
    store, found = facts.store, facts.found
    if found["kind"] == "missing":
        return [MakeStore(store, sql("schema", store))]
    steps: list[Step] = []
    if not found["live_view"]:
        steps.append(ChangeSchema(store, "the view live_memory", sql("view", store), 'DROP VIEW "live_memory"'))
    for name, column in INDEXES.items():
        if column not in found["indexed"]:
            add = sql("index", store, name=name, column=column)
            steps.append(ChangeSchema(store, f"an index on {column}", add, f'DROP INDEX "{name}"'))
    return steps
