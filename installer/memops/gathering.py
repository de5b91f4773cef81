"""From places where memory may be to stores: what is at each, which parts belong together, and who uses them.

Of files root sees names, owners and the first bytes of plain ones; whoever owns a database looks into it (probing.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memops import debian, discover, host, owner, probing, processes, products, seeking, settings
from memops.errors import MemopsError, UsageError
from memops.found import Database, Found, Machine, Part
from memops.seeking import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memops.processes import Process

MOST = 400
"""Entries of one directory that are looked at, and stores of one look."""

DEEPEST = 20_000
"""Files below a directory that are added up."""

_SQLITE = b"SQLite format 3\0"
_GRAPH = re.compile(rb'"type"\s*:\s*"(entity|relation)"')
_NOTES = (".md", ".markdown")
_SIDECARS = ("-wal", "-shm", "-journal")
_VECTORS = {"meta.json", "collection"}


@dataclass(frozen=True)
class Item:
    """One file or directory of a kind that memops knows, and where it came to notice."""

    kind: str
    path: str
    place: Place

    @property
    def seen(self) -> str:
        """Its path for us."""
        return f"{self.place.root}{self.path}"


def look(paths: Sequence[str]) -> tuple[list[Found], Machine]:
    """Every store that is found, or those at these paths. Raises UsageError for a path that is not there."""
    running, closed = processes.every()
    unread: list[str] = []
    try:
        cared = settings.load()
    except MemopsError as error:
        cared = {}
        unread.append(error.message)
    if closed:
        unread.append(f"{closed} processes of other users")
    if paths:
        places = [_named(path) for path in paths]
    else:
        places = [*seeking.cared_for(cared.values()), *seeking.by_process(running), *seeking.by_unit()]
        there = seeking.homes()
        places += [*seeking.defaults(there), *_configured(there, unread), *seeking.below(there)]
    items: dict[str, Item] = {}
    for place in seeking.distinct(places):
        for item in _items(place, unread):
            items.setdefault(item.seen, item)
    found = _stores([*items.values()][:MOST], unread)
    if not paths:
        answers = [discover.answering(address) for address in seeking.servers()]
        found += [replace(each, how=f"answers at {each.path}") for each in answers if each is not None]
    found += [_nowhere(place) for place in places if place.path in seeking.IN_MEMORY]
    found = [_with_care(_with_holders(each, running), cared) for each in found]
    return found, _machine(running, unread)


def _nowhere(place: Place) -> Found:
    holders = (processes.user_of(place.process),) if place.process else ()
    return Found(place.product, ":memory:", place.how, (), holders=holders)


def _named(path: str) -> Place:
    if not os.path.lexists(path):
        raise UsageError(f"There is nothing at {path}.", f"Look at the way there: namei -l {path}")
    return Place(os.path.realpath(path), "named")


def _configured(homes: Mapping[str, int], unread: list[str]) -> Iterator[Place]:
    names = [*seeking.KEYS, *(name for product in products.known().values() for name in product.environment)]
    for home, uid in homes.items():
        files = [f"{home}/{name}" for name in seeking.CONFIGURATIONS if os.path.lexists(f"{home}/{name}")]
        if not files or os.geteuid() not in (0, uid):
            continue
        try:
            answer = probing.look(uid, (), files, names)
        except MemopsError as error:
            unread.append(error.message)
            continue
        for path, found in answer["configurations"].items():
            yield from seeking.by_configuration(home, path, found)


# What is at a place


def _items(place: Place, unread: list[str], *, inside: bool = False) -> Iterator[Item]:
    seen = f"{place.root}{place.path}"
    try:
        status = os.stat(seen) if not inside else os.lstat(seen)
        if stat.S_ISREG(status.st_mode):
            if top := _above(place):
                yield from _directory(replace(place, path=top), unread, inside=True)
                return
            kind = _kind(seen)
            # A package, a log: not everything in a file's form is a memory.
            if kind and not (kind == "notes" and place.how != "named" and place.product != "notes"):
                yield Item(kind, place.path, place)
        elif stat.S_ISDIR(status.st_mode):
            yield from _directory(place, unread, inside=inside)
    except PermissionError:
        unread.append(place.path)
    except OSError:
        return


def _above(place: Place) -> str:
    """The directory of Qdrant's or Chroma's that a file is a part of; empty where there is none."""
    directory, name = os.path.split(place.path)
    if name == "chroma.sqlite3":
        return directory
    top = os.path.dirname(os.path.dirname(directory))
    return top if name == "storage.sqlite" and os.path.exists(f"{place.root}{top}/meta.json") else ""


def _directory(place: Place, unread: list[str], *, inside: bool) -> Iterator[Item]:
    names = sorted(os.listdir(f"{place.root}{place.path}"))[:MOST]
    if "chroma.sqlite3" in names:
        yield Item("chroma", place.path, place)
    elif set(names) >= _VECTORS:
        yield Item("qdrant", place.path, place)
    elif place.product in ("claude-code", "hermes") or os.path.basename(place.path) in (".claude", ".hermes"):
        if any(_memories(f"{place.root}{place.path}")):
            yield Item("notes", place.path, place)
    else:
        notes = any(name.endswith(_NOTES) for name in names)
        if notes and (place.how in ("named", "under care") or place.product == "basic-memory"):
            yield Item("notes", place.path, place)
        if not inside:
            for name in names:
                if not name.endswith((*_SIDECARS, *_NOTES)):
                    yield from _items(replace(place, path=f"{place.path.rstrip('/')}/{name}"), unread, inside=True)


def _memories(top: str) -> Iterator[Path]:
    for pattern in ("CLAUDE.md", "rules/*.md", "projects/*/memory/*.md", "memories/*.md"):
        yield from Path(top).glob(pattern)


def _kind(path: str) -> str:
    if path.endswith(_NOTES):
        return "notes"
    # By descriptor and without waiting: it is somebody's, and may become a link or a pipe at any time.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(4096) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    if head.startswith(_SQLITE):
        return "sqlite"
    return "graph" if path.endswith((".jsonl", ".json")) and _GRAPH.search(head) else ""


# Which parts belong together


def _stores(items: Sequence[Item], unread: list[str]) -> list[Found]:
    databases = _databases(items, unread)
    found = []
    for item in items:
        with contextlib.suppress(OSError):  # gone since, with its process perhaps
            found.append(_found(item, databases.get(item.seen)))
    # Any program may keep a database in a home; a memory it is where a product's tables are in it.
    found = [each for each in found if not (each.how == seeking.BELOW and each.product == "sqlite")]
    vectors = [each for each in found if each.product == "qdrant"]
    inside = {part.path for each in found if each.parts[0].kind == "chroma" for part in each.parts}
    taken: set[str] = set()
    whole = []
    for each in found:
        if each.product == "mem0" and each.parts[0].what == "change log":
            other = _beside(each, vectors)
            taken |= {part.seen for part in other.parts} if other else set()
            whole.append(_pair(each, other))
        elif each.product == "mem0-ts" and each.parts[0].what == "change log":
            other = _beside(each, [one for one in found if one.product == "mem0-ts" and one.parts[0].what == "vectors"])
            taken |= {part.seen for part in other.parts} if other else set()
            whole.append(_pair(each, other))
        elif each.product == "claude-mem":
            other = next((one for one in found if one.path == f"{os.path.dirname(each.path)}/chroma"), None)
            taken |= {part.seen for part in other.parts} if other else set()
            more = tuple(_as(part, "vectors") for part in other.parts) if other else ()
            whole.append(replace(each, parts=(*each.parts, *more)))
        elif each.parts[0].kind == "sqlite" and any(each.path.startswith(f"{top}/") for top in inside):
            continue
        else:
            whole.append(each)
    return [each for each in whole if not (len(each.parts) == 1 and each.parts[0].seen in taken)]


def _as(part: Part, what: str) -> Part:
    return replace(part, what=what)


def _beside(log: Found, others: Sequence[Found]) -> Found | None:
    """The vectors of a change log: those in the same directory, or where mem0 puts them, or the user's only ones."""
    directory = os.path.dirname(log.path)
    near = [each for each in others if os.path.dirname(each.path) == directory and each.namespace == log.namespace]
    same = [each for each in others if each.parts[0].uid == log.parts[0].uid]
    known = [each for each in same if each.path.startswith("/tmp/")] or same  # noqa: S108 - mem0's default
    return next(iter(near or (known if len(known) == 1 else [])), None)


