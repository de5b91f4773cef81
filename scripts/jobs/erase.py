"""Erasing words for good, the half that the store's owner does: one request on standard input, one answer, both JSON.

``look`` says where the words are, ``delete`` takes them out of rows, records and copies, ``settle`` writes the
databases anew, and ``search`` looks again. The words come by standard input and go into no run record, journal or
command line; what is said of a place is said without them.

A place is ``{"kind", "where", "how", …}``: kind ``fact`` (with ``id``), ``row``, ``schema``, ``pages`` (bytes that no
value has), ``record``, ``copy`` (what a restore moved aside), ``part`` and ``file``; how as traces.Words.of has it.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sqlite3
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import blanking
import full_text
import job
import kept
import rows
import traces
import verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LARGEST: Final = 64 << 20
"""Bytes of a request."""

LISTED: Final = 500
"""Places that are named."""

SHOWN: Final = 50
WAIT: Final = 20.0
"""Seconds to wait for the agent's lock."""

SECONDS: Final = 3000.0
"""That reading or writing one database may take; the command waits somewhat longer."""

ASIDE: Final = ("before-restore-", ".restore-")
"""How directories begin that a restore makes beside a store: with what was there before, with what is laid ready."""

ERASED: Final = "[erased]"
BLANK: Final = "[…]"
RECEIPTS: Final = "erased.jsonl"
KEEP: Final = 1000

Place = dict[str, Any]
Pair = tuple[str, str]
"""A path as this process sees it, and as everybody else does."""


@dataclass(frozen=True)
class Task:
    """Where to look. ``databases``: the store, then further ones that are the owner's plain SQLite files."""

    state: str
    databases: tuple[Pair, ...]
    parts: tuple[Pair, ...] = ()
    """Files and directories that a program of its own keeps; they are searched and never written to."""
    beside: tuple[Pair, ...] = ()
    """Directories of databases and parts: files beside them are searched, what a restore moved aside may go."""
    notes: tuple[Pair, ...] = ()
    incoming: tuple[Pair, ...] = ()
    """Where copies lie on their way into a set."""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Task:
        """From a request."""
        pairs = {
            name: tuple((str(seen), str(shown)) for seen, shown in given.get(name, ()))
            for name in ("databases", "parts", "beside", "notes", "incoming")
        }
        return cls(str(given["state"]), **pairs)


@dataclass
class Found:
    """Where words are, and what could not be looked at."""

    words: traces.Words
    places: list[Place] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, kind: str, where: str, how: str, **more: Any) -> None:
        """Note a place."""
        self.count += 1
        if len(self.places) < LISTED:
            self.places.append({"kind": kind, "where": self.words.shown(where), "how": how, **more})

    def failed(self, where: str, error: object) -> None:
        """Note what could not be looked at."""
        if len(self.unread) < SHOWN:
            self.unread.append(self.words.shown(f"{where}: {error}"))

    def as_json(self) -> dict[str, Any]:
        """As an answer has it."""
        return {"places": self.places, "more": self.count - len(self.places), "unread": self.unread}


def search(task: Task, words: traces.Words) -> Found:
    """Look at everything. What cannot be read is in ``unread``."""
    found = Found(words)
    known = set()
    for number, (seen, shown) in enumerate(task.databases):
        known |= {seen, *(seen + end for end in traces.SIDECARS)}
        _search_database(found, seen, shown, facts=number == 0)
    for kind, pairs in (("part", task.parts), ("file", task.notes), ("incoming", task.incoming)):
        for seen, shown in pairs:
            known |= _search_files(found, kind, seen, shown)
    for seen, shown in task.beside:
        _search_beside(found, seen, shown, known)
    _search_files(found, "record", task.state, task.state)
    return found


