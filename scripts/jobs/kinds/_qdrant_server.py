"""A Qdrant server: one snapshot per collection by its API, which cannot be opened without the product.

So the ids are asked for before and after, and kept beside the snapshot: NAME.snapshot (a tar archive), NAME.ids (one id
a line) and index.json (collections with count and checksum, and the aliases, which a snapshot leaves out).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import quote

from store import printable

import census
import claims
import job
from kinds import _mem0, _tree
from kinds._qdrant_http import Server, collection_path

if TYPE_CHECKING:
    from collections.abc import Mapping

INDEX: Final = "index.json"
INDEX_LIMIT: Final = 16 << 20
TRIES: Final = 3
PAGE: Final = 5000
UPLOADED: Final = "memops-restore.snapshot"
BLOCK: Final = 512
MEMBERS: Final = 1_000_000


def snapshot(url: str, target: str, limit: census.Limit) -> dict[str, Any]:
    """See Kind.snapshot."""
    server = Server(url, limit)
    peers = server.ask("GET", "/cluster")
    if isinstance(peers, dict) and len(peers.get("peers") or {}) > 1:
        raise job.JobError("Qdrant runs as a cluster, where a snapshot holds the data of one node only")
    names, aliases = _collections(server)
    taken_at, collections = job.now(), {}
    for name in sorted(names):
        if "/" in _tree.require_name(name) or name.startswith("."):
            raise job.JobError(f"collection {printable(name)} cannot be kept under its name")
        collections[name] = _collection(server, name, target, limit)
    text = json.dumps({"version": 1, "collections": collections, "aliases": aliases})
    with _new(target, INDEX) as file:
        file.write(text.encode())
    return {
        "server": True,
        "taken_at": taken_at,
        "exact": all(each["exact"] for each in collections.values()),
        "counts": {name: each["points"] for name, each in collections.items()},
    }


def _collections(server: Server) -> tuple[list[str], dict[str, str]]:
    """The names of the collections, and the aliases: alias → collection. Raises JobError."""
    collections, aliases = server.ask("GET", "/collections"), server.ask("GET", "/aliases")
    try:
        return (
            [str(each["name"]) for each in collections["collections"]],
            {str(each["alias_name"]): str(each["collection_name"]) for each in aliases["aliases"]},
        )
    except (LookupError, TypeError) as error:
        raise job.JobError(f"Qdrant's list of collections cannot be read: {printable(error, 100)}") from error


def _new(directory: str, name: str) -> IO[bytes]:
    descriptor = os.open(os.path.join(directory, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
    return os.fdopen(descriptor, "wb")


def _collection(server: Server, name: str, target: str, limit: census.Limit) -> dict[str, Any]:
    """Leave NAME.snapshot and NAME.ids in ``target``; what the index says of them."""
    before = _ids(server, name, limit)
    for attempt in range(TRIES):
        size, sha256 = _fetch(server, name, target)
        after = _ids(server, name, limit)
        if before == after or attempt == TRIES - 1:
            break
        os.unlink(os.path.join(target, f"{name}.snapshot"))
        before = after
    with _new(target, f"{name}.ids") as file:
        file.writelines(f"{each}\n".encode() for each in sorted(after))
    return {"points": len(after), "exact": before == after, "size": size, "sha256": sha256}


def _ids(server: Server, name: str, limit: census.Limit) -> set[str]:
    found: set[str] = set()
    offset = None
    while True:
        ask = {"limit": PAGE, "with_payload": False, "with_vector": False, "offset": offset}
        page = server.ask("POST", collection_path(name, "/points/scroll"), ask)
        limit.check()
        try:
            new = {str(each["id"]) for each in page["points"]}
            following = page.get("next_page_offset")
        except (LookupError, TypeError, AttributeError) as error:
            raise job.JobError(f"the ids of {printable(name)} cannot be read: {printable(error, 100)}") from error
        if any("\n" in each for each in new) or (following is not None and not new - found):
            raise job.JobError(f"the ids of {printable(name)} are not such as Qdrant gives them")
        found |= new
        if following is None:
            return found
        offset = following


def _fetch(server: Server, name: str, target: str) -> tuple[int, str]:
    """Let the server make a snapshot, fetch it, and remove it there, also when that failed. Its size and sha256."""
    path = os.path.join(target, f"{name}.snapshot")
    made = server.ask("POST", collection_path(name, "/snapshots?wait=true"))
    try:
        given, size, checksum = str(made["name"]), int(made["size"]), made.get("checksum")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise job.JobError(f"Qdrant's answer about a snapshot cannot be read: {printable(error, 100)}") from error
    there = f"{collection_path(name)}/snapshots/{quote(given, safe='')}"
    try:
        sha256 = _receive(server, there, path, size)
        if checksum is not None and checksum != sha256:
            raise job.JobError(f"the snapshot of {printable(name)} has not the checksum that Qdrant said")
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with contextlib.suppress(job.JobError):  # the first error is the one to tell
            server.ask("DELETE", there)
        raise
    server.ask("DELETE", there)
    return size, sha256


def _receive(server: Server, there: str, path: str, size: int) -> str:
    """Download a snapshot of ``size`` bytes to ``path``; its sha256."""
    directory, name = os.path.split(path)
    top = census.open_directory(directory)
    try:
        census.require_room(top, size)
    finally:
        os.close(top)
    with census.full_disk_named():
        with _new(directory, name) as file:
            server.download(there, file, size)
        return _sha256(path)


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_index(directory: str) -> dict[str, Any]:
    """index.json, checked for form. Raises JobError."""
    try:
        with open(os.path.join(directory, INDEX), "rb") as file:
            found = json.loads(file.read(INDEX_LIMIT))
        for alias, name in claims.field(found, "aliases", dict).items():
            if not isinstance(alias, str) or not isinstance(name, str):
                raise ValueError("aliases is not of the form that a snapshot writes")
        collections: dict[str, Any] = claims.field(found, "collections", dict)
        for name, each in collections.items():
            if "/" in name or name.startswith(".") or not name:
                raise ValueError("a collection's name is not one")
            for key, kind in (("points", int), ("exact", bool), ("size", int), ("sha256", str)):
                claims.field(each, key, kind)
        return dict(found)
    except (OSError, ValueError, RecursionError) as error:
        raise job.JobError(f"{INDEX} cannot be read: {printable(error, 100)}") from error


def verify(directory: str, claim: Mapping[str, Any], limit: census.Limit) -> dict[str, Any]:
    """See Kind.verify: whole archives with the checksums of their making, and as many ids as the claim has points."""
    collections = _read_index(directory)["collections"]
    try:
        counts: dict[str, Any] = claims.field(claim, "counts", dict)
        claimed = {name: claims.field(counts, name, int) for name in counts}
    except ValueError as error:
        raise claims.unreadable("the claim", error) from error
    points = {name: each["points"] for name, each in collections.items()}
    if points != claimed:
        raise job.JobError("the collections or their counts are not those of the claim")
    expected = {INDEX, *(f"{name}.{kind}" for name in collections for kind in ("snapshot", "ids"))}
    if extra := set(os.listdir(directory)) ^ expected:
        raise job.JobError(f"{printable(min(extra))} is missing, or does not belong to the copy")
    for name, each in collections.items():
        path = os.path.join(directory, f"{name}.snapshot")
        if os.path.getsize(path) != each["size"] or _sha256(path) != each["sha256"]:
            raise job.JobError(f"the snapshot of {printable(name)} is not the one that was fetched")
        with open(path, "rb") as file:
            _require_tar(file, each["size"], limit)
        with open(os.path.join(directory, f"{name}.ids"), "rb") as file:
            lines = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
        if lines != each["points"]:
            raise job.JobError(f"{lines:,} ids of {printable(name)}, where there were {each['points']:,}")
    return {"server": True, "exact": all(each["exact"] for each in collections.values()), "counts": points}


def _require_tar(file: IO[bytes], size: int, limit: census.Limit) -> None:
    """Raise JobError unless the file is a tar archive with content and an end. Only the headers are read."""
    place, content = 0, 0
    for _ in range(MEMBERS):
        limit.check()
        file.seek(place)
        header = file.read(BLOCK)
        if len(header) < BLOCK:
            break
        if not any(header):
            if content:
                return
            break
        try:
            total = int(header[148:156].strip(b" \0") or b"-", 8)
            field = header[124:136]
            length = int.from_bytes(field[1:], "big") if field[0] == 0x80 else int(field.strip(b" \0") or b"0", 8)
        except ValueError:
            break
        if total != sum(header[:148]) + 8 * 0x20 + sum(header[156:]) or not 0 <= length <= size:
            break
        content += length
        place += BLOCK + -(-length // BLOCK) * BLOCK
    raise job.JobError(f"a snapshot is no whole tar archive: it breaks at byte {place:,}")


def ids(directory: str) -> set[str]:
    """The ids of all collections but those that hold no memories."""
    found: set[str] = set()
    for name in _read_index(directory)["collections"]:
        if not _mem0.bookkeeping(name):
            with open(os.path.join(directory, f"{name}.ids"), encoding="utf-8", newline="\n") as file:
                found.update(line.rstrip("\n") for line in file)
    return found


def restore(directory: str, url: str, limit: census.Limit) -> None:
    """See Kind.restore. A collection that is not in the set stays as it is, and is named."""
    server, index = Server(url, limit), _read_index(directory)
    for name, each in index["collections"].items():
        path = os.path.join(directory, f"{name}.snapshot")
        query = f"/snapshots/upload?priority=snapshot&wait=true&checksum={each['sha256']}"
        with open(path, "rb") as file:
            server.upload(collection_path(name, query), UPLOADED, file, each["size"])
        with contextlib.suppress(job.JobError):  # some versions keep what was uploaded
            server.ask("DELETE", collection_path(name, f"/snapshots/{UPLOADED}"))
        found = server.ask("POST", collection_path(name, "/points/count"), {"exact": True})
        count = found.get("count") if isinstance(found, dict) else None
        slack = 0 if each["exact"] else 100 + each["points"] // 100
        if type(count) is not int or abs(count - each["points"]) > slack:
            raise job.JobError(
                f"{printable(name)} has {count} points after it was restored, and {each['points']:,} in the set"
            )
    names, aliases = _collections(server)
    _restore_aliases(server, index["aliases"], aliases)
    if others := sorted(set(names) - set(index["collections"])):
        job.say(f"not in the set, and left as they are: {', '.join(printable(name) for name in others)}")


def _restore_aliases(server: Server, aliases: Mapping[str, str], there: Mapping[str, str]) -> None:
    actions: list[dict[str, Any]] = []
    for alias, name in aliases.items():
        if there.get(alias) == name:
            continue
        if alias in there:
            actions.append({"delete_alias": {"alias_name": alias}})
        actions.append({"create_alias": {"alias_name": alias, "collection_name": name}})
    if actions:
        server.ask("POST", "/collections/aliases", {"actions": actions})
