"""What an owner decides about a store: the options, their defaults, and how they are kept in memops.toml."""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from memops import offsite, records, survey
from memops.errors import MemopsError, UsageError
from memops.parts import Part, named

SETTINGS_FILE = Path("/etc/memops/memops.toml")
LIBRARY = "/usr/local/lib/memops"
VERSION = 1
DEFAULT_USER = "agent"

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,30}\$?|[0-9]{1,10}")
_MAIL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=-]{0,63}(@[A-Za-z0-9][A-Za-z0-9.-]{0,250})?")
_UNIT = re.compile(r"[A-Za-z0-9:_.@-]{1,200}\.service")
_DAYS = re.compile(r"([0-9]{1,5}) ?(?:d|days?)?")


@dataclass(frozen=True)
class Store:
    """One store and how it is looked after; immutable, and the same in memops.toml and in memory.

    Paths are absolute text. ``keep_superseded`` is days. ``history_from`` names the date that the superseded rule
    counts from: ``created`` or ``superseded``. ``full_text`` is whether recall has an index to rank by. ``sandbox`` is
    ``strict``, or ``reduced`` where the machine cannot give a service namespaces of its own (decided by a probe, not by
    the owner). ``mail_to`` is who is told of a failed job, and gets the digest and the reminder of the review.
    ``ping`` names the jobs that ping a monitoring service, whose URL is a secret in ``ping_file``.
    ``textfile`` is where a timer writes the figures for node_exporter. ``parts`` are what is backed up with the store,
    each ``KIND=SOURCE`` (see parts.py), and ``secrets`` name those whose server wants a key. ``agent_unit`` is stopped
    while the parts are copied. The ``keep_`` numbers are days, weeks and months. ``offsite`` is where each good set is
    handed to, ``restic=REPOSITORY`` or ``rclone=REMOTE:PATH``, with its secrets in root's file ``offsite_env``.
    ``notes`` are files and directories of notes that the review looks at once a month; where they lie in a repository,
    its top ends at ``/./``, and git can date them.
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
    full_text: bool = False
    sandbox: str = "strict"
    mail_to: str = ""
    ping: str = ""
    textfile: str = ""
    parts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    agent_unit: str = ""
    keep_daily: int = 7
    keep_weekly: int = 4
    keep_monthly: int = 6
    prune_without_backup: bool = False
    offsite: str = ""
    offsite_env: str = ""
    notes: tuple[str, ...] = ()

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
    def strict(self) -> bool:
        """Whether the jobs get namespaces of their own, and so see the store at a fixed place."""
        return self.sandbox == "strict"

    @property
    def seen_db(self) -> str:
        """The database as its jobs see it."""
        return f"/run/memops/store/{self.file}" if self.strict else self.db

    @property
    def seen_sets(self) -> str:
        """The sets as the sealing job sees them."""
        return "/run/memops/sets" if self.strict else self.sets

    @property
    def seen_incoming(self) -> str:
        """The incoming directory as both halves of the backup see it."""
        return "/run/memops/incoming" if self.strict else self.incoming

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The further parts, named."""
        return named(self.parts)

    @property
    def local_parts(self) -> tuple[Part, ...]:
        """Those that are files of the owner's."""
        return tuple(part for part in self.all_parts if not part.server)

    @property
    def server_parts(self) -> tuple[Part, ...]:
        """Those that a server keeps."""
        return tuple(part for part in self.all_parts if part.server)

    @property
    def part_directories(self) -> tuple[str, ...]:
        """Where the local parts are, other than beside the store."""
        return tuple(sorted({part.directory for part in self.local_parts} - {self.directory}))

    def seen_part(self, part: Part) -> str:
        """A further part as the store's jobs see it."""
        if part.server or not self.strict:
            return part.source
        return f"/run/memops/parts/{part.name}/{part.file}"

    @property
    def note_places(self) -> tuple[tuple[str, str, str], ...]:
        """Of each of the notes: what their job gets to see for it, where it sees them, and their own path."""
        places = []
        for number, text in enumerate(self.notes):
            top, _, rest = text.partition("/./")
            path = f"{top}/{rest}" if rest else top
            bound = f"/run/memops/notes/{number}"
            places.append((top, (f"{bound}/{rest}" if rest else bound) if self.strict else path, path))
        return tuple(places)

    @property
    def state(self) -> str:
        """Where the jobs of the store's user keep their records."""
        return f"{records.STATE}/{self.name}"

    @property
    def sets_record(self) -> str:
        """Root's record of the sets."""
        return records.sets_path(self.name)

    @property
    def restore_note(self) -> str:
        """Root's note of a restore under way."""
        return records.restore_path(self.name)

    @property
    def before_restore_file(self) -> str:
        """Root's list of the sets that restores have taken before they put one back."""
        return records.before_restore_path(self.name)

    @property
    def ping_file(self) -> str:
        """The URL that is pinged; root's alone."""
        return f"/etc/memops/{self.name}/ping-url"

    @property
    def ping_unit(self) -> str:
        """The template unit that pings, to be followed by ``JOB:EVENT.service``."""
        return f"memory-ping{self.suffix}@"

    @property
    def mode_file(self) -> str:
        """How root tells one run of the prune unit what it may do."""
        return f"/run/memops/prune-{self.name}.json"

    @property
    def backup_mode_file(self) -> str:
        """How root tells one run of the backup what it may do."""
        return f"/run/memops/backup-{self.name}.json"

    def secret_file(self, part: str) -> str:
        """The key of a part that a server keeps; root's alone."""
        return f"/etc/memops/{self.name}/{part}.secret"

    @property
    def keys(self) -> tuple[str, ...]:
        """The files that are root's alone: systemd reads them for the one job that each is for."""
        return (self.ping_file, *map(self.secret_file, self.secrets), *filter(None, [self.offsite_env]))

    def unit(self, job: str, kind: str = "service") -> str:
        """The unit's name: ``unit("prune")`` is memory-prune.service for the first store."""
        return survey.unit(self.name, job, kind)

    @property
    def optional_units(self) -> tuple[str, ...]:
        """The service units that this store has because somebody asked for what they do."""
        wanted = {"remote": self.server_parts, "pause": self.agent_unit, "offsite": self.offsite}
        return tuple(self.unit(job) for job, asked in wanted.items() if asked)

    @property
    def services(self) -> tuple[str, ...]:
        """All of the store's service units."""
        return (*(self.unit(job) for job in self.jobs), *self.optional_units)

    @property
    def jobs(self) -> tuple[str, ...]:
        """The store's jobs, in the order of a night."""
        return survey.JOBS

    @property
    def timers(self) -> tuple[str, ...]:
        """The store's timer units."""
        return tuple(self.unit(job, "timer") for job in survey.TIMED)


