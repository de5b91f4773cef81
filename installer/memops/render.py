"""Settings → the text of every file memops installs. Pure: it reads only its own templates."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import jinja2

from memops import __version__, assets, manual
from memops.settings import LIBRARY, SETTINGS_FILE, VERSION, Store, as_table
from memops.store import SOURCES as BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Mapping

UNIT_DIRECTORY = "/etc/systemd/system"
COMPLETION = "/etc/bash_completion.d/memops"
MAN_PAGE = "/usr/local/share/man/man8/memops.8"
SYSUSERS = "/etc/sysusers.d/memops.conf"
SOURCES = "/etc/memops/sources"
METRICS_UNITS = ("memory-metrics.service", "memory-metrics.timer")
INDEXES = {
    "memory_expires": "expires_at",
    "memory_superseded": "superseded_by",
    "memory_subject": "subject",
    "memory_confirmed": "",
    "memory_confirmed_odd": "",
}
"""The indexes every store needs: name → column, where any index that begins with it will do."""

STORE_SQL = ("schema", "prune", "review", "digest", "health")
"""The SQL files of each store in /etc/memops/STORE: sql/NAME.sql.j2."""


@dataclass(frozen=True)
class File:
    """A file to install: its text and mode, and the store it belongs to (none: to all).

    What only root may read is ``secret``: it is never shown, nor put where others could read it.
    """

    text: str
    mode: int = 0o644
    store: str | None = None

    @property
    def secret(self) -> bool:
        """Whether the text is nobody's business but root's."""
        return not self.mode & 0o044


def unit_path(value: str) -> str:
    """A path as a word of a unit directive: quoted, ``%`` doubled (man systemd.syntax, systemd.unit SPECIFIERS).

    Raises ValueError for what no quoting can carry; settings.check refuses it earlier.
    """
    if any(c in "\"'\\" or c in "\0\n\r" for c in value):
        raise ValueError(f"a unit file cannot carry {value!r}")
    return '"' + value.replace("%", "%%") + '"'


def unit_argument(value: str) -> str:
    """A word of ExecStart=: as a path, and ``$`` doubled (man systemd.service, COMMAND LINES)."""
    return unit_path(value).replace("$", "$$")


def unit_text(value: str) -> str:
    """Plain text in a directive that expands specifiers."""
    if any(c in "\0\n\r\\" for c in value):
        raise ValueError(f"a unit file cannot carry {value!r}")
    return value.replace("%", "%%")


def sql_identifier(value: str) -> str:
    """A table's or column's name in SQL."""
    return '"' + value.replace('"', '""') + '"'


def sql_literal(value: str) -> str:
    """A string in SQL."""
    return "'" + value.replace("'", "''") + "'"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([assets.folder("units"), assets.folder("sql")]),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - no HTML: each value has a filter for the place it goes to
    )
    environment.filters |= {
        "path": unit_path,
        "arg": unit_argument,
        "text": unit_text,
        "ident": sql_identifier,
        "literal": sql_literal,
        "sh": shlex.quote,
        "parent": lambda value: str(PurePosixPath(value).parent),
        "basename": lambda value: PurePosixPath(value).name,
        "toml": lambda value: json.dumps(value, ensure_ascii=False),
    }
    return environment


def template(file: str, **values: Any) -> str:
    """Render one template by its file name. Raises jinja2.UndefinedError when a value is missing."""
    return _environment().get_template(file).render(version=__version__, **values)


def sql(template_name: str, store: Store, *, own: bool = True, **values: str) -> str:
    """One of sql/*.sql.j2 for a store. own: it has the columns of stores that memops makes."""
    return template(
        f"{template_name}.sql.j2",
        table="memory",
        view="live_memory",
        keep_superseded_days=store.keep_superseded,
        history_from=store.history_from,
        indexes=INDEXES,
        own=own,
        full_text=store.full_text,
        **values,
    )


def store_files(store: Store) -> dict[str, File]:
    """Everything that is one store's own: path → file."""
    units = [*store.services, *store.timers]
    files = {
        f"{UNIT_DIRECTORY}/{name}": template(_template_of(name, store), store=store, lib=LIBRARY) for name in units
    }
    if store.ping:
        name = f"{store.ping_unit}.service"
        files[f"{UNIT_DIRECTORY}/{name}"] = template("memory-ping@.service.j2", store=store, lib=LIBRARY)
    files |= {f"/etc/memops/{store.name}/{name}.sql": sql(name, store) for name in STORE_SQL}
    return {path: File(text, store=store.name) for path, text in sorted(files.items())}


def _template_of(unit: str, store: Store) -> str:
    stem, kind = unit.rsplit(".", 1)
    return f"{stem.removesuffix(store.suffix)}.{kind}.j2"


def settings_file(stores: Mapping[str, Store]) -> File:
    """memops.toml for these stores."""
    tables = {name: as_table(store) for name, store in sorted(stores.items())}
    return File(template("memops.toml.j2", settings_version=VERSION, tables=tables))


def shared_files(stores: Mapping[str, Store], users: Mapping[str, str]) -> dict[str, File]:
    """What all stores share. ``users``: name → uid (or ``-``) of the system users that memops makes."""
    files = {
        f"{LIBRARY}/{name}": File(text, 0o755 if name == "uninstall.py" else 0o644)
        for name, text in assets.jobs().items()
    }
    # Named as a person types it; the jobs keep their ending because they import one another.
    files[f"{LIBRARY}/uninstall"] = files.pop(f"{LIBRARY}/uninstall.py")
    files[str(SETTINGS_FILE)] = settings_file(stores)
    # Whether services get namespaces is the machine's doing, and so the same for all stores.
    any_store = min(stores.values(), key=lambda store: store.strict)
    for name in ("alert", "mail") if any(store.mail_to for store in stores.values()) else ("alert",):
        unit = f"memory-{name}@.service"
        files[f"{UNIT_DIRECTORY}/{unit}"] = File(template(f"{unit}.j2", store=any_store, stores=stores, lib=LIBRARY))
    files |= metrics_files(stores)
    files[SOURCES] = File(template("sources.j2", rules=BUILT_IN))
    files["/etc/tmpfiles.d/memops.conf"] = File(template("tmpfiles.conf.j2"))
    files[COMPLETION] = File(template("completion.bash.j2"))
    files[MAN_PAGE] = File(manual.page())
    if users:
        files[SYSUSERS] = File(template("sysusers.conf.j2", users=dict(sorted(users.items()))))
    return dict(sorted(files.items()))


def metrics_files(stores: Mapping[str, Store]) -> dict[str, File]:
    """The units of the metrics job, where a store asks for it."""
    if not (texts := textfiles(stores)):
        return {}
    values = {"store": min(stores.values(), key=lambda store: store.strict), "stores": stores, "textfiles": texts}
    return {f"{UNIT_DIRECTORY}/{unit}": File(template(f"{unit}.j2", lib=LIBRARY, **values)) for unit in METRICS_UNITS}


def textfiles(stores: Mapping[str, Store]) -> dict[str, list[str]]:
    """The files that the metrics job writes: path → the names of the stores in it."""
    found: dict[str, list[str]] = {}
    for name, store in sorted(stores.items()):
        if store.textfile:
            found.setdefault(store.textfile, []).append(name)
    return found


def all_files(
    stores: Mapping[str, Store],
    users: Mapping[str, str],
    ping_urls: Mapping[str, str] | None = None,
    part_keys: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, File]:
    """Every file that memops installs for these stores.

    ping_urls: a store's name → the URL it pings. part_keys: a store's name → its parts' keys for their servers.
    """
    files = shared_files(stores, users)
    for store in stores.values():
        files |= store_files(store)
    for name, url in (ping_urls or {}).items():
        files[stores[name].ping_file] = File(f"{url}\n", 0o600, name)
    for name, keys in (part_keys or {}).items():
        files |= {stores[name].secret_file(part): File(f"{key}\n", 0o600, name) for part, key in keys.items()}
    return dict(sorted(files.items()))
