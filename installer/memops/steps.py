"""The steps an installation is made of. Each says itself in one line, does itself, and says how to undo it first."""

from __future__ import annotations

import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memops import debian, host, jobs, owner, prune, systemd
from memops.errors import MemopsError
from memops.render import METRICS_UNITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from memops.render import File
    from memops.settings import Store


SCHEMA_SECONDS = 1800
"""How long an index may take to be made; for a million facts it takes half a minute on a busy server."""


class Undo(Protocol):
    """Takes what would undo the next change, before the change is made."""

    def __call__(self, title: str, action: Callable[[], object]) -> None:
        """Remember ``action``; ``title`` is said when it runs."""


class Step(Protocol):
    """One change to the machine."""

    @property
    def title(self) -> str:
        """What it does, in one line that begins with a verb."""

    def do(self, undo: Undo) -> str:
        """Make the change. Returns a remark for the owner, mostly empty. Raises MemopsError."""


@dataclass(frozen=True)
class WriteFile:
    """Write a root-owned file; ``old`` is the text it replaces (None: nothing is there)."""

    path: str
    file: File
    old: str | None
    old_mode: int = 0o644

    @property
    def title(self) -> str:
        """One line."""
        return f"{'write' if self.old is None else 'change'} {self.path}"

    def do(self, undo: Undo) -> str:
        """Write it."""
        if self.old is None:
            undo(f"remove {self.path}", lambda: host.remove(self.path))
        else:
            undo(f"put back {self.path}", lambda: host.write(self.path, self.old or "", self.old_mode))
        host.write(self.path, self.file.text, self.file.mode)
        return ""


@dataclass(frozen=True)
class RemoveFile:
    """Remove a file that an earlier version installed."""

    path: str
    old: str
    old_mode: int

    @property
    def title(self) -> str:
        """One line."""
        return f"remove {self.path}"

    def do(self, undo: Undo) -> str:
        """Remove it."""
        undo(f"put back {self.path}", lambda: host.write(self.path, self.old, self.old_mode))
        host.remove(self.path)
        return ""


@dataclass(frozen=True)
class StopServices:
    """Stop services whose units go: one that is up, as the agent's pause is, could do nothing at its end any more."""

    units: tuple[str, ...]

    @property
    def title(self) -> str:
        """One line."""
        return f"systemctl stop {' '.join(self.units)}"

    def do(self, _undo: Undo) -> str:
        """Stop them; they are started when they are needed."""
        host.run("systemctl", "stop", "--", *self.units, timeout=600, ok=None)
        return ""


@dataclass(frozen=True)
class MakeUsers:
    """Make the system users of /etc/sysusers.d/memops.conf."""

    names: tuple[str, ...]

    @property
    def title(self) -> str:
        """One line."""
        return f"make the system user {', '.join(self.names)}"

    def do(self, undo: Undo) -> str:
        """Let systemd-sysusers make them."""
        for name in self.names:
            undo(f"remove the user {name}", lambda name=name: host.run("userdel", name))  # type: ignore[misc]
        host.run("systemd-sysusers", "/etc/sysusers.d/memops.conf")
        return ""


@dataclass(frozen=True)
class MakeDirectory:
    """Make a directory, or set the mode and owner of one that is memops' own.

    ours: nothing but memops' own files lie in it, so undoing takes it away with what is in it.
    """

    path: str
    mode: int
    user: str = "root"
    group: str = "root"
    exists: bool = False
    ours: bool = False

    @property
    def title(self) -> str:
        """One line."""
        return f"{'set' if self.exists else 'make'} {self.path}/ ({self.user}:{self.group} {self.mode:04o})"

    def do(self, undo: Undo) -> str:
        """Make it."""
        uid = pwd.getpwnam(self.user).pw_uid
        # The primary group of a user is not always named like it.
        gid = 0 if self.group == "root" else pwd.getpwnam(self.group).pw_gid
        old = host.look(self.path)
        if old is None:
            undo(f"remove {self.path}/", lambda: host.remove_directory(self.path, whole=self.ours))
        else:
            undo(f"set {self.path}/ back", lambda: host.make_directory(self.path, old.mode, old.uid, old.gid))
        if old is not None and self.ours and old.uid not in (0, uid):
            # What lies in it is the former owner's (records, a copy on its way), which the new one could not read.
            host.remove_directory(self.path, whole=True)
        host.make_directory(self.path, self.mode, uid, gid)
        return ""


