"""Putting a set back, the half that the store's owner does: the new files are laid ready, then replace the old.

``prepare`` (see staging.py) writes the new files beside the present ones. ``commit`` moves the present ones aside and
the new ones in, by renames alone, so nothing of the present state is ever written to. ``undo`` brings that state back
from any point at which a run may have been killed, ``settle`` clears up after success. The directory for what is moved
aside is made when the new files are complete and the plan is on the disk; where it is missing, nothing was moved.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import shutil
import sqlite3
import sys
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import census
import job
import kinds
import parts
import staging
from pieces import Place, Served, Task, imprint, move, sync, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


TRIES: Final = 20
"""How often a file finds another one in its place on its way back."""


def commit(task: Task, limit: census.Limit) -> None:
    """Move the present files aside and the new ones in; then put back what servers keep, and look at all of it.

    Raises JobError, OSError, sqlite3.Error; then everything is as before.
    """
    places = task.places
    ready = {place: place.read_note("ready") for place in places}
    old = {place: place.present() for place in places}
    for place in places:
        _require_movable(place, old[place], task.served if place is places[0] else ())
        place.write_note("plan", {"old": old[place], "new": ready[place]["new"], "prints": _prints(place)})
    limit.check()
    try:
        for place in places:
            os.mkdir(place.aside, 0o700)
            sync(place.directory)
        for place in places:
            for name in old[place]:
                os.rename(os.path.join(place.directory, name), os.path.join(place.aside, name))
            sync(place.aside, place.directory)
        for place in places:
            _move_in(place, ready[place]["new"])
        for part in task.served:
            with parts.naming(part.name):
                _serve(part, places[0], limit)
        for place in places:
            _look_at_databases(place, ready[place]["databases"])
    except BaseException:
        undo(task, census.Limit(census.DEADLINE))  # whatever time was left for the other way
        raise


def _prints(place: Place) -> dict[str, dict[str, str]]:
    """Part → name → what its file or directory is known by."""
    return {
        piece.name: {name: imprint(os.path.join(place.staged(piece), name)) for name in os.listdir(place.staged(piece))}
        for piece in place.pieces
    }


def _require_movable(place: Place, old: Sequence[str], served: Sequence[Served]) -> None:
    device = os.stat(place.directory).st_dev
    for name in old:
        path = os.path.join(place.directory, name)
        if os.lstat(path).st_dev != device or os.path.ismount(path):
            raise job.JobError(f"{store.printable(name)} is a disk of its own, and cannot be moved aside")
    if taken := {part.aside for part in served} & set(old):
        raise job.JobError(f"{store.printable(min(taken))} is in the way of what a server keeps")


def _move_in(place: Place, new: Mapping[str, Sequence[str]]) -> None:
    for piece in place.pieces:
        for name in new[piece.name]:
            try:
                move(os.path.join(place.staged(piece), name), os.path.join(place.directory, name))
            except FileExistsError:
                raise job.JobError(f"somebody made a new {store.printable(name)} meanwhile") from None
        sync(place.staged(piece))
    sync(place.directory)


def _look_at_databases(place: Place, expected: Mapping[str, dict[str, Any]]) -> None:
    for piece in place.pieces:
        if piece.name not in expected:
            continue
        path, wanted = os.path.join(place.directory, piece.file), expected[piece.name]
        # Not read-only: such a connection would leave its -wal and -shm.
        with contextlib.closing(store.connect(path, seconds=census.DEADLINE)) as connection:
            connection.execute("PRAGMA query_only = ON")
            mode = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
            found = census.take(connection)
        if mode != wanted["mode"]:
            raise job.JobError(f"{piece.file} is in journal mode {mode}, and should be in {wanted['mode']}")
        # Earlier versions counted the tables of a full-text index, too.
        if found.rows != {table: rows for table, rows in wanted["rows"].items() if table not in found.uncounted}:
            raise job.JobError(f"{piece.file} does not hold the rows that the set has")


# What servers keep


def _serve(part: Served, place: Place, limit: census.Limit) -> None:
    """Keep a copy of what the server has now, then give it what the set has."""
    os.environ["MEMOPS_PART"] = part.name
    kind = kinds.load(part.kind)
    aside = os.path.join(place.aside, part.aside)
    os.mkdir(aside, 0o700)
    kind.snapshot(part.source, aside, limit)
    sync(*tree(aside), aside, place.aside)
    place.write_note(f"{part.name}.begun", {})
    kind.restore(place.staged(part), part.source, limit)


def _take_back(part: Served, place: Place, limit: census.Limit) -> None:
    aside = os.path.join(place.aside, part.aside)
    if os.path.lexists(place.note(f"{part.name}.begun")):
        os.environ["MEMOPS_PART"] = part.name
        kinds.load(part.kind).restore(aside, part.source, limit)
        os.unlink(place.note(f"{part.name}.begun"))
        sync(place.staging)
    _remove(aside)


# Back again


def undo(task: Task, limit: census.Limit) -> list[str]:
    """Bring everything back to what it was before, wherever the restore stopped; may itself be killed and run again.

    Returns remarks. Raises JobError, OSError, sqlite3.Error.
    """
    places = task.places
    moved = [place for place in places if os.path.lexists(place.aside)]
    for place in moved:
        _move_back(place)
        _keep_others(place)
    if places[0] in moved:
        for part in task.served:
            with parts.naming(part.name):
                _take_back(part, places[0], limit)
    for place in moved:
        os.rmdir(place.aside)
        sync(place.directory)
    settle(task)
    return [f"what was made meanwhile is in {place.strays}" for place in places if os.path.lexists(place.strays)]


def _move_back(place: Place) -> None:
    plan = place.read_note("plan")
    if not os.path.lexists(place.note("back")):
        for piece in place.pieces:
            staged = place.staged(piece)
            gone = [name for name in plan["new"][piece.name] if not os.path.lexists(os.path.join(staged, name))]
            if piece.file in gone:  # what SQLite made beside it goes with it, and first
                gone = [name for name in place.present() if piece.holds(name) and name != piece.file] + gone
            for name in gone:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(os.path.join(place.directory, name), os.path.join(staged, name))
            sync(staged)
        sync(place.directory)
        place.write_note("back", {})
    waiting = [name for name in plan["old"] if os.path.lexists(os.path.join(place.aside, name))]
    for name in set(place.present()) - (set(plan["old"]) - set(waiting)):
        _keep(place, place.directory, name)
    for name in waiting:
        _put_back(place, name)
    sync(place.directory, place.aside)


def _put_back(place: Place, name: str) -> None:
    for _ in range(TRIES):
        try:
            return move(os.path.join(place.aside, name), os.path.join(place.directory, name))
        except FileExistsError:  # somebody made it just now
            _keep(place, place.directory, name)
    raise job.JobError(f"somebody goes on making a new {store.printable(name)}")


def _keep_others(place: Place) -> None:
    """Keep what was taken out of the way, and is not as memops had laid it there: only what it made goes."""
    prints = place.read_note("plan")["prints"]
    for piece in place.pieces:
        staged = place.staged(piece)
        names = set(os.listdir(staged))
        others = {name for name in names if _is_others(os.path.join(staged, name), prints[piece.name].get(name))}
        if piece.file and others:  # a database and what SQLite made beside it are one thing
            others = names
        for name in sorted(others):
            _keep(place, staged, name)
        sync(staged)


def _is_others(path: str, known: str | None) -> bool:
    if known is None:  # beside a database SQLite makes files which say nothing: a -shm, and a -wal without a page
        return not path.endswith("-shm") and os.lstat(path).st_size > 0
    return imprint(path) != known


def _keep(place: Place, directory: str, name: str) -> None:
    """Move something to where what was made meanwhile is kept."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(place.strays, 0o700)
    with contextlib.suppress(FileNotFoundError):  # whoever made it took it away
        os.rename(os.path.join(directory, name), _unused(os.path.join(place.strays, name)))
    sync(place.strays)


