"""The second half of a backup, run as root without a capability: a set out of what the store's owner left in incoming.

Nothing in the incoming directory is trusted. The copies are copied once more, into files that only root can reach, and
those are verified: each is whole, and holds what its claim says the source held, since a copy that broke off answers
``ok`` to SQLite's integrity_check, too. The manifest comes last, then one rename; until then there is no set.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import sqlite3
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import census
import claims
import guard
import job
import kinds
import manifests
import pairs
import parts
import retention
import setdir
import setstate
import takeover
from kinds import sqlite

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Order:
    """What is asked of a run: whose set, of which parts, where, and what becomes of the older ones."""

    name: str
    incoming: str
    sets: str
    parts: Sequence[parts.Part]
    keep: retention.Keep
    state: str
    accept_loss: bool


def seal(order: Order, limit: census.Limit) -> job.Outcome:
    """Make a set of the snapshot, then let old ones go. Raises JobError, OSError; then there is no new set.

    But for the guard's JobError: there is the set, and the older ones stay.
    """
    clock = time.monotonic()
    with contextlib.ExitStack() as stack:
        sets = _opened(stack, order.sets)
        status = os.fstat(sets)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise job.JobError("others may write to the directory of the sets, so nothing in it would be proof")
        try:
            fcntl.flock(sets, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise job.JobError("another backup of this store is being sealed") from None
        remove_leftovers(sets)
        incoming = _opened(stack, order.incoming)
        partial = setdir.PARTIAL + os.urandom(8).hex()
        os.mkdir(partial, 0o700, dir_fd=sets)
        try:
            path = os.path.join(os.path.abspath(order.sets), partial)
            with census.full_disk_named():
                manifest = fill(order, sets, incoming, path, limit)
                new = manifest["set"]
                os.rename(partial, new, src_dir_fd=sets, dst_dir_fd=sets)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True, dir_fd=sets)
            raise
        os.fsync(sets)
        for name in ("memory", *(part.name for part in order.parts)):
            with contextlib.suppress(OSError):
                parts.empty(incoming, name)
        counts = summary(manifest)
        rotated = retention.after_seal(sets, manifest, order.keep, order.state, accept_loss=order.accept_loss)
    message = f"set {new} sealed: {words(manifest, counts)}, verified, {time.monotonic() - clock:.1f} s{rotated.words}"
    if rotated.held or rotated.failed:
        raise job.JobError(message, job.GUARD if rotated.held else job.FAILED, counts)
    return job.Outcome(message, counts)


def fill(order: Order, sets: int, incoming: int, path: str, limit: census.Limit) -> dict[str, Any]:
    """Make the set in the empty directory ``path``, and return its manifest. Raises JobError, OSError."""
    staging = census.open_directory(path)
    try:
        entries = take_over(order, incoming, staging, limit)
        verified = limit.run(lambda: [verify(path, entry, limit) for entry in entries])
        matched = limit.run(lambda: match(path, verified))
        require_untouched(path, verified)
        new, sealed_at = next_name(sets)
        manifest = {
            "version": 1,
            "store": order.name,
            "set": new,
            "sealed_at": sealed_at,
            "sqlite": sqlite3.sqlite_version,
            "skew_seconds": skew(verified),
            "parts": verified,
            "pairs": matched,
        }
        with takeover.create(staging, manifests.MANIFEST) as file:
            file.write(manifests.write(manifest))
        os.fsync(staging)
        limit.check()
        return manifest
    finally:
        os.close(staging)


def take_over(order: Order, incoming: int, staging: int, limit: census.Limit) -> list[dict[str, Any]]:
    """Copy all parts into ``staging``; returns their entries for the manifest, each with its ``claim``."""
    claim = claims.read(incoming, census.CLAIM)
    for suffix in ("-journal", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.stat(census.DATABASE + suffix, dir_fd=incoming, follow_symlinks=False)
            raise job.JobError(f"the snapshot is unfinished: there is a {census.DATABASE}{suffix}")
    room = takeover.Room(staging)
    size = sqlite.read_claim(claim).size
    main = {"kind": "sqlite", "name": census.DATABASE, "file": census.DATABASE, "taken_at": claim["taken_at"]}
    copied = takeover.copy_file(incoming, staging, census.DATABASE, room, limit, size)
    entries = [{**main, "exact": claim["exact"], **copied, "claim": claim}]
    for part in order.parts:
        with parts.naming(part.name):
            claim = claims.read(incoming, f"{part.name}.json")
            files, directories = takeover.copy_tree(incoming, staging, part.name, room, limit)
            entry = {"kind": part.kind, "name": part.name, "source": part.source, "taken_at": claim["taken_at"]}
            entry |= {"exact": claim.get("exact") is True, "files": files, "directories": directories}
            entries.append({**entry, "claim": claim})
    return entries


def verify(path: str, entry: dict[str, Any], limit: census.Limit) -> dict[str, Any]:
    """Verify one part below ``path`` by its kind; returns its entry as the manifest has it. Raises JobError."""
    claim = {**entry["claim"], **({"file": entry["file"]} if "file" in entry else {})}
    entry = {key: value for key, value in entry.items() if key != "claim"}
    if entry["name"] == census.DATABASE:
        found = sqlite.verify(path, claim, limit)
        return {**entry, **{key: value for key, value in found.items() if key != "counts"}}
    with parts.naming(entry["name"]):
        return {**entry, **kinds.load(entry["kind"]).verify(os.path.join(path, entry["name"]), claim, limit)}


def match(path: str, entries: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Compare the ids of the parts that know theirs; facts, which may be millions, only where there are vectors."""
    found: dict[str, tuple[str, set[str]]] = {}
    for entry in sorted(entries, key=lambda entry: bool(entry["kind"] == "sqlite")):
        if entry["kind"] == "sqlite" and not found:
            return None
        here = path if entry["name"] == census.DATABASE else os.path.join(path, entry["name"])
        with parts.naming(entry["name"]):
            if (ids := kinds.load(entry["kind"]).ids(here)) is not None:
                found[entry["name"]] = ids
    return pairs.compare(found)