def _pair(log: Found, vectors: Found | None) -> Found:
    if vectors is None:
        return replace(log, lacking=("vectors",))
    # Where the vectors alone are in a unit's own file system, that is where the memory gets lost.
    return replace(
        log,
        parts=(*log.parts, *(_as(part, "vectors") for part in vectors.parts)),
        namespace=log.namespace or vectors.namespace,
    )


def _found(item: Item, database: Mapping[str, Any] | None) -> Found:
    product = {"chroma": "chroma", "qdrant": "qdrant", "graph": "server-memory"}.get(item.kind, "sqlite")
    what = {"qdrant": "vectors", "notes": "notes"}.get(item.kind, "memories")
    if item.kind == "notes":
        named = os.path.basename(item.path)
        product = {".claude": "claude-code", ".hermes": "hermes"}.get(named, item.place.product or "notes")
    content, unread, rows = None, "", None
    if database is not None:
        unread = str(database.get("unread", ""))
        if "graph" in database:
            rows = int(database["graph"])
        elif not unread:
            if item.kind == "sqlite":
                product, what = str(database["product"]), str(database["what"])
            content = Database(**{key: database[key] for key in Database.__dataclass_fields__})
            rows = _rows(product, what, content)
    part = _part(item, what, content, rows, unread)
    namespace = ""
    if item.place.process is not None and item.place.root and _is_its_own(item):
        namespace = item.place.process.unit or f"process {item.place.process.pid}"
    return Found(product, item.path, item.place.how, (part,), namespace=namespace, relative=item.place.relative)


