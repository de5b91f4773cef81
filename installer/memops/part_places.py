"""Where the further parts of a memory may lie, and whose they must be. These look at the machine and change nothing."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memops import host, parts
from memops.errors import Refused, UsageError
from memops.places import OWN_PLACES, SHARED_DIRECTORIES
from memops.settings import check_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memops.settings import Store


def settle(store: Store, texts: Iterable[str]) -> tuple[tuple[str, ...], list[str]]:
    """The parts as memops.toml has them: kind proposed where none was given, links resolved, directories marked.

    Also returns what the owner should know. Raises UsageError and Refused.
    """
    settled: list[str] = []
    notes: list[str] = []
    for text in texts:
        kind, source = parts.split(text)
        if not source:
            raise UsageError(f"--with {text!r} names no path.", "Type: --with KIND=PATH, or --with '' for no part.")
        if "://" in source:
            proposed = _server(kind, source)
        else:
            real = os.path.realpath(source)
            check_path("--with", real)
            if real != os.path.normpath(source):
                notes.append(f"{source} is reached through a link; the part is {real}.")
            proposed = f"{kind or _propose(real)}={_local(store, kind or _propose(real), real)}"
        if not kind:
            notes.append(f"--with {source} is taken for --with {proposed}.")
        if proposed in settled:
            raise UsageError(f"--with {proposed} is given twice.", "Leave one of them out.")
        settled.append(proposed)
    _require_apart(parts.named(settled))
    return tuple(settled), notes


def _require_apart(found: tuple[parts.Part, ...]) -> None:
    for outer in found:
        for inner in found:
            if inner is not outer and outer.source.endswith("/") and inner.source.startswith(outer.source):
                raise Refused(
                    f"The part {inner.source} lies in the part {outer.source}, and could not be put back by itself.",
                    "Leave one of them out, or keep them apart.",
                )


def _server(kind: str, url: str) -> str:
    kind = kind or parts.kind_of_url(url)
    if kind not in parts.SERVERS:
        raise UsageError(
            f"--with {url!r}: no kind of part has such an address.",
            "Type for example --with qdrant=http://127.0.0.1:6333 or --with postgres=postgresql:///memory",
        )
    address = urlsplit(url)
    plain = url.isascii() and url.isprintable() and not set(url) & set(" \"'<>\\^`|#") and len(url) < 1000
    if not plain or (kind == "qdrant" and not address.hostname):
        raise UsageError(f"--with {kind}: this is no address of a server.", "Look for odd characters in it.")
    if address.password is not None or re.search(r"(password|api-key|apikey|token)=", address.query, re.IGNORECASE):
        raise UsageError(
            f"The address of the part {kind} holds a secret, which everybody would see in the unit.",
            "Leave it out of the address and give it from a file: --secret PART=FILE",
        )
    return f"{kind}={url}"


def _propose(path: str) -> str:
    """What a path looks like to be."""
    place = Path(path)
    if (place / "chroma.sqlite3").is_file():
        return "chroma"
    if (place / "meta.json").is_file() and (place / "collection").is_dir():
        return "qdrant"
    if place.is_file():
        return "sqlite" if host.read_bytes(path, 16) == b"SQLite format 3\0" else "files"
    return "files"


def _local(store: Store, kind: str, path: str) -> str:
    place = Path(path)
    shown = shlex.quote(path)
    try:
        status = place.lstat()
    except OSError as error:
        raise Refused(
            f"--with {kind}: {path} cannot be reached ({error.strerror}).", f"Look at: namei -l {shown}"
        ) from error
    is_directory = stat.S_ISDIR(status.st_mode)
    _require_no_sidecar(path)
    if not is_directory and not stat.S_ISREG(status.st_mode):
        raise Refused(f"{path} is neither a file nor a directory.", "Name the agent's own data: --with KIND=PATH")
    if kind == "postgres" or (kind in ("qdrant", "chroma") and not is_directory) or (kind == "sqlite" and is_directory):
        what = "directory" if is_directory else "file"
        raise UsageError(f"--with {kind}={path}: that is a {what}.", "Look at the kinds: memops install --help")
    _require_owner(store, path, status.st_uid)
    if kind == "sqlite" and status.st_nlink > 1:
        raise Refused(f"{path} has {status.st_nlink} hard links.", f"Keep one name: find / -xdev -samefile {shown}")
    directory = place if is_directory else place.parent
    if str(directory) in SHARED_DIRECTORIES or any(Path(own) in (place, *place.parents) for own in OWN_PLACES):
        raise Refused(f"{path} lies where the system keeps its own files.", "Give it a directory of its own.")
    if path == store.db:
        raise UsageError(f"{path} is the store itself, which every set holds.", "Leave that --with out.")
    if is_directory and place in Path(store.db).parents:
        raise Refused(
            f"The store lies in {path}, and a database that is written to cannot be copied as a file.",
            "Name what lies beside it, one by one: --with KIND=PATH",
        )
    for inner, outer in ((directory, Path(store.backup_dir)), (Path(store.backup_dir), directory)):
        if inner == outer or outer in inner.parents:
            raise Refused(f"{path} and the backups ({store.backup_dir}) lie one inside the other.", "Keep them apart.")
    return f"{path}/" if is_directory else path


def _require_no_sidecar(path: str) -> None:
    database = re.sub("-(wal|shm|journal)$", "", path)
    if database != path and Path(database).is_file():
        raise UsageError(f"{path} is what SQLite keeps beside {database}.", f"Type: --with sqlite={database}")


def _require_owner(store: Store, path: str, uid: int) -> None:
    try:
        wanted = pwd.getpwnam(store.user).pw_uid
    except KeyError:
        wanted = int(store.user.removeprefix("memops-")) if store.user.startswith("memops-") else -1
    if uid == wanted:
        return
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = str(uid)
    raise Refused(
        f"{path} belongs to {owner}, and the store to {store.user}: a memory has one owner, who alone opens it.",
        f"Give it to that user: chown -R {store.user} {shlex.quote(path)}. Or make it a store of its own: --name NAME",
    )
