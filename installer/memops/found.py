"""What was found on a machine: stores, their parts, what is in them, and what is wrong. Data only; nothing here looks.

gathering.py fills it in, findings.py judges it, doctor prints it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LEVELS = ("error", "warning", "note")
"""Of findings, worst first: memory is lost or will be; it may be; worth knowing."""


FIGURES = {
    "rows": "memories",
    "live": "those that count now: not replaced, not past their end",
    "dead": "those past their end",
    "doubtful": "those with a date that is none, where the product's format is known",
    "cycles": "rows of chains that go round, a row that points at itself left out",
    "self_references": "rows that point at themselves",
    "chains_into_nothing": "rows that point at a row which is not there",
    "temporary_over_permanent": "rows without an end whose successor has one",
    "empty_sources": "rows with an empty source, or none",
    "vague_sources": "rows with a source of no use: unknown, chat, n/a …",
    "tombstones": "rows that are marked as deleted for more than thirty days, and still there",
    "foreign_keys": "foreign keys that the schema declares",
}
"""The keys of ``Database.facts``, each a number. Only what the table has columns for is there."""


@dataclass(frozen=True)
class Database:
    """What a SQLite file holds, as its owner sees it. Texts are the agent's, and are escaped where they are shown.

    ``tables``: name → rows. ``columns``: table → its columns. ``dates``: ``table.column`` → format of the values
    (``utc``, ``iso``, ``epoch``, ``epoch-ms``, ``naive``, ``day``, ``odd``) → how many. ``violations``: rows of
    foreign_key_check, by child table and parent (``child.parent``). ``facts`` are figures about the table of memories,
    as FIGURES has them; one that is missing could not be counted.
    """

    tables: dict[str, int]
    columns: dict[str, list[str]]
    journal_mode: str
    user_version: int
    page_bytes: int
    free_bytes: int
    dates: dict[str, dict[str, int]] = field(default_factory=dict)
    violations: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """One file or directory of a store.

    ``what``: ``memories``, ``change log``, ``vectors``, ``index``, ``notes``, ``queue`` or ``sessions``. ``kind``:
    as --with has it (``sqlite``, ``qdrant``, ``chroma``, ``files``). ``path`` is absolute, as the process that uses
    it sees it; ``seen`` is the same for root (``/proc/PID/root/…`` where a unit has another file system). ``size``
    is bytes, with what lies below a directory; ``rows`` memories or rows, None where nobody could count.
    ``modified`` is seconds since 1970. ``file_system`` is the type. ``sidecars``: suffix → uid, bytes, seconds.
    ``unread`` says why something is not known. ``exposed`` is whether every user of the machine can read it, its
    directories included; ``barred`` the first directory on its way that its own user cannot pass.
    """

    what: str
    kind: str
    path: str
    seen: str
    size: int
    uid: int
    owner: str
    mode: int
    links: int = 1
    modified: float = 0.0
    file_system: str = ""
    rows: int | None = None
    sidecars: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    database: Database | None = None
    unread: str = ""
    exposed: bool = False
    barred: str = ""


@dataclass(frozen=True)
class Holder:
    """A process that uses a store: its user, its unit, its engine.

    ``python`` is its interpreter, ``versions`` distribution → version of what is installed there, ``sqlite`` its
    SQLite's version (empty: not known). ``deleted`` are files of the store that it has open and that are gone from
    the disk.
    """

    pid: int
    uid: int
    user: str
    unit: str
    command: str
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    sqlite: str = ""
    deleted: tuple[str, ...] = ()
    writes: bool = True
    directory: str = ""


@dataclass(frozen=True)
class Found:
    """One store with the parts that belong together.

    ``product`` is the name of a file in products/, ``path`` where it is (of its first part, or ``:memory:``),
    ``how`` how it was found (``default``, ``environment of UNIT: MEM0_DIR``, ``configuration FILE``, ``open in UNIT``,
    ``working directory of UNIT``, ``below a home``, ``named``, ``under care``). ``lacking`` are parts that belong to
    it and are not there. ``namespace`` is the unit or process that alone sees it. ``relative`` is the path as it was
    configured where it depends on a working directory. ``care`` is the name of the memops store that looks after it.
    """

    product: str
    path: str
    how: str
    parts: tuple[Part, ...]
    version: str = ""
    lacking: tuple[str, ...] = ()
    namespace: str = ""
    relative: str = ""
    holders: tuple[Holder, ...] = ()
    care: str = ""
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """What is so of the machine.

    ``timezone`` is its name (empty: cannot be told), ``free``: directory → bytes that may be written there.
    ``litestream``: databases that Litestream copies, or its processes and units where that cannot be told. ``unread``:
    what could not be looked at, and why (each a sentence).
    """

    now: float
    timezone: str
    clock_synchronised: bool | None
    system_sqlite: str
    free: dict[str, int] = field(default_factory=dict)
    litestream: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Care:
    """A store that memops looks after: its settings as far as findings go by them, and how its sets and drill are.

    ``set_state`` and ``drill_state`` are ``ok``, ``late``, ``overdue``, ``future``, ``none`` (there is none) or
    ``unknown``; the ages are seconds. ``free`` is bytes where the sets are, ``needs`` bytes that a set takes; None:
    not known.
    """

    name: str
    db: str
    user: str
    backup_dir: str
    journal_mode: str = "wal"
    set_state: str = "unknown"
    set_age: int | None = None
    drill_state: str = "unknown"
    drill_age: int | None = None
    free: int | None = None
    needs: int | None = None


@dataclass(frozen=True)
class Finding:
    """What is wrong: a stable ``code`` (docs/findings.md), a level, one sentence what is so, one what to type.

    ``path`` is whose it is, empty for the machine. ``mend`` are lines that write the mend out: commands, and the
    product's configuration. ``fix`` is whether ``doctor --fix CODE`` has a safe mend.
    """

    code: str
    level: str
    path: str
    what: str
    do: str
    mend: tuple[str, ...] = ()
    fix: bool = False
