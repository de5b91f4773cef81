"""What an owner decides about a store: the options, their defaults, and how they are kept in memops.toml."""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from memops.errors import MemopsError, UsageError

SETTINGS_FILE = Path("/etc/memops/memops.toml")
VERSION = 1
DEFAULT_USER = "agent"

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,30}\$?|[0-9]{1,10}")
_DAYS = re.compile(r"([0-9]{1,5}) ?(?:d|days?)?")


@dataclass(frozen=True)
class Store:
    """One store and how it is looked after; immutable, and the same in memops.toml and in memory.

    Paths are absolute text. ``keep_superseded`` is days. ``history_from`` names the date that the superseded rule
    counts from: ``created`` or ``superseded``.
    """

    name: str = "default"
    db: str = "/srv/agent/memory.db"
    user: str = DEFAULT_USER
    backup_dir: str = "/srv/backup"
    prune_at: str = "daily"
    backup_at: str = "*-*-* 23:30:00"
    journal_mode: str = "wal"
    keep_superseded: int = 180
    history_from: str = "created"

    @property
    def suffix(self) -> str:
        """What a named store adds to its units' names."""
        return "" if self.name == "default" else f"-{self.name}"

    @property
    def directory(self) -> str:
        """The directory that holds the database."""
        return str(Path(self.db).parent)

    @property
    def file(self) -> str:
        """The database's file name."""
        return Path(self.db).name

    @property
    def sets(self) -> str:
        """Where the store's sets are."""
        return f"{self.backup_dir}/{self.name}"

    @property
    def incoming(self) -> str:
        """Where the snapshot job leaves its copy for the sealing job."""
        return f"{self.backup_dir}/incoming/{self.name}"

    @property
    def state(self) -> str:
        """Where the jobs of the store's user keep their records."""
        return f"/var/lib/memops/{self.name}"

    @property
    def seal_record(self) -> str:
        """The sealing job's record, written by root."""
        return f"/var/lib/memops/{self.name}.sets.json"

    @property
    def mode_file(self) -> str:
        """How root tells one run of the prune unit what it may do."""
        return f"/run/memops/prune-{self.name}.json"

    def unit(self, job: str, kind: str = "service") -> str:
        """The unit's name: ``unit("prune")`` is memory-prune.service for the first store."""
        return f"memory-{job}{self.suffix}.{kind}"

    @property
    def jobs(self) -> tuple[str, ...]:
        """The store's jobs, in the order of a night."""
        return ("snapshot", "backup", "prune")

    @property
    def timers(self) -> tuple[str, ...]:
        """The store's timer units."""
        return (self.unit("backup", "timer"), self.unit("prune", "timer"))


def days(text: str) -> int:
    """Read ``180d``, ``180 days`` or ``180``. Raises UsageError."""
    match = _DAYS.fullmatch(text.strip())
    if not match or int(match[1]) == 0:
        raise UsageError(f"{text!r} is not a number of days.", "Type for example --keep-superseded 180d.")
    return int(match[1])


def check(store: Store) -> None:
    """Raise UsageError for a setting that cannot be right on any machine."""
    if not _NAME.fullmatch(store.name) or store.name == "incoming":
        raise UsageError(
            f"{store.name!r} cannot be a store's name.",
            "Use a lower-case letter, then up to 30 lower-case letters, digits or dashes, and not 'incoming'.",
        )
    if not _USER.fullmatch(store.user):
        raise UsageError(f"{store.user!r} cannot be a user's name.", "Name the user that runs your agent: --user NAME.")
    for option, path in (("--db", store.db), ("--backup-dir", store.backup_dir)):
        _check_path(option, path)
    for option, value, allowed in (
        ("--journal-mode", store.journal_mode, ("wal", "keep")),
        ("--history-from", store.history_from, ("created", "superseded")),
    ):
        if value not in allowed:
            raise UsageError(
                f"{option} {value!r} is not known.", f"Type {option} {allowed[0]} or {option} {allowed[1]}."
            )
    for option, value in (("--prune-at", store.prune_at), ("--backup-at", store.backup_at)):
        if not value.strip() or not value.isprintable():
            raise UsageError(
                f"{option} {value!r} is not a calendar expression.", "Type for example 'daily' or '03:30'."
            )


def _check_path(option: str, path: str) -> None:
    if not path.startswith("/"):
        raise UsageError(f"{option} {path!r} is not an absolute path.", "Give the whole path, beginning with /.")
    odd = next((c for c in path if c in "\"'\\" or not (c.isprintable() or c == "\u00a0")), None)
    if odd is not None:
        what = {'"': "a double quote", "'": "a single quote", "\\": "a backslash"}.get(odd, "a control character")
        raise UsageError(
            f"{option} {path!r} holds {what}, which unit files cannot carry safely.",
            "Rename the path, or give another one.",
        )
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{option} {path!r} is not valid UTF-8.", "Rename the path, or give another one.") from None


def load(path: Path = SETTINGS_FILE) -> dict[str, Store]:
    """The stores that were installed, by name; empty when memops is not installed.

    Raises MemopsError when the file cannot be read or is not what memops wrote.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise MemopsError(
            f"{path} cannot be read: {error}.", "Look at the file, or run: sudo memops install"
        ) from error
    try:
        return parse(text)
    except (tomllib.TOMLDecodeError, TypeError, ValueError, UsageError) as error:
        raise MemopsError(
            f"{path} is not what memops wrote: {error}",
            f"Mend it, or move it away and install again: sudo mv {path} {path}.old",
        ) from error


def parse(text: str) -> dict[str, Store]:
    """Read memops.toml. Unknown keys are an error: a setting that is not obeyed must not look as if it were."""
    data = tomllib.loads(text)
    if data.get("version") != VERSION:
        raise ValueError(f"its version is {data.get('version')!r} and this memops reads {VERSION}")
    known = {field.name for field in fields(Store)}
    stores = {}
    for name, table in data.get("store", {}).items():
        if unknown := set(table) - known:
            raise ValueError(f"[store.{name}] has an unknown key {min(unknown)!r}")
        stores[name] = replace(Store(name=name), **table)
        check(stores[name])
    return stores


def as_table(store: Store) -> dict[str, Any]:
    """The store's settings as memops.toml holds them: everything but the name, which is the table's own."""
    return {key: value for key, value in asdict(store).items() if key != "name"}
