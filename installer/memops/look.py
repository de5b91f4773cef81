"""Looking at the machine before anything is written: what is there, and whether memops may go on.

Every refusal says what is so and what to type. Nothing here changes anything.
"""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shlex
import shutil
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memops import health, host, offsite, owner, part_places, places, survey, systemd
from memops import notes as note_files
from memops.errors import NotPermitted, Refused
from memops.settings import DEFAULT_USER, SETTINGS_FILE, Store, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memops.manifest import Manifest

SUDO_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where sudo looks for a program, whatever the caller's PATH (Debian's secure_path)."""


@dataclass(frozen=True)
class Facts:
    """What was found: the settings with every default decided, and what is at the database's path."""

    store: Store
    new_user: dict[str, str] = field(default_factory=dict)
    """Name → uid (or ``-``) of the system user to make; empty when the owner exists."""
    found: dict[str, Any] = field(default_factory=lambda: {"kind": "missing"})
    """What store.describe said of the database."""
    notes: tuple[str, ...] = ()
    """What the owner should know, though nothing needs to be done."""


def require_root(command: str) -> None:
    """Raise NotPermitted unless this is root; its hint is what was typed, with sudo, else ``command``."""
    if os.geteuid() != 0:
        # All of it: a dry run must not be answered with the real one.
        typed = f" {shlex.join(sys.argv[1:])}" if sys.argv[1:] else command.removeprefix("memops")
        raise NotPermitted("This needs root.", f"Type: sudo {name_for_sudo(sys.argv[0])}{typed}")


def name_for_sudo(program: str) -> str:
    """What sudo finds this command by: its name, or the path it was started by where sudo would not find that one."""
    if Path(program).name != "memops":
        return "memops"
    found = shutil.which("memops", path=SUDO_PATH)
    if found is not None and os.path.realpath(found) == os.path.realpath(program):
        return "memops"
    return shlex.quote(str(Path(program).absolute()))


def machine() -> None:
    """Raise Refused unless this machine can run the bundle: a running systemd, and a python3 for the jobs."""
    version = systemd.version()
    if version is None:
        raise Refused(
            "systemd does not run this machine, so there is nothing that could start the jobs.",
            "Take the files to one that it runs: memops render DIR",
        )
    if version < systemd.OLDEST:
        raise Refused(
            f"This is systemd {version}, and the units need {systemd.OLDEST} or newer.",
            "Upgrade the system (Debian 12 has 252).",
        )
    probe = "import sys, sqlite3; print(*sys.version_info[:2])"
    if not Path("/usr/bin/python3").exists() or (ran := host.run("/usr/bin/python3", "-I", "-c", probe, ok=None)).code:
        raise Refused("The jobs need /usr/bin/python3 with its sqlite3 module.", "Type: sudo apt-get install python3")
    if tuple(map(int, ran.out.split())) < (3, 11):
        raise Refused(
            f"/usr/bin/python3 is {ran.out.strip().replace(' ', '.')}, and the jobs need 3.11.", "Upgrade the system."
        )


def writable() -> None:
    """Raise Refused where the places of the bundle cannot be written."""
    for place in ("/etc/systemd/system", "/usr/local/lib", "/var/lib"):
        existing = next(path for path in (Path(place), *Path(place).parents) if path.exists())
        if os.statvfs(existing).f_flag & os.ST_RDONLY:
            raise Refused(
                f"{place} is on a read-only file system.",
                "Make it writable, or write the files elsewhere and deploy them your own way: memops render DIR",
            )


def calendar_note(option: str, normal_form: str, *, has_dst: bool) -> str:
    """A warning about a schedule in the hours that summer time skips or repeats; empty when there is none to give.

    normal_form: as ``systemd-analyze calendar`` prints it. systemd runs nothing in an hour that is skipped
    (systemd/systemd#5595).
    """
    in_the_gap = re.search(r" 0[123]:[0-5][0-9]:[0-5][0-9]$", normal_form)
    if not has_dst or not in_the_gap:
        return ""
    return f"{option} lies in the hours that summer time skips or repeats; 04:00, or a UTC at its end, is safe."


