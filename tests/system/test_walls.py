"""What is left of the walls without namespaces, and what each single setting is there for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import profiles
from system import probing

if TYPE_CHECKING:
    from system.server import Server

ALTERNATE = True  # each test on one Debian, all on both in the long form
SLOW = True


def test_the_step_down_keeps_what_it_can(without_namespaces: Server) -> None:
    found = probing.tried(without_namespaces)
    # Whether root may do that is the container's affair.
    found = {name: through - {"change a control group"} for name, through in found.items()}
    probing.compare(found, profiles.REDUCED)


def test_without_a_setting_comes_through_what_it_denies(memops_server: Server) -> None:
    probing.lay_out(memops_server)
    probing.install(memops_server)
    for unit, settings in profiles.DENIES.items():
        found = probing.without_each(memops_server, unit)
        for setting, denied in settings.items():
            assert denied <= found[setting], (unit, setting, found[setting])