def _search_database(found: Found, seen: str, shown: str, *, facts: bool) -> None:
    hits = []
    try:
        with contextlib.closing(store.connect(seen, readonly=True, timeout=WAIT, seconds=SECONDS)) as connection:
            connection.text_factory = _text
            hits = traces.in_database(connection, found.words)
    except (sqlite3.Error, store.StoreError, OSError, UnicodeError) as error:
        found.failed(shown, error)
    for hit in hits:
        columns = ", ".join(hit.columns)
        if facts and hit.table == "memory" and hit.id is not None:
            name = found.words.shown(hit.id, 100)
            found.add("fact", f"{name} ({columns})", hit.how, id=name)
        elif hit.table == "sqlite_schema":
            found.add("schema", f"{shown}, the definition of {hit.key[0]}", hit.how)
        else:
            row = hit.id if hit.id is not None else f"row {hit.key[0]}"
            found.add("row", f"{shown}, {hit.table}, {row} ({columns})", hit.how)
    for end in ("", *traces.SIDECARS):
        with _naming(found, shown + end):
            # In the file itself, of what a row has nothing is news.
            if (how := traces.in_file(seen + end, found.words)) and (end or not hits):
                found.add("pages", shown + end, how)


def _search_files(found: Found, kind: str, seen: str, shown: str) -> set[str]:
    looked = set()
    with _naming(found, shown):
        for path in traces.files_below(seen):
            looked.add(path)
            where = shown + path[len(seen) :]
            with _naming(found, where):
                how = traces.in_file(path, found.words)
                if not how and traces.is_database(path):
                    how = _in_values(path, found.words)
                if how:
                    found.add(kind, where, how)
    return looked


def _in_values(path: str, words: traces.Words) -> str:
    """As Words.of, of the values in a database that is not written to."""
    try:
        with contextlib.closing(store.connect(path, readonly=True, timeout=WAIT, seconds=SECONDS)) as connection:
            connection.text_factory = _text
            hits = traces.in_database(connection, words)
    except (sqlite3.Error, store.StoreError, UnicodeError) as error:
        raise OSError(str(error)) from None
    return "" if not hits else "whole" if any(hit.how == "whole" for hit in hits) else "part"


def _search_beside(found: Found, seen: str, shown: str, known: set[str]) -> None:
    with _naming(found, shown):
        for entry in sorted(os.scandir(seen), key=lambda each: each.name):
            where = f"{shown}/{entry.name}"
            if entry.is_dir(follow_symlinks=False) and entry.name.startswith(ASIDE):
                _search_files(found, "copy", entry.path, where)
            elif entry.is_file(follow_symlinks=False) and entry.path not in known:
                known.add(entry.path)
                _search_files(found, "file", entry.path, where)


