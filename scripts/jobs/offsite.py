"""Hand the good sets to restic or rclone, which keep them away from the machine. Run as root after each good backup.

Every set that the other side lacks is handed over, the newest first, and counts when it was seen there whole. Nothing
is ever deleted there, nor a set handed over again that its owner removed. All secrets come with the environment, from
root's file that systemd reads: they are in no argument and no message.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import socket
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import census
import job
import manifests
import setdir
import setstate
import tools

if TYPE_CHECKING:
    from collections.abc import Mapping

DEADLINE: Final = 6 * 3600.0
"""Seconds that all of it may take: the first set over a slow line."""

PLACES: Final = 8
"""Places whose sets are remembered: disks that take turns, and the ones before a move."""


class Place(Protocol):
    """Where the sets go."""

    def prepare(self, known: bool) -> str:
        """Make sure that the place can be used, and return what to remember it by.

        known: sets were handed there before, so that it is not to be made anew. Raises JobError.
        """

    def there(self) -> set[str]:
        """The sets of this store that the place has, if only in part. Raises JobError."""

    def hand(self, name: str) -> None:
        """See that the set is there whole, and hand it over when not. Raises JobError."""


class Restic:
    """A repository of restic's. Its address is given in the environment, since it may hold a password."""

    def __init__(self, tool: tools.Tool, name: str, sets: str) -> None:
        self._tool, self._name, self._sets = tool, name, sets
        self._host = socket.gethostname()
        self._snapshots: dict[str, list[str]] = {}

    def prepare(self, known: bool) -> str:
        """See Place."""
        ran = self._tool.run("cat", "config")
        # 10 is "there is none" from restic 0.17 on. Older ones say 1 for everything; their init refuses to touch a
        # repository that is there, and fails like any command where the place cannot be reached.
        absent = ran.code == 10 or (ran.code == 1 and "unable to open config file" in ran.err)
        if absent and known:
            raise self._tool.failed(
                "the repository that took sets before cannot be opened; is its disk mounted, its server up?", ran
            )
        if absent:
            self._tool.done("init", "--quiet", what="the repository cannot be made")
            ran = self._tool.run("cat", "config")
        if ran.code:
            raise self._tool.failed("the repository cannot be opened", ran)
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return f"restic {json.loads(ran.out)['id'][:16]}"
        raise job.JobError("the repository's configuration cannot be read")

    def there(self) -> set[str]:
        """See Place."""
        said = self._tool.done(
            *("snapshots", "--json", "--host", self._host, "--tag", f"memops,store:{self._name}"),
            what="the repository cannot be listed",
        )
        self._snapshots = {}
        for snapshot in parsed(said) or []:
            for tag in snapshot.get("tags") or []:
                if tag.startswith("set:"):
                    self._snapshots.setdefault(tag.removeprefix("set:"), []).append(snapshot["id"])
        return set(self._snapshots)

    def hand(self, name: str) -> None:
        """See Place. The snapshot holds the set's directory, and its time is the set's own."""
        wanted = tree(self._sets, name)
        if any(self._content(snapshot) == wanted for snapshot in self._snapshots.get(name, [])):
            return
        self._tool.done(
            *(
                "backup",
                "--quiet",
                "--host",
                self._host,
                "--time",
                f"{name[:10]} {name[11:13]}:{name[13:15]}:{name[15:17]}",
            ),
            *("--tag", "memops", "--tag", f"store:{self._name}", "--tag", f"set:{name}", "--", name),
            what=f"the set {name} was not taken",
            cwd=self._sets,
        )
        self.there()
        # A snapshot of a set that could not be read to its end bears the same tags.
        if not any(self._content(snapshot) == wanted for snapshot in self._snapshots.get(name, [])):
            raise job.JobError(f"the set {name} was taken, but the repository does not show it whole")

    def _content(self, snapshot: str) -> dict[str, int | None]:
        said = self._tool.done("ls", "--json", snapshot, what="a snapshot cannot be read")
        nodes = [node for line in said.splitlines() if (node := parsed(line)).get("type") in ("file", "dir")]
        return {node["path"]: node.get("size", 0) if node["type"] == "file" else None for node in nodes}


