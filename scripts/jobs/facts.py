"""What a restore would change: the facts of the store compared with those of a set.

``list`` runs as the store's owner and prints a line for each fact: a hash of what it says, and its id. ``compare`` runs
as root without rights, on the set, and reads those lines from standard input. Both go through the facts in the order of
their ids, so neither holds more than one. What ``list`` printed is untrusted.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sqlite3
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import quote

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import census
import job
import pieces
from kinds import sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LONGEST: Final = 4096
"""Bytes of a line; a longer id is cut there, which tells ids apart in all but contrived stores."""

END: Final = b"."
TROUBLE: Final = b"!"

Line = tuple[bytes, bytes]
"""An id, and the hash of all that the fact says."""


class Trouble(Exception):  # noqa: N818 - an answer, not a bug
    """The facts of the present store cannot be read; the text says why."""


def facts(connection: sqlite3.Connection) -> Iterator[Line]:
    """Every fact of a store, in the order of the ids."""
    connection.text_factory = bytes
    columns = ", ".join(f'"{name}"' for name in store.COLUMNS)
    rows = connection.execute(
        f"SELECT ifnull(CAST(id AS BLOB), x'') AS shown, {columns} FROM memory ORDER BY shown, rowid"
    )
    for identity, *values in rows:
        yield identity.replace(b"\n", b" ")[:LONGEST], hashlib.sha256(repr(values).encode()).hexdigest()[:16].encode()


def write(path: str, out: BinaryIO) -> None:
    """Print the facts of the store at ``path``; the last line says whether that was all of them."""
    end = END
    try:
        if not os.path.lexists(path):
            raise job.JobError("missing")
        sqlite.require_file(path)
        with contextlib.closing(store.connect(path, readonly=True, timeout=sqlite.LOCK_WAIT)) as connection:
            connection.execute("BEGIN")
            out.writelines(digest + b" " + identity + b"\n" for identity, digest in facts(connection))
    except sqlite3.Error as error:
        end = TROUBLE + str(job.explain(error)).encode()
    except (job.JobError, store.StoreError, OSError) as error:
        end = TROUBLE + store.printable(error, 200).encode()
    out.write(end + b"\n")
    out.flush()


def read(lines: BinaryIO) -> Iterator[Line]:
    """What ``write`` printed. Raises Trouble when that was not all facts, in their order."""
    last = b""
    while line := lines.readline(LONGEST + 32):
        if line == END + b"\n":
            return
        if line.startswith(TROUBLE):
            raise Trouble(store.printable(line[1:].decode(errors="replace").strip(), 200))
        digest, blank, identity = line.rstrip(b"\n").partition(b" ")
        if not blank or identity < last:
            break
        last = identity
        yield identity, digest
    raise Trouble("its facts cannot be listed")


def compare(present: Iterator[Line], chosen: Iterator[Line], most: int, limit: census.Limit) -> dict[str, Any]:
    """What putting ``chosen`` back does to ``present``.

    Returns ``lost`` (there now, not in the set), ``back`` (in the set, not there now) and ``differ``, each with a count
    and the first ``most`` ids, and how many facts there are on either side. Raises Trouble.
    """
    found: dict[str, dict[str, Any]] = {word: {"count": 0, "ids": []} for word in ("lost", "back", "differ")}
    here, there = next(present, None), next(chosen, None)
    counts = {"present": 0, "chosen": 0}

    def note(word: str, line: Line) -> None:
        found[word]["count"] += 1
        if len(found[word]["ids"]) < most:
            found[word]["ids"].append(line[0].decode(errors="backslashreplace"))

    while here or there:
        if (counts["present"] + counts["chosen"]) % 4096 == 0:
            limit.check()
        old = here is not None and (there is None or here[0] <= there[0])
        new = there is not None and (here is None or there[0] <= here[0])
        if here is not None and there is not None and old and new and here[1] != there[1]:
            note("differ", here)
        elif here is not None and not new:
            note("lost", here)
        elif there is not None and not old:
            note("back", there)
        if old:
            counts["present"] += 1
            here = next(present, None)
        if new:
            counts["chosen"] += 1
            there = next(chosen, None)
    return {**found, **counts}


def set_against(path: str, lines: BinaryIO, most: int, limit: census.Limit) -> dict[str, Any]:
    """Compare what ``write`` printed with the set's database ``path``; ``trouble`` says why that was not possible."""
    with contextlib.closing(sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        try:
            return compare(read(lines), facts(connection), most, limit)
        except Trouble as trouble:
            (count,) = connection.execute("SELECT count(*) FROM memory").fetchone()
            return {"trouble": str(trouble), "chosen": count}


def count(path: str) -> int:
    """How much there is of a further part: rows of a database, or files. Raises JobError, sqlite3.Error, OSError."""
    if os.path.isdir(path):
        above = [(folder, inner, files) for folder, inner, files in os.walk(path) if not _restores(path, folder)]
        return sum(len(files) for _, _, files in above)
    with open(path, "rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            return 1
    with contextlib.closing(store.connect(path, readonly=True, timeout=sqlite.LOCK_WAIT)) as connection:
        return sum(census.take(connection).rows.values())


def _restores(top: str, folder: str) -> bool:
    """Whether a directory is one that restores leave."""
    return os.path.relpath(folder, top).startswith((pieces.ASIDE, pieces.STAGING))


def counts(paths: Sequence[str]) -> list[int | None]:
    """How much there is of each part; None where that cannot be told."""
    found: list[int | None] = []
    for path in paths:
        try:
            found.append(count(path))
        except (sqlite3.Error, job.JobError, store.StoreError, OSError):
            found.append(None)
    return found


def main(argv: list[str] | None = None) -> int:
    """Read the command line, list or compare, return the exit code."""
    parser = argparse.ArgumentParser(description="Compare the facts of a store with those of a set.")
    parser.add_argument("--deadline", type=float, default=census.DEADLINE, help="seconds this may take")
    steps = parser.add_subparsers(dest="step", required=True)
    listing = steps.add_parser("list", help="print the facts of a store")
    listing.add_argument("path")
    counting = steps.add_parser("count", help="say how much there is of further parts")
    counting.add_argument("paths", nargs="+")
    comparing = steps.add_parser("compare", help="compare those on standard input with a set's database")
    comparing.add_argument("path")
    comparing.add_argument("--most", type=int, default=10, help="how many ids to name of each sort")
    options = parser.parse_args(argv)
    limit = census.Limit(options.deadline)
    if options.step == "list":
        write(options.path, sys.stdout.buffer)
        return job.DONE
    if options.step == "count":
        print(json.dumps(counts(options.paths)))
        return job.DONE
    try:
        print(json.dumps(set_against(options.path, sys.stdin.buffer, options.most, limit)))
    except sqlite3.Error as error:
        print(store.printable(job.explain(error), 300), file=sys.stderr)
        return job.FAILED
    except (job.JobError, OSError) as error:
        print(store.printable(error, 300), file=sys.stderr)
        return job.FAILED
    return job.DONE


if __name__ == "__main__":
    sys.exit(main())
