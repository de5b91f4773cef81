"""What tests of every ring share."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import hypothesis
import pytest

import memops.assets
import memops.health
import memops.letters
import memops.records
import memops.store
import memops.survey
import memops.trees

ROOT = Path(__file__).resolve().parent.parent

# On a server these lie beside the jobs and are imported as `store` and so on. Here each is the same module under both
# names, so that an error raised through one is caught through the other.
for shared in (memops.health, memops.letters, memops.records, memops.store, memops.survey, memops.trees):
    sys.modules.setdefault(shared.__name__.removeprefix("memops."), shared)

# A shell that runs the tests in the background has Ctrl-C ignored, and a terminal that a test opens would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes is the machine's affair, and it may be busy. A run in CI judges the change and not the
# dice: the same code meets the same examples; the long form looks for new ones.
hypothesis.settings.register_profile("memops", deadline=None, derandomize=os.environ.get("MEMOPS_LONG") != "1")
hypothesis.settings.load_profile("memops")


@pytest.fixture(scope="session")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what /usr/local/lib/memops holds on a server: the jobs and store.py, to be run from there."""
    directory = tmp_path_factory.mktemp("lib")
    for name, text in memops.assets.jobs().items():
        file = directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return directory
