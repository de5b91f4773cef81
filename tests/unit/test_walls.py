"""What opens a set for a command stands behind the same walls as a nightly job; they are written down twice."""

from __future__ import annotations

import pytest

from memops import render, sets
from memops.settings import Store

UNKNOWN_TO_SYSTEMD_RUN = {"RestrictAddressFamilies=none": "@network-io"}
"""A wall of the units → what stands for it in the system call filter."""


@pytest.mark.parametrize("sandbox", ["strict", "reduced"])
def test_a_command_that_opens_a_set_has_the_walls_of_the_jobs(sandbox: str) -> None:
    store = Store(sandbox=sandbox)
    lines = render.template("sandbox.j2", store=store).splitlines()
    wanted = {line for line in lines if line and not line.startswith("#")} - UNKNOWN_TO_SYSTEMD_RUN.keys()
    walls = {wall.removesuffix(" @network-io") for wall in sets.walls(store)}
    assert len(wanted) > 15
    assert wanted - walls == set()
    assert any(call in wall for call in UNKNOWN_TO_SYSTEMD_RUN.values() for wall in sets.walls(store))
