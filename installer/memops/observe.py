"""How the machine is now, as far as a plan depends on it."""

from __future__ import annotations

import pwd
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memops import debian, host, jobs, manifest, systemd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memops.look import Facts


@dataclass(frozen=True)
class Observed:
    """Texts and entries by path (absent: nothing there), users and their uids, unit states, and memops' own records."""

    texts: dict[str, str] = field(default_factory=dict)
    entries: dict[str, host.Entry] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    units: dict[str, dict[str, str]] = field(default_factory=dict)
    manifest: manifest.Manifest = field(default_factory=manifest.Manifest)
    newest_set: dict[str, Any] | None = None
    sqlite3: bool = False
    apt: bool = False


def observe(facts: Facts, files: Iterable[str], directories: Iterable[str]) -> Observed:
    """Look at these paths, the store's units and memops' records. Changes nothing."""
    old = manifest.read(host.read(manifest.PATH))
    paths = [*files, *old.files, *(f"{path}.memops-new" for path in old.files), manifest.PATH]
    entries = {path: entry for path in [*paths, *directories] if (entry := host.look(path)) is not None}
    users = {user.pw_name: user.pw_uid for user in pwd.getpwall()}
    seal = jobs.sets_record(facts.store)
    return Observed(
        texts={path: text for path in paths if (text := host.read(path)) is not None},
        entries=entries,
        users=users,
        units=systemd.show(facts.store.timers, "UnitFileState", "ActiveState", "NeedDaemonReload"),
        manifest=old,
        newest_set=seal["newest"] if seal else None,
        sqlite3=host.has("sqlite3"),
        apt=debian.can_install(),
    )
