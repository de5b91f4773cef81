"""The worlds that runs begin with: each was looked after by the jobs, then used, and its agent was killed at last."""

from __future__ import annotations

import itertools
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from faulting import strikes, work, world


def make(shared: Path, *, struck: bool = True) -> None:
    """Make in ``shared`` all that the runs of a matrix share. ``struck``: with what strikes. Raises RuntimeError."""
    world.make_shared(shared)
    if struck:
        strikes.build(shared)
    shutil.copyfile(Path(__file__).with_name("agents.py"), shared / "agents.py")
    (shared / "measured").mkdir()
    tops = [shared / f"template{number}" for number in range(len(world.VARIANTS))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(make_one, itertools.repeat(shared), tops, world.VARIANTS))
    other = shared / "other"
    other.mkdir()
    # One file: no more than that can be put in place at once.
    world.fill(other / "memory.db", world.Variant(), [world.row(f"other_{n}") for n in range(30)], [])
    world.give(other)


def make_one(shared: Path, top: Path, variant: world.Variant) -> None:
    """One world."""
    top.mkdir()
    place = world.World(top, shared)
    world.make_directories(place)
    for name, text in (("plan.md", "the first plan\n"), ("notes.md", "a note\n" * 3000)):
        (place.notes / name).write_text(text)
    (place.notes / "empty").mkdir()
    world.fill(place.store, variant, world.old_facts(), [])
    world.give(place.notes)
    world.give(place.srv)
    prune, snapshot, seal = work.Prune(), work.Snapshot(), work.Seal()
    for job in (prune, work.Digest(), work.Review(), snapshot, seal, snapshot, seal):
        work.require(strikes.start(place, job.command(place)))
    world.fill(place.store, variant, world.new_facts(), world.last_facts())
    world.give(place.srv)
