"""A layer for servers on which products run whose memory is backed up: Qdrant, Chroma, mem0, sqlite-vec, PostgreSQL.

The libraries lie in /opt/products, a virtual environment. PostgreSQL is Debian's, stopped and not started at boot.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from system import images

if TYPE_CHECKING:
    from pathlib import Path

LIBRARIES: Final = ("chromadb==1.5.9", "mem0ai==2.2.1", "numpy>=2,<3", "qdrant-client==1.20.0", "sqlite-vec==0.1.9")
PACKAGES: Final = {"debian12": "postgresql", "debian13": "postgresql postgresql-17-pgvector"}
"""Debian 12 has no pgvector."""

PYTHON: Final = "/opt/products/bin/python"

_SCRIPT: Final = """
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
apt-get update -qq
apt-get install -qqy --no-install-recommends $PACKAGES
rm /usr/sbin/policy-rc.d
systemctl disable --quiet postgresql
python3 -m venv /opt/products
/opt/products/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --only-binary=:all: $LIBRARIES
"""


@functools.cache
def with_products(suite: str) -> tuple[Path, ...]:
    """The layers of a server that has the products, lowest first."""
    lower = images.with_venv(suite)
    script = f"PACKAGES='{PACKAGES[suite]}' LIBRARIES='{' '.join(LIBRARIES)}'\n{_SCRIPT}"

    def build(target: Path) -> None:
        images._layer(lower, target, script)

    key = images._hash(script, *map(images._identity, lower))
    return (*lower, images._cached(f"products-{suite}-{key}", build))


@functools.cache
def with_command(suite: str) -> tuple[Path, ...]:
    """Those layers, and the command of this checkout on top of them, which touches none of the products' files."""
    return (*with_products(suite), images.with_command(suite)[-1])


if __name__ == "__main__":
    with ThreadPoolExecutor() as pool:
        list(pool.map(with_command, images.SUITES))
