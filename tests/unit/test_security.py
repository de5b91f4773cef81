"""SECURITY.md promises only what a named test holds."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def promises() -> list[str]:
    """The points under "What memops promises", each as one text."""
    text = (ROOT / "SECURITY.md").read_text()
    part = text.partition("## What memops promises")[2].partition("\n## ")[0]
    return [re.split(r"\n\n", point)[0] for point in re.split(r"^- ", part, flags=re.MULTILINE)[1:]]


def test_each_promise_names_tests_that_are_there() -> None:
    assert len(promises()) > 15
    for promise in promises():
        named = NAMED.findall(promise)
        assert named, promise
        assert promise.count("::") == len(named), f"a name that is none: {promise}"
        for file, name in named:
            source = (ROOT / file).read_text()
            assert re.search(rf"^(?:async )?def {name}\(", source, re.MULTILINE), f"{file} has no {name}"
