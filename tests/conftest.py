"""What tests of every ring share."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import hypothesis
import pytest

import memops.assets
import memops.store
import memops.survey

ROOT = Path(__file__).resolve().parent.parent

# On a server these lie beside the jobs and are imported as `store` and `survey`. Here each is the same module under
# both names, so that an error raised through one is caught through the other.
sys.modules.setdefault("store", memops.store)
sys.modules.setdefault("survey", memops.survey)

# How long one example takes is the machine's affair, and it may be busy.
hypothesis.settings.register_profile("memops", deadline=None)
hypothesis.settings.load_profile("memops")


@pytest.fixture(scope="session")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what /usr/local/lib/memops holds on a server: the jobs and store.py, to be run from there."""
    directory = tmp_path_factory.mktemp("lib")
    package = ROOT / "installer" / "memops"
    for file in [*(ROOT / "scripts" / "jobs").glob("*.py"), *(package / name for name in memops.assets.SHARED)]:
        shutil.copy(file, directory)
    return directory
