"""Qdrant: a local directory of its Python client (here), or a server (``_qdrant_server``).

A local collection is a SQLite file of pickled points, which is copied through SQLite and never unpickled. The client
may be open meanwhile: each collection is copied as it was at one moment, and meta.json, which says how each of them is
set up, is read before and after.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickletools
import struct
import uuid
from typing import TYPE_CHECKING, Any, Final

from store import printable

import census
import claims
import job
from kinds import _mem0, _qdrant_server, _tree, sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

META: Final = "meta.json"
META_LIMIT: Final = 16 << 20
ID_LIMIT: Final = 4096
"""Characters that an id in the file may have; an id is a number or a UUID, pickled and in base64."""


def snapshot(source: str, target: str, limit: census.Limit) -> dict[str, Any]:
    """See Kind.snapshot. ``source`` is the directory, or the server's address."""
    if "://" in source:
        return _qdrant_server.snapshot(source, target, limit)
    for attempt in range(_tree.TRIES):
        meta = _read_meta(source)
        names = _require_collections(source, meta)
        collections = {}
        os.mkdir(os.path.join(target, "collection"), 0o770)
        for name in names:
            place = os.path.join("collection", name)
            os.mkdir(os.path.join(target, place), 0o770)
            database = os.path.join(place, "storage.sqlite")
            with _named(name):
                path = os.path.join(source, database)
                _tree.require_plain(path)
                collections[name] = sqlite.copy_database(path, os.path.join(target, database), limit)
        if _read_meta(source) == meta:
            break
        if attempt == _tree.TRIES - 1:
            raise _tree.restless(META)
        top = census.open_directory(target)
        _tree.empty(top, target)
        os.close(top)
    with open(os.open(os.path.join(target, META), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640), "wb") as file:
        file.write(meta)
    return {
        "taken_at": min((each["taken_at"] for each in collections.values()), default=job.now()),
        "exact": all(each["exact"] for each in collections.values()),
        "counts": {name: each["before"]["rows"].get("points", 0) for name, each in collections.items()},
        "collections": collections,
    }


@contextlib.contextmanager
def _named(collection: str) -> Iterator[None]:
    """Let what is wrong with a collection's file name it."""
    try:
        yield
    except job.JobError as error:
        raise job.JobError(f"collection {printable(collection)}: {error}", error.exit_code) from error


def _read_meta(directory: str) -> bytes:
    try:
        descriptor = os.open(os.path.join(directory, META), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise job.JobError(f"{META} cannot be opened: {error.strerror}; it belongs into a Qdrant directory") from error
    with os.fdopen(descriptor, "rb") as file:
        text = file.read(META_LIMIT + 1)
    if len(text) > META_LIMIT:
        raise job.JobError(f"{META} is larger than {census.amount(META_LIMIT)}")
    return text


def _require_collections(directory: str, meta: bytes) -> list[str]:
    """The collections that meta.json names, each of which must be on the disk, and no other. Raises JobError."""
    try:
        kept = sorted(os.listdir(os.path.join(directory, "collection")))
    except FileNotFoundError:
        kept = []
    try:
        found = json.loads(meta)
        named = sorted(claims.field(found, "collections", dict))
    except (ValueError, RecursionError) as error:
        what = "is empty" if not meta.strip() else f"cannot be read ({printable(error, 100)})"
        raise job.JobError(
            f"{META} {what}, and {len(kept)} collections are there; Qdrant's client cannot open them without it"
        ) from error
    for name in kept:
        place = os.path.join(directory, "collection", _tree.require_name(name))
        if os.path.islink(place) or not os.path.isdir(place):
            raise job.JobError(f"collection/{name} is no directory")
        files = os.listdir(place)
        if "storage.dbm" in files and "storage.sqlite" not in files:
            raise job.JobError(
                f"collection {name} is a storage.dbm, as qdrant-client wrote it before 1.1.7; open it once with such a"
                " version and a later one in turn, as Qdrant's notes on migration say"
            )
        if "storage.sqlite" not in files:
            raise job.JobError(f"collection {name} has no storage.sqlite")
    if missing := sorted(set(named) - set(kept)):
        raise job.JobError(f"{META} names a collection that is not on the disk: {printable(missing[0])}")
    if extra := sorted(set(kept) - set(named)):
        raise job.JobError(f"a collection is on the disk that {META} does not name: {printable(extra[0])}")
    return named


def verify(directory: str, claim: Mapping[str, Any], limit: census.Limit) -> dict[str, Any]:
    """See Kind.verify."""
    if claim.get("server") is True:
        return _qdrant_server.verify(directory, claim, limit)
    try:
        claimed: dict[str, Any] = claims.field(claim, "collections", dict)
        each = {name: claims.field(claimed, name, dict) for name in claimed}
    except ValueError as error:
        raise claims.unreadable("the claim", error) from error
    names = _require_collections(directory, _read_meta(directory))
    if names != sorted(each):
        raise job.JobError(f"the collections are {_list(names)}, where {_list(sorted(each))} were copied")
    top = census.open_directory(directory)
    try:
        files = set(_tree.listing(top, limit).files)
    finally:
        os.close(top)
    if extra := files - {META, *(f"collection/{name}/storage.sqlite" for name in names)}:
        raise job.JobError(f"{printable(min(extra), 200)} does not belong to the copy")
    found = {}
    for name in names:
        with _named(name):
            path = os.path.join(directory, "collection", name, "storage.sqlite")
            found[name] = sqlite.verify_database(path, each[name], limit)
            if "points" not in found[name]["rows"]:
                raise job.JobError("its file has no table points")
    return {
        "exact": True,
        "counts": {name: found[name]["rows"]["points"] for name in names},
        "collections": found,
    }


def _list(names: list[str]) -> str:
    return ", ".join(printable(name) for name in names[:5]) + (" …" if len(names) > 5 else "") or "none"


def ids(directory: str) -> tuple[str, set[str]] | None:
    """See Kind.ids: the points of all collections but those that hold no memories."""
    if os.path.exists(os.path.join(directory, _qdrant_server.INDEX)):
        return "vectors", _qdrant_server.ids(directory)
    found: set[str] = set()
    for name in os.listdir(os.path.join(directory, "collection")):
        if _mem0.bookkeeping(name):
            continue
        path = os.path.join(directory, "collection", name, "storage.sqlite")
        with contextlib.closing(sqlite.open_copy(path)) as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")
            rows = connection.execute(f"SELECT CAST(substr(id, 1, {ID_LIMIT}) AS TEXT) FROM points")
            found.update(read_id(str(row[0])) for row in rows)
    return "vectors", found


def read_id(text: str) -> str:
    """The id in the file's column ``id``: base64 of a pickle, of which only the constants are looked at.

    What is no pickle of one string, number or UUID is returned as it is.
    """
    constants: list[object] = []
    try:
        for opcode, value, _ in pickletools.genops(base64.b64decode(text, validate=True)):
            if opcode.name not in ("PROTO", "FRAME") and value is not None and not opcode.name.endswith("PUT"):
                constants.append(value)
    except (ValueError, struct.error):
        return text
    match constants:
        case [str() as value] if value.isascii():
            return value
        case [int() as value] if 0 <= value < 1 << 64:
            return str(value)
        case ["uuid", "UUID", "int", int() as value] if 0 <= value < 1 << 128:
            return str(uuid.UUID(int=value))
    return text


def restore(directory: str, source: str, limit: census.Limit) -> None:
    """See Kind.restore. Only a server is restored so; a local directory is put back as files."""
    _qdrant_server.restore(directory, source, limit)
