"""What a restore would change: the facts of the store compared with those of a set.

``list`` runs as the store's owner and prints a line for each fact. ``compare`` runs as root without rights, on the set,
and reads those lines from standard input. Both go through the facts in the order of their ids, so neither holds more
than one. What ``list`` printed is untrusted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import sys
import zlib
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

LONGEST: Final = 1000
"""Bytes of an id that tell it from others."""

LINE: Final = 2 * LONGEST + 100
END: Final = b".\n"
TROUBLE: Final = b"!"
EVERY: Final = 1 << 14
"""Facts between two looks at the clock."""


class Trouble(Exception):  # noqa: N818 - an answer, not a bug
    """The facts of the present store cannot be read; the text says why."""


def lines(connection: sqlite3.Connection, *, content: bool) -> Iterator[bytes]:
    """A line for each fact, in their order: the id in hexadecimal and, with ``content``, a sum of all that it says."""
    connection.text_factory = bytes
    said = "''"
    if content:
        connection.create_function("crc", 1, lambda text: f" {zlib.crc32(text):08x}", deterministic=True)
        values = (f"ifnull(CAST(\"{name}\" AS BLOB), x'00')" for name in store.COLUMNS[1:])
        said = f"crc(CAST({' || char(0) || '.join(values)} AS BLOB))"
    shown = f"hex(substr(CAST(ifnull(id, '') AS BLOB), 1, {LONGEST})) || {said} || char(10)"
    # Texts are in the same order as their hexadecimal forms, and that is the order of the index on them.
    (odd,) = connection.execute("SELECT EXISTS (SELECT 1 FROM memory WHERE typeof(id) <> 'text')").fetchone()
    order = "1" if odd else "id COLLATE BINARY, 1" if content else "id COLLATE BINARY"
    for (line,) in connection.execute(f"SELECT {shown} FROM memory ORDER BY {order}"):
        yield line


def write(path: str, out: BinaryIO, *, content: bool) -> None:
    """Print the facts of the store at ``path``; the last line says whether that was all of them."""
    end = END
    try:
        if not os.path.lexists(path):
            raise job.JobError("missing")
        sqlite.require_file(path)
        with contextlib.closing(
            store.connect(path, readonly=True, timeout=sqlite.LOCK_WAIT, seconds=census.DEADLINE)
        ) as connection:
            out.writelines(lines(connection, content=content))
    except sqlite3.Error as error:
        end = TROUBLE + str(job.explain(error)).encode() + b"\n"
    except (job.JobError, store.StoreError, OSError) as error:
        end = TROUBLE + store.printable(error, 200).encode() + b"\n"
    out.write(end)
    out.flush()


def read(stream: BinaryIO) -> Iterator[bytes]:
    """What ``write`` printed. Raises Trouble when that was not all facts, in their order."""
    last = b""
    while line := stream.readline(LINE):
        if line == END:
            return
        if line.startswith(TROUBLE):
            raise Trouble(store.printable(line[1:].decode(errors="replace").strip(), 200))
        if line < last or not line.endswith(b"\n"):
            break
        last = line
        yield line
    raise Trouble("its facts cannot be listed")


def compare(present: Iterator[bytes], chosen: Iterator[bytes], most: int, limit: census.Limit) -> dict[str, Any]:
    """What putting ``chosen`` back does to ``present``.

    Returns ``lost`` (there now, not in the set), ``back`` (in the set, not there now) and ``differ``, each with a count
    and the first ``most`` ids, and how many facts the set has. Raises Trouble.
    """
    found: dict[str, dict[str, Any]] = {word: {"count": 0, "ids": []} for word in ("lost", "back", "differ")}
    same = steps = 0

    def note(word: str, line: bytes) -> None:
        found[word]["count"] += 1
        if len(found[word]["ids"]) < most:
            found[word]["ids"].append(_id(line))

    here, there = next(present, None), next(chosen, None)
    while here is not None or there is not None:
        steps += 1
        if steps % EVERY == 0:
            limit.check()
        if here == there:
            same += 1
            here, there = next(present, None), next(chosen, None)
        elif here is not None and there is not None and here.partition(b" ")[0] == there.partition(b" ")[0]:
            note("differ", here)
            here, there = next(present, None), next(chosen, None)
        elif there is None or (here is not None and here < there):
            note("lost", here or b"")
            here = next(present, None)
        else:
            note("back", there)
            there = next(chosen, None)
    return {**found, "chosen": same + found["back"]["count"] + found["differ"]["count"]}


def _id(line: bytes) -> str:
    try:
        return bytes.fromhex(line.partition(b" ")[0].decode()).decode(errors="backslashreplace")
    except ValueError:
        raise Trouble("its facts cannot be listed") from None


def set_against(path: str, stream: BinaryIO, most: int, limit: census.Limit, *, content: bool) -> dict[str, Any]:
    """Compare what ``write`` printed with the set's database ``path``; ``trouble`` says why that was not possible."""
    with contextlib.closing(sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)) as connection:
        store.protect(connection, writes=False)
        try:
            return compare(read(stream), lines(connection, content=content), most, limit)
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
    with contextlib.closing(
        store.connect(path, readonly=True, timeout=sqlite.LOCK_WAIT, seconds=census.DEADLINE)
    ) as connection:
        return sum(census.take(connection).rows.values())


def _restores(top: str, folder: str) -> bool:
    return not pieces.is_agents(os.path.relpath(folder, top))


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
    listing.add_argument("--content", action="store_true", help="and a sum of what each says")
    counting = steps.add_parser("count", help="say how much there is of further parts")
    counting.add_argument("paths", nargs="+")
    comparing = steps.add_parser("compare", help="compare those on standard input with a set's database")
    comparing.add_argument("path")
    comparing.add_argument("--content", action="store_true", help="what was listed has the sums")
    comparing.add_argument("--most", type=int, default=sys.maxsize, help="how many ids to name of each sort")
    options = parser.parse_args(argv)
    limit = census.Limit(options.deadline)
    if options.step == "list":
        write(options.path, sys.stdout.buffer, content=options.content)
        return job.DONE
    if options.step == "count":
        print(json.dumps(counts(options.paths)))
        return job.DONE
    try:
        found = set_against(options.path, sys.stdin.buffer, options.most, limit, content=options.content)
        print(json.dumps(found))
    except sqlite3.Error as error:
        print(store.printable(job.explain(error), 300), file=sys.stderr)
        return job.FAILED
    except (job.JobError, OSError) as error:
        print(store.printable(error, 300), file=sys.stderr)
        return job.FAILED
    return job.DONE


if __name__ == "__main__":
    sys.exit(main())
