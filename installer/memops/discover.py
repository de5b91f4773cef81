"""What is at a place that somebody named: which product's, its parts, and whose. Nothing is changed.

Of files root sees names and owners, and the first bytes of plain ones; a database is opened by its owner alone.
"""

from __future__ import annotations

import fnmatch
import json
import os
import stat
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from memops import host, owner, products
from memops.errors import Refused, UsageError
from memops.found import Found, Part
from memops.settings import Store, check_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SQLITE = b"SQLite format 3\0"
_HEAD = 1 << 16
_NOTES = (".md", ".markdown")
_HOMES = {".claude": "claude-code", ".hermes": "hermes"}
_PATIENCE = 5

_SERVERS = (
    ("/", "qdrant", lambda found: str(found.get("title", "")).startswith("qdrant")),
    ("/api/v2/heartbeat", "chroma", lambda found: "nanosecond heartbeat" in found),
    ("/api/health", "mcp-memory-service", lambda found: found.get("status") == "healthy"),
)
"""Where each server says without a key what it is, and how."""


def answering(address: str) -> Found | None:
    """The store of the server at this address; None where no server that memops knows answers."""
    try:
        return _server(address)
    except Refused:
        return None


def identify(*places: str) -> Found:
    """The one store that is at these paths, or at a server's address. Raises UsageError and Refused.

    ``settings`` of what is found: the tables of each of its databases are in ``tables``, as JSON.
    """
    addresses = [place for place in places if "://" in place]
    paths = [os.path.realpath(place) for place in places if place not in addresses]
    found = [_at(path) for path in paths] + [_server(address) for address in addresses]
    if len(found) == 1:
        return _whole(found[0])
    kinds = {each.product for each in found}
    # A vector store that is named together with a log of changes is that one's.
    if "mem0" in kinds and kinds <= {"mem0", "qdrant"}:
        first = next(each for each in found if each.product == "mem0")
        parts = [part for each in (first, *(each for each in found if each is not first)) for part in each.parts]
        url = dict([("url", each.path) for each in found if "://" in each.path])  # noqa: C404 - none, or one
        return _whole(_found("mem0", first.path, {part.path: part for part in parts}.values(), **first.settings, **url))
    raise UsageError("These paths are of several stores.", "Adopt one after the other: memops adopt PATH")


def _found(product: str, path: str, parts: Iterable[Part], **settings: str) -> Found:
    return Found(product, path, "named", tuple(parts), settings=settings)


def _whole(found: Found) -> Found:
    """The same with what belongs to it and is not there."""
    known = products.known()[found.product]
    wanted = [part.what for part in known.parts if not part.optional]
    # A server keeps the vectors by itself.
    there = {part.what for part in found.parts} | ({"vectors", "memories"} if "url" in found.settings else set())
    lacking = tuple(what for what in wanted if what not in there) if found.product == "mem0" else ()
    return Found(found.product, found.path, found.how, found.parts, lacking=lacking, settings=found.settings)