def days(text: str, option: str = "--keep-superseded") -> int:
    """Read ``180d``, ``180 days`` or ``180``, as given to ``option``. Raises UsageError."""
    match = _DAYS.fullmatch(text.strip())
    if not match or int(match[1]) == 0:
        raise UsageError(f"{text!r} is not a number of days.", f"Type for example {option} 180d.")
    return int(match[1])


def pinging(url: str) -> str:
    """The jobs that ping ``url``, as in Store.ping: with ``{job}`` in it each job has a check of its own.

    Raises UsageError, without the URL in it, for what no web server can be asked for.
    """
    if not url:
        return ""
    parts = urlsplit(url)
    plain = url.isascii() and url.isprintable() and not set(url) & set(" \"'<>\\^`|") and len(url) < 2000
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or "#" in url or not plain:
        raise UsageError(
            "What was given to --ping-url is not the address of a check.",
            "Type for example --ping-url https://hc-ping.com/UUID, or - to give it on standard input.",
        )
    return "backup prune" if "{job}" in url else "backup"


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
        check_path(option, path)
    _check_notes(store.notes)
    _check_textfile(store.textfile)
    _check_backups(store)
    for option, value, allowed in (
        ("--journal-mode", store.journal_mode, ("wal", "keep")),
        ("--history-from", store.history_from, ("created", "superseded")),
        ("sandbox", store.sandbox, ("strict", "reduced")),
    ):
        if value not in allowed:
            raise UsageError(
                f"{option} {value!r} is not known.", f"Type {option} {allowed[0]} or {option} {allowed[1]}."
            )
    if store.mail_to and not _MAIL.fullmatch(store.mail_to):
        raise UsageError(
            f"--mail-to {store.mail_to!r} is not one mail address.", "Type for example --mail-to ops@example.org"
        )
    if store.ping not in ("", "backup", "backup prune"):
        raise UsageError(f"ping = {store.ping!r} is not known.", "Give the URL again: --ping-url URL")
    for option, value in (("--prune-at", store.prune_at), ("--backup-at", store.backup_at)):
        if not value.strip() or not value.isprintable():
            raise UsageError(
                f"{option} {value!r} is not a calendar expression.", "Type for example 'daily' or '03:30'."
            )