class Rclone:
    """A path of a remote's, with a directory for each store and a directory in there for each set."""

    def __init__(self, tool: tools.Tool, address: str, name: str, sets: str) -> None:
        self._tool, self._address, self._sets = tool, address, sets
        self._top = f"{address}{'' if address.endswith((':', '/')) else '/'}{name}"

    def prepare(self, known: bool) -> str:
        """See Place."""
        if self._address.startswith("/"):
            if not os.path.isdir(self._address):
                raise job.JobError(f"there is no directory {store.printable(self._address, 200)}; is its disk mounted?")
            if known and not os.path.isdir(self._top):
                top = store.printable(self._top, 200)
                raise job.JobError(
                    f"{top}, which took sets before, is not there any more; is its disk mounted?"
                    f" If all is well: mkdir {top}"
                )
        return f"rclone {self._address}"

    def there(self) -> set[str]:
        """See Place."""
        ran = self._tool.run("lsf", "--dirs-only", self._top)
        if ran.code == 3:  # there is no such directory
            return set()
        if ran.code:
            raise self._tool.failed("the remote cannot be listed", ran)
        return {line.rstrip("/") for line in ran.out.splitlines()}

    def hand(self, name: str) -> None:
        """See Place. The manifest goes last: what has none is no set."""
        source, target = os.path.join(self._sets, name), f"{self._top}/{name}"
        with open(os.path.join(source, manifests.MANIFEST), encoding="utf-8") as file:
            manifest = file.read()
        ran = self._tool.run("cat", f"{target}/{manifests.MANIFEST}")
        # A part of it is what a run that was cut off has left.
        if ran.code == 0 and not manifest.startswith(ran.out):
            raise job.JobError(
                f"the remote has another set {name}, maybe of another machine's; give each machine a path of its own"
            )
        if ran.code != 0 or ran.out != manifest:
            what = f"the set {name} was not taken"
            # Directories that are empty belong to the set, too.
            options = ("--create-empty-src-dirs", "--exclude", f"/{manifests.MANIFEST}")
            self._tool.done("copy", *options, source, target, what=what)
            self._tool.done("copyto", f"{source}/{manifests.MANIFEST}", f"{target}/{manifests.MANIFEST}", what=what)
        self._tool.done("check", source, target, what=f"the set {name} is not there as it is here")


def parsed(text: str) -> Any:
    """What restic printed as JSON. Raises JobError."""
    try:
        return json.loads(text)
    except ValueError:
        raise job.JobError("restic does not answer in JSON, as it should") from None


def tree(sets: str, name: str) -> dict[str, int | None]:
    """What a set holds: path, beginning with the set's name → size, or None for a directory. Raises OSError."""

    def stop(error: OSError) -> None:
        raise error

    found: dict[str, int | None] = {f"/{name}": None}
    for folder, folders, files in os.walk(os.path.join(sets, name), onerror=stop):
        at = "/" + os.path.relpath(folder, sets)
        found |= {f"{at}/{each}": None for each in folders}
        found |= {f"{at}/{each}": os.lstat(os.path.join(folder, each)).st_size for each in files}
    return found


def good_sets(sets: str, state: Mapping[str, Any]) -> list[str]:
    """The sets that there are, newest first, but for those that did not pass a later verification. Raises OSError."""
    verified = setstate.section(state, "verified")
    bad = {name for name in verified if setstate.section(verified, name).get("ok") is False}
    names = sorted((name for name in filter(setdir.moment, os.listdir(sets)) if name not in bad), key=setdir.order)
    return [name for name in reversed(names) if os.path.isfile(os.path.join(sets, name, manifests.MANIFEST))]


def chosen(sets: list[str], before: set[str], there: set[str]) -> list[str]:
    """Which of ``sets`` (newest first) are to be handed over.

    before: those that were handed to this place. Of them the newest has to be there; that others are not is their
    owner's doing, but where nothing of all that is there any more, it is another place.
    """
    if not before & there:
        before = set()
    return [name for number, name in enumerate(sets) if name not in before or (number == 0 and name not in there)]