def require_untouched(path: str, entries: Sequence[dict[str, Any]]) -> None:
    """Raise JobError when opening the parts left anything beside them."""
    meant = {census.DATABASE}
    for entry in entries:
        meant |= {*entry.get("files", ()), *entry.get("directories", ())}
    if takeover.listing(path) != meant:
        raise job.JobError("verifying the copy left files beside it")


def skew(entries: Sequence[dict[str, Any]]) -> int:
    """Seconds between the first and the last copy."""
    moments = [datetime.fromisoformat(entry["taken_at"]).timestamp() for entry in entries]
    return int(max(moments) - min(moments))


def summary(manifest: dict[str, Any]) -> dict[str, Any]:
    """What root's record says of a set."""
    main, *further = manifest["parts"]
    counts = {"set": manifest["set"], "sealed_at": manifest["sealed_at"], "bytes": manifests.size(manifest)}
    counts |= {"rows": sum(main["rows"].values())}
    return {**counts, "parts": 1 + len(further)} if further else counts


def words(manifest: dict[str, Any], counts: dict[str, Any]) -> str:
    """What is in a set, for the job's line."""
    main, *further = manifest["parts"]
    text = f"{counts['rows']:,} rows, {census.amount(counts['bytes'])}"
    if further:
        text += f" in {1 + len(further)} parts, {manifest['skew_seconds']} s apart{pairs.words(manifest['pairs'])}"
    broken = main["foreign_key_violations"]
    if broken:
        text += f", {broken:,} foreign-key violations{' as in the store' * main['exact']}"
    return text


def _opened(stack: contextlib.ExitStack, path: str) -> int:
    descriptor = census.open_directory(path)
    stack.callback(os.close, descriptor)
    return descriptor


def remove_leftovers(sets: int) -> None:
    """Remove what killed runs left in the directory of the sets."""
    for name in os.listdir(sets):
        if name.startswith(setdir.PARTIAL):
            shutil.rmtree(name, dir_fd=sets)


def next_name(sets: int) -> tuple[str, str]:
    """The name of a set that is sealed now, and this moment as the manifest writes it."""
    moment = datetime.now(UTC)
    name = first = moment.strftime("%Y-%m-%dT%H%M%SZ")
    taken, number = set(os.listdir(sets)), 1
    while name in taken:
        number += 1
        name = f"{first}-{number}"
    return name, moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def write_state(path: str, record: dict[str, Any]) -> None:
    """Note the end of a run in root's record, which also names the newest set; the rest of it stays as it is."""

    def change(state: dict[str, Any]) -> None:
        state["seal"] = setstate.ended(record)
        state["newest"] = record["counts"] or state.get("newest")

    setstate.update(path, change)


def main(argv: list[str] | None = None) -> int:
    """Read the command line, seal a set, return the exit code."""
    parser = argparse.ArgumentParser(description="Make a verified backup set of a snapshot.")
    parser.add_argument("--name", required=True, help="the store's name")
    parser.add_argument("--incoming", required=True, help="the directory with the snapshot")
    parser.add_argument("--sets", required=True, help="the directory of the sets")
    parser.add_argument("--sets-record", required=True, help="root's record of the sets")
    parser.add_argument("--mode-file", help="root's word for this run")
    parser.add_argument("--deadline", type=float, default=census.DEADLINE, help="seconds this may take")
    parts.add_argument(parser)
    for period in ("daily", "weekly", "monthly"):
        parser.add_argument(f"--keep-{period}", type=int, default=0, help="sets to keep; all 0: all of them")
    options = parser.parse_args(argv)
    os.umask(0o077)
    limit = census.Limit(options.deadline)
    order = Order(
        options.name,
        options.incoming,
        options.sets,
        parts.chosen(options),
        retention.Keep(options.keep_daily, options.keep_weekly, options.keep_monthly),
        options.sets_record,
        guard.read_mode(options.mode_file, time.time(), ("accept-loss",)) == "accept-loss",
    )
    return job.run_recorded(
        "backup",
        lambda: seal(order, limit),
        lambda record: write_state(options.sets_record, record),
    )


if __name__ == "__main__":
    sys.exit(main())
