"""What each job, and each unit that a command starts, can do of all that is tried from inside it, and nothing else.

What comes through is compared exactly: something that is newly allowed fails as much as something newly denied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import profiles
from system import probing

if TYPE_CHECKING:
    from system.server import Server

SLOW = True


def test_each_unit_can_do_what_it_must_and_nothing_else(memops_server: Server) -> None:
    probing.compare(probing.tried(memops_server), profiles.STRICT)
