"""Taking away the bundle, or one of several stores from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from memops import apply, assets, host, manifest, plan, render, settings
from memops.steps import RemoveFile, Step, WriteFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from memops.settings import Store


def everything(arguments: list[str]) -> NoReturn:
    """Become the uninstall script, which is also installed as /usr/local/lib/memops/uninstall."""
    script = str(assets.folder("jobs") / "uninstall.py")
    host.become("/usr/bin/python3", "-I", script, *arguments)


def one_store_plan(store: Store) -> tuple[Step, ...]:
    """The steps that take one of several stores out: its files go, memops.toml and the manifest follow."""
    stores = {name: other for name, other in settings.load().items() if name != store.name}
    old_text = host.read(manifest.PATH) or ""
    old = manifest.read(old_text or None)
    gone = [path for path, entry in old.files.items() if entry.get("store") == store.name]
    toml = str(settings.SETTINGS_FILE)
    # What the stores share and that names them.
    shared = {**render.metrics_files(stores), toml: render.settings_file(stores)}
    if not render.textfiles(stores):
        gone += [path for unit in render.METRICS_UNITS if (path := f"{render.UNIT_DIRECTORY}/{unit}") in old.files]
    files = {path: entry for path, entry in old.files.items() if path not in gone}
    files |= {path: manifest.entry(file) for path, file in shared.items()}
    record = manifest.Manifest(
        files, old.directories, old.users, {name: entry for name, entry in old.stores.items() if name != store.name}
    )
    removals = [
        RemoveFile(path, text, entry.mode)
        for path in gone
        if (text := host.read(path)) is not None and (entry := host.look(path)) is not None
    ]
    return (
        *plan.stopped_textfiles(old, render.textfiles(stores)),
        *removals,
        *(WriteFile(path, file, host.read(path)) for path, file in shared.items()),
        WriteFile(manifest.PATH, render.File(record.text(), 0o600), old_text, 0o600),
    )


def one_store(store: Store, steps: tuple[Step, ...], say: Callable[[str], None]) -> None:
    """Stop a store's jobs and take its part of the bundle away; the database and the sets stay."""
    units = [*store.timers, *(store.unit(job) for job in store.jobs), f"{store.ping_unit}*.service"]
    host.run("systemctl", "disable", "--now", "--", *store.timers, ok=None)
    host.run("systemctl", "stop", "--", *units, ok=None)
    for timer in store.timers:
        host.run("systemctl", "clean", "--what=state", "--", timer, ok=None)
    apply.apply(steps, say)
    for path in (f"/etc/memops/{store.name}", store.state, store.incoming):
        host.remove_directory(path, whole=True)
    host.remove(store.seal_record)
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "reset-failed", "--", *units, ok=None)
