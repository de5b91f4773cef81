"""Findings on where a store lies: places that are emptied, replaced, or shared over a network. Pure.

The mend is written out: where to, the commands, and the product's own configuration.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from memops import places, products
from memops.finding_text import as_owner, parent, quoted, start, stop, title, user_of
from memops.found import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memops.found import Found, Part

VOLATILE = ("tmpfs", "ramfs", "devtmpfs")
"""File systems that are in memory."""

TMP, VAR_TMP, SHM = "/tmp", "/var/tmp", "/dev/shm"  # noqa: S108 - told of, not written to

_EMPTIED = {
    TMP: "which is emptied at boot, and on newer systems of what was not used for ten days",
    VAR_TMP: "where files go after thirty days without a use",
    SHM: "which is in memory",
    "/run": "which is emptied at boot",
}

_PACKAGES = (
    *("site-packages", "dist-packages", "node_modules", "__pypackages__", "_npx", ".npm", ".cache", "pipx/venvs"),
    *("uv/tools", "uv/archive-v0", "/var/cache"),
)
"""Directories that an installer replaces as a whole, or that anybody may empty."""

_LOCAL_FUSE = ("fuse.fuse-overlayfs", "fuse.lxcfs")

_DATABASES = ("sqlite", "qdrant", "chroma")
"""Kinds of parts with SQLite in them."""

REBUILT = ("index", "queue")
"""Parts that a product makes anew from the others."""


def judge(found: Found) -> Iterator[Finding]:
    """What is wrong about where a store's parts are."""
    if found.path == ":memory:":
        yield _in_memory(found)
    for part in found.parts:
        placed = _on_tmp(found, part) or _in_package(found, part)
        if placed:
            yield placed
        if found.relative and part is found.parts[0] and not placed:
            yield _relative(found, part)
        if problem := _network(part):
            yield problem


def is_lost(found: Found) -> bool:
    """Whether a part lies where it will be lost: nothing is to be adopted there."""
    placed = (_on_tmp(found, part) or _in_package(found, part) for part in found.parts if part.what not in REBUILT)
    return found.path == ":memory:" or any(placed)


def _level(part: Part) -> str:
    return "warning" if part.what in REBUILT else "error"


def _on_tmp(found: Found, part: Part) -> Finding | None:
    place = next((place for place in _EMPTIED if f"{part.path}/".startswith(f"{place}/")), "")
    alone = found.namespace and place in (TMP, VAR_TMP)
    if alone:
        what = f"The {part.what} lie in the {place} that {quoted(found.namespace)} alone has: it goes when that stops."
    elif part.file_system in VOLATILE:
        what = f"The {part.what} lie in memory ({part.file_system}), and are gone at the next boot."
    elif place:
        what = f"The {part.what} lie in {place}, {_EMPTIED[place]}."
    else:
        return None
    return Finding("on-tmp", _level(part), part.path, _grammar(part, what), _MOVE, _moved(found, part))


def _in_package(found: Found, part: Part) -> Finding | None:
    folder = next((name for name in _PACKAGES if f"/{name.lstrip('/')}/" in f"{part.path}/"), "")
    if not folder or (folder.startswith("/") and not part.path.startswith(folder)):
        return None
    what = f"The {part.what} lie in {folder}, which goes when the package is updated or the cache emptied."
    return Finding("in-package", _level(part), part.path, _grammar(part, what), _MOVE, _moved(found, part))


_MOVE = "Move it, and tell the product, as written below."


def _relative(found: Found, part: Part) -> Finding:
    directories = sorted({holder.directory for holder in found.holders if holder.directory})
    where = f" (now {quoted(directories[0])})" if len(directories) == 1 else ""
    what = (
        f"The path is configured as {quoted(found.relative)}: started in another directory{where}, the agent begins"
        " with an empty memory."
    )
    return Finding(
        "relative-path", "warning", part.path, what, "Configure the whole path.", _configured(found, part, part.path)
    )


