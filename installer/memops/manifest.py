"""What memops wrote on this machine: the record that uninstall works from. Pure.

JSON with ``version``, ``memops`` (the version that wrote it), ``state`` (``installing`` until everything is in place),
``files`` (path → mode, sha256, store), ``directories`` (those memops made, outermost first), ``users`` (those it made)
and ``stores`` (name → database, its directory, backups, user, suffix of the units).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memops import __version__
from memops.errors import MemopsError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    stores: dict[str, dict[str, str]] = field(default_factory=dict)
    state: str = "installing"

    def text(self) -> str:
        """The manifest as it lies on the disk."""
        body = {
            "version": VERSION,
            "memops": __version__,
            "state": self.state,
            "files": self.files,
            "directories": list(self.directories),
            "users": list(self.users),
            "stores": self.stores,
        }
        return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=True) + "\n"

    def wrote(self, path: str, text: str) -> bool:
        """Whether ``text`` is what memops once wrote to ``path``."""
        return self.files.get(path, {}).get("sha256") == digest(text)


def digest(text: str) -> str:
    """The sha256 of a file's text."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def read(text: str | None) -> Manifest:
    """The manifest from its text; an empty one when there is none. Raises MemopsError when it is damaged."""
    if text is None:
        return Manifest()
    try:
        body = json.loads(text)
        if body["version"] != VERSION:
            raise ValueError(f"version {body['version']}")
        return Manifest(
            dict(body["files"]),
            tuple(body["directories"]),
            tuple(body["users"]),
            dict(body["stores"]),
            str(body["state"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MemopsError(
            f"{PATH} is not what this memops wrote ({error}).", f"Move it away and install again: mv {PATH} {PATH}.old"
        ) from error


def after(
    old: Manifest,
    files: Mapping[str, File],
    stores: Mapping[str, Store],
    made: tuple[str, ...],
    users: tuple[str, ...],
    state: str,
) -> Manifest:
    """The manifest once ``files`` are written, with what earlier installs made kept in mind."""
    entries = {
        path: {"mode": f"{file.mode:04o}", "sha256": digest(file.text), "store": file.store}
        for path, file in files.items()
    }
    return Manifest(
        entries,
        (*old.directories, *(path for path in made if path not in old.directories)),
        tuple(sorted({*old.users, *users})),
        {
            name: {"db": s.db, "directory": s.directory, "backup_dir": s.backup_dir, "user": s.user, "suffix": s.suffix}
            for name, s in sorted(stores.items())
        },
        state,
    )