@dataclass(frozen=True)
class MakeStore:
    """Make an empty store as its owner."""

    store: Store
    schema: str

    @property
    def title(self) -> str:
        """One line."""
        return f"make an empty store {self.store.db}"

    def do(self, undo: Undo) -> str:
        """Make it."""
        undo(f"remove {self.store.db}", self._remove)
        owner.call(self.store, "create", self.schema)
        return ""

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            host.remove(self.store.db + suffix)


@dataclass(frozen=True)
class ChangeSchema:
    """Add what a store lacks (a view, indexes), or take it ``out``; never a column, never a row."""

    store: Store
    what: str
    script: str
    back: str
    out: bool = False
    asks: bool = True
    """Whether the owner is to agree first: the store was not made by memops, or it costs something."""

    @property
    def title(self) -> str:
        """One line."""
        return f"take {self.what} out of {self.store.db}" if self.out else f"add {self.what} to {self.store.db}"

    def do(self, undo: Undo) -> str:
        """Run the SQL as the owner."""
        again = f"add {self.what} again" if self.out else f"take {self.what} out again"
        undo(again, lambda: owner.call(self.store, "change_schema", self.back, timeout=SCHEMA_SECONDS))
        owner.call(self.store, "change_schema", self.script, timeout=SCHEMA_SECONDS)
        return ""


@dataclass(frozen=True)
class InstallPackage:
    """Install a package that is good to have; nothing of memops depends on it."""

    package: str
    purpose: str

    @property
    def title(self) -> str:
        """One line."""
        return f"install {self.package} ({self.purpose})"

    def do(self, _undo: Undo) -> str:
        """Install it; a failure is a remark."""
        if not debian.can_install():
            return (
                f"This machine has no apt. To look into the store, install {self.package} with its own package manager."
            )
        why = debian.install(self.package)
        return f"{self.package} could not be installed ({why}). Later: apt-get install {self.package}" if why else ""


@dataclass(frozen=True)
class Reload:
    """Let systemd read its unit files again."""

    title: str = "systemctl daemon-reload"

    def do(self, _undo: Undo) -> str:
        """Reload. Undoing needs no reload of its own: one runs after the files are back (see apply)."""
        host.run("systemctl", "daemon-reload")
        return ""


@dataclass(frozen=True)
class FirstBackup:
    """Run the backup once; go on only when its set was sealed."""

    store: Store

    @property
    def title(self) -> str:
        """One line."""
        return f"make and verify a first backup in {self.store.sets}/"

    def do(self, undo: Undo) -> str:
        """Start the backup unit and read root's record of the sets."""
        before = set(Path(self.store.sets).iterdir())
        undo("remove the first backup", lambda: self._remove(before))
        unit = self.store.unit("backup")
        ran = systemd.start(unit)
        seal = jobs.sets_record(self.store)
        result = seal and seal["seal"].get("result")
        if result == "guard" and set(Path(self.store.sets).iterdir()) - before:
            return (
                "The new set holds much less than the last one, so no old set goes until memops backup --accept-loss."
            )
        if ran.code or result != "done":
            raise MemopsError(
                f"The first backup failed: {jobs.last_words(self.store, ('snapshot', 'backup')) or ran.said}",
                f"See: journalctl -u {self.store.unit('snapshot')} -u {unit}",
            )
        if Path(self.store.directory).stat().st_dev == Path(self.store.sets).stat().st_dev:
            return (
                "The backups are on the same file system as the store: that protects from mistakes, not from the loss"
                " of the disk."
            )
        return ""

    def _remove(self, before: set[Path]) -> None:
        for path in set(Path(self.store.sets).iterdir()) - before:
            host.remove_directory(str(path), whole=True)


