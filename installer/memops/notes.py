"""Notes in plain files: where they are, who may read them, and what scripts/jobs/notes.py says of them.

Root reads nothing of them itself: the script runs as the owner of each path, in a unit of its own. It is taken from
this package, so that nothing of memops needs to be installed for it.
"""

from __future__ import annotations

import difflib
import json
import os
import pwd
import shlex
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memops import host, owner, systemd
from memops.errors import MemopsError, NotPermitted, Refused, UsageError
from memops.places import OWN_PLACES, SHARED_DIRECTORIES
from memops.settings import check_path
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memops.settings import Store

SECONDS = 240
"""Seconds for the notes of one owner; the script's own limits are below that."""

MODULES = ("store", "note_dates", "note_forms", "blame", "notes")
"""The script and what it needs, in the order of their need."""

FILES_SHOWN = 40
PROBLEMS_SHOWN = 20

_START = f'{owner.LOADER}\nsys.exit(module.main(given["words"]))'


@dataclass(frozen=True)
class Place:
    """A path with notes: as it was typed, absolute, whose it is, and the directory that git needs to see for it.

    ``root`` is the path itself, or the top of the repository that it lies in.
    """

    typed: str
    path: str
    uid: int
    root: str

    def seen(self, number: int) -> str:
        """Where a unit that has ``root`` bound as its notes of this ``number`` sees the path."""
        rest = os.path.relpath(self.path, self.root)
        return f"/run/memops/notes/{number}" + ("" if rest == "." else f"/{rest}")


def place(typed: str) -> Place:
    """Look at a path, which is no link itself. Raises UsageError and NotPermitted."""
    shown = printable(typed, 300)
    if not typed:
        raise UsageError("The path is empty.", "Name a file of notes, or a directory.")
    try:
        # Only the last of its names may be no link; of a name that ends in ".." there is none to look at.
        whole = Path(typed).absolute()
        path = os.path.realpath(whole) if whole.name in ("", "..") else f"{os.path.realpath(whole.parent)}/{whole.name}"
        path = os.path.normpath(path)
        status = os.lstat(path)
    except PermissionError:
        raise NotPermitted(f"You may not look at {shown}.", "Type it again with sudo in front.") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"There is nothing at {shown}.", _nearest(whole)) from error
    if stat.S_ISLNK(status.st_mode):
        hint = f"Name what it leads to: {printable(os.path.realpath(path), 300)}"
        raise UsageError(f"{shown} is a link, and links are not followed.", hint)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise UsageError(f"{shown} is neither a plain file nor a directory.", "Name a file of notes, or a directory.")
    try:
        return Place(typed, path, status.st_uid, _root(path, status.st_uid))
    except PermissionError:
        raise NotPermitted(f"You may not look into {shown}.", "Type it again with sudo in front.") from None


def _nearest(missing: Path) -> str:
    """What to type in place of a path that is not there."""
    while not missing.parent.exists() and missing.parent != missing:
        missing = missing.parent
    try:
        names = sorted(entry.name for entry in missing.parent.iterdir())
    except OSError:
        names = []
    alike = {name.lower(): name for name in names}
    found = (alike[name] for name in difflib.get_close_matches(missing.name.lower(), alike, 3))
    near = [printable(missing.parent / name, 300) for name in found]
    return f"Did you mean {' or '.join(near)}?" if near else f"See what there is: ls {printable(missing.parent, 300)}"


def _root(path: str, uid: int) -> str:
    """The top of the owner's repository that ``path`` lies in, else the path."""
    homes = {entry.pw_dir for entry in pwd.getpwall()}
    for directory in (Path(path), *Path(path).parents):
        # A whole home is more than notes need to be shown.
        if str(directory) in SHARED_DIRECTORIES or (str(directory) in homes and str(directory) != path):
            break
        entry = host.look(str(directory / ".git"))
        if entry is not None:
            return str(directory) if entry.kind == "directory" and entry.uid == uid != 0 else path
    return path


def read(places: Sequence[Place], older_than: int, limit: int) -> dict[str, Any]:
    """What the script says of all places together; see Summary in scripts/jobs/notes.py. Raises MemopsError."""
    options = (f"--older-than={older_than}", f"--limit={limit}")
    if os.geteuid() != 0:
        return _checked(_direct((), places, options), places)
    running = systemd.version() is not None
    strict = running and owner.has_namespaces()
    found = []
    for uid in sorted({each.uid for each in places}):
        own = [each for each in places if each.uid == uid]
        said = _in_unit(uid, own, options, strict=strict) if running else _direct(_stepping_down(uid), own, options)
        found.append(_checked(said, own))
    return merged(found, limit)


