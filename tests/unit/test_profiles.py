"""Each directive of the units is known for what it denies, and has a comment."""

from __future__ import annotations

import dataclasses

from memops import owner, render, sets
from memops.settings import Store
from system import attempts
from unit.test_render import STORES, rendered
from walls import NO_WALLS, UNPROVEN, WALLS


def groups(text: str) -> list[list[str]]:
    """The lines of a unit's [Service], in groups that begin with a comment."""
    found: list[list[str]] = [[]]
    before = ""
    for line in text.partition("[Service]\n")[2].replace("\\\n", "").splitlines():
        if (line.startswith("#") and not before.startswith("#")) or not line:
            found.append([])
        if line:
            found[-1].append(line)
        before = line
    return [group for group in found if group]


def test_each_directive_is_known_and_has_a_comment() -> None:
    used = set()
    reduced = {name: dataclasses.replace(store, sandbox="reduced") for name, store in STORES.items()}
    texts = [*rendered().items(), *((path, file.text) for path, file in render.all_files(reduced, {}).items())]
    for path, text in texts:
        if not path.endswith(".service"):
            continue
        for group in groups(text):
            for line in group:
                name = line.partition("=")[0]
                if line.startswith("#"):
                    continue
                used.add(name)
                assert name in WALLS or name in UNPROVEN or name in NO_WALLS, f"{path}: {line}"
                commented = group[0].startswith("#") or name in NO_WALLS
                assert commented, f"{path}: {line} has no comment"
    assert used == WALLS.keys() | UNPROVEN.keys() | NO_WALLS


def test_a_wall_is_one_of_the_three() -> None:
    assert not WALLS.keys() & UNPROVEN.keys()
    assert not (WALLS.keys() | UNPROVEN.keys()) & NO_WALLS
    for name, wall in WALLS.items():
        assert wall.attempt in attempts.ATTEMPTS, name
        assert {*wall.others} <= WALLS.keys() | UNPROVEN.keys(), name


def test_the_walls_of_commands_are_known() -> None:
    for store in (Store(), Store(sandbox="reduced")):
        for text in (*sets.walls(store), *owner.as_owner(store, ("x",))[0], *owner.as_user("7", ("x",))[0]):
            name = text.partition("=")[0]
            assert name in WALLS or name in UNPROVEN or name in NO_WALLS, text
