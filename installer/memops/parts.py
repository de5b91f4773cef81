"""The further parts of an agent's memory that are backed up with its store: how they are written and named."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memops import assets
from memops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS = tuple(sorted(path.stem for path in (assets.folder("jobs") / "kinds").glob("[!_]*.py")))
"""What --with understands: the modules of scripts/jobs/kinds."""

_SCHEMES = {"http": "qdrant", "https": "qdrant", "postgres": "postgres", "postgresql": "postgres"}
SERVERS = frozenset(_SCHEMES.values())
"""The kinds that a server can keep."""


@dataclass(frozen=True)
class Part:
    """One further part: its kind, where it is, and its name in a set.

    ``source`` is an absolute path, with ``/`` at its end where it is a directory, or the address of a server.
    """

    kind: str
    source: str
    name: str

    @property
    def server(self) -> bool:
        """Whether a server keeps it, so that the copy needs the network."""
        return "://" in self.source

    @property
    def directory(self) -> str:
        """The directory itself, or the one the file is in."""
        return self.source.rstrip("/") if self.source.endswith("/") else str(PurePosixPath(self.source).parent)

    @property
    def file(self) -> str:
        """The file's name; empty for a directory."""
        return "" if self.source.endswith("/") else PurePosixPath(self.source).name

    @property
    def text(self) -> str:
        """As memops.toml and --with have it."""
        return f"{self.kind}={self.source}"


def split(text: str) -> tuple[str, str]:
    """Kind and source of ``KIND=SOURCE``; the kind is empty where only a source was given. Raises UsageError."""
    kind, equals, source = text.partition("=")
    if equals and re.fullmatch(r"[a-z]+", kind):
        if kind not in KINDS:
            raise UsageError(f"--with {text!r}: {kind} is no kind of part.", f"Type one of: {', '.join(KINDS)}")
        return kind, source
    return "", text


def absolute(text: str) -> str:
    """``text`` of a --with with its path made absolute, or the kind that its address speaks of."""
    kind, source = split(text)
    if "://" in source:
        kind = kind or kind_of_url(source)
    elif source:
        source = re.sub("^//+", "/", str(Path(source).absolute()))
    return f"{kind}={source}" if kind else source


def kind_of_url(url: str) -> str:
    """The kind that an address speaks of; empty for another one."""
    return _SCHEMES.get(urlsplit(url).scheme, "")


def named(texts: Iterable[str]) -> tuple[Part, ...]:
    """The parts that these texts stand for, each with a name of its own, in their order."""
    parts: list[Part] = []
    taken = {"memory", "manifest"}
    for text in texts:
        kind, source = split(text)
        stem = kind if "://" in source else PurePosixPath(source).name.removesuffix(".db")
        slug = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:30] or kind
        name, number = slug, 1
        while name in taken:
            number += 1
            name = f"{slug}-{number}"
        taken.add(name)
        parts.append(Part(kind, source, name))
    return tuple(parts)
