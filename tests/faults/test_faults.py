"""The short forms of scripts/faults; that it finds what is wrong; and what a power cut leaves."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from faulting import asking, load, main, matrix, templates, world


@pytest.fixture(scope="session")
def shared():
    """What all runs share. Not in pytest's own directory, which other users may not pass."""
    with tempfile.TemporaryDirectory(prefix="faults-shared-") as name:
        templates.make(Path(name))
        yield Path(name)


def test_no_job_loses_anything_under_any_fault(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = [f"{job}/{fault}/0" for job, fault in main.short()]
    if os.environ.get("MEMOPS_LONG"):
        seeds = [f"{job}/{fault}/{n}" for n in range(12) for job in asking.jobs() for fault in matrix.FAULTS]
    results = main.run_all(shared, seeds, os.cpu_count() or 1)
    assert main.report(results, [], [], 0) == 0, capsys.readouterr().out
    assert sum(result.struck for result in results) > len(seeds) * 0.9


def test_load_loses_nothing_and_a_long_read_is_told_of(shared: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="faults-") as top:
        assert load.run(10, shared, Path(top)) == []


DEFECTS = {
    "no sync before a rename": ("job.py", "        os.fsync(descriptor)\n", "", "digest/power/", "cannot be read"),
    "no transaction": (
        "store.py",
        'connection.execute("BEGIN IMMEDIATE")',
        "pass",
        "review --apply/kill/",
        "it is half done",
    ),
    "no sync of a set": (
        "takeover.py",
        "        os.fsync(descriptor)\n",
        "",
        "seal/power/",
        "listed as good, and is not",
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_the_matrix_finds_a_planted_defect(name: str, shared: Path, tmp_path: Path) -> None:
    file, right, wrong, seed, words = DEFECTS[name]
    with tempfile.TemporaryDirectory(prefix="faults-shared-") as directory:
        world.copy(shared, Path(directory))
        script = Path(directory, "lib", file)
        text = script.read_text()
        assert text.count(right) >= 1
        script.write_text(text.replace(right, wrong))
        for number in range(40):
            if any(words in problem for problem in matrix.one(Path(directory), f"{seed}{number}").problems):
                return
    pytest.fail("40 runs found nothing")