@contextlib.contextmanager
def _naming(found: Found, where: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        found.failed(where, error.strerror or error)


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


# What is meant


def look(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """What would be erased: ``texts``, the facts that go (``ids``, the first as ``going``), and all places.

    given: ``ids`` of facts, or ``texts``, or ``redact``: the id of a fact that holds what looks like a credential.
    """
    with contextlib.closing(
        store.connect(task.databases[0][0], readonly=True, timeout=WAIT, seconds=SECONDS)
    ) as connection:
        connection.text_factory = lambda text: text.decode(errors="backslashreplace")
        reader = rows.Reader(connection)
        texts, ids, seen = list(given.get("texts") or ()), [], {}
        short = 0
        if given.get("redact"):
            fact = reader.one(given["redact"])
            texts, seen = blanking.credentials(fact), {fact["id"]: fact["seen"]}
        elif given.get("ids"):
            seen = {fact["id"]: fact["seen"] for fact in reader.named(given["ids"])}
            ids = rows.behind(connection, given["ids"])
            own = [str(fact["fact"]) for fact in reader.named(ids)]
            texts = [text for text in own if len(text.strip()) >= traces.SHORTEST]
            short = len(own) - len(texts)
            if not texts:
                raise store.Refused(
                    f"what they say has fewer than {traces.SHORTEST} characters, so that it is gone could not be shown",
                    "Forget them: memops forget ID",
                )
        words = traces.Words(texts)
        if given.get("matching"):
            ids = rows.behind(connection, _matching(connection, words))
        going = [rows.marked(fact, hide=True) for fact in reader.named(ids[:SHOWN])]
    found = search(task, words)
    hidden = [
        {**fact, **{name: words.without(str(fact[name]), BLANK) for name in rows.TEXTS if fact[name]}} for fact in going
    ]
    return {"texts": list(words.texts), "ids": ids, "seen": seen, "going": hidden, "short": short, **found.as_json()}


def _matching(connection: sqlite3.Connection, words: traces.Words) -> list[str]:
    """The ids of the facts that have the words in any column."""
    before, connection.text_factory = connection.text_factory, _text
    try:
        table = next((each for each in traces.tables(connection) if each.name == "memory"), None)
        if table is None:
            raise store.Refused("this store has no table memory", "Look at it: memops status --fresh")
        hits = traces.in_table(connection, table, words)
        return [hit.id for hit in hits if hit.id is not None and hit.how == "whole"]
    finally:
        connection.text_factory = before


# Taking it out


def delete(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """Take the words out of everything that may be written to: ``gone`` (ids), ``blanked`` (values), ``left`` (why).

    given: ``texts``, and either ``ids`` with what was ``seen`` of those that were named, or ``matching`` (facts that
    have the words go), or ``redact`` (they stay, without the words).
    """
    words = traces.Words(given["texts"])
    sign = BLANK if given.get("redact") else ERASED
    gone: list[str] = []
    left: list[str] = []
    blanked = 0
    for number, (seen, shown) in enumerate(task.databases):
        try:
            with contextlib.closing(store.connect(seen, timeout=WAIT, seconds=SECONDS)) as connection:
                connection.text_factory = _text
                if number == 0:
                    gone = _forget(connection, words, given)
                keep = () if number or given.get("redact") else ("memory",)
                done, problems = blanking.blank(connection, words, sign, keep)
                blanked += done
                left += [words.shown(f"{shown}: {problem}") for problem in problems]
        except sqlite3.Error as error:
            if number == 0 and not gone:
                raise
            left.append(words.shown(f"{shown}: {job.explain(error)}"))
    with contextlib.suppress(OSError):  # it is done, and a full disk must not say otherwise
        _record(task.state, gone, words, given)
        kept.drop(task.state, gone)
    left += blanking.clean_records(task.state, words, sign)
    for seen, shown in task.beside:
        left += _remove_copies(seen, shown, words)
    return {"gone": gone, "blanked": blanked, "left": left}


def _forget(connection: sqlite3.Connection, words: traces.Words, given: Mapping[str, Any]) -> list[str]:
    with store.writing(connection):
        reader = rows.Reader(connection)
        for name, seen in (given.get("seen") or {}).items():
            verdicts.require_unchanged(reader.one(name), seen)
        wanted = list(given.get("seen") or ()) if given.get("ids") else []
        if given.get("matching"):
            wanted = _matching(connection, words)
        return verdicts.forget(connection, wanted, only=False)[0] if wanted else []


def _record(state: str, gone: Sequence[str], words: traces.Words, given: Mapping[str, Any]) -> None:
    ids = [name for name in gone if not words.of(name.encode(errors="surrogateescape"))]
    done = [{"id": name, "verdict": "forget", "new": None} for name in ids]
    verdicts.record(state, done, str(given.get("by", "")), terminal=bool(given.get("terminal")))


def _remove_copies(seen: str, shown: str, words: traces.Words) -> list[str]:
    left = []
    for entry in list(os.scandir(seen)):
        if not entry.is_dir(follow_symlinks=False) or not entry.name.startswith(ASIDE):
            continue
        found = Found(words)
        _search_files(found, "copy", entry.path, f"{shown}/{entry.name}")
        if found.count:
            try:
                blanking.remove_tree(seen, entry.name)
            except OSError as error:
                left.append(words.shown(f"{shown}/{entry.name}: {error.strerror}"))
    return left


# Writing it anew


def settle(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """Write the databases anew and empty their -wal: ``left`` says of which that could not be done, and why.

    given: ``held`` (shown path → who has that database open, which is then only told to forget words).
    """
    left = []
    held: Mapping[str, str] = given.get("held") or {}
    for seen, shown in task.databases:
        try:
            with contextlib.closing(store.connect(seen, timeout=WAIT, seconds=SECONDS)) as connection:
                if shown in held:
                    full_text.settle(connection, _for(WAIT))
                    left.append(f"{shown} was not written anew: {held[shown]}")
                elif why := write_anew(connection):
                    left.append(f"{shown}: {why}")
        except (sqlite3.Error, store.StoreError) as error:
            said = str(job.explain(error) if isinstance(error, sqlite3.Error) else error)
            left.append(store.printable(f"{shown} was not written anew: {said}", 300))
    return {"left": left}


def _for(seconds: float) -> Callable[[], bool]:
    import time

    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def write_anew(connection: sqlite3.Connection) -> str:
    """Leave nothing in a database's files but what its rows say. Returns why that is not so, or nothing.

    Raises sqlite3.Error.
    """
    found = traces.indexes(connection)
    for name, _ in found:
        _tell(connection, name, "optimize")
    store.let_vacuum(connection)
    connection.execute("VACUUM")
    for name, module in found:
        if module == "fts5" and not _is_whole(connection, name):
            # VACUUM may number rows anew that have no number of their own, and the index knows them by it.
            _tell(connection, name, "rebuild")
            _tell(connection, name, "optimize")
    mode = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
    if mode == "persist":  # which keeps the pages as they were before
        connection.execute("PRAGMA journal_mode = delete")
        connection.execute("PRAGMA journal_mode = persist")
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if busy:
        return "somebody reads it, so its -wal could not be emptied"
    for name, module in found:
        if module == "fts5" and traces.segments(connection, name) > 1:
            return f"the full-text index {store.printable(name)} was not merged to one piece"
    return ""


def _tell(connection: sqlite3.Connection, index: str, word: str) -> None:
    name = '"' + index.replace('"', '""') + '"'
    connection.execute(f"INSERT INTO {name}({name}) VALUES (?)", (word,))


def _is_whole(connection: sqlite3.Connection, index: str) -> bool:
    name = '"' + index.replace('"', '""') + '"'
    try:
        connection.execute(f"INSERT INTO {name}({name}, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError:
        return False
    return True


# A receipt


def receipt(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """Add to erased.jsonl what was done, without the words; of them a salted hash, which is slow to guess from."""
    words = traces.Words(given["texts"])
    salt = os.urandom(16)
    text = "\n".join(words.texts).encode(errors="surrogateescape")
    digest = hashlib.scrypt(text, salt=salt, n=1 << 14, r=8, p=1, dklen=32)
    body = json.loads(words.without(json.dumps(given["receipt"], ensure_ascii=False), ""))
    line = {"version": 1, "at": job.now(), **body, "salt": salt.hex(), "scrypt": digest.hex()}
    job.append_lines(task.state, RECEIPTS, [line], KEEP, 0o600)
    return {"path": os.path.join(task.state, RECEIPTS)}


OPS: Final[dict[str, Callable[[Task, Mapping[str, Any]], dict[str, Any]]]] = {
    "look": look,
    "delete": delete,
    "settle": settle,
    "search": lambda task, given: search(task, traces.Words(given["texts"])).as_json(),
    "receipt": receipt,
}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request, in any case."""
    try:
        return {"value": OPS[request["op"]](Task.read(request["task"]), request["given"])}
    except store.Refused as error:
        return {"error": str(error), "hint": error.hint, "exit": job.REFUSED}
    except sqlite3.Error as error:
        failure = job.explain(error)
        return {"error": str(failure), "hint": "", "exit": failure.exit_code}
    except (job.JobError, store.StoreError, OSError) as error:
        return {"error": str(error), "hint": "", "exit": getattr(error, "exit_code", job.FAILED)}


def main() -> int:
    """Read the request, print the answer."""
    argparse.ArgumentParser(description="Erase words from a store; the request comes by standard input.").parse_args()
    os.umask(0o077)
    print(json.dumps(answer(json.loads(sys.stdin.buffer.read(LARGEST)))), flush=True)
    return job.DONE


if __name__ == "__main__":
    sys.exit(main())
