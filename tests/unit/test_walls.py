"""What a command starts in a unit stands behind the same walls as a nightly job."""

from __future__ import annotations

from dataclasses import replace

import pytest

import profiles
from memops import adopted, owner, render, sets, walls
from memops.settings import Store
from unit.test_render import STORES


def of_the_jobs(store: Store) -> set[str]:
    lines = render.template("sandbox.j2", store=store).splitlines()
    wanted = {line for line in lines if line and not line.startswith("#")}
    assert len(wanted) > 15
    # What stands for them in a unit that a command starts.
    instead = {walls.NO_SOCKET[0]: walls.NO_SOCKET[1], "ReadOnlyPaths=/run": "TemporaryFileSystem=/run:ro"}
    return {instead.get(line, line) for line in wanted}


@pytest.mark.parametrize("sandbox", ["strict", "reduced"])
def test_a_command_that_opens_a_set_has_the_walls_of_the_jobs(sandbox: str) -> None:
    store = Store(sandbox=sandbox)
    assert of_the_jobs(store) - set(sets.walls(store)) == set()


@pytest.mark.parametrize("user", ["agent", "54321"])
@pytest.mark.parametrize("sandbox", ["strict", "reduced"])
def test_a_command_that_opens_a_store_has_the_walls_of_the_jobs(sandbox: str, user: str) -> None:
    """But for the place in the queue: a person waits."""
    store = Store(sandbox=sandbox, user=user)
    properties, _ = owner.as_owner(store, ("true",))
    assert of_the_jobs(store) - set(properties) == set(walls.BEHIND.settings)


def every_unit(sandbox: str) -> dict[str, str]:
    kept = [
        Store(
            name=name, db=adopted.ledger(name), level="ledger", product=product, adopted=words, python="/opt/bin/python"
        )
        for name, product, words in (
            ("pair", "mem0", ("history=/srv/a/history.db", "qdrant=/srv/a/qdrant")),
            ("served", "chroma", ("url=http://127.0.0.1:8000", "collection=x")),
        )
    ]
    stores = {**STORES, **{store.name: store for store in kept}}
    stores = {name: replace(store, sandbox=sandbox) for name, store in stores.items()}
    files = render.all_files(stores, {"agent": "-"}, {"work": "https://hc.example/{job}"})
    return {path: file.text for path, file in files.items() if path.endswith(".service")}


PLAIN = {"Type", "User", "DynamicUser", "ExecStart", "ExecStop", "RemainAfterExit", "TimeoutStartSec", "TimeoutSec"}
"""What needs no comment of its own in a unit file."""


@pytest.mark.parametrize("sandbox", ["strict", "reduced"])
def test_every_setting_of_every_unit_has_a_comment_above_it(sandbox: str) -> None:
    """Or above the settings right before it."""
    settings = 0
    for path, text in every_unit(sandbox).items():
        explained = False
        for line in text.partition("[Service]\n")[2].replace("\\\n", "").splitlines():
            name = line.partition("=")[0]
            if line.startswith("#"):
                explained = True
            elif not line or name in PLAIN:
                explained = False
            else:
                assert explained, f"{path}: {line}"
                settings += 1
    assert settings > 300


@pytest.mark.parametrize("sandbox", ["strict", "reduced"])
def test_every_setting_is_proven_to_deny_or_known_not_to(sandbox: str) -> None:
    proven = {setting for settings in profiles.DENIES.values() for setting in settings}
    used = {
        line.partition("=")[0]
        for text in every_unit(sandbox).values()
        for line in text.partition("[Service]\n")[2].replace("\\\n", "").splitlines()
        if line and not line.startswith("#")
    }
    assert used - PLAIN - proven - profiles.SECOND.keys() == set()
    if sandbox == "strict":
        assert (proven | profiles.SECOND.keys()) - used == set()