@dataclass(frozen=True)
class FirstSync:
    """Bring a ledger in line with the product for the first time; go on only when it could be read."""

    store: Store

    @property
    def title(self) -> str:
        """One line."""
        return f"write what there is into the ledger {self.store.db}"

    def do(self, undo: Undo) -> str:
        """Run the prune unit, which then does no more. The ledger goes with its own step."""
        undo("forget that it failed", self._quiet)
        prune.run(self.store, "sync")
        return ""

    def _quiet(self) -> None:
        # What it starts is about to lose its files, and would be known as failed for good.
        units = [self.store.unit(job) for job in ("prune", "digest")]
        names = (*units, *(f"memory-alert@{unit}.service" for unit in units))
        for name in names:
            host.run("systemctl", "stop", "--", name, ok=None)
        host.run("systemctl", "reset-failed", "--", *names, ok=None)


@dataclass(frozen=True)
class SwitchToWal:
    """Switch the store to WAL and believe only the mode it reports afterwards."""

    store: Store
    old: str

    @property
    def title(self) -> str:
        """One line."""
        return f"switch {self.store.db} to WAL (it was: {self.old})"

    def do(self, undo: Undo) -> str:
        """Switch it as the owner."""
        undo(f"switch the journal mode back to {self.old}", self._back)
        mode = owner.call(self.store, "set_journal_mode", "wal")
        if mode != "wal":
            raise MemopsError(
                f"{self.store.db} stays in journal mode {mode}: another process has it open and busy.",
                "Stop the agent for a moment, or leave the mode alone: --journal-mode keep",
            )
        return (
            "SQLite 3.7.0 to 3.51.2 has a rare fault when one process resets the WAL while another commits; the jobs"
            " keep to the automatic checkpoint and never run one of their own beside the agent."
        )

    def _back(self) -> None:
        mode = owner.call(self.store, "set_journal_mode", self.old)
        if mode != self.old:
            raise MemopsError(f"{self.store.db} stays in WAL mode: another process has it open")


@dataclass(frozen=True)
class EnableTimers:
    """Enable and start timers. From here on nothing is undone."""

    timers: tuple[str, ...]

    @property
    def title(self) -> str:
        """One line."""
        return f"systemctl enable --now {' '.join(self.timers)}"

    def do(self, undo: Undo) -> str:
        """Enable and start them."""
        undo("disable the timers", lambda: host.run("systemctl", "disable", "--now", *self.timers, ok=None))
        host.run("systemctl", "enable", "--now", *self.timers)
        return ""


@dataclass(frozen=True)
class StopTextfile:
    """Remove a file of the metrics job; with ``timer`` it was the last one, so that goes too."""

    path: str
    timer: str = ""

    @property
    def title(self) -> str:
        """One line."""
        return f"remove {self.path}" + (f" and disable {self.timer}" if self.timer else "")

    def do(self, undo: Undo) -> str:
        """Remove it. Undoing needs only the timer: it writes the file anew."""
        if self.timer:
            undo(f"enable {self.timer} again", lambda: host.run("systemctl", "enable", "--now", self.timer))
            host.run("systemctl", "disable", "--now", self.timer, ok=None)
        # A run under way would write the file once more.
        host.run("systemctl", "stop", METRICS_UNITS[0], ok=None)
        if (host.read(self.path) or "").startswith("# HELP memops_"):
            host.remove(self.path)
        return ""


@dataclass(frozen=True)
class RestartTimers:
    """Let running timers take up a changed schedule."""

    timers: tuple[str, ...]

    @property
    def title(self) -> str:
        """One line."""
        return f"systemctl try-restart {' '.join(self.timers)}"

    def do(self, undo: Undo) -> str:
        """Restart those that run."""
        undo("restart the timers", lambda: host.run("systemctl", "try-restart", *self.timers, ok=None))
        host.run("systemctl", "try-restart", *self.timers)
        return ""