def _at(path: str) -> Found:
    check_path("PATH", path)
    try:
        status = os.lstat(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be reached ({error.strerror}).", f"Look at: namei -l {path}") from error
    if stat.S_ISDIR(status.st_mode):
        return _directory(path)
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{path} is neither a file nor a directory.", "Name the memory's own file or directory.")
    head = _head(path)
    if head.startswith(_SQLITE):
        return _database(path)
    if path.endswith(_NOTES):
        return _found("notes", path, [_part("notes", "files", path)])
    if b'"entity"' in head and path.endswith((".jsonl", ".json")):
        return _found("server-memory", path, [_part("memories", "files", path)])
    if not status.st_size:
        raise Refused(f"{path} is an empty file.", "It may be the wrong one: a wrong path makes an empty database.")
    raise Refused(f"{path} is no memory that memops knows.", "It knows SQLite files, notes, and JSON of server-memory.")


def _directory(path: str) -> Found:
    there = {entry.name for entry in os.scandir(path)}
    if "chroma.sqlite3" in there:
        return _found("chroma", path, [_part("memories", "chroma", path)])
    if {"meta.json", "collection"} <= there:
        return _found("qdrant", path, [_part("vectors", "qdrant", path)])
    for name in ("sqlite_vec.db", "claude-mem.db", "history.db"):
        if name in there:
            return _database(f"{path}/{name}")
    home = _HOMES.get(os.path.basename(path))
    if home:
        parts = [_part("notes", "files", place) for place in _memory_places(path)]
        if not parts:
            raise Refused(f"{path} holds no notes yet.", "Adopt it when there are some.")
        return _found(home, path, parts)
    if any(name.endswith(_NOTES) for name in there) or any(Path(path).glob("*/*.md")):
        return _found("notes", path, [_part("notes", "files", path)])
    raise Refused(f"{path} is no memory that memops knows.", "Name the file or directory that holds the memories.")


def _memory_places(path: str) -> list[str]:
    """The places below a product's directory that hold notes, as the look at notes knows them."""
    patterns = {".claude": ("CLAUDE.md", "rules", "projects/*/memory"), ".hermes": ("memories",)}
    found = [match for pattern in patterns[os.path.basename(path)] for match in Path(path).glob(pattern)]
    return sorted(str(each) for each in found if not each.is_symlink())


def _with_neighbours(found: Found) -> Found:
    """mem0's log with the vectors that lie beside it."""
    beside = os.path.join(os.path.dirname(found.path), "qdrant")
    if found.product == "mem0" and os.path.isfile(f"{beside}/meta.json"):
        parts = (*found.parts, _part("vectors", "qdrant", beside))
        return Found(found.product, found.path, found.how, parts, settings=found.settings)
    return found


def _database(path: str) -> Found:
    tables = ask_owner(path, "tables")
    part = _part("memories", "sqlite", path)
    product, what = _product_of({name: set(table["columns"]) for name, table in tables.items()}, path)
    part = Part(**{**part.__dict__, "what": what})
    found = _found(product, path, [part], tables=json.dumps(tables))
    return _with_neighbours(found) if os.path.basename(path) == "history.db" else found


def _product_of(tables: dict[str, set[str]], path: str) -> tuple[str, str]:
    """The product whose tables these are, and what its part is; a plain SQLite file otherwise."""
    fits = [
        (len(part.tables), known.name, part.what)
        for known in products.known().values()
        for part in known.parts
        if part.tables and all(set(columns) <= tables.get(table, set()) for table, columns in part.tables.items())
    ]
    if not fits:
        return "sqlite", "memories"
    named = [fit for fit in fits if any(fnmatch.fnmatch(os.path.basename(path), part.file)
                                        for part in products.known()[fit[1]].parts)]  # fmt: skip
    _, name, what = max(named or fits)
    return name, what


def ask_owner(path: str, function: str, *arguments: str) -> Any:
    """What a function of shape.py says of a database, asked as its owner."""
    status = Path(path).lstat()
    if status.st_uid == 0:
        raise Refused(f"{path} belongs to root.", f"Give it to the user that runs the agent: chown USER {path}")
    return owner.call(Store(db=path, user=owner.name_of(status.st_uid), sandbox=_sandbox()), function, *arguments)


def _sandbox() -> str:
    return "strict" if owner.has_namespaces() else "reduced"


def _part(what: str, kind: str, path: str) -> Part:
    status = Path(path).lstat()
    whole = f"{path}/" if stat.S_ISDIR(status.st_mode) else path
    return Part(
        what, kind, whole, whole, status.st_size, status.st_uid, owner.name_of(status.st_uid),
        stat.S_IMODE(status.st_mode), status.st_nlink, status.st_mtime, host.file_system(path),
    )  # fmt: skip


def _head(path: str) -> bytes:
    # By descriptor and without waiting: it is the agent's, and may become a link or a pipe at any time.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_HEAD) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""


def _server(address: str) -> Found:
    parts = urlsplit(address)
    plain = address.isascii() and address.isprintable() and not set(address) & set(" \"'<>\\^`|#")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.password is not None or not plain:
        raise UsageError(f"{address!r} is not the address of a server.", "Type for example http://127.0.0.1:6333")
    base = address.rstrip("/")
    for path, product, says in _SERVERS:
        if says(_answer(f"{base}{path}")):
            return _found(product, base, [], url=base)
    raise Refused(f"What answers at {base} is no server that memops knows.", "Does it run? curl " + base)


def _answer(address: str) -> dict[str, Any]:
    """What a server answers; empty where it is no object."""
    try:
        with urllib.request.urlopen(address, timeout=_PATIENCE) as answer:  # noqa: S310 - checked above
            found = json.loads(answer.read(_HEAD))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def holds(parts: Sequence[Part], path: str) -> bool:
    """Whether a path is one of these parts, or lies in one of them, or one of them in it."""
    wanted = path.rstrip("/")
    places = [part.path.rstrip("/") for part in parts]
    return any(f"{wanted}/".startswith(f"{place}/") or f"{place}/".startswith(f"{wanted}/") for place in places)
