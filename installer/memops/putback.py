"""Putting a set back: all of its parts, or none.

A process without rights sends the set's files to one of the owner's, which lays them ready beside the present ones and
then lets them change places (scripts/jobs/restore.py); the agent stands still for the latter only. What is under way is
in root's note /var/lib/memops/STORE.restore.json, so that whoever comes after a kill can undo it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from memops import apply, changes, holders, host, owner, sets, systemd
from memops.errors import MemopsError, NotProven, Refused
from memops.restore import MAIN, SECONDS
from memops.settings import LIBRARY
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memops.restore import Plan
    from memops.settings import Store

    Say = Callable[[str], None]

PREPARING, COMMITTING, DONE = "preparing", "committing", "done"
PATIENCE = 3 * 3600
"""Seconds that running jobs are waited for."""


@dataclass
class Note:
    """Root's note of a restore under way; all that undoing needs.

    ``task`` is what the owner's process is told, ``properties`` what its unit needs, ``directories`` where the parts
    lie: as that process sees it → as everybody else does.
    """

    set: str
    stamp: str
    stage: str
    task: dict[str, Any]
    properties: list[str]
    directories: dict[str, str]
    stopped: list[str] = field(default_factory=list)
    version: int = 1

    @property
    def aside(self) -> list[str]:
        """Where the present files are moved, that of the store first."""
        return [f"{directory}/{self.aside_name}" for directory in self.directories.values()]

    @property
    def aside_name(self) -> str:
        """What these directories are called."""
        return f"before-restore-{self.stamp}"

    def wanted(self, inside: str = "") -> holders.Wanted:
        """The files that nobody may have open; ``inside``: below this directory of the restore's."""
        places = [(f"{self.directories[each['directory']]}{inside}", each["file"]) for each in self.task["pieces"]]
        files = tuple(f"{directory}/{file}" for directory, file in places if file)
        return holders.Wanted(files, tuple(directory for directory, file in places if not file))


def _write(store: Store, note: Note) -> None:
    host.write(store.restore_note, json.dumps(asdict(note), indent=1) + "\n")