def _check_backups(store: Store) -> None:
    for period in ("daily", "weekly", "monthly"):
        if not 0 <= getattr(store, f"keep_{period}") <= 10_000:
            raise UsageError(f"--keep-{period} takes a number of sets.", f"Type for example --keep-{period} 7.")
    if not all(isinstance(text, str) and text for text in (*store.parts, *store.secrets)):
        raise UsageError("parts and secrets are lists of words.", "Type: memops install --with KIND=PATH")
    names = {part.name for part in store.server_parts}
    if unknown := sorted(set(store.secrets) - names):
        hint = f"Type one of: {', '.join(sorted(names))}" if names else "Name the part first: --with KIND=URL"
        raise UsageError(f"--secret {unknown[0]}: no part of that name is kept by a server.", hint)
    own = store.agent_unit.startswith("memory-") or store.agent_unit.endswith("@.service")
    if store.agent_unit and (own or not _UNIT.fullmatch(store.agent_unit)):
        raise UsageError(
            f"--agent-unit {store.agent_unit!r} is not the service of an agent.",
            "Type for example --agent-unit agent.service",
        )
    offsite.check_text(store.offsite, store.offsite_env)


def _check_notes(paths: tuple[object, ...]) -> None:
    for path in paths:
        if not isinstance(path, str):
            raise UsageError("notes is a list of paths.", "Type: memops install --notes PATH")
        check_path("--notes", path)


def _check_textfile(path: str) -> None:
    if not path:
        return
    check_path("--textfile", path)
    if not re.fullmatch(r"[^.].*\.prom", Path(path).name):
        raise UsageError(
            f"--textfile {path!r} does not end in .prom, and node_exporter reads only what does.",
            "Type for example --textfile /var/lib/prometheus/node-exporter/memops.prom",
        )


def check_path(option: str, path: str) -> None:
    """Raise UsageError for a path that is none, or that a unit file could not carry."""
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
            f"{path} cannot be read: {error}.", f"Look at it, or move it away: sudo mv {path} {path}.old"
        ) from error
    try:
        return parse(text)
    except (tomllib.TOMLDecodeError, TypeError, ValueError, UsageError) as error:
        raise MemopsError(
            f"{path} is not what memops wrote: {error}",
            f"Mend it. Or move it away, and install again with the options you gave: sudo mv {path} {path}.old",
        ) from error


def chosen(name: str | None, path: Path = SETTINGS_FILE) -> list[Store]:
    """The installed store with this name, or all of them. Raises MemopsError when there is none."""
    stores = load(path)
    if not stores and path.with_name("manifest.json").exists():
        raise MemopsError(
            f"{path} is missing, though memops is installed.", "What to type is said by: sudo memops install"
        )
    if not stores:
        raise MemopsError("memops looks after no store on this machine.", "Type: sudo memops install")
    if name is not None and name not in stores:
        raise UsageError(f"There is no store {name!r}.", f"Type one of: --name {', --name '.join(stores)}")
    return [stores[name]] if name is not None else list(stores.values())


def parse(text: str) -> dict[str, Store]:
    """Read memops.toml. Unknown keys are an error: a setting that is not obeyed must not look as if it were."""
    data = tomllib.loads(text)
    if data.get("version") != VERSION:
        raise ValueError(f"its version is {data.get('version')!r} and this memops reads {VERSION}")
    known = {field.name for field in fields(Store)}
    tables, stores = data.get("store", {}), {}
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise TypeError("store is not a table of tables")
    for name, table in tables.items():
        if unknown := set(table) - known:
            raise ValueError(f"[store.{name}] has an unknown key {min(unknown)!r}")
        default = Store(name=name)
        # TOML has arrays, and what is frozen has tuples.
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
        }
        if wrong := [key for key, value in values.items() if type(value) is not type(getattr(default, key))]:
            raise TypeError(f"[store.{name}] has a {wrong[0]} of another kind")
        stores[name] = replace(default, **values)
        check(stores[name])
    return stores


def as_table(store: Store) -> dict[str, Any]:
    """The store's settings as memops.toml holds them: everything but the name, which is the table's own."""
    return {key: value for key, value in asdict(store).items() if key != "name"}