def _rows(product: str, what: str, database: Database) -> int | None:
    """How much of what it is there for a database has: memories, changes, messages."""
    known = products.known()[product]
    own = [table for part in known.parts if part.what == what for table in part.tables]
    inner = {"chroma": "embeddings", "qdrant": "points", "sqlite": "memory"}
    tables = [known.rows.get("table", ""), *own, inner.get(product, "")]
    table = next((each for each in tables if each in database.tables and (each in own or not own)), "")
    if table:
        return database.tables[table]
    return sum(database.tables.values()) if product == "sqlite" and database.tables else None


def _is_its_own(item: Item) -> bool:
    """Whether what a process sees at a path is not what everybody sees there."""
    try:
        ours = os.stat(item.path)
    except OSError:
        return True
    theirs = os.stat(item.seen)
    return (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino)


def _part(item: Item, what: str, database: Database | None, rows: int | None, unread: str) -> Part:
    status = os.stat(item.seen)
    whole = f"{item.path}/" if stat.S_ISDIR(status.st_mode) else item.path
    sidecars = {}
    for end in _SIDECARS if item.kind == "sqlite" else ():
        with contextlib.suppress(OSError):
            beside = os.lstat(item.seen + end)
            sidecars[end] = (beside.st_uid, beside.st_size, beside.st_mtime)
    process = str(item.place.process.pid) if item.place.root and item.place.process else "self"
    return Part(
        what=what,
        kind={"graph": "files", "notes": "files"}.get(item.kind, item.kind),
        path=whole,
        seen=f"{item.place.root}{whole}",
        size=_size(item.seen, status),
        uid=status.st_uid,
        owner=owner.name_of(status.st_uid),
        mode=stat.S_IMODE(status.st_mode),
        links=status.st_nlink,
        modified=status.st_mtime,
        file_system=host.file_system(item.path, process),
        rows=rows,
        sidecars=sidecars,
        database=database,
        unread=unread,
    )