def backups_apart(store: Store) -> int:
    """The longest way between two of the next backups, in seconds."""
    ask: survey.Ask = ((store.backup_at,), time.time())
    coming = survey.elapses(systemd.output, [ask])[ask]
    return max((later - earlier for earlier, later in itertools.pairwise(coming)), default=0)


def decide(options: dict[str, Any], saved: Store | None, name: str) -> tuple[Store, dict[str, str], tuple[str, ...]]:
    """The store's settings: what was typed, else what was installed, else the defaults.

    Returns the settings, the system user to make (as in Facts.new_user) and notes. Raises UsageError and Refused.
    """
    typed = {key: value for key, value in options.items() if value is not None}
    store = replace(saved or Store(name=name), **typed)
    check(replace(store, user=DEFAULT_USER))
    db = os.path.realpath(store.db)
    notes = () if db == os.path.normpath(store.db) else (f"{store.db} is reached through a link; the store is {db}.",)
    backup_dir = os.path.realpath(store.backup_dir)
    if saved is not None and "backup_dir" not in typed and backup_dir != saved.backup_dir:
        raise Refused(
            f"{saved.backup_dir} has become a link; it leads to {backup_dir} now.",
            "If that is right, say it: --backup-dir " + shlex.quote(backup_dir),
        )
    store = replace(store, db=db, backup_dir=backup_dir)
    entry = host.look(db)
    if entry is not None and entry.kind != "file":
        raise Refused(f"{db} is not a plain file.", "Name the agent's own database: --db PATH")
    places.check(store)
    if saved is not None and entry is None and saved.db != db and host.look(saved.db) is not None:
        raise Refused(
            f"{db} is not there, and the store is at {saved.db}.",
            f"Stop the agent and move it first: mv {saved.db}* {store.directory}/",
        )
    user, new = _owner(store, typed.get("user"))
    store = replace(store, user=user, sandbox="strict" if owner.has_namespaces() else "reduced")
    check(store)
    if not store.strict:
        notes = (*notes, STEPPED_DOWN)
        places.passable(store)
    return store, new, notes


STEPPED_DOWN = (
    "This machine gives a service no namespaces of its own, as some containers do; the jobs run without a private"
    " network, hidden homes and a read-only system (sandbox = reduced in /etc/memops/memops.toml)."
)


def _owner(store: Store, typed: str | None) -> tuple[str, dict[str, str]]:
    entry = host.look(store.db)
    names = {user.pw_uid: user.pw_name for user in pwd.getpwall()}
    if typed is not None and typed.isdigit() and int(typed) in names:
        typed = names[int(typed)]
    if entry is not None and entry.kind == "file":
        named = names.get(entry.uid, f"memops-{entry.uid}")
        if typed is not None and typed not in (named, str(entry.uid)):
            raise Refused(
                f"{store.db} belongs to {named}, not to {typed}.",
                f"Leave --user out, or give the files to {typed}: chown {typed} {store.db}*",
            )
        return named, {} if entry.uid in names else {named: str(entry.uid)}
    wanted = typed or store.user
    if wanted in names.values():
        return wanted, {}
    if wanted.isdigit():
        return f"memops-{wanted}", {f"memops-{wanted}": wanted}
    if wanted == DEFAULT_USER or re.fullmatch(r"memops-[0-9]+", wanted):
        return wanted, {wanted: uid_of(wanted)}
    raise Refused(
        f"There is no user {wanted} on this machine.",
        f"Name the user that runs your agent, or make it: adduser {wanted}",
    )


def uid_of(made: str) -> str:
    """The uid of a system user that memops makes, as sysusers.d has it: a number from its name, or ``-`` for any."""
    return "-" if made == DEFAULT_USER else made.removeprefix("memops-")