def _unused(path: str) -> str:
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = f"{path}-{number}"
    return free


def settle(task: Task) -> None:
    """Clear up after a restore that succeeded; what was moved aside stays."""
    for place in task.places:
        _remove(place.staging)
        sync(place.directory)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def main(argv: list[str] | None = None) -> int:
    """Read the command line, do the step, print one line of JSON: ``done`` or ``error``. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Put a set back, as the store's owner.")
    parser.add_argument("step", choices=("prepare", "commit", "undo", "settle"))
    parser.add_argument("task", help="what is put back where, as JSON")
    parser.add_argument("--deadline", type=float, default=census.DEADLINE, help="seconds this may take")
    options = parser.parse_args(argv)
    os.umask(0o077)
    task, limit = Task.read(options.task), census.Limit(options.deadline)
    steps: dict[str, Callable[[], Any]] = {
        "prepare": lambda: staging.prepare(task, sys.stdin.buffer, limit),
        "commit": lambda: commit(task, limit),
        "undo": lambda: undo(task, limit),
        "settle": lambda: settle(task),
    }
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a kind may have something to say
            done = steps[options.step]()
        print(json.dumps({"done": done}))
    except sqlite3.Error as error:
        return _failed(job.explain(error))
    except (job.JobError, store.StoreError, OSError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        return _failed("the disk is full" if full else error)
    return job.DONE


def _failed(error: object) -> int:
    print(json.dumps({"error": store.printable(error, 400)}))
    return job.FAILED


if __name__ == "__main__":
    sys.exit(main())
