"""The first half of a backup, run as the store's owner: consistent copies of all that it can copy itself.

Writes memory.db and then memory.json, what the store held, into the incoming directory, where seal.py takes them over;
beside them each further part, see parts.py.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import census
import claims
import job
import parts
from kinds import sqlite

if TYPE_CHECKING:
    from collections.abc import Sequence


def snapshot(source: str, incoming: str, further: Sequence[parts.Part], limit: census.Limit) -> job.Outcome:
    """Copy the store and the ``further`` parts into ``incoming``. Raises JobError, sqlite3.Error, OSError."""
    clock = time.monotonic()
    directory = census.open_directory(incoming)
    try:
        parts.empty(directory, "memory")
        for part in further:
            parts.empty(directory, part.name)
        try:
            # The parts first: a fact that is stored between the two copies is then an orphan, which its vector can be
            # made for again, and not a vector whose fact is lost.
            taken = [parts.take(incoming, directory, part, limit) for part in further]
            sqlite.require_file(source)
            copied = sqlite.copy_database(source, os.path.join(os.path.abspath(incoming), census.DATABASE), limit)
            claim = {"version": 1, "source": os.path.basename(source), **copied}
            text = json.dumps(claim)
            if len(text) > claims.LIMIT:
                raise job.JobError("the store has more tables than a backup can list")
            limit.check()
            # Last, since the sealing half takes a snapshot without it for an unfinished one.
            job.replace_file(os.path.join(incoming, census.CLAIM), text)
            os.fsync(directory)
        except BaseException:
            for name in ("memory", *(part.name for part in further)):
                parts.empty(directory, name)
            raise
    finally:
        os.close(directory)
    rows = claim["before"]["rows"]
    total, seconds = sum(rows.values()), time.monotonic() - clock
    note = "" if claim["exact"] else ", written to meanwhile"
    also = f", and {', '.join(taken)}" if taken else ""
    return job.Outcome(
        f"{total:,} rows in {len(rows)} tables, {census.amount(claim['size'])}{also}, {seconds:.1f} s{note}",
        {"rows": total, "tables": len(rows), "bytes": claim["size"], "exact": claim["exact"]},
    )


def main(argv: list[str] | None = None) -> int:
    """Read the command line, take the snapshot, return the exit code."""
    parser = argparse.ArgumentParser(description="Copy a memory store into the incoming directory of its backups.")
    parser.add_argument("--store", required=True, help="the database file")
    options = parts.copying(parser, argv)
    limit, further = census.Limit(options.deadline), parts.chosen(options)
    return job.run("snapshot", options.state, lambda: snapshot(options.store, options.incoming, further, limit))


if __name__ == "__main__":
    sys.exit(main())
