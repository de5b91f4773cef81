#!/usr/bin/python3 -I
"""Take the memops bundle off this machine; installed as /usr/local/lib/memops/uninstall.

Standard library only, so that it works when the memops command itself does not. It goes by the manifest of what was
written, and without one by the names and first lines of memops' files. The stores, their sets and the system users
stay, unless --purge says otherwise. Doing it twice, or on half an installation, is fine.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import hashlib
import json
import os
import pwd
import signal
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import trees

if TYPE_CHECKING:
    from collections.abc import Callable

MANIFEST = "/etc/memops/manifest.json"
UNITS = "/etc/systemd/system"
MARK = "Written by memops "
JOBS = ("prune", "backup", "snapshot", "drill", "digest", "review")
TIMED = ("prune", "backup", "drill", "review")
HELPERS = ("alert", "mail", "ping", "metrics", "remote", "pause", "offsite")
OWN_DIRECTORIES = ("/usr/local/lib/memops", "/etc/memops", "/var/lib/memops", "/run/memops")
OTHER_FILES = (
    "/etc/tmpfiles.d/memops.conf",
    "/etc/sysusers.d/memops.conf",
    "/etc/bash_completion.d/memops",
    "/usr/local/share/man/man8/memops.8",
)

NO_SET = "No set is taken first, and those of the store go too: there is no way back."

FAILED, USAGE, REFUSED, NOT_PERMITTED = 1, 2, 3, 4


def stop(code: int, message: str, hint: str) -> NoReturn:
    """Say what is so and what to type, and exit."""
    print(f"Error: {message}\n{hint}", file=sys.stderr)
    sys.exit(code)


def read_manifest() -> dict[str, Any]:
    """The manifest's files, directories, users and stores; empty ones where it is missing or damaged."""
    empty: dict[str, Any] = {"files": {}, "directories": [], "users": [], "stores": {}}
    try:
        with open(MANIFEST, encoding="utf-8") as file:
            found = json.load(file)
        manifest = {key: type(value)(found.get(key, value)) for key, value in empty.items()}
        if not all(isinstance(entry, dict) for key in ("files", "stores") for entry in manifest[key].values()):
            raise ValueError("an entry is no object")
        return manifest
    except FileNotFoundError:
        return empty
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        print(f"{MANIFEST} cannot be read ({error}); going by the names of memops' files.", file=sys.stderr)
        return empty


def own_files(manifest: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The files to remove, and those a person changed, which are kept aside."""
    candidates = dict.fromkeys([*manifest["files"], *OTHER_FILES])
    for job in (*JOBS, *HELPERS):
        candidates |= dict.fromkeys(
            sorted(glob.glob(f"{UNITS}/memory-{job}*.service") + glob.glob(f"{UNITS}/memory-{job}*.timer"))
        )
    remove: list[str] = []
    edited: list[str] = []
    for path in candidates:
        if not os.path.lexists(path) or in_own_directory(path):
            continue
        entry = manifest["files"].get(path)
        text = None
        with contextlib.suppress(OSError), open(path, "rb") as file:
            text = file.read()
        if entry is None and MARK.encode() not in (text or b"").partition(b"\n")[0]:
            continue
        if entry is None or text is None:
            remove.append(path)
            continue
        # While an installation was on its way, `was` is the text it had not replaced yet.
        ours = hashlib.sha256(text).hexdigest() in (entry.get("sha256"), entry.get("was"))
        (remove if ours else edited).append(path)
    return remove, edited


def in_own_directory(path: str) -> bool:
    """Whether a path lies in a directory that goes as a whole."""
    return any(path.startswith(f"{directory}/") for directory in OWN_DIRECTORIES)


def unit_names(manifest: dict[str, Any], files: list[str]) -> list[str]:
    """Every unit of memops, timers first: what starts a job is stopped before the job."""
    names = {os.path.basename(path) for path in files if path.startswith(f"{UNITS}/")}
    # Of a template there are only instances, which are named by a pattern.
    names = {name.replace("@.", "@*.") for name in names}
    for store in manifest["stores"].values():
        for job in JOBS:
            names |= {f"memory-{job}{store.get('suffix', '')}.service"}
            names |= {f"memory-{job}{store.get('suffix', '')}.timer"} if job in TIMED else set()
    return sorted(names, key=lambda name: (not name.endswith(".timer"), name))


def systemctl(*arguments: str) -> str:
    """Run systemctl and return what it complained about; no systemd is no complaint."""
    if not os.path.isdir("/run/systemd/system"):
        return ""
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(
        ["systemctl", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return ran.stderr.strip() if ran.returncode else ""


def remove_bundle(manifest: dict[str, Any], remove: list[str], edited: list[str], directories: list[str]) -> list[str]:
    """Take the bundle away: stop, clean, remove, reload. Returns what is left, in sentences."""
    units = unit_names(manifest, remove + edited)
    stop_units([name for name in units if "*" in name or os.path.lexists(f"{UNITS}/{name}")])
    for path in edited:
        os.rename(path, f"{path}.memops-edited")
    for path in remove:
        with contextlib.suppress(OSError), trees.around(path) as (above, name):
            os.unlink(name, dir_fd=above)
    for directory in directories:
        remove_tree(directory)
    systemctl("daemon-reload")
    if units:
        systemctl("reset-failed", "--", *units)
    for name in units:  # systemctl disable cannot, when the unit's file is gone
        for link in glob.glob(f"{UNITS}/*.wants/{glob.escape(name)}"):
            os.unlink(link)
    return [f"{path} could not be removed." for path in (*remove, *directories) if os.path.lexists(path)]


def remove_tree(path: str) -> None:
    """Remove a directory, or what of it can be removed; what the agents may swap in there leads nowhere else."""
    with contextlib.suppress(OSError), trees.around(path) as (directory, name):
        trees.remove(name, directory)


def textfiles(manifest: dict[str, Any]) -> list[str]:
    """What the metrics job wrote; a file that begins in another way is somebody else's."""
    found = []
    for path in sorted({str(store.get("textfile") or "") for store in manifest["stores"].values()} - {""}):
        with contextlib.suppress(OSError), trees.around(path) as (directory, name):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(name, flags, dir_fd=directory), "rb") as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(14) == b"# HELP memops_":
                    found.append(path)
    return found


