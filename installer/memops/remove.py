"""Taking away the bundle, or one of several stores from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from memops import apply, assets, host, manifest, plan, render, settings, systemd
from memops.errors import Refused
from memops.steps import Reload, RemoveFile, Step, Undo, WriteFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from memops.settings import Store


def everything(arguments: list[str]) -> NoReturn:
    """Become the uninstall script, which is also installed as /usr/local/lib/memops/uninstall."""
    # Beside it, as on a server, it finds trees.py; in this package that lies elsewhere.
    places = [str(assets.folder("jobs")), str(Path(__file__).parent)]
    program = f"import sys; sys.path += {places!r}; import uninstall; sys.exit(uninstall.main())"
    host.become("/usr/bin/python3", "-I", "-c", program, *arguments)


@dataclass(frozen=True)
class StopUnits:
    """Disable and stop a store's units, and remove its timers' state."""

    timers: tuple[str, ...]
    services: tuple[str, ...]

    @property
    def title(self) -> str:
        """What it does."""
        return f"stop {' '.join(self.timers)} and what they start"

    def do(self, undo: Undo) -> str:
        """Stop them, timers first."""
        shown = systemd.show(self.timers, "UnitFileState")
        enabled = [name for name, unit in shown.items() if unit["UnitFileState"] == "enabled"]
        if enabled:
            undo("enable the timers again", lambda: host.run("systemctl", "enable", "--now", "--", *enabled))
        host.run("systemctl", "disable", "--now", "--", *self.timers, ok=None)
        host.run("systemctl", "stop", "--", *self.services, ok=None)
        for timer in self.timers:
            host.run("systemctl", "clean", "--what=state", "--", timer, ok=None)
        return ""


@dataclass(frozen=True)
class SetAside:
    """Keep a file that somebody edited, under a name that nothing obeys."""

    path: str

    @property
    def title(self) -> str:
        """What it does."""
        return f"keep {self.path} as {self.path}.memops-edited, since somebody changed it"

    def do(self, undo: Undo) -> str:
        """Rename it."""
        aside = Path(f"{self.path}.memops-edited")
        undo(f"put back {self.path}", lambda: aside.rename(self.path))
        Path(self.path).rename(aside)
        return ""


@dataclass(frozen=True)
class RemoveDirectory:
    """Remove a directory of memops' own with what is in it; this cannot be undone, so it comes last."""

    path: str

    @property
    def title(self) -> str:
        """What it does."""
        return f"remove {self.path}/"

    def do(self, _undo: Undo) -> str:
        """Remove it."""
        return "" if host.remove_directory(self.path, whole=True) else f"{self.path} could not be removed."


def one_store_plan(store: Store) -> tuple[Step, ...]:
    """The steps that take one of several stores out: its units and files go, memops.toml and the manifest follow.

    Raises Refused while a restore is under way.
    """
    if host.look(store.restore_note) is not None:
        raise Refused(
            "A restore of this store is under way, or was interrupted.",
            f"Undo it first: sudo memops restore --undo --name {store.name}",
        )
    stores = {name: other for name, other in settings.load().items() if name != store.name}
    old_text = host.read(manifest.PATH) or ""
    old = manifest.read(old_text or None)
    gone = [path for path, entry in old.files.items() if entry.get("store") == store.name]
    # What the stores share and that names them.
    shared = {**render.alarm_files(stores), **render.metrics_files(stores)}
    shared[str(settings.SETTINGS_FILE)] = render.settings_file(stores)
    if not render.textfiles(stores):
        gone += [path for unit in render.METRICS_UNITS if (path := f"{render.UNIT_DIRECTORY}/{unit}") in old.files]
    texts = {path: text for path in (*gone, *shared) if (text := host.read(path)) is not None}
    changed = {path for path, text in texts.items() if not old.wrote(path, text)} - {str(settings.SETTINGS_FILE)}
    written = {path: file for path, file in shared.items() if path not in changed and texts.get(path) != file.text}
    files = {path: entry for path, entry in old.files.items() if path not in gone}
    files |= {path: manifest.entry(file) for path, file in written.items()}
    left = {name: entry for name, entry in old.stores.items() if name != store.name}
    record = manifest.Manifest(files, old.directories, old.users, left)
    stopped = plan.stopped_textfiles(old, render.textfiles(stores))
    return (
        StopUnits(store.timers, (*store.services, f"{store.ping_unit}*.service")),
        *(step for step in stopped if step.timer),
        *(_remove(path, texts[path], edited=path in changed) for path in gone if path in texts),
        *(WriteFile(path, file, texts.get(path)) for path, file in written.items()),
        WriteFile(manifest.PATH, render.File(record.text(), 0o600), old_text, 0o600),
        Reload(),
        *(step for step in stopped if not step.timer),
        *(
            _remove(path, host.read(path) or "", edited=False)
            for path in (store.sets_record, store.before_restore_file)
            if path == store.sets_record or host.look(path) is not None
        ),
        *(RemoveDirectory(path) for path in (f"/etc/memops/{store.name}", store.state, store.incoming)),
    )


def _remove(path: str, text: str, *, edited: bool) -> Step:
    entry = host.look(path)
    return SetAside(path) if edited else RemoveFile(path, text, entry.mode if entry else 0o644)


def one_store(store: Store, steps: tuple[Step, ...], say: Callable[[str], None]) -> list[str]:
    """Apply the plan and look again. Returns what is left, in sentences. The database and the sets stay."""
    remarks = apply.apply(steps, say)
    units = [*store.timers, *store.services]
    host.run("systemctl", "reset-failed", "--", *units, f"{store.ping_unit}*.service", ok=None)
    shown = systemd.show(units, "LoadState")
    loaded = [name for name, unit in shown.items() if unit["LoadState"] != "not-found"]
    return [*remarks, *(f"systemd still knows {name}: systemctl status {name}" for name in loaded)]
