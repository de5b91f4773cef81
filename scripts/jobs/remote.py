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
    options = parts.copying(parser, argv)
    limit = census.Limit(options.deadline)
    return job.run("remote", options.state, lambda: fetch(options.incoming, parts.chosen(options), limit))


if __name__ == "__main__":
    sys.exit(main())
