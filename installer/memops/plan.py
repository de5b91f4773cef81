"""What an installation has to change: a pure function of the settings, the files they mean, and the machine as it is.

An empty plan means that the machine is as it should be.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from memops import manifest
from memops.errors import Refused
from memops.render import INDEXES, METRICS_UNITS, SYSUSERS, UNIT_DIRECTORY, File, sql, textfiles
from memops.settings import LIBRARY, SETTINGS_FILE
from memops.steps import (
    ChangeSchema,
    EnableTimers,
    FirstBackup,
    FirstSync,
    InstallPackage,
    MakeDirectory,
    MakeStore,
    MakeUsers,
    Reload,
    RemoveFile,
    RestartTimers,
    Step,
    StopServices,
    StopTextfile,
    SwitchToWal,
    WriteFile,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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
        # Without namespaces the owner reaches the incoming directory by its path: it may pass, not look.
        MakeDirectory(store.backup_dir, 0o700 if store.strict else 0o711),
        MakeDirectory(store.sets, 0o700, ours=True),
        MakeDirectory(f"{store.backup_dir}/incoming", 0o700 if store.strict else 0o711, ours=True),
        # Root's group lets the sealing job, which has no capability, read the copy and remove it.
        MakeDirectory(store.incoming, 0o2770, user, "root", ours=True),
        MakeDirectory(f"/etc/memops/{store.name}", 0o755, ours=True),
        MakeDirectory(LIBRARY, 0o755, ours=True),
        *(MakeDirectory(path, 0o755) for path in sorted({str(PurePosixPath(path).parent) for path in files})),
        MakeDirectory("/run/memops", 0o755, ours=True),
        MakeDirectory("/var/lib/memops", 0o755, ours=True),
        MakeDirectory(store.state, 0o750, user, group, ours=True),
    )


def make_plan(
    facts: Facts, stores: Mapping[str, Store], files: Mapping[str, File], seen: Observed, *, force: bool = False
) -> tuple[Step, ...]:
    """The steps from the machine as ``seen`` to the one that ``stores`` and ``files`` describe, in their order.

    facts: of the one store that is being installed. force: replace files that somebody edited.
    Raises Refused when something that is not memops' own is in the way.
    """
    _nothing_in_the_way(files, seen)
    store = facts.store
    if not force:
        files = beside_edited(files, seen)
    users = tuple(sorted(name for name in facts.new_user if name not in seen.users))
    etc, *directories = _directories(facts, files, seen)
    writes = _writes(files, seen)
    made = tuple(step.path for step in (etc, *directories) if step is not None and not step.exists)
    record = _record(files, stores, seen, made, users)
    fresh = not seen.manifest.ready(store.name)

    steps: list[Step] = []
    steps += [step for step in directories if step is not None and step.user == "root"]
    if users:
        early = [step for step in writes if step.path == SYSUSERS]
        writes = [step for step in writes if step not in early]
        steps += [*early, MakeUsers(users)]
    steps += [step for step in directories if step is not None and step.user != "root"]
    steps += _store_steps(facts)
    if not seen.sqlite3 and (seen.apt or fresh):
        steps.append(InstallPackage("sqlite3", "for people to look with"))
    stopped = stopped_textfiles(seen.manifest, textfiles(stores))
    steps += [step for step in stopped if step.timer]
    steps += [*_stopped_services(writes), *writes]
    units = {
        PurePosixPath(s.path).name: s
        for s in writes
        if s.path.startswith(UNIT_DIRECTORY) and "memops-new" not in s.path
    }
    if units or any(unit.get("NeedDaemonReload") == "yes" for unit in seen.units.values()):
        steps.append(Reload())
    # Where the timer stays its job must know the new place first, or it could write to the old one again.
    steps += [step for step in stopped if not step.timer]
    moved = seen.manifest.stores.get(store.name, {}).get("db", store.db) != store.db
    steps += _firsts(facts, fresh=fresh, backup=fresh or moved or seen.newest_set is None or store.sets in made)

    last: list[Step] = []
    # Whoever disabled a timer after the installation meant it; one that an earlier version did not have is new.
    timers = [timer for timer in store.timers if fresh or f"{UNIT_DIRECTORY}/{timer}" not in seen.manifest.files]
    if any(not _runs(seen.units.get(timer, {})) for timer in timers):
        last = [EnableTimers(tuple(timers))]
    last += _started_textfiles(seen.manifest, textfiles(stores))
    if changed := tuple(
        name
        for name, step in units.items()
        if name.endswith(".timer") and isinstance(step, WriteFile) and step.old is not None
    ):
        last.append(RestartTimers(changed))
    if seen.texts.get(manifest.PATH) != record.text():
        steps = _recorded(steps, record, seen)
    return (*([etc] if etc else []), *steps, *last)


def _firsts(facts: Facts, *, fresh: bool, backup: bool) -> list[Step]:
    """What runs once at the end, before the timers."""
    store, steps = facts.store, list[Step]()
    if store.has_ledger and fresh:
        # The first set is to hold what there is.
        steps.append(FirstSync(store))
    if backup:
        steps.append(FirstBackup(store))
    mode = facts.found.get("journal_mode", "delete")
    if store.journal_mode == "wal" and mode != "wal":
        steps.append(SwitchToWal(store, mode))
    return steps


def _started_textfiles(old: manifest.Manifest, wanted: Collection[str]) -> list[Step]:
    return [EnableTimers((METRICS_UNITS[1],))] if wanted and not any(map(old.textfile, old.stores)) else []


def _stopped_services(writes: Iterable[Step]) -> list[Step]:
    gone = [PurePosixPath(step.path).name for step in writes if isinstance(step, RemoveFile)]
    services = tuple(name for name in gone if name.endswith(".service") and "@" not in name)
    return [StopServices(services)] if services else []


def stopped_textfiles(old: manifest.Manifest, wanted: Collection[str]) -> list[StopTextfile]:
    """The steps that take away what the metrics job wrote by the ``old`` manifest and is not ``wanted`` any more."""
    gone = sorted({path for path in map(old.textfile, old.stores) if path and path not in wanted})
    return [StopTextfile(path, "" if wanted else METRICS_UNITS[1]) for path in gone]


def edited(files: Iterable[str], seen: Observed) -> list[str]:
    """The files memops wrote and somebody changed since; memops.toml and ping-url are made for that."""
    return [
        path
        for path in files
        if path in seen.texts
        and path in seen.manifest.files
        and path != str(SETTINGS_FILE)
        and not path.endswith(("/ping-url", ".secret"))
        and not seen.manifest.wrote(path, seen.texts[path])
    ]


def beside_edited(files: Mapping[str, File], seen: Observed) -> dict[str, File]:
    """``files`` with the new text of an edited one put beside it, as ``PATH.memops-new``."""
    changed = [path for path in edited(files, seen) if seen.texts[path] != files[path].text]
    return {f"{path}.memops-new" if path in changed else path: file for path, file in files.items()}


def _record(
    files: Mapping[str, File], stores: Mapping[str, Store], seen: Observed, made: Iterable[str], users: Iterable[str]
) -> manifest.Manifest:
    record = manifest.after(seen.manifest, files, stores, made, users)
    kept = {path: entry for path, entry in seen.manifest.files.items() if f"{path}.memops-new" in files}
    return replace(record, files={**record.files, **kept})


def _runs(timer: Mapping[str, str]) -> bool:
    return timer.get("UnitFileState") == "enabled" and timer.get("ActiveState") == "active"


def _recorded(steps: list[Step], record: manifest.Manifest, seen: Observed) -> list[Step]:
    """The steps between two writes of the manifest: an installation that was killed must be removable, too."""
    begun = manifest.begun(seen.manifest, record).text()
    first = WriteFile(manifest.PATH, File(begun, 0o600), seen.texts.get(manifest.PATH), 0o600)
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
        if path not in files and path in seen.texts and f"{path}.memops-new" not in files
    ]
    return steps


def adopt_table(store: Store, found: Mapping[str, Any]) -> ChangeSchema:
    """The step that takes a table of another program's under care; ``found``: as shape.describe says."""
    there = {name.lower() for name in found["columns"]}
    lacking = [name for name in OWN_COLUMNS if name not in there]
    # An update that a trigger of the program's watches would be news to it.
    backfill = "confirmed_at" in lacking and not found["update_triggers"]
    add = sql("own", store, config={"updated": "", "subject": ""} | store.config, lacking=lacking, backfill=backfill)
    what = f"columns, views and triggers to the table {store.table}, so that memops can look after it,"
    return ChangeSchema(store, what, add, sql("own_drop", store, columns=lacking))