def read_note(store: Store) -> Note | None:
    """The note of a restore that did not come to its end; None where there is none. Raises MemopsError."""
    text = host.read(store.restore_note)
    if text is None:
        return None
    try:
        note = Note(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise MemopsError(
            f"{store.restore_note} cannot be read: {error}.",
            "Look for before-restore-* beside the store: what is in there goes back by hand. Then remove that file.",
        ) from error
    return note


@contextlib.contextmanager
def alone(store: Store) -> Iterator[None]:
    """Keep any other restore of this store out. Raises Refused."""
    descriptor = os.open(f"/run/memops/restore-{store.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"Another restore of the store {store.name} is running.", "Wait for its end.") from None
        yield
    finally:
        os.close(descriptor)


def early_refusal(plan: Plan) -> None:
    """Refuse before anybody is asked, where it is clear already that somebody has the files open. Raises Refused."""
    ours = {plan.store.agent_unit, *plan.store.services} - {""}
    found = [holder for holder in holders.find(make_note(plan).wanted()) if not ours & set(holder.units)]
    if found:
        raise _in_use(plan.store, found)


def _in_use(store: Store, found: Sequence[holders.Holder]) -> Refused:
    unit = next((unit for holder in found for unit in holder.units if unit.endswith(".service")), "")
    hint = f"Stop it: sudo systemctl stop {unit}" if unit else "Stop whatever uses the memory, your agent for one."
    if not store.agent_unit:
        option = f"memops install{sets.name_option(store)} --agent-unit {unit or 'UNIT'}"
        hint += f"\nOr let memops stop the agent's unit: sudo {option}"
    said = "; ".join(holder.text for holder in found[:5])
    return Refused(f"The memory is in use: {said}.", hint)


def make_note(plan: Plan) -> Note:
    """The note with which putting back begins."""
    store = plan.store
    seen = store.seen_db.rpartition("/")[0]
    mode = "wal" if store.journal_mode == "wal" else ""
    directories = {seen: store.directory}
    pieces = [{"name": MAIN, "kind": "sqlite", "directory": seen, "file": store.file, "default_mode": mode}]
    for part in plan.local:
        # Two parts in one directory must be seen at one place, or nothing could be moved between them.
        seen = next((key for key, real in directories.items() if real == part.directory), "")
        if not seen:
            seen = f"/run/memops/parts/{part.name}" if store.strict else part.directory
            directories[seen] = part.directory
        pieces.append({"name": part.name, "kind": part.kind, "directory": seen, "file": part.file})
    served = [{"name": part.name, "kind": part.kind, "source": part.source} for part in plan.served]
    stamp = time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime())
    task = {"stamp": stamp, "pieces": pieces, "served": served}
    return Note(plan.chosen.name, stamp, PREPARING, task, _properties(plan), directories)


def _properties(plan: Plan) -> list[str]:
    store = plan.store
    properties = changes.binds(store, [part for part in plan.local if part.directory != store.directory])
    # A file may belong to another of the owner's groups, which is none in a user namespace.
    properties += ["PrivateUsers=no", "SystemCallFilter=@chown"]
    if plan.served:
        properties += ["PrivateNetwork=no", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "IPAddressDeny="]
        # It ends the programs that it starts.
        properties.append("SystemCallFilter=@network-io kill")
        if store.strict:
            # The sockets of servers lie in /run; systemd and its bus are no server of anybody's.
            properties += ["TemporaryFileSystem=", "ReadOnlyPaths=/run"]
            properties.append("InaccessiblePaths=-/run/systemd/private -/run/dbus")
        secret = [part.name for part in plan.served if part.name in store.secrets]
        properties += [f"LoadCredential={name}:{store.secret_file(name)}" for name in secret]
    return properties


def carry_out(plan: Plan, say: Say) -> list[str]:
    """Put the set back. Returns the directories that have what was there before.

    Raises MemopsError when everything is as before, NotProven when the set is in place but something did not come up.
    """
    store, note = plan.store, make_note(plan)
    with apply.signals_raise():
        try:
            _write(store, note)
            _stop(store, note, store.timers)
            _wait_for_jobs(store, say)
            say(f"lay {len(plan.names)} {'part' if len(plan.names) == 1 else 'parts'} ready and check them")
            _prepare(plan, note, say)
            if store.agent_unit:
                say(f"stop {store.agent_unit}")
                _stop(store, note, [store.agent_unit])
            _require_unused(store, note.wanted())
            note.stage = COMMITTING
            _write(store, note)
            say("let them change places with the present ones, and look at them there")
            _owners_step(store, note, "commit")
            # Whoever opened the old files in the moment before they moved goes on writing to them.
            _require_unused(store, note.wanted(f"/{note.aside_name}"))
            note.stage = DONE
            _write(store, note)
        except BaseException as error:
            raise _taken_back(store, note, error, say) from error
        aside = [path for path in note.aside if host.look(path) is not None]
        if problems := _finish(store, note):
            raise NotProven(
                f"The set {note.set} is in place, but: {' '.join(problems)}",
                f"What was there before is in {', '.join(aside)}",
            )
    return aside


def _require_unused(store: Store, wanted: holders.Wanted) -> None:
    if found := holders.find(wanted):
        raise _in_use(store, found)


def _taken_back(store: Store, note: Note, error: BaseException, say: Say) -> MemopsError:
    """Undo, and return the error to be raised then."""
    if isinstance(error, MemopsError):
        failure = error
    elif isinstance(error, OSError):
        failure = MemopsError(f"{error.strerror}: {error.filename}." if error.filename else f"{error}.")
    else:
        failure = MemopsError(f"{error!r}.")
    try:
        for remark in undo(store, note):
            say(f"Note: {remark}")
    except MemopsError as left:
        again = f"sudo memops restore --undo{sets.name_option(store)}"
        return MemopsError(f"{failure.message} And it could not be undone: {left.message}", f"{left.hint}\n{again}")
    return type(failure)(f"{failure.message} Everything is as before.", failure.hint)


def _prepare(plan: Plan, note: Note, say: Say) -> None:
    store = plan.store
    path = f"{store.seen_sets}/{plan.chosen.path}"
    command = ("/usr/bin/python3", "-I", f"{LIBRARY}/setcopy.py", "send", path, *plan.names)
    walls = sets.walls(store, sets.bound(store))
    sending = owner.transient_words(walls, command, SECONDS)
    sent, received = host.pipe(sending, _owners_words(store, note, "prepare"), SECONDS + 60)
    if sent.code and sent.err.strip():
        raise MemopsError(f"The set could not be read: {printable(sent.said, 400)}.")
    for remark in _answer(note, received) or ():
        say(f"Note: {remark}")


def _owners_step(store: Store, note: Note, step: str) -> list[str]:
    ran = host.run(*_owners_words(store, note, step), timeout=SECONDS + 60, ok=None)
    return _answer(note, ran)


def _unit(store: Store) -> str:
    """The owner's process has a unit of this name, so that there is one at most and it can be ended."""
    return f"memory-restoring{store.suffix}.service"


def _owners_words(store: Store, note: Note, step: str) -> tuple[str, ...]:
    job = ("/usr/bin/python3", "-I", f"{LIBRARY}/restore.py", step, json.dumps(note.task))
    return owner.transient_words(*owner.as_owner(store, job, note.properties), SECONDS, _unit(store))


def _answer(note: Note, ran: host.Ran) -> list[str]:
    """What the owner's process said: remarks. Raises MemopsError for a failure; its words are not to be trusted."""
    try:
        answer = json.loads(ran.out.rstrip().rpartition("\n")[2])  # a kind may say something before
        error, remarks = answer.get("error"), answer.get("done")
    except (ValueError, AttributeError, RecursionError):
        error, remarks = ran.said, None
    if error is not None or ran.code:
        raise MemopsError(f"{_real(note, printable(error or ran.said, 400)).rstrip('.')}.")
    found = remarks if isinstance(remarks, list) else []
    return [_real(note, printable(remark, 200)) for remark in found[:20]]


def _real(note: Note, text: str) -> str:
    """A sentence with the places that everybody knows."""
    for seen, real in note.directories.items():
        text = text.replace(seen, real)
    return text


# Units


def _stop(store: Store, note: Note, units: Sequence[str]) -> None:
    """Stop those of the units that run, having noted that they are to be started again."""
    shown = systemd.show(units, "ActiveState")
    running = [unit for unit in units if shown[unit]["ActiveState"] in ("active", "activating", "reloading")]
    if not running:
        return
    note.stopped += [unit for unit in running if unit not in note.stopped]
    _write(store, note)
    host.run("systemctl", "stop", "--", *running, timeout=600)


def _wait_for_jobs(store: Store, say: Say) -> None:
    units, end, said = store.services, time.monotonic() + PATIENCE, ""
    while True:
        shown = systemd.show(units, "ActiveState", "Job")
        idle = ("inactive", "failed", "unknown")
        busy = [unit for unit in units if shown[unit]["ActiveState"] not in idle or shown[unit]["Job"] not in ("", "0")]
        if not busy:
            return
        if busy[0] != said:
            said = busy[0]
            say(f"wait for the end of {said}")
        if time.monotonic() > end:
            raise Refused(f"{busy[0]} does not come to its end.", f"Look at it: systemctl status {busy[0]}")
        time.sleep(0.2)


def _start(note: Note) -> list[str]:
    """Start what was stopped, the agent first. Returns what did not come up, in sentences."""
    for unit in reversed(note.stopped):
        host.run("systemctl", "start", "--", unit, timeout=600, ok=None)
    shown = systemd.show(note.stopped, "ActiveState") if note.stopped else {}
    ended = [unit for unit, properties in shown.items() if properties["ActiveState"] in ("inactive", "failed")]
    return [f"{unit} was stopped and does not run again (systemctl status {unit})." for unit in ended]


# The end, of this run or of one that was killed


def _finish(store: Store, note: Note) -> list[str]:
    """After success: clear up, start what was stopped. Returns what is not well, in sentences."""
    problems = []
    try:
        try:
            _owners_step(store, note, "settle")
        except MemopsError:  # killed, perhaps; nothing depends on how often it runs
            _owners_step(store, note, "settle")
        settled = True
    except MemopsError as error:
        problems.append(f"the files laid ready could not be removed: {error.message}")
        settled = False
    problems += _start(note)
    if settled:
        host.remove(store.restore_note)  # else the next run, of whatever form, clears up
    return problems


def undo(store: Store, note: Note) -> list[str]:
    """Bring everything back to what it was before, and start what was stopped. Returns remarks. Raises MemopsError."""
    # Where the command was interrupted, the owner's process still runs.
    host.run("systemctl", "stop", "--", _unit(store), timeout=600, ok=None)
    if any(host.look(path) is not None for path in note.aside):
        # After a reboot all of it may be running.
        _stop(store, note, store.timers)
        if store.agent_unit:
            _stop(store, note, [store.agent_unit])
        _require_unused(store, note.wanted())
    remarks = _owners_step(store, note, "undo")
    remarks += _start(note)
    host.remove(store.restore_note)
    return remarks


def recover(store: Store, say: Say) -> str:
    """Undo, or finish, a restore that was killed. Returns how it is then; empty: there was none."""
    note = read_note(store)
    if note is None:
        return ""
    with apply.signals_raise():
        if note.stage == DONE:
            host.run("systemctl", "stop", "--", _unit(store), timeout=600, ok=None)
            say(f"An earlier restore had put the set {note.set} in place, and was killed then. It stays.")
            remarks, state = _finish(store, note), f"the set {note.set} is in place."
        else:
            say(f"An earlier restore of the set {note.set} did not come to its end. It is undone now.")
            remarks, state = undo(store, note), "as it was before."
    for remark in remarks:
        say(f"Note: {remark}")
    return state
