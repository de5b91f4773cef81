"""What opens a set for a command stands behind the same walls as a nightly job; they are written down twice."""

from __future__ import annotations

import pytest

from memops import render, sets
from memops.settings import Store

INSTEAD = {
    # systemd-run does not know it; the filter of system calls has the same.
    "RestrictAddressFamilies=none": "@network-io",
    # A /run of its own, as nothing of a command's may stay on the machine.
    "ReadOnlyPaths=/run": "TemporaryFileSystem=/run",
}
"""A wall of the units → what stands for it around a command."""


@pytest.mark.parametrize("sandbox", ["strict", "reduced"])
def test_a_command_that_opens_a_set_has_the_walls_of_the_jobs(sandbox: str) -> None:
    store = Store(sandbox=sandbox)
    lines = render.template("sandbox.j2", store=store).splitlines()
    wanted = {line for line in lines if line and not line.startswith("#")} - INSTEAD.keys()
    walls = {wall.removesuffix(" @network-io") for wall in sets.walls(store)}
    assert len(wanted) > 15
    assert wanted - walls == set()
    stand_in = [INSTEAD[line] for line in lines if line in INSTEAD]
    assert len(stand_in) == (2 if store.strict else 1)
    assert all(any(each in wall for wall in sets.walls(store)) for each in stand_in)
