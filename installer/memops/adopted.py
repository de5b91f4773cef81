"""What follows from a store's being kept by another program: where its ledger is, and how its hand is started. Pure.

own: a plain SQLite table that got the columns which it lacked, and views with memops' names over it. ledger: a database
of memops' own beside the product, which deletes what has ended. observe: the same, and nothing is deleted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memops import products
from memops.errors import MemopsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memops.products import Product
    from memops.settings import Store

SYSTEM_PYTHON = "/usr/bin/python3"

LEVELS = {
    "own": "its table gets the columns and views that memops needs, and memops deletes what has ended",
    "ledger": "dates are kept in a ledger of memops' own, and the product itself deletes what has ended",
    "observe": "dates are kept in a ledger of memops' own, backups are made, and nothing is deleted or changed",
}
"""What each level does to a store, in a sentence."""

READS_ONLY = ("notes", "graph")
"""Hands that only ever read plain files; beside a SQLite file even a reader leaves files."""


def ledger(name: str) -> str:
    """Where a store's ledger is: apart from memops' records, which go when memops goes."""
    return f"/var/lib/memops-ledgers/{name}/memory.db"


def product(store: Store) -> Product:
    """The product that keeps a store. Raises MemopsError for one that this memops does not know."""
    found = products.known().get(store.product)
    if found is None:
        raise MemopsError(
            f"This memops does not know {store.product}, which keeps the store {store.name}.",
            f"Use the version that adopted it, or let it go: sudo memops release {store.name}",
        )
    return found


def hand(store: Store) -> str:
    """The program that reads it: the product's, or at the level observe the one for its rows."""
    return product(store).hand or "rows"


def needs_library(known: Product, config: Mapping[str, str]) -> bool:
    """Whether the hand runs the product's own library, so that the agent's Python must have it."""
    return known.hand in ("mem0", "chroma") or (known.hand == "mcp_memory" and "url" not in config)


def python(store: Store) -> str:
    """What the hand runs with."""
    return store.python or SYSTEM_PYTHON


def speaks(store: Store) -> bool:
    """Whether the product is a server."""
    return "url" in store.config


def is_local(store: Store) -> bool:
    """Whether that server is on this machine."""
    return urlsplit(store.config["url"]).hostname in ("localhost", "127.0.0.1", "::1")


def pauses(store: Store) -> bool:
    """Whether the agent is stopped while the hand works: the product holds the store for itself."""
    return bool(store.agent_unit) and product(store).alone and not speaks(store)


def options(store: Store) -> list[str]:
    """What ledger.py is told about the store, as words of a command line."""
    return [
        *("--name", store.name, "--level", store.level, "--hand", hand(store), "--python", python(store)),
        *("--config", config_file(store), "--sql", f"/etc/memops/{store.name}/prune.sql", "--state", store.state),
    ]


def config_file(store: Store) -> str:
    """Where the hand's configuration is: expressions of SQL are among it, which no unit file can carry."""
    return f"/etc/memops/{store.name}/hand.json"


def config(store: Store) -> str:
    """What is in that file."""
    known = product(store)
    rows = {**known.rows, "title": known.title} if hand(store) in ("rows", "notes") else {}
    return json.dumps({**rows, **store.config}, indent=1, sort_keys=True) + "\n"


def writable(store: Store) -> tuple[str, ...]:
    """The product's directories that the hand may write in."""
    directories = {part.directory for part in store.local_parts}
    return () if hand(store) in READS_ONLY else tuple(sorted(directories))


def walls(store: Store) -> Iterator[str]:
    """Properties of a unit in which the hand works beside a command, where they differ from those of every job."""
    if store.strict:
        yield "ProtectHome=read-only"
        yield from (f'ReadWritePaths="-{path}"' for path in writable(store))
        yield f"ReadWritePaths={store.state}"
        if product(store).alone:
            yield "PrivateUsers=no"
    if python(store) != SYSTEM_PYTHON:
        yield from ("MemoryDenyWriteExecute=no", "MemoryMax=4G", "SystemCallFilter=@network-io")
        yield "RestrictAddressFamilies=AF_UNIX"
    if speaks(store):
        yield from _network(store)
    for name in store.secrets:
        yield f"LoadCredential={name}:{store.secret_file(name)}"
        yield f"Environment=MEMOPS_PART={name}"
    if pauses(store):
        yield f"Requires={store.unit('pause')}"
        yield f"After={store.unit('pause')}"


def _network(store: Store) -> Iterator[str]:
    """The way to the product's server."""
    yield from ("SystemCallFilter=@network-io", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX")
    yield "IPAddressAllow=localhost" if is_local(store) else "IPAddressDeny="
    if store.strict:
        yield "PrivateNetwork=no"
        # Whatever finds names there.
        yield "BindReadOnlyPaths=-/run/systemd/resolve"


def in_words(store: Store) -> str:
    """Who keeps the store and what memops does there, for memops.toml."""
    known = products.known().get(store.product)
    return f"{known.title if known else store.product}, level {store.level}: {LEVELS[store.level]}."
