"""What tests of every ring share."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import memops.assets
import memops.store

ROOT = Path(__file__).resolve().parent.parent

# On a server store.py lies beside the jobs and is imported as `store`. Here it is the same module under both names,
# so that an error raised through one is caught through the other.
sys.modules.setdefault("store", memops.store)


@pytest.fixture(scope="session")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what /usr/local/lib/memops holds on a server: the jobs and store.py, to be run from there."""
    directory = tmp_path_factory.mktemp("lib")
    package = ROOT / "installer" / "memops"
    for file in [*(ROOT / "scripts" / "jobs").glob("*.py"), *(package / name for name in memops.assets.SHARED)]:
        shutil.copy(file, directory)
    return directory