def settle(store: Store, *, exists: bool) -> tuple[tuple[str, ...], list[str]]:
    """The store's notes as memops.toml has them, and what its owner should know. Raises UsageError and Refused.

    exists: whether the store's user is there already, and can try to read them.
    """
    places = [place(text) for text in store.notes]
    settled: list[str] = []
    for each in places:
        _require_own(store, each)
        text = f"{each.root}/./{os.path.relpath(each.path, each.root)}" if each.root != each.path else each.path
        if text in settled:
            raise UsageError(f"--notes {each.path} is given twice.", "Leave one of them out.")
        settled.append(text)
    return tuple(settled), _try(store, places) if exists else []


def _require_own(store: Store, each: Place) -> None:
    check_path("--notes", each.root)
    check_path("--notes", each.path)
    inside = (Path(each.path), *Path(each.path).parents)
    if each.path in SHARED_DIRECTORIES or any(Path(own) in inside for own in (*OWN_PLACES, store.backup_dir)):
        raise Refused(f"{each.path} is no place for notes.", "Name the agent's own: --notes PATH")
    user = _user(each.uid)
    if user != store.user and f"memops-{user}" != store.user:
        # The job sees them past closed directories, so that a link in their place would show the agent what is not
        # its own; whose they are is what it can check.
        raise Refused(
            f"{each.path} belongs to {user}, and the store to {store.user}: its monthly look reads only its own notes.",
            f"Look at these by hand: sudo memops notes {shlex.quote(each.path)}",
        )


def _try(store: Store, places: Sequence[Place]) -> list[str]:
    """Read the notes as their monthly look will. Raises Refused for a path that it could not read."""
    if not places:
        return []
    found = _checked(_in_unit(places[0].uid, places, ("--limit=0", "--no-git"), strict=store.strict), places)
    paths = {each.typed: each.path for each in places}
    for problem in found["problems"]:
        if problem["where"] in paths:
            # With namespaces the job sees them in a place of its own, whoever else's closed home they lie in.
            above = (
                "" if store.strict else ", and this machine has no namespaces, so it must pass all directories above"
            )
            raise Refused(
                f"User {store.user} cannot read {paths[problem['where']]} ({printable(problem['what'], 100)}){above}.",
                f"Look at: namei -l {shlex.quote(paths[problem['where']])}",
            )
    if not found["entries"]:
        return [f"There are no notes in {', '.join(paths.values())} yet."]
    if found["problems"]:
        first, count = found["problems"][0], len(found["problems"]) + found["unsaid"]
        named = f"{printable(first['where'], 300)} ({printable(first['what'], 100)})"
        return [f"{count} of the notes cannot be read, the first {named}."]
    return []


def _direct(before: tuple[str, ...], places: Sequence[Place], options: Sequence[str]) -> host.Ran:
    words = _words(places, [each.path for each in places], options)
    return host.run(*before, "/usr/bin/python3", "-I", "-c", _START, stdin=words, timeout=SECONDS, ok=None)


