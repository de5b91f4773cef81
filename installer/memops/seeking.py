"""Where memory may be: what people named, what memops looks after, where products put theirs, what processes use.

Names and owners only; configuration files are read by their owners (probing.py).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memops import host, products
from memops.errors import MemopsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memops.processes import Process
    from memops.settings import Store

CONFIGURATIONS = (
    ".claude.json", ".claude/settings.json", ".mcp.json", ".config/Claude/claude_desktop_config.json",
    ".cursor/mcp.json",
    ".claude-mem/settings.json", ".basic-memory/config.json", ".mem0/config.json",
)  # fmt: skip
"""Files below a home in which products and their clients say where memory is."""

KEYS = ("autoMemoryDirectory", "CLAUDE_MEM_DATA_DIR", "path")
"""Keys of them, besides the products' variables."""

_SYSTEM = ("/usr/", "/var/lib/apt/", "/var/lib/dpkg/", "/var/cache/", "/var/log/", "/etc/", "/snap/", "/boot/")
_BROWSERS = re.compile(r"/(\.mozilla|\.config/(chromium|google-chrome)|\.cache|\.thunderbird|snap)/")
IN_MEMORY = (":memory:", "file::memory:")
"""What SQLite and products take for a database that is nowhere."""

_CODE = {"node_modules", "site-packages", "venv", "__pycache__", "snap"}
_MEMORY = re.compile(r"\.(db|sqlite3?|db3|jsonl)$")
_DATABASE = re.compile(r"\.(db|sqlite3?|db3)$")
_SIDECAR = re.compile(r"-(wal|shm|journal)$")


@dataclass(frozen=True)
class Place:
    """A path where memory may be, as ``process`` sees it (none: as everybody does), and how it came to notice.

    ``relative``: as it was configured, where it depends on a working directory. ``product``: what it would be.
    """

    path: str
    how: str
    process: Process | None = None
    relative: str = ""
    product: str = ""

    @property
    def root(self) -> str:
        """What comes before the path for us."""
        return self.process.root if self.process else ""


def cared_for(stores: Iterable[Store]) -> Iterator[Place]:
    """What memops looks after; of what another program keeps not the ledger, which is memops' own."""
    for store in stores:
        if not store.product:
            yield Place(store.db, "under care")
        for part in store.local_parts:
            yield Place(part.source.rstrip("/"), "under care")


def homes() -> dict[str, int]:
    """The homes of people and agents: directory → uid."""
    found = {}
    for user in pwd.getpwall():
        theirs = user.pw_uid == 0 or user.pw_uid >= 1000 or user.pw_dir.startswith(("/home/", "/srv/", "/opt/"))
        if theirs and user.pw_uid != 65534 and user.pw_dir not in ("", "/") and Path(user.pw_dir).is_dir():
            found[user.pw_dir] = user.pw_uid
    return found


def defaults(there: Mapping[str, int]) -> Iterator[Place]:
    """Where products put things when nothing is said."""
    for product in products.known().values():
        for place in product.places:
            if place.startswith("~/"):
                yield from (Place(f"{home}/{place[2:]}", "default", product=product.name) for home in there)
            elif place.startswith("/"):
                yield Place(place, "default", product=product.name)


BELOW = "below a home"


def below(there: Iterable[str]) -> Iterator[Place]:
    """What is named like a memory in the upper directories of homes, where agents are often left to run."""
    for home in there:
        left = 5_000
        for folder, inner, names in os.walk(home):
            depth = folder[len(home) :].count("/")
            left -= len(names) + len(inner)
            inner[:] = [name for name in inner if depth < 2 and name not in _CODE and not name.startswith(".")]
            if "chroma.sqlite3" in names or ({"meta.json"} & {*names} and os.path.isdir(f"{folder}/collection")):
                yield Place(folder, BELOW)
                inner.clear()
                continue
            yield from (Place(f"{folder}/{name}", BELOW) for name in names if _MEMORY.search(name))
            if left < 0:
                break


def by_process(processes: Iterable[Process]) -> Iterator[Place]:
    """What processes say by their variables, their working directory and their open files."""
    for process in processes:
        for product in products.known().values():
            yield from _by_variables(product, process.environment, process, f"environment of {_named(process)}")
            for place in product.places:
                if not place.startswith(("~", "/")) and process.uid >= 1000:
                    path = f"{process.directory}/{place}"
                    how = f"working directory of {_named(process)}"
                    yield Place(path, how, process, relative=place, product=product.name)
                elif place.startswith("/") and process.own_files:
                    yield Place(place, f"file system of {_named(process)}", process, product=product.name)
        for path in (*process.files, *process.deleted):
            if _is_database(path) and not path.startswith(_SYSTEM) and not _BROWSERS.search(path):
                yield Place(_SIDECAR.sub("", path), f"open in {_named(process)}", process)


def _named(process: Process) -> str:
    return process.unit or f"process {process.pid}"


def _is_database(path: str) -> bool:
    return bool(_DATABASE.search(_SIDECAR.sub("", path)))


def _by_variables(
    product: products.Product, environment: Mapping[str, str], process: Process | None, how: str
) -> Iterator[Place]:
    for name in product.environment:
        value = environment.get(name, "")
        if not value or "\0" in value:
            continue
        if value in IN_MEMORY:
            yield Place(value, f"{how}: {name}", process, product=product.name)
            continue
        path = value if value.startswith("/") else f"{process.directory}/{value}" if process else ""
        if path:
            relative = "" if value.startswith("/") else value
            yield Place(path, f"{how}: {name}", process, relative, product.name)


PORTS = (6333, 8000)
"""Where Qdrant, Chroma and mcp-memory-service listen when nothing is said."""


def servers() -> list[str]:
    """Addresses on this machine at which something listens that may keep memory."""
    ports = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
            # Local address, remote address, state: 0A is listening.
            ports |= {int(row.split()[1].rpartition(":")[2], 16) for row in rows if row.split()[3] == "0A"}
    return [f"http://127.0.0.1:{port}" for port in PORTS if port in ports]


def by_unit() -> Iterator[Place]:
    """What services that do not run would be told by Environment=. Where there is no systemd, nothing."""
    try:
        ran = host.run("systemctl", "show", "--property=Id,Environment", "*.service", ok=None)
    except MemopsError:
        return
    for block in ran.out.split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines())
        environment = dict(word.partition("=")[::2] for word in values.get("Environment", "").split(" "))
        for product in products.known().values():
            yield from _by_variables(product, environment, None, f"environment of {values.get('Id', '?')}")


def by_configuration(home: str, path: str, found: Mapping[str, str]) -> Iterator[Place]:
    """What a configuration file says: key → text."""
    names = {name: product.name for product in products.known().values() for name in product.environment}
    for key, value in found.items():
        place = value.replace("~", home, 1) if value.startswith("~/") else value
        if place.startswith("/"):
            yield Place(place, f"configuration {path}", product=names.get(key, ""))


def distinct(places: Sequence[Place]) -> list[Place]:
    """Each file or directory once, as it came to notice first; what is not there is left out."""
    found: dict[tuple[int, int], Place] = {}
    for place in places:
        try:
            status = os.stat(f"{place.root}{place.path}")
        except (OSError, ValueError):
            continue
        found.setdefault((status.st_dev, status.st_ino), place)
    return list(found.values())
