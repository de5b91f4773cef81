"""Carrying a set elsewhere, as root without the right to change anything else: to the owner's process, or a directory.

``send`` writes the parts to standard output, where restore.py (prepare) reads them: a line of JSON, then every file's
bytes, so that each byte is copied once. ``extract`` fills an empty directory; ``fetch`` takes over a set that somebody
brought back.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from store import printable

import census
import job
import manifests
import setdir
import takeover

if TYPE_CHECKING:
    from collections.abc import Sequence

FETCHED: Final = ".fetched-"
"""How the directory begins, in that of the sets, where a set that somebody brought back is looked at."""


def parts_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a set as restore.py knows them: name, kind, files (path, size, sha256), directories, claim.

    Paths are those within the part; ``top`` is what they begin with in the set.
    """
    parts = []
    for part in manifest["parts"]:
        top = "" if manifests.is_main(part) else f"{part['name']}/"
        files = sorted(manifests.part_files(part).items())
        parts.append(
            {
                "name": manifests.label(part),
                "kind": part["kind"],
                "top": top,
                "files": [[path.removeprefix(top), entry["size"], entry["sha256"]] for path, entry in files],
                "directories": sorted(
                    path.removeprefix(top) for path in manifests.part_directories(part) if "/" in path
                ),
                # A copy that was taken while somebody wrote is known exactly all the same, since it was counted.
                "claim": {**part, "exact": True},
            }
        )
    return parts


def send(path: str, names: Sequence[str], out: BinaryIO, limit: census.Limit) -> None:
    """Write these parts of the set at ``path`` to ``out``. Raises JobError, OSError."""
    with setdir.reading(path) as directory:
        parts = [part for part in parts_of(manifests.read(directory)) if part["name"] in names]
        if missing := set(names) - {part["name"] for part in parts}:
            raise job.JobError(f"the set has no part {min(missing)}")
        out.write(json.dumps({"parts": parts}).encode() + b"\n")
        for part in parts:
            for name, size, sha256 in part["files"]:
                known = {"size": size, "sha256": sha256}
                setdir.read_file(directory, part["top"] + name, known, limit, out.write)
        out.flush()


def check(path: str, limit: census.Limit) -> dict[str, Any]:
    """Whether a set is, to the byte, what was sealed: ``ok``, and a ``message`` that names the file which is not.

    Its parts are not opened: they were when it was sealed, and are again when they wait to be put back.
    """
    try:
        with setdir.reading(path) as directory:
            manifest = manifests.read(directory)
            setdir.require_tree(directory, manifest)
            for file, known in sorted(manifests.all_files(manifest).items()):
                setdir.read_file(directory, file, known, limit)
    except manifests.Damaged as error:
        return {"ok": False, "message": str(error)}
    return {"ok": True, "message": ""}


def extract(path: str, target: str, limit: census.Limit) -> None:
    """Copy the set at ``path`` into the empty directory ``target``. Raises JobError, OSError; it is empty then."""
    into = census.open_directory(target)
    try:
        if os.listdir(into):
            raise job.JobError("the directory is not empty")
        try:
            with setdir.reading(path) as directory:
                manifest = manifests.read(directory)
                census.require_free(census.free_bytes(into), manifests.size(manifest), "for the set", "there")
                setdir.copy_set(directory, manifest, into, limit)
                with takeover.create(into, manifests.MANIFEST) as file:
                    file.write(manifests.write(manifest))
            os.fsync(into)
        except BaseException:
            for name in os.listdir(into):
                _remove(into, name)
            raise
    finally:
        os.close(into)


def fetch(path: str, sets: str, limit: census.Limit) -> dict[str, Any]:
    """Take over what lies at ``path``, which belongs to anybody, into the directory of the sets, and verify it there.

    Returns what a list of sets says of it, with ``path`` (where it is now, below ``sets``) and the ``store`` that it is
    of. Raises JobError, OSError, and leaves nothing then.
    """
    into = census.open_directory(sets)
    try:
        name = FETCHED + os.urandom(8).hex()
        os.mkdir(name, 0o700, dir_fd=into)
        try:
            above, fetched = os.path.split(os.path.abspath(path))
            source = census.open_directory(os.path.realpath(above))
            try:
                with takeover.opened(into, name) as here:
                    takeover.copy_tree(source, here, fetched, takeover.Room(into), limit)
            finally:
                os.close(source)
            manifest = setdir.read_manifest(os.path.join(sets, name, fetched))
            # An object store keeps no empty directory, so what was fetched from one may lack some that hold nothing.
            for empty in sorted(path for part in manifest["parts"] for path in manifests.part_directories(part)):
                with contextlib.suppress(OSError):  # then the verification says what is wrong
                    os.makedirs(os.path.join(sets, name, fetched, empty), 0o700, exist_ok=True)
            found = str(manifest["set"])
            if setdir.moment(found) is None:
                raise job.JobError("its manifest does not name a set")
            os.rename(os.path.join(sets, name, fetched), os.path.join(sets, name, found))
            store = setdir.verify_set(os.path.join(sets, name, found), limit)["store"]
            with takeover.opened(into, name) as here, takeover.opened(here, found) as there:
                listed = setdir.listed(there, False, found, {})
        except BaseException:
            _remove(into, name)
            raise
    finally:
        os.close(into)
    return {**dataclasses.asdict(listed), "path": f"{name}/{found}", "store": store}


def discard(sets: str) -> None:
    """Remove what was fetched, of this run or of one that was killed."""
    into = census.open_directory(sets)
    try:
        for name in os.listdir(into):
            if name.startswith(FETCHED):
                _remove(into, name)
    finally:
        os.close(into)


def _remove(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=directory)


def main(argv: list[str] | None = None) -> int:
    """Read the command line, carry the set, return the exit code; what went wrong is the last line of stderr."""
    parser = argparse.ArgumentParser(description="Carry a set elsewhere.")
    parser.add_argument("--deadline", type=float, default=census.DEADLINE, help="seconds this may take")
    steps = parser.add_subparsers(dest="step", required=True)
    sending = steps.add_parser("send", help="write parts of a set to standard output")
    sending.add_argument("path")
    sending.add_argument("names", nargs="+")
    checking = steps.add_parser("check", help="see whether a set is to the byte what was sealed")
    checking.add_argument("path")
    extracting = steps.add_parser("extract", help="copy a set into an empty directory")
    extracting.add_argument("path")
    extracting.add_argument("target")
    fetching = steps.add_parser("fetch", help="take over a set that was brought back")
    fetching.add_argument("path")
    fetching.add_argument("sets")
    discarding = steps.add_parser("discard", help="remove what was fetched")
    discarding.add_argument("sets")
    options = parser.parse_args(argv)
    os.umask(0o077)
    limit = census.Limit(options.deadline)
    try:
        if options.step == "send":
            send(options.path, options.names, sys.stdout.buffer, limit)
        elif options.step == "check":
            print(json.dumps(check(options.path, limit)))
        elif options.step == "extract":
            extract(options.path, options.target, limit)
        elif options.step == "fetch":
            print(json.dumps(fetch(options.path, options.sets, limit)))
        else:
            discard(options.sets)
    except BrokenPipeError:  # whoever reads has said why
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return job.FAILED
    except (job.JobError, OSError) as error:
        print(printable(error, 300), file=sys.stderr)
        return job.FAILED
    return job.DONE


if __name__ == "__main__":
    sys.exit(main())
