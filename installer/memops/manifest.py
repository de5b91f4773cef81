"""What memops wrote on this machine: the record that uninstall works from. Pure.

JSON with ``version``, ``memops`` (the version that wrote it), ``files`` (path → mode, sha256, the store it belongs to;
while an installation runs also ``was``, the sha256 of the text it replaces), ``directories`` (those memops made,
outermost first), ``users`` (those it made) and ``stores`` (name → db, directory, backup_dir, user, suffix of its units,
``textfile`` where its figures are written, and ``ready`` once everything was in place).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from memops import __version__
from memops.errors import MemopsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memops.render import File
    from memops.settings import Store

PATH = "/etc/memops/manifest.json"
VERSION = 1


@dataclass(frozen=True)
class Manifest:
    """What was written, as data."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    directories: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    stores: dict[str, dict[str, Any]] = field(default_factory=dict)

    def text(self) -> str:
        """The manifest as it lies on the disk."""
        body = {
            "version": VERSION,
            "memops": __version__,
            "files": self.files,
            "directories": list(self.directories),
            "users": list(self.users),
            "stores": self.stores,
        }
        return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=True) + "\n"

    def wrote(self, path: str, text: str) -> bool:
        """Whether ``text`` is what memops once wrote to ``path``."""
        entry = self.files.get(path, {})
        return digest(text) in (entry.get("sha256"), entry.get("was"))

    def ready(self, store: str) -> bool:
        """Whether a store's installation was finished once."""
        return bool(self.stores.get(store, {}).get("ready"))

    def textfile(self, store: str) -> str:
        """Where the figures of a store were written for node_exporter; empty for nowhere."""
        return str(self.stores.get(store, {}).get("textfile") or "")


def digest(text: str) -> str:
    """The sha256 of a file's text."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def entry(file: File) -> dict[str, Any]:
    """What the manifest says of a file."""
    return {"mode": f"{file.mode:04o}", "sha256": digest(file.text), "store": file.store}


def read(text: str | None) -> Manifest:
    """The manifest from its text; an empty one when there is none. Raises MemopsError when it is damaged."""
    if text is None:
        return Manifest()
    try:
        body = json.loads(text)
        if body["version"] != VERSION:
            raise ValueError(f"version {body['version']}")
        if not all(isinstance(entry, dict) for entry in (*body["files"].values(), *body["stores"].values())):
            raise ValueError("an entry is no object")
        return Manifest(dict(body["files"]), tuple(body["directories"]), tuple(body["users"]), dict(body["stores"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MemopsError(
            f"{PATH} is not what this memops wrote ({error}).", f"Move it away and install again: mv {PATH} {PATH}.old"
        ) from error


def after(
    old: Manifest, files: Mapping[str, File], stores: Mapping[str, Store], made: Iterable[str], users: Iterable[str]
) -> Manifest:
    """The manifest once ``files`` are written and every store is ready; what earlier runs made is kept in mind.

    made, users: the directories and the system users that are made now.
    """
    entries = {path: entry(file) for path, file in files.items()}
    described = {
        name: {
            "db": store.db,
            "directory": store.directory,
            "backup_dir": store.backup_dir,
            "user": store.user,
            "suffix": store.suffix,
            "textfile": store.textfile,
            "ready": True,
        }
        for name, store in sorted(stores.items())
    }
    directories = (*old.directories, *(path for path in made if path not in old.directories))
    return Manifest(entries, directories, tuple(sorted({*old.users, *users})), described)


def begun(old: Manifest, new: Manifest) -> Manifest:
    """The manifest while an installation is on its way from ``old`` to ``new``: it owns up to the files of both."""
    files = dict(old.files)
    for path, entry in new.files.items():
        before = old.files.get(path, {}).get("sha256", entry["sha256"])
        files[path] = entry if before == entry["sha256"] else {**entry, "was": before}
    stores = {
        name: {**entry, "ready": old.ready(name), "textfile": old.textfile(name)} for name, entry in new.stores.items()
    }
    return replace(new, files=files, stores=stores)