OWN_COLUMNS = ("source", "confirmed_at", "expires_at", "superseded_by")
"""What a table of facts has to have."""

FULL_TEXT_COST = "two fifths more on the disk, up to a millisecond more a write"

ORIGIN_TRIGGERS = ("memory_origin", "memory_origin_at_once", "memory_origin_late")

_INDEX = {
    "memory_confirmed": "an index on confirmed_at of live facts",
    "memory_confirmed_odd": "an index on confirmed_at where it is no date",
}


def _store_steps(facts: Facts) -> list[Step]:
    store, found = facts.store, facts.found
    if found["kind"] == "missing":
        more = sql("ledger", store) if store.has_ledger else ""
        return [MakeStore(store, sql("schema", store) + more)]
    if store.table:
        return [] if found["adopted"] else [adopt_table(store, found)]
    steps: list[Step] = []
    asks = not found["own"]
    if not store.full_text and found["full_text"] in ("whole", "odd"):
        # First, so that what follows is done without its cost.
        drop, add = sql("full_text_drop", store), sql("full_text", store)
        steps.append(ChangeSchema(store, "the full-text index", drop, add, out=True))
    if not found["live_view"]:
        view = sql("view", store, own=found["own"])
        steps.append(ChangeSchema(store, "the view live_memory", view, 'DROP VIEW "live_memory"', asks=asks))
    for name, column in INDEXES.items():
        if column not in found["indexed"] if column else name not in found["indexes"]:
            add = sql("index", store, name=name, column=column)
            what = f"an index on {column}" if column else _INDEX[name]
            steps.append(ChangeSchema(store, what, add, f'DROP INDEX "{name}"', asks=asks))
    if found["own"] and (lacking := [name for name in ORIGIN_TRIGGERS if name not in found["triggers"]]):
        what = "the triggers that keep where a corrected fact came from"
        drop = "; ".join(f'DROP TRIGGER "{name}"' for name in lacking)
        steps.append(ChangeSchema(store, what, sql("origin", store), drop, asks=asks))
    if store.full_text and found["full_text"] != "whole":
        add, drop = sql("full_text", store), sql("full_text_drop", store)
        steps.append(ChangeSchema(store, f"a full-text index ({FULL_TEXT_COST})", add, drop))
    return steps
