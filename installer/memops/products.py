"""The products whose memory memops knows: one small file each in products/, read here."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("products")
LEVELS = ("own", "ledger", "observe")


@dataclass(frozen=True)
class Part:
    """A file or directory that the product keeps.

    ``file`` is its name (a pattern as fnmatch has it, ``/`` at the end of a directory) below one of the product's
    places. ``tables`` are what tells a SQLite file of the product's from another: table → columns that it has at
    least. ``retrieval`` is whether what the agent recalls comes from here. ``dates``: column of the memories →
    format.
    """

    what: str
    kind: str
    file: str
    tables: dict[str, list[str]] = field(default_factory=dict)
    retrieval: bool = False
    optional: bool = False


@dataclass(frozen=True)
class Text:
    """A column that holds what was remembered: ``role`` is ``memories``, ``change log``, ``queue``, ``index``,
    ``messages`` …
    """

    table: str
    column: str
    role: str
    id: str = ""
    where: str = ""


@dataclass(frozen=True)
class Product:
    """One product. ``name`` is the file's, ``title`` what people say.

    ``level`` is what ``memops adopt`` does with it, and ``why`` is told. ``python`` and ``npm`` are its packages.
    ``environment`` are variables that name a file or directory of it, ``places`` where it puts things when nothing
    is said (``~`` is the home of whoever runs it; relative: to the working directory). ``alone`` is whether the
    product holds the store while it runs. ``hand`` is the module in scripts/jobs/hands that lists and deletes
    memories; empty: nothing is deleted. ``keys`` are the ``false_alarms`` of foreign_key_check, ``child.parent``.
    ``rows``, where memories are rows of a SQLite table, says how to read them: ``table``, ``id``, ``text``,
    ``created``, and perhaps ``updated``, ``expires``, ``subject``, ``source``, ``live`` (a condition), each of them
    an expression of SQL. ``journal`` is the journal mode that the product itself sets; ``keys_off`` is whether it
    declares foreign keys and never switches them on. ``mend``: of a part (its ``what``), the text of the product's
    configuration that puts it at ``{path}`` (in ``{directory}``); ``mend.where``: where that text goes.
    """

    name: str
    title: str
    level: str
    why: str
    parts: tuple[Part, ...]
    texts: tuple[Text, ...] = ()
    python: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    alone: bool = False
    hand: str = ""
    false_alarms: tuple[str, ...] = ()
    rows: dict[str, str] = field(default_factory=dict)
    journal: str = ""
    keys_off: bool = False
    mend: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)


@cache
def known() -> dict[str, Product]:
    """All products, by name."""
    return {path.stem: parse(path.stem, path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml"))}


def parse(name: str, text: str) -> Product:
    """A product from its file. Raises TypeError and ValueError for what is no such file."""
    given = tomllib.loads(text)
    parts = tuple(Part(**each) for each in given.pop("part", ()))
    texts = tuple(Text(**each) for each in given.pop("text", ()))
    lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    product = Product(name=name, parts=parts, texts=texts, **{**given, **lists})
    if product.level not in LEVELS:
        raise ValueError(f"{name}: level {product.level!r} is not one of {', '.join(LEVELS)}")
    return product