def hand_over(place: Place, to: str, sets_path: str, state: dict[str, Any], limit: census.Limit) -> job.Outcome:
    """Hand over what the place lacks. Raises OSError, and JobError with what was handed over all the same."""
    clock = time.monotonic()
    last = setstate.section(state, "offsite")
    known = last.get("to") == to and bool(last.get("good"))
    sets = good_sets(sets_path, state)
    if not sets:
        raise job.JobError("there is no good set that could be handed over")
    counts: dict[str, Any] = {"set": sets[0], "place": place.prepare(known), "handed": [], "sets": sets}
    of_place = setstate.section(state, "handed").get(counts["place"])
    try:
        for name in chosen(sets, set(of_place or ()), place.there()):
            limit.check()
            try:
                place.hand(name)
            except (job.JobError, OSError):
                # The rotation may have taken it meanwhile.
                if os.path.isdir(os.path.join(sets_path, name)):
                    raise
            else:
                counts["handed"].append(name)
    except job.JobError as error:
        raise job.JobError(str(error), error.exit_code, counts) from error
    seconds = f"{time.monotonic() - clock:.1f} s"
    if not counts["handed"]:
        return job.Outcome(f"set {sets[0]} was there already, {seconds}", counts)
    more = len(counts["handed"]) - 1
    what = f"set {counts['handed'][0]}" + (f" and {more} older" if more else "")
    return job.Outcome(f"{what} handed over and seen there whole, {seconds}", counts)


def note(state: dict[str, Any], to: str, record: dict[str, Any]) -> None:
    """Put the end of a run into root's record of the sets."""
    counts, last = record["counts"], setstate.section(state, "offsite")
    good = record["end"] if record["exit"] == job.DONE else last.get("good") if last.get("to") == to else None
    state["offsite"] = {**setstate.ended(record), "to": to, "good": good}
    if "place" in counts:
        places = {**setstate.section(state, "handed")}
        before = places.pop(counts["place"], None)
        there = {*(before if isinstance(before, list) else ()), *counts["handed"]}
        # The newest place last, and of each only the sets that are still here.
        places[counts["place"]] = [name for name in counts["sets"] if name in there]
        state["handed"] = dict(list(places.items())[-PLACES:])


def make_place(to: str, name: str, sets: str, directory: str, limit: census.Limit) -> Place:
    """The place that ``--to`` stands for. Raises JobError."""
    program, _, address = to.partition("=")
    environment = dict(os.environ)
    if program == "rclone":
        return Rclone(tools.Tool("rclone", directory, limit, environment), address, name, sets)
    if address:
        environment.pop("RESTIC_REPOSITORY_FILE", None)
        environment["RESTIC_REPOSITORY"] = address
    if address.startswith("/") and not os.path.isdir(address):
        raise job.JobError(f"there is no directory {store.printable(address, 200)}; is its disk mounted?")
    if not any(environment.get(f"RESTIC_PASSWORD{kind}") for kind in ("", "_FILE", "_COMMAND")):
        raise job.JobError("restic has no password: the environment file has no RESTIC_PASSWORD=…")
    return Restic(tools.Tool("restic", directory, limit, environment), name, sets)


def main(argv: list[str] | None = None) -> int:
    """Read the command line, hand over, return the exit code."""
    parser = argparse.ArgumentParser(description="Hand a store's backup sets to restic or rclone.")
    parser.add_argument("--name", required=True, help="the store's name")
    parser.add_argument("--sets", required=True, help="the directory of the sets")
    parser.add_argument("--sets-record", required=True, help="root's record of the sets")
    parser.add_argument("--to", required=True, help="restic=REPOSITORY or rclone=REMOTE:PATH")
    parser.add_argument("--deadline", type=float, default=DEADLINE, help="seconds this may take")
    options = parser.parse_args(argv)
    if not re.match(r"restic=|rclone=.", options.to):
        parser.error("--to is neither restic=REPOSITORY nor rclone=REMOTE:PATH")
    os.umask(0o077)
    limit = census.Limit(options.deadline)

    def work() -> job.Outcome:
        # Not in /tmp, which may be memory.
        with tempfile.TemporaryDirectory(prefix="memops-offsite-", dir="/var/tmp") as directory:
            place = make_place(options.to, options.name, options.sets, directory, limit)
            return hand_over(place, options.to, options.sets, setstate.read(options.sets_record), limit)

    def keep(record: dict[str, Any]) -> None:
        setstate.update(options.sets_record, lambda state: note(state, options.to, record))

    return job.run_recorded("offsite", work, keep)


if __name__ == "__main__":
    sys.exit(main())