def _in_memory(found: Found) -> Finding:
    known = products.known().get(found.product)
    part = known.parts[0] if known and known.parts else None
    user = next((holder.user for holder in found.holders if holder.user), "agent")
    path = f"/srv/{user}/{part.file.strip('/') if part and '*' not in part.file else found.product + '.db'}"
    what = f"{title(found.product)} keeps this memory in the process only: all of it is gone when that ends."
    lines = (
        f"sudo install -d -o {quoted(user)} -m 0700 {quoted(parent(path))}",
        *_configuration(found.product, part.what if part else "memories", path),
        *stop(found),
        *start(found),
    )
    return Finding("in-memory", "error", ":memory:", what, "Give it a file, as written below.", lines)


def _network(part: Part) -> Finding | None:
    kind = part.file_system
    fuse = kind.startswith("fuse.") and kind not in _LOCAL_FUSE
    if part.kind not in _DATABASES or (kind not in places.NETWORK_FILE_SYSTEMS and not fuse):
        return None
    wal = (part.database is not None and part.database.journal_mode == "wal") or "-wal" in part.sidecars
    what = f"The {part.what} lie on {kind}, where SQLite's locks are not to be relied on"
    what += ", and its WAL corrupts the database." if wal else "."
    do = f"Move it to a disk of this machine, with the agent stopped: see df {quoted(parent(part.path))}"
    return Finding("network-file-system", "error" if wal else "warning", part.path, _grammar(part, what), do)


def _grammar(part: Part, what: str) -> str:
    """One word for a part is in the singular."""
    if part.what in ("change log", "index", "queue"):
        return what.replace(" lie ", " lies ", 1).replace(", and are gone", ", and is gone", 1)
    return what


def _target(part: Part) -> str:
    owner = user_of(part)
    name = PurePosixPath(part.path).name
    return f"/srv/{'agent' if owner.isdigit() or owner == 'root' else owner}/{name}"


def _moved(found: Found, part: Part) -> tuple[str, ...]:
    """The commands that move a part to a place of its own, and the configuration for it."""
    target, owner = _target(part), user_of(part)
    directory = parent(target)
    whole = part.kind in ("qdrant", "chroma") or part.path.endswith("/")
    source = part.path.rstrip("/")
    kept: tuple[str, ...] = ()
    unit = found.namespace if found.namespace.endswith(".service") else ""
    if unit and source.startswith((f"{TMP}/", f"{VAR_TMP}/")):
        # A copy after the stop comes too late, one before it is of files that change. A rename within the file system
        # leaves them as they are under whoever has them open.
        top = TMP if source.startswith(f"{TMP}/") else VAR_TMP
        private = f"{top}/systemd-private-*-{quoted(unit)}-*{quoted(TMP + source.removeprefix(top))}"
        moved = f"{top}/memops-kept"
        move = f"mkdir -m 0700 {moved} && mv -t {moved} {private}" + ("" if whole else "*")
        move += f" && chown {quoted(owner)} {moved}"
        kept = (
            f"# The service's own {top} goes when it stops, so this comes out of it first.",
            f"sudo bash -c {quoted(move)}",
        )
        source = f"{moved}/{PurePosixPath(source).name}"
    elif found.namespace:
        source = part.seen.rstrip("/")
    # As the owner, who may have laid links on the way.
    if whole:
        copy = f"{as_owner(part)} cp -aT {quoted(source)} {quoted(target)}"
    else:
        # With the files that SQLite may have left beside it.
        copy = f"{as_owner(part)} bash -c {quoted(f'cp -a -t {quoted(directory)} {quoted(source)}*')}"
    return (
        f"sudo install -d -o {quoted(owner)} -m 0700 {quoted(directory)}",
        *kept,
        *stop(found),
        copy,
        *_configured(found, part, target),
        *start(found),
        f"# When the agent has its memory again, the old one can go: {quoted(source)}",
    )


def _configured(found: Found, part: Part, path: str) -> tuple[str, ...]:
    return _configuration(found.product, part.what, path)


def _configuration(product: str, what: str, path: str) -> tuple[str, ...]:
    """The product's own words for where a part is."""
    known = products.known().get(product)
    template = known.mend.get(what, "") if known else ""
    if not known or not template:
        return (f"# Wherever the agent is told the path: {quoted(path)}",)
    plain = path if path.isprintable() else quoted(path)
    inside = json.dumps(plain, ensure_ascii=False)[1:-1]
    text = template.replace("{path}", inside).replace("{directory}", parent(inside))
    return (f"# {known.title}, {known.mend.get('where', 'in its configuration')}:", text)