def contents(store: Store) -> dict[str, Any]:
    """What is at the database's path, as its owner sees it. Raises Refused for anything but a store or nothing."""
    if host.look(store.directory) is None:
        return {"kind": "missing", "directory_writable": True}
    if _to_be_taken_over(store):
        return {"kind": "missing", "directory_writable": True}
    found: dict[str, Any] = owner.call(store, "describe", "memory", store.table)
    refusal = _refusal(store, found)
    if refusal:
        raise refusal
    return found


def _to_be_taken_over(store: Store) -> bool:
    """Whether the store's directory is an empty one of root's, as ``mkdir`` leaves it."""
    entry = host.look(store.directory)
    return (
        entry is not None and entry.kind == "directory" and entry.uid == 0 and not any(Path(store.directory).iterdir())
    )


def _refusal(store: Store, found: dict[str, Any]) -> Refused | None:
    db, kind = store.db, found["kind"]
    elsewhere = "Name the agent's own database: --db PATH"
    if kind == "other":
        return _change_log(store, found) or Refused(
            f"{db} has no table named memory (its tables: {', '.join(found['tables']) or 'none'}).", elsewhere
        )
    if kind not in ("store", "missing"):
        why = found.get("why", "")
        return {
            "not a file": Refused(f"{db} is not a plain file.", elsewhere),
            "empty": Refused(
                f"{db} is an empty file, not a store.", f"If nothing uses it: rm {db}. Then a store is made."
            ),
            "not sqlite": Refused(f"{db} is not a SQLite database ({why}).", elsewhere),
            "unreadable": Refused(f"{db} cannot be opened as user {store.user}: {why}.", f"Look at: namei -l {db}"),
        }[str(kind)]
    if kind == "store" and (refusal := _wrong_shape(store, found)):
        return refusal
    if not found["directory_writable"] or (kind == "store" and not found["writable"]):
        return Refused(
            f"User {store.user} cannot write {'in ' + store.directory if kind == 'missing' else db}.",
            f"Give it to that user: chown -R {store.user} {store.directory}",
        )
    return None


def _change_log(store: Store, found: dict[str, Any]) -> Refused | None:
    if not found["change_log"]:
        return None
    return Refused(
        f"{store.db} holds a change log (table {found['change_log']}), not memories: deleting its rows loses the record"
        " and leaves the memories retrievable.",
        "Name the agent's own database: --db PATH",
    )


def _wrong_shape(store: Store, found: dict[str, Any]) -> Refused | None:
    db = store.db
    if found["missing_columns"]:
        return _change_log(store, found) or Refused(
            f"The table memory in {db} lacks columns: {', '.join(found['missing_columns'])}.",
            "Add them (ALTER TABLE memory ADD COLUMN …), or name another database: --db PATH",
        )
    if found["why_not"]:
        return Refused(f"{db}: {found['why_not']}.", "Name the agent's own database: --db PATH")
    if found["links"] > 1:
        return Refused(
            f"{db} has {found['links']} hard links, and SQLite's journal follows only one of the names.",
            f"Keep one name; this finds them: find / -xdev -samefile {db}",
        )
    if store.full_text and found["full_text"] == "taken":
        return Refused(
            f"{db} has something named memory_text already, which memops did not make.",
            "Rename it, or leave the index out: --no-full-text",
        )
    if store.history_from == "superseded" and not found["has_superseded_at"]:
        return Refused(f"{db} has no column superseded_at.", "Leave --history-from out, or add the column.")
    return None


def still_there(name: str, saved: bool, options: Mapping[str, Any], old: Manifest) -> None:
    """Raise Refused when a store was installed and its settings are gone: the defaults would name another store."""
    entry = old.stores.get(name)
    if entry and entry.get("ready") and not saved and options.get("db") is None:
        where = (
            f"--db {shlex.quote(entry['db'])} --user {entry['user']} --backup-dir {shlex.quote(entry['backup_dir'])}"
        )
        raise Refused(
            f"{SETTINGS_FILE} does not name the store {name} any more, which memops looks after at {entry['db']}.",
            f"Say it again, with the other options you gave: sudo memops install --name {name} {where}",
        )


