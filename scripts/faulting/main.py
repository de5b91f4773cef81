"""The command line of scripts/faults."""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from faulting import asking, matrix, templates

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LONG: Final = 2000
"""Runs of the long form, at the least."""


def main(about: str | None, argv: Sequence[str] | None = None) -> int:
    """Run, print the table, return 1 where anything was lost."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help=f"{LONG:,} runs")
    parser.add_argument("--each", type=int, default=0, metavar="N", help="runs of each job under each fault")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first one's number: others are new runs")
    parser.add_argument("--job", action="append", choices=list(asking.jobs()), help="only this job")
    parser.add_argument("--fault", action="append", choices=list(matrix.FAULTS), help="only this fault")
    parser.add_argument("--repeat", metavar="SEED", help="only this run: JOB/FAULT/NUMBER")
    parser.add_argument("--load", type=float, nargs="?", const=120.0, metavar="SECONDS", help="load instead of faults")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="runs at a time (%(default)s)")
    options = parser.parse_args(argv)
    os.umask(0o022)
    if options.load is not None:
        from faulting import load

        return load.main(options.load)
    with tempfile.TemporaryDirectory(prefix="faults-shared-") as name:
        shared = Path(name)
        templates.make(shared)
        if options.repeat:
            return repeat(shared, options.repeat)
        jobs, faults = options.job or list(asking.jobs()), options.fault or list(matrix.FAULTS)
        each = options.each or (-(-LONG // (len(jobs) * len(faults))) if options.long else 1)
        numbers = range(options.first, options.first + each)
        pairs = list(itertools.product(jobs, faults))
        if not (options.long or options.each or options.job or options.fault):
            pairs = short()
        seeds = [f"{job}/{fault}/{number}" for number in numbers for job, fault in pairs]
        clock = time.monotonic()
        results = run_all(shared, seeds, options.workers)
        return report(results, jobs, faults, time.monotonic() - clock)


def short() -> list[tuple[str, str]]:
    """The pairs of job and fault of the short form: every job under four faults, every fault on four or five jobs."""
    jobs, faults = list(asking.jobs()), list(matrix.FAULTS)
    return [pair for row, job in enumerate(jobs) for pair in itertools.product([job], faults[row % 3 :: 3])]


def run_all(shared: Path, seeds: Sequence[str], workers: int) -> list[matrix.Result]:
    """All these runs, several at a time."""
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(run, itertools.repeat(shared), seeds, chunksize=1))


def run(shared: Path, seed: str) -> matrix.Result:
    """One run; that it cannot be done is a failure too."""
    try:
        return matrix.one(shared, seed)
    except Exception as error:  # whatever it is, the others go on
        return matrix.Result(seed, struck=False, problems=(f"the run itself failed: {error!r}",))


def repeat(shared: Path, seed: str) -> int:
    """One run, with its story."""
    result = matrix.one(shared, seed)
    print(result.story)
    print("\n".join(result.problems) or "nothing is wrong")
    return 1 if result.problems else 0


def report(results: Sequence[matrix.Result], jobs: Sequence[str], faults: Sequence[str], seconds: float) -> int:
    """Print what was wrong, then the table; the last line has the counts. Returns the exit code."""
    failed = [result for result in results if result.problems]
    for result in failed:
        print(f"{result.seed}: {'; '.join(result.problems)}")
        print(f"    {result.story}", f"    scripts/faults --repeat '{result.seed}'", sep="\n")
    widths = [max(7, len(fault) + 1) for fault in faults]
    print(f"{'runs/failed':16}" + "".join(f"{fault:>{width}}" for fault, width in zip(faults, widths, strict=True)))
    for job in jobs:
        cells = (cell(result for result in results if result.seed.startswith(f"{job}/{fault}/")) for fault in faults)
        print(f"{job:16}" + "".join(f"{text:>{width}}" for text, width in zip(cells, widths, strict=True)))
    struck = sum(result.struck for result in results)
    print(f"{len(results):,} runs in {seconds:.0f} s; in {struck:,} of them the fault struck; {len(failed):,} failed.")
    return 1 if failed else 0


def cell(results: Iterable[matrix.Result]) -> str:
    """Runs and failures."""
    found = list(results)
    if not found:
        return "-"
    return f"{len(found)}/{sum(bool(result.problems) for result in found)}"