def stop_units(names: list[str]) -> None:
    """Disable and stop what is installed, and remove the timers' state."""
    timers = [name for name in names if name.endswith(".timer")]
    if timers:
        systemctl("disable", "--now", "--", *timers)
    if names:
        systemctl("stop", "--", *names)
    for timer in timers:
        # Persistent= keeps a stamp that would outlive the timer (man systemd.timer).
        systemctl("clean", "--what=state", "--", timer)


def purge(manifest: dict[str, Any]) -> list[str]:
    """Remove the stores, their sets and the users memops made. Returns what is left, in sentences."""
    left = []
    for name, store in manifest["stores"].items():
        as_owner(store, remove_store)
        sets = os.path.join(store["backup_dir"], name)
        remove_tree(sets)
        left += [f"{path} could not be removed." for path in (store["db"], sets) if os.path.lexists(path)]
    for user in manifest["users"]:
        with contextlib.suppress(KeyError):
            pwd.getpwnam(user)
            subprocess.run(["userdel", user], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return left


def remove_store(store: dict[str, Any], directory: int) -> None:
    """Remove a store's files from its directory, and what restores have set aside of them. Raises OSError."""
    base = os.path.basename(store["db"])
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(base + suffix, dir_fd=directory)
    for entry in os.listdir(directory):
        if entry.startswith((".restore-", "before-restore-")):
            with contextlib.suppress(OSError):
                trees.remove(entry, directory)


def as_owner(store: dict[str, Any], work: Callable[[dict[str, Any], int], None]) -> None:
    """Do ``work`` in the store's directory in a process that has the rights of the store's user only.

    Root leads to that directory, which its user may not be able to reach, by no link that others decide; where there is
    one, the user goes there alone. That user can stop the process, too, so it has ten minutes. Whoever calls looks what
    came of it.
    """
    with contextlib.ExitStack() as stack:
        try:
            directory = stack.enter_context(trees.reach(store["directory"]))
        except OSError:
            directory = -1
        identity = _identity(str(store.get("user", "")), directory)
        if identity is None:
            return
        uid, gid, groups = identity
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups(groups)
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
                if directory < 0:
                    directory = stack.enter_context(trees.reach(store["directory"]))
                work(store, directory)
            finally:
                os._exit(0)  # whatever it is, there is nobody to raise it to
    end = time.monotonic() + 600
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        time.sleep(0.01)


def _identity(name: str, directory: int) -> tuple[int, int, list[int]] | None:
    """The uid, gid and groups of a user, or of whose a directory is where nobody has that name any more."""
    try:
        user = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        if directory < 0:
            return None
        status = os.fstat(directory)
        return status.st_uid, status.st_gid, []
    return user.pw_uid, user.pw_gid, os.getgrouplist(user.pw_name, user.pw_gid)


def remove_made_directories(manifest: dict[str, Any]) -> None:
    """Remove the directories memops made, where they are empty now, innermost first."""
    for directory in sorted(manifest["directories"], key=len, reverse=True):
        with contextlib.suppress(OSError), trees.around(directory) as (outer, name):
            os.rmdir(name, dir_fd=outer)


def agree(stores: dict[str, Any], confirm: list[str]) -> None:
    """Let a person type each store's path before its data goes; off a terminal --confirm must name it."""
    for name, store in stores.items():
        path = store["db"]
        if path in confirm:
            continue
        if not sys.stdin.isatty():
            stop(
                REFUSED,
                f"--purge deletes {path} and its backups, and nobody is there to agree. {NO_SET}",
                f"Add: --confirm {path}",
            )
        typed = input(
            f"--purge deletes {path} and its sets in {store['backup_dir']}/{name}/.\n{NO_SET}\n"
            "Type the store's path to agree: "
        )
        if typed != path:
            stop(REFUSED, "That is not the store's path; nothing was changed.", f"Type it as it stands here: {path}")


def main() -> int:
    """Parse the command line, say what goes and what stays, do it, and look for leftovers."""
    arguments = parse()
    if os.geteuid() != 0:
        stop(NOT_PERMITTED, "This needs root.", "Type: sudo memops uninstall")
    manifest = read_manifest()
    remove, edited = own_files(manifest)
    remove += textfiles(manifest)
    incoming = {os.path.join(store["backup_dir"], "incoming") for store in manifest["stores"].values()}
    directories = [path for path in (*sorted(incoming), *OWN_DIRECTORIES) if os.path.lexists(path)]
    if not remove and not edited and not directories:
        print("Nothing to do: memops is not installed here.")
        return 0
    if arguments.dry_run:
        foretell(manifest, [*remove, *(f"{path}/" for path in directories)], edited, whole=arguments.purge)
        return 0
    if unfinished := glob.glob("/var/lib/memops/*.restore.json"):
        stop(
            REFUSED,
            f"A restore is under way, or was interrupted ({unfinished[0]}).",
            "Undo it first: sudo memops restore --undo",
        )
    if arguments.purge:
        agree(manifest["stores"], arguments.confirm)
    left = remove_bundle(manifest, remove, edited, directories)
    if arguments.purge:
        left += purge(manifest)
    remove_made_directories(manifest)
    print("The bundle is gone: its units, timers, scripts, settings and records.")
    report_kept(manifest, edited)
    for sentence in left:
        print(sentence, file=sys.stderr)
    return FAILED if left else 0


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="memops uninstall",
        description="Take the bundle away; the store, the backups and the system user stay.",
        epilog="Examples: sudo memops uninstall --dry-run; sudo memops uninstall; sudo memops uninstall --purge",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and change nothing")
    parser.add_argument(
        "--purge", action="store_true", help="delete the stores, their backups and the users memops made"
    )
    parser.add_argument(
        "--confirm", metavar="PATH", action="append", default=[], help="agree to purge this store off a terminal"
    )
    return parser.parse_args()


def foretell(manifest: dict[str, Any], remove: list[str], edited: list[str], *, whole: bool) -> None:
    """Print what a run would do."""
    for path in remove:
        print(f"would remove {path}")
    for path in edited:
        print(f"would keep {path} as {path}.memops-edited, since somebody changed it")
    for name, store in manifest["stores"].items():
        for path in (store["db"], os.path.join(store["backup_dir"], name)):
            print(f"would {'delete' if whole else 'keep'} {path}")
    if whole and manifest["stores"]:
        print(NO_SET)
    for user in manifest["users"]:
        print(f"would {'remove' if whole else 'keep'} the system user {user}")


def report_kept(manifest: dict[str, Any], edited: list[str]) -> None:
    """List what of the owner's is still there."""
    for name, store in manifest["stores"].items():
        sets = os.path.join(store["backup_dir"], name)
        for path in (store["db"], sets):
            if os.path.lexists(path):
                print(f"kept {path}")
    for user in manifest["users"]:
        with contextlib.suppress(KeyError):
            pwd.getpwnam(user)
            print(f"kept the system user {user}")
    for path in edited:
        print(f"kept {path}.memops-edited, since somebody changed it")
    for path in sorted(glob.glob(f"{UNITS}/memory-*.d")):
        print(f"kept {path}, which memops did not write")


if __name__ == "__main__":
    sys.exit(main())
