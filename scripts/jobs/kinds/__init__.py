"""The kinds of parts that a set can hold: one module each, with the same few operations. A new one is a new file."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any, Protocol, cast

import job

if TYPE_CHECKING:
    from collections.abc import Mapping

    import census


class Kind(Protocol):
    """What each module of this package offers."""

    def snapshot(self, source: str, target: str, limit: census.Limit) -> dict[str, Any]:
        """Copy ``source`` into the empty directory ``target``, as the store's owner, and return the claim.

        The claim is what JSON can carry: ``taken_at`` (``job.now()``), ``counts`` (what → how many), ``exact`` (nobody
        wrote meanwhile), and the kind's own. Raises JobError, OSError, sqlite3.Error.
        """

    def verify(self, directory: str, claim: Mapping[str, Any], limit: census.Limit) -> dict[str, Any]:
        """Check a copy that nobody else can reach, and whose content is untrusted, against ``claim``.

        Returns what the manifest says of it: ``counts`` and the kind's own; verifying later takes that for the claim.
        Leaves no file behind. Raises JobError.
        """

    def ids(self, directory: str) -> tuple[str, set[str]] | None:
        """``facts`` or ``vectors``, and the ids of them in a verified copy; None where the kind knows none."""

    def restore(self, directory: str, source: str, limit: census.Limit) -> None:
        """Put a part back into the server that keeps it. Kinds whose copy is files are put back by restore.py."""


def known() -> list[str]:
    """The names of the kinds; a module with an underscore before its name is what some of them share."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def load(kind: str) -> Kind:
    """The module of a kind. Raises JobError when there is none."""
    if kind not in known():
        raise job.JobError(f"{kind!r} is no kind of part that this memops knows")
    return cast("Kind", importlib.import_module(f"{__name__}.{kind}"))
