"""Copies of the parts that servers keep, run as the store's owner with the network, before the store is copied."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import census
import job
import parts

if TYPE_CHECKING:
    from collections.abc import Sequence


def fetch(incoming: str, further: Sequence[parts.Part], limit: census.Limit) -> job.Outcome:
    """Let the servers of these parts give a copy of each. Raises JobError, OSError."""
    clock = time.monotonic()
    directory = census.open_directory(incoming)
    try:
        taken = []
        for part in further:
            parts.empty(directory, part.name)
            try:
                # Its secret is what LoadCredential= put under its name.
                os.environ["MEMOPS_PART"] = part.name
                taken.append(parts.take(incoming, directory, part, limit))
            except BaseException:
                parts.empty(directory, part.name)
                raise
    finally:
        os.close(directory)
    return job.Outcome(f"{', '.join(taken)}, {time.monotonic() - clock:.1f} s", {"parts": len(taken)})


def main(argv: list[str] | None = None) -> int:
    """Read the command line, fetch the parts, return the exit code."""
    parser = argparse.ArgumentParser(description="Copy what servers keep into the incoming directory of a backup.")
    parser.add_argument("--incoming", required=True, help="the directory for the copies")
    parser.add_argument("--state", required=True, help="the directory for the run record")
    parser.add_argument("--deadline", type=float, default=census.DEADLINE, help="seconds this may take")
    parts.add_argument(parser)
    options = parser.parse_args(argv)
    os.umask(0o007)  # the sealing half reads, and removes, as the directory's group
    limit = census.Limit(options.deadline)
    further = parts.chosen(options)
    return job.run("remote", options.state, lambda: fetch(options.incoming, further, limit))


if __name__ == "__main__":
    sys.exit(main())