def not_emptied(facts: Facts, old: Manifest) -> None:
    """Raise Refused when a store that was looked after is gone: an empty one in its place would look healthy."""
    store, entry = facts.store, old.stores.get(facts.store.name)
    if entry and entry.get("ready") and entry["db"] == store.db and facts.found["kind"] == "missing":
        raise Refused(
            f"{store.db} is gone, and memops looked after it.",
            f"Put it back, the newest set for example: sudo memops restore latest --name {store.name}. Or let memops"
            " forget it first: sudo memops uninstall",
        )


def parts_and_more(store: Store) -> tuple[Store, list[str]]:
    """The store with its further parts settled, and notes. Raises Refused where the agent's unit is not there."""
    settled, notes = part_places.settle(store, store.parts)
    if store.agent_unit and systemd.show([store.agent_unit], "LoadState")[store.agent_unit]["LoadState"] != "loaded":
        raise Refused(
            f"systemd knows no unit {store.agent_unit}.", "Name the one that runs your agent: systemctl list-units"
        )
    store = replace(store, parts=settled)
    return store, [*notes, *offsite.check(store)]


def everything(options: dict[str, Any], saved: Store | None, name: str) -> Facts:
    """Look at all of it, in the order that gives the most useful refusal first."""
    store, new_user, notes = decide(options, saved, name)
    decided = saved is not None or options.get("full_text") is not None
    store, more = parts_and_more(store)
    notes = (*notes, *more)
    if options.get("notes"):
        # Those of an earlier run are not looked at again: notes that were moved since are the monthly look's to say.
        settled, more = note_files.settle(store, exists=not new_user)
        store, notes = replace(store, notes=settled), (*notes, *more)
    for option, expression in (("--prune-at", store.prune_at), ("--backup-at", store.backup_at)):
        if note := calendar_note(option, systemd.calendar(expression), has_dst=bool(time.daylight)):
            notes = (*notes, note)
    if not store.prune_without_backup and (gap := backups_apart(store)) > health.OLD_SET:
        apart = f"Backups are up to {gap // 3600} hours apart, and no scheduled prune runs without one of the last 48"
        notes = (*notes, f"{apart}; --prune-without-backup lets it.")
    writable()
    places.file_system(store)
    places.textfile(store)
    if new_user:
        existing = {"kind": "missing", "directory_writable": True}
        entry = host.look(store.directory)
        if host.look(store.db) is None and entry is not None and not _to_be_taken_over(store):
            raise Refused(
                f"{store.directory} exists and belongs to another user than {store.user}, who does not exist yet.",
                "Name the user that owns it: --user NAME",
            )
        if host.look(store.db) is not None:
            existing = contents(replace(store, user=next(iter(new_user.values()))))
        return Facts(full_text(store, existing, decided=decided), new_user, existing, notes)
    found = contents(store)
    return Facts(full_text(store, found, decided=decided), {}, found, notes)


def full_text(store: Store, found: Mapping[str, Any], *, decided: bool) -> Store:
    """The store with its full-text index settled: one that an earlier installation left is kept if nobody ``decided``.

    Raises Refused where the index is wanted and cannot be made.
    """
    there = found.get("full_text") == "whole"
    if there and not decided:
        return replace(store, full_text=True)
    if store.full_text and not there and not _has_fts5():
        raise Refused(
            "The SQLite of /usr/bin/python3 lacks FTS5, which makes the full-text index.", "Type: --no-full-text"
        )
    return store


def _has_fts5() -> bool:
    find = "SELECT count(*) FROM pragma_module_list WHERE name = 'fts5'"
    probe = f"import sqlite3; print(*sqlite3.connect(':memory:').execute({find!r}).fetchone())"
    return host.run("/usr/bin/python3", "-I", "-c", probe, ok=None).out.strip() == "1"
