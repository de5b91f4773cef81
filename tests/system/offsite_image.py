"""The layer with the real restic and rclone from Debian, for the tests of the copies away from the machine."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from system import images

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = "restic rclone"


@functools.cache
def with_tools(suite: str) -> tuple[Path, ...]:
    """The layers of a server that has restic and rclone besides what ``images.with_venv`` has, lowest first."""
    lower = images.with_venv(suite)

    def build(target: Path) -> None:
        script = f"apt-get update -qq && apt-get install -qqy --no-install-recommends {PACKAGES}"
        images._layer(lower, target, script)

    key = images._hash(PACKAGES, *map(images._identity, lower))
    return (*lower, images._cached(f"offsite-{suite}-{key}", build))


@functools.cache
def with_command(suite: str) -> tuple[Path, ...]:
    """Those layers, and the command of this checkout on top of them, which touches none of the packages' files."""
    return (*with_tools(suite), images.with_command(suite)[-1])
