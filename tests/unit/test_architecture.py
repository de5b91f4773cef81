"""docs/architecture.md names every module, so that a reader finds it."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_every_module_has_its_place_on_the_page() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    named = [name.removesuffix(".py").split("/")[-1] for name in re.findall(r"`([\w*/]+(?:\.py)?)`", page)]
    for folder in ("installer/memops", "scripts/jobs"):
        for path in (ROOT / folder).glob("*.py"):
            if path.stem not in ("__init__", "__main__"):
                assert any(fnmatch.fnmatch(path.stem, name) for name in named), f"{folder}/{path.name} is not there"