def _stepping_down(uid: int) -> tuple[str, ...]:
    """What root runs a command with, as the owner, on a machine that systemd does not run."""
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:
        gid = uid
    identity = (f"--reuid={uid}", f"--regid={gid}", "--clear-groups")
    return ("setpriv", *identity, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


def _in_unit(uid: int, places: Sequence[Place], options: Sequence[str], *, strict: bool) -> host.Ran:
    for each in places:
        check_path("PATH", each.root)
    seen = [each.seen(number) if strict else each.path for number, each in enumerate(places)]
    command: tuple[str, ...] = ("/usr/bin/python3", "-I", "-c", _START)
    # It ends the git that it starts.
    properties = [*owner.DENIED, "SystemCallFilter=kill", "MemoryMax=1G", "Nice=10"]
    if strict:
        binds = (f'BindReadOnlyPaths="{each.root}":/run/memops/notes/{n}' for n, each in enumerate(places))
        properties += [*owner.WALLS, *binds]
    identity, command = owner.as_user(_user(uid), command)
    words = _words(places, seen, options)
    return owner.transient([*properties, *identity], command, stdin=words, timeout=SECONDS)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _words(places: Sequence[Place], seen: Sequence[str], options: Sequence[str]) -> str:
    """The standard input of the script: its modules and its command line."""
    names = (f"--name={each.typed}" for each in places)
    return owner.given(MODULES, words=[*options, *names, "--", *seen])


_COUNTS = ("entries", "dated", "undated", "old")
_LISTS: Mapping[str, tuple[str, ...]] = {
    "files": ("file", "form"),
    "listed": ("file", "by", "text"),
    "problems": ("where", "what"),
}


def _checked(ran: host.Ran, places: Sequence[Place]) -> dict[str, Any]:
    """What the script printed, when it has the right form: it ran as the owner, who may have meddled with it."""
    try:
        found: dict[str, Any] = json.loads(ran.out)
        good = all(type(found[key]) is int for key in (*_COUNTS, "older_than", "unsaid"))
        for name, texts in _LISTS.items():
            good = good and all(isinstance(each[key], str) for each in found[name] for key in texts)
        good = good and all(type(each[key]) is int for each in found["files"] for key in _COUNTS)
        good = good and all(
            type(each["line"]) is int and isinstance(each["date"], str | None) for each in found["listed"]
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        good = False
    if not good:
        names = ", ".join(printable(each.typed, 300) for each in places)
        raise MemopsError(f"{names} could not be read as its owner: {printable(ran.said, 300)}", "Look at: namei -l")
    return found


def merged(found: Sequence[Mapping[str, Any]], limit: int) -> dict[str, Any]:
    """Several answers as one. Pure."""
    whole: dict[str, Any] = {"older_than": found[0]["older_than"]}
    whole |= {key: sum(each[key] for each in found) for key in (*_COUNTS, "unsaid")}
    whole |= {key: [entry for each in found for entry in each[key]] for key in _LISTS}
    whole["listed"] = sorted(whole["listed"], key=lambda each: (each["date"] is None, each["date"]))[:limit]
    return whole


def require_some(found: Mapping[str, Any], places: Sequence[Place]) -> None:
    """Raise MemopsError when no notes were found."""
    if found["entries"]:
        return
    names = ", ".join(printable(each.typed, 300) for each in places)
    first = next((f"{each['where']}: {each['what']}" for each in found["problems"]), "")
    hint = "Notes are .md files, and the .json or .jsonl of the MCP server-memory; hidden directories are passed over."
    raise MemopsError(f"There are no notes in {names}.", f"Look at {printable(first, 400)}." if first else hint)


def describe(found: Mapping[str, Any], width: int) -> Iterator[str]:
    """The answer as text in lines of ``width`` characters, the places of files apart. Pure."""
    head = ("ENTRIES", "DATED", "UNDATED", f"OVER {found['older_than']} DAYS")
    files = found["files"]
    yield "  ".join(f"{word:>{max(7, len(word))}}" for word in head) + "  FILE"
    for each in files[:FILES_SHOWN]:
        form = "" if each["form"] == "markdown" else f" ({printable(each['form'])})"
        yield _row(head, each) + f"  {printable(each['file'], 300)}{form}"
    if len(files) > FILES_SHOWN:
        yield f"… and {len(files) - FILES_SHOWN:,} more files; --json lists all."
    if len(files) != 1:
        yield _row(head, found) + "  in all"
    if found["listed"]:
        yield ""
        yield "The oldest, then those without a date:" if found["undated"] else "The oldest:"
        yield from (line for each in found["listed"] for line in _entry(each, width))
        left = found["old"] + found["undated"] - len(found["listed"])
        if left > 0:
            yield f"… and {left:,} more (--limit)."
    else:
        yield f"Nothing is older than {found['older_than']} days."
    if found["problems"]:
        yield ""
        yield from _problems(found)


def _row(head: Iterable[str], counts: Mapping[str, Any]) -> str:
    numbers = zip(head, _COUNTS, strict=True)
    return "  ".join(f"{counts[key]:>{max(7, len(word))},}" for word, key in numbers)


def _entry(each: Mapping[str, Any], width: int) -> Iterator[str]:
    by = {"entry": "", "": ""}.get(each["by"], f" ({printable(each['by'], 20)})")
    start = f"{printable(each['file'], 300)}:{each['line']}  {printable(each['date'] or 'unknown', 10)}{by}"
    if (room := width - len(start) - 2) >= 30:
        yield f"{start}  {printable(each['text'], room)}"
    else:
        yield start
        yield f"    {printable(each['text'], max(width - 4, 20))}"


def _problems(found: Mapping[str, Any]) -> Iterator[str]:
    for each in found["problems"][:PROBLEMS_SHOWN]:
        yield f"! {printable(each['where'], 300)}: {printable(each['what'], 300)}"
    left = len(found["problems"]) - PROBLEMS_SHOWN + found["unsaid"]
    if left > 0:
        yield f"! … and {left:,} more of these"


def text(found: Mapping[str, Any]) -> str:
    """The answer as it is printed."""
    return "\n".join(describe(found, shutil.get_terminal_size((80, 24)).columns))