def _size(path: str, status: os.stat_result) -> int:
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    size, left = 0, DEEPEST
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(f"{folder}/{name}").st_size
        left -= len(names)
        if left < 0:
            break
    return size


# What owners say


def _databases(items: Sequence[Item], unread: list[str]) -> dict[str, Any]:
    """Path for us → what its owner says of it; of Qdrant and Chroma of the database inside."""
    asked: dict[tuple[int, str], list[tuple[Item, str]]] = defaultdict(list)
    by_root: dict[str, Process | None] = {}
    for item in items:
        inner = _inner(item)
        if not inner:
            continue
        with contextlib.suppress(OSError):
            uid = os.stat(f"{item.place.root}{inner}").st_uid
            by_root[item.place.root] = item.place.process if item.place.root else None
            asked[uid, item.place.root].append((item, inner))
    found: dict[str, Any] = {}
    for (uid, root), of in asked.items():
        if os.geteuid() not in (0, uid):
            found |= {item.seen: {"unread": f"it belongs to {owner.name_of(uid)}"} for item, _ in of}
            continue
        try:
            answer = probing.look(uid, [inner for _, inner in of], process=by_root[root])
        except MemopsError as error:
            unread.append(error.message)
            found |= {item.seen: {"unread": error.message} for item, _ in of}
            continue
        found |= {item.seen: answer["databases"][inner] for item, inner in of}
    return found


def _inner(item: Item) -> str:
    if item.kind in ("sqlite", "graph"):
        return item.path
    if item.kind == "chroma":
        return f"{item.path}/chroma.sqlite3"
    if item.kind == "qdrant":
        storages = sorted(Path(f"{item.seen}/collection").glob("*/storage.sqlite"))
        return str(storages[0])[len(item.place.root) :] if storages else ""
    return ""


# Who uses it, and who looks after it


def _with_holders(found: Found, running: Iterable[Process]) -> Found:
    if not found.parts:
        return found
    places = [part.path for part in found.parts]
    holders = []
    for process in running:
        if process.own_files and not found.namespace and not _sees(process, found):
            continue
        if found.namespace and not process.own_files:
            continue
        holder = processes.holder(process, places)
        if holder is not None:
            holders.append(replace(holder, sqlite=_engine(process)))
    names = products.known()[found.product].python
    version = next((each.versions[name] for each in holders for name in names if name in each.versions), "")
    return replace(found, holders=tuple(holders), version=version)


def _sees(process: Process, found: Found) -> bool:
    try:
        theirs, ours = os.stat(f"{process.root}{found.parts[0].path}"), os.stat(found.parts[0].path)
    except OSError:
        return False
    return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)


def _engine(process: Process) -> str:
    """The version of SQLite that a process has loaded, where it is Debian's."""
    try:
        maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return debian.sqlite_version() if re.search(r" /usr/lib/\S*/libsqlite3\.so", maps) else ""


def _with_care(found: Found, cared: Mapping[str, settings.Store]) -> Found:
    for name, store in cared.items():
        paths = {store.db, *(part.source.rstrip("/") for part in store.local_parts)}
        if any(part.path.rstrip("/") in paths for part in found.parts):
            return replace(found, care=name)
    return found


# The machine


def _machine(running: Iterable[Process], unread: Sequence[str]) -> Machine:
    zone = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    said = ""
    # A container's clock is its host's business.
    if host.has("timedatectl") and host.run("systemd-detect-virt", "--quiet", "--container", ok=None).code:
        said = host.run("timedatectl", "show", "--property=NTPSynchronized", "--value", ok=None).out.strip()
    return Machine(
        now=time.time(),
        timezone=zone,
        clock_synchronised={"yes": True, "no": False}.get(said),
        system_sqlite=debian.sqlite_version(),
        litestream=tuple(
            sorted({each.unit or each.command for each in running if Path(each.program).name == "litestream"})
        ),
        unread=tuple(dict.fromkeys(unread)),
    )
