"""Where good sets are handed to, away from the machine: how it is written, and whether this machine is ready for it.

``check_text`` is pure. ``check`` looks at files and directories and changes nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memops import host, places
from memops.errors import Refused, UsageError

if TYPE_CHECKING:
    from memops.settings import Store

TOOLS = ("restic", "rclone")
"""Programs; the Debian packages are named as they are."""

EXAMPLE = "Type for example --offsite restic=/mnt/disk/memory or --offsite rclone=REMOTE:PATH"
_REMOTE = re.compile(r"(\w[\w.+@ -]*):[^:]*")
_HIDDEN = ("/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/tmp", "/usr", "/var/lib/memops", "/var/tmp")  # noqa: S108
"""What the job cannot see, or must not write to."""


def local(offsite: str) -> str:
    """The directory of this machine that ``--offsite`` names; empty for what is elsewhere."""
    address = offsite.partition("=")[2]
    return address if address.startswith("/") else ""


def check_text(offsite: str, environment: str) -> None:
    """Raise UsageError for what is right on no machine. ``environment``: the path of the file with the secrets."""
    tool, _, address = offsite.partition("=")
    if not offsite:
        if environment:
            raise UsageError("--offsite-env is given, but not what it is for.", EXAMPLE)
        return
    if tool not in TOOLS or "=" not in offsite:
        raise UsageError(f"--offsite {offsite!r} begins with neither restic= nor rclone=.", EXAMPLE)
    for option, value in (("--offsite", address), ("--offsite-env", environment)):
        if any(c in "\"'\\" or not c.isprintable() for c in value):
            raise UsageError(f"{option} holds a quote, a backslash or a control character.", "Give another one.")
    # Without the address, of which a part is a secret.
    if "://" in address and urlsplit(address[address.index("://") - 1 :]).password is not None:
        raise UsageError(
            "The repository's address holds a password, which everybody would see in the unit.",
            "Put RESTIC_REPOSITORY=… into the file of --offsite-env, and type only: --offsite restic=",
        )
    if environment and not environment.startswith("/"):
        raise UsageError(f"--offsite-env {environment!r} is not an absolute path.", "Give the whole path.")
    if tool == "restic":
        _check_repository(address, environment)
    elif not address.startswith("/") and not _REMOTE.fullmatch(address):
        raise UsageError(f"--offsite {offsite!r} names no remote of rclone's.", EXAMPLE)


def _check_repository(address: str, environment: str) -> None:
    if address.startswith("local:") or not re.match(r"/|[a-z][a-z0-9]*:|$", address):
        raise UsageError(
            f"--offsite restic={address!r} is neither a whole path nor an address of restic's.",
            "Type for example --offsite restic=/mnt/disk/memory or --offsite restic=s3:s3.amazonaws.com/BUCKET",
        )
    if not environment:
        raise UsageError(
            "restic needs a password, and it comes from a file.",
            "Write RESTIC_PASSWORD=… into a file of root's, mode 0600, and type: --offsite-env /etc/memops/offsite.env",
        )


def check(store: Store) -> list[str]:
    """Raise Refused when the sets could not be handed over, or not safely; return what the owner should know."""
    if not store.offsite:
        return []
    tool, _, address = store.offsite.partition("=")
    if not host.has(tool):
        raise Refused(f"The program {tool} is not on this machine.", f"Install it: sudo apt-get install {tool}")
    environment = _environment(store.offsite_env) if store.offsite_env else {}
    path = local(store.offsite)
    notes = _check_directory(store, path) if path else []
    if tool == "restic":
        _check_restic(address, environment, store.offsite_env)
        return notes
    if path:
        return [*notes, f"rclone copies the sets as they are: every fact can be read in {path}."]
    return [*notes, *_check_remote(address.partition(":")[0], environment, store.offsite_env)]


def _environment(path: str) -> dict[str, str]:
    """The variables that root's file sets. Raises Refused when others than root could read or change it."""
    entry = host.look(path)
    if entry is None:
        raise Refused(f"There is no file {path}.", f"Make it, then write the secrets into it: {_make(path)}")
    if entry.kind != "file" or entry.uid != 0 or entry.mode & 0o077:
        raise Refused(
            f"{path} holds secrets and has to be a plain file of root's that nobody else may read.",
            f"Type: sudo chown root: {path} && sudo chmod 600 {path}",
        )
    _only_roots(str(Path(path).parent))
    lines = (line.strip() for line in (host.read(path) or "").splitlines())
    pairs = (line.split("=", 1) for line in lines if "=" in line and line[0] not in "#;")
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}


def _make(path: str) -> str:
    return f"sudo install -m 600 /dev/null {path}"


def _only_roots(path: str) -> None:
    if place := places.others_place(path):
        raise Refused(f"{place} can be changed by others than root.", "Give a place that is root's alone.")


def _check_directory(store: Store, path: str) -> list[str]:
    for theirs in (store.directory, store.backup_dir, *(p.directory for p in store.all_parts if not p.server)):
        if _inside(path, theirs) or _inside(theirs, path):
            raise Refused(
                f"{path} and {theirs} lie one inside the other.",
                "Give a directory of another disk, where what harms the machine does not reach.",
            )
    if hidden := next((top for top in _HIDDEN if _inside(path, top)), ""):
        raise Refused(
            f"{path} lies in {hidden}, which the job cannot write to.", "Give a directory such as /mnt/disk/memory"
        )
    entry = host.look(path)
    if entry is None or entry.kind != "directory":
        raise Refused(f"There is no directory {path}.", f"Mount its disk, or make it: sudo mkdir -m 700 {path}")
    _only_roots(path)
    existing = next(p for p in (Path(store.backup_dir), *Path(store.backup_dir).parents) if p.exists())
    if Path(path).stat().st_dev == existing.stat().st_dev:
        return [f"{path} is on the same disk as the backups: it does not help when that disk is lost."]
    return []


def _inside(path: str, directory: str) -> bool:
    return Path(directory) in (Path(path), *Path(path).parents)


def _check_restic(address: str, environment: dict[str, str], file: str) -> None:
    if not any(environment.get(f"RESTIC_PASSWORD{kind}") for kind in ("", "_FILE", "_COMMAND")):
        raise Refused(f"{file} does not set RESTIC_PASSWORD.", f"Write a line RESTIC_PASSWORD=… into {file}")
    repository = environment.get("RESTIC_REPOSITORY", "")
    if not address and not repository and "RESTIC_REPOSITORY_FILE" not in environment:
        raise Refused(f"Neither --offsite nor {file} names a repository.", EXAMPLE)
    if not address and repository.startswith("/"):
        raise Refused(
            "The repository is a directory of this machine, so the unit has to name it.",
            f"Type: --offsite restic={repository}",
        )


def _check_remote(remote: str, environment: dict[str, str], file: str) -> list[str]:
    variable = f"RCLONE_CONFIG_{remote.upper()}_TYPE"
    kind = environment.get(variable)
    if kind is None and not environment.get("RCLONE_CONFIG"):
        where = file or "the file of --offsite-env"
        raise Refused(f"Nothing says what rclone's remote {remote} is.", f"Write a line {variable}=… into {where}")
    if kind == "local":
        raise Refused(
            f"The remote {remote} is a directory of this machine, so the unit has to name it.",
            "Type: --offsite rclone=/PATH",
        )
    if kind == "crypt":
        return []
    return [f"rclone copies the sets as they are: every fact can be read at {remote}, unless that is a crypt remote."]
