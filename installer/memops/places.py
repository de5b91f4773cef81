"""Where a store, its backups and the figures may lie. Every refusal says what is so and what to type.

These look at the machine's directories and change nothing.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from memops import host
from memops.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memops.settings import Store

SHARED_DIRECTORIES = frozenset(
    {"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/proc", "/root", "/run", "/sbin"}
    | {"/srv", "/sys", "/tmp", "/usr", "/usr/local", "/usr/local/lib", "/var", "/var/lib", "/var/tmp"}  # noqa: S108
)
"""Directories of the system: a job that may write beside the store must not get one of these."""

OWN_PLACES = ("/etc", "/proc", "/run", "/sys", "/usr/local/lib/memops", "/var/lib/memops", "/var/lib/systemd")
"""Where neither a store nor backups may lie, however deep."""

NETWORK_FILE_SYSTEMS = frozenset(
    (
        "9p",
        "afs",
        "ceph",
        "cifs",
        "fuse.sshfs",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
        "virtiofs",
    )
)
"""Where WAL's shared memory does not work (https://www.sqlite.org/wal.html, section 1)."""


def check(store: Store) -> None:
    """Raise Refused when the store or the backups lie where they must not. Pure but for the paths' parents."""
    if store.directory in SHARED_DIRECTORIES:
        raise Refused(
            f"The store would lie directly in {store.directory}, and the jobs may write beside the store.",
            f"Give it a directory of its own: --db {store.directory.rstrip('/')}/agent/{store.file}",
        )
    if store.backup_dir in SHARED_DIRECTORIES:
        raise Refused(
            f"The backups would lie directly in {store.backup_dir}.",
            f"Give them a directory of their own: --backup-dir {store.backup_dir.rstrip('/')}/backup",
        )
    for inner, outer in ((store.backup_dir, store.directory), (store.directory, store.backup_dir)):
        if inner == outer or Path(outer) in Path(inner).parents:
            raise Refused(
                f"The backups ({store.backup_dir}) and the store ({store.directory}) lie one inside the other.",
                "Keep them apart, so that what harms one spares the other: --backup-dir /srv/backup",
            )
    for path in (store.directory, store.backup_dir):
        if any(Path(own) in (Path(path), *Path(path).parents) for own in OWN_PLACES):
            raise Refused(f"{path} lies where memops or the system keeps its own files.", "Give another path.")
    if place := others_place(store.backup_dir):
        raise Refused(
            f"The backups would lie in {place}, which others than root can change.",
            "Give a place that is root's alone: --backup-dir /srv/backup",
        )
    for path in (store.directory, store.backup_dir):
        existing = next(p for p in (Path(path), *Path(path).parents) if p.exists())
        if not existing.is_dir():
            raise Refused(f"{path} cannot be reached: {existing} is not a directory.", "Give another path.")


def others_place(path: str) -> Path | None:
    """The first directory, of ``path`` and those above it, which others than root can change; None: root's alone.

    Whoever can change one of them decides where the path leads.
    """
    for place in (Path(path), *Path(path).parents):
        if not place.exists():
            continue
        status = place.stat()
        if status.st_uid != 0 or (status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX):
            return place
    return None


def file_system(store: Store) -> None:
    """Raise Refused for WAL on a network file system."""
    kind = host.file_system(store.directory)
    if store.journal_mode == "wal" and kind in NETWORK_FILE_SYSTEMS:
        raise Refused(
            f"{store.directory} is on a network file system ({kind}), where WAL corrupts a store.",
            "Move the store to a local disk, or leave its journal mode alone: --journal-mode keep",
        )


def textfile(store: Store) -> None:
    """Raise Refused when the metrics job could not, or must not, write where it is asked to."""
    if not store.textfile:
        return
    path = Path(store.textfile)
    if not path.parent.is_dir():
        raise Refused(
            f"There is no directory {path.parent}.",
            "Give the one node_exporter reads; on Debian --textfile /var/lib/prometheus/node-exporter/memops.prom",
        )
    for theirs in (store.directory, store.backup_dir):
        if Path(theirs) in (path.parent.resolve(), *path.parent.resolve().parents):
            raise Refused(f"{path} would lie in {theirs}.", "Give a directory of its own: --textfile FILE")
    entry = host.look(store.textfile)
    if entry is not None and not (host.read(store.textfile) or "").startswith("# HELP memops_"):
        raise Refused(f"{path} is there already, and memops did not write it.", "Give another name: --textfile FILE")


def passable(store: Store) -> None:
    """Raise Refused when the owner could not reach the incoming directory by its path."""
    for path in (Path(store.backup_dir), *Path(store.backup_dir).parents):
        if path.is_dir() and not path.stat().st_mode & 0o001:
            raise Refused(
                f"User {store.user} cannot pass {path}, and without namespaces the backup needs to.",
                f"Let others pass, not look: chmod o+x {path}",
            )


def apart(store: Store, others: Mapping[str, Store]) -> None:
    """Raise Refused when another store has the same database, or the backups of one lie with the data of another."""
    for other in others.values():
        if other.name == store.name:
            continue
        if other.db == store.db:
            raise Refused(
                f"{store.db} is looked after already, as the store {other.name}.",
                "Give another --db, or nothing at all.",
            )
        for backups, data in ((store, other), (other, store)):
            if Path(data.directory) in (Path(backups.backup_dir), *Path(backups.backup_dir).parents):
                raise Refused(
                    f"The backups of {backups.name} ({backups.backup_dir}) would lie beside the store {data.name}.",
                    "Keep them apart: --backup-dir /srv/backup",
                )
