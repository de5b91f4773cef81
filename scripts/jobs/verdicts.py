"""What somebody decided about facts: confirm, replace, forget. All of it in one transaction, or nothing.

A verdict is a dict: ``id``, ``verdict`` (``confirm``, ``replace``, ``forget`` or ``skip``), ``seen`` (optional: refused
where the fact says something else by now), and for

- ``confirm``: ``expires_at`` (UTC text, null for no end, left out to leave it as it is)
- ``replace``: ``fact``, ``source``, ``expires_at`` (left out: as the old one), ``allow_secret`` (why what looks like a
  credential in them is none)
- ``forget``: ``going`` (optional: refused where it would take anything else than was shown, see ``going``)
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any, Final

import store

import job
import rows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

KEEP: Final = 2000
"""Verdicts on record."""

REASON: Final = 200
"""Characters of a reason."""

FILE: Final = "verdicts.jsonl"


class _Rehearsed(Exception):  # noqa: N818 - no error
    """All went well, and is to be taken back."""


def apply(
    reader: rows.Reader, verdicts: Sequence[Mapping[str, Any]], *, terminal: bool, rehearse: bool = False
) -> list[dict[str, Any]]:
    """Do what the verdicts say, in their order and one transaction.

    terminal: a person says so at a terminal, whose own words do not inherit the origin of what they replace.
    rehearse: take all of it back at the end.
    Returns for each ``id``, ``verdict``, ``new`` (the fact that is there now, or null), ``gone`` and ``back`` (ids),
    and ``allowed`` where something that looks like a credential was let in.
    Raises store.Refused, and then nothing was done.
    """
    done: list[dict[str, Any]] = []
    with contextlib.suppress(_Rehearsed), store.writing(reader.connection):
        done += [_apply(reader, verdict, terminal=terminal) for verdict in verdicts]
        if rehearse:
            raise _Rehearsed
    return done


def _apply(reader: rows.Reader, verdict: Mapping[str, Any], *, terminal: bool) -> dict[str, Any]:
    fact = reader.one(verdict["id"])
    require_unchanged(fact, verdict.get("seen"))
    done: dict[str, Any] = {"id": fact["id"], "verdict": verdict["verdict"], "new": None, "gone": [], "back": []}
    if verdict["verdict"] == "confirm":
        _confirm(reader.connection, fact, verdict)
        done["new"] = reader.one(fact["id"])
    elif verdict["verdict"] == "replace":
        why = reason(verdict.get("allow_secret"))
        done["new"] = reader.one(_replace(reader.connection, fact, verdict, terminal=terminal, allow=why is not None))
        done |= allowing(done["new"], why)
    elif verdict["verdict"] == "forget":
        if "going" in verdict:
            require_same(going(reader, [fact["id"]], only=False), verdict["going"])
        done["gone"], done["back"] = forget(reader.connection, [fact["id"]], only=False)
    return done


def require_unchanged(fact: rows.Fact, seen: object) -> None:
    """Raise store.Refused where a fact is not any more as it was ``seen``, if it was."""
    if seen not in (None, fact["seen"]):
        name = store.printable(fact["id"])
        raise store.Refused(f"{name} is not any more what it was when it was listed", "List it again.")


def _confirm(connection: sqlite3.Connection, fact: rows.Fact, verdict: Mapping[str, Any]) -> None:
    name = store.printable(fact["id"])
    if fact["state"] == "replaced":
        newer = store.printable(fact["superseded_by"])
        raise store.Refused(f"{name} was replaced by {newer}", f"Confirm that one: {newer}")
    if fact["state"] == "expired" and "expires_at" not in verdict:
        ended = store.printable(fact["expires_at"])
        raise store.Refused(
            f"{name} expired at {ended}", "Say how long it is true: --for 7d, --until DATE or --until never"
        )
    if "expires_at" not in verdict:
        _set(connection, "confirmed_at = datetime('now')", fact["id"])
        return
    ends = store.require_end(verdict["expires_at"])
    if ends is not None:
        store.require_no_permanent(connection, fact["id"], itself=False)
    _set(connection, "confirmed_at = datetime('now'), expires_at = ?", ends, fact["id"])


def _set(connection: sqlite3.Connection, what: str, *values: object) -> None:
    before = connection.total_changes
    cursor = connection.execute(f"UPDATE memory SET {what} WHERE id = ?", values)
    # What a view's trigger does SQLite does not count as the statement's own.
    if connection.total_changes == before or not store.is_view(connection):
        store.require_done(cursor)


def _replace(
    connection: sqlite3.Connection, fact: rows.Fact, verdict: Mapping[str, Any], *, terminal: bool, allow: bool
) -> str:
    text = store.require_texts(fact=verdict["fact"])["fact"]
    if text == fact["fact"]:
        name = store.printable(fact["id"])
        raise store.Refused(
            f"{name} says exactly that already", f"If it is still true, confirm it: memops confirm {name}"
        )
    ends = verdict.get("expires_at", fact["expires_at"])
    if "expires_at" not in verdict and ends is not None and store.moment_of(ends) is None:
        raise store.Refused(
            f"{store.printable(fact['id'])} ends at {store.printable(ends)}, which is no date",
            "Say how long the new one is true: --for 7d, --until DATE or --until never",
        )
    subject, source = fact["subject"], verdict["source"]
    try:
        return store.remember(
            connection, subject, text, source, ends, fact["id"], by_person=terminal, allow_secret=allow
        )
    except store.CredentialRefused as error:  # which of many verdicts
        raise store.Refused(f"{store.printable(fact['id'])}: {error}", error.hint) from None


def reason(given: object) -> str | None:
    """Why somebody says that what looks like a credential is none; None where nobody says so. Raises store.Refused."""
    if given is None:
        return None
    text = given.strip() if isinstance(given, str) else ""
    if not text or len(text) > REASON or not text.isprintable() or store.screen(text)[1]:
        raise store.Refused(
            f"--allow-secret needs a reason that can be read by all: up to {REASON} characters, no credential",
            "Say for example: --allow-secret 'id of an order'",
        )
    return text


def allowing(new: rows.Fact, why: str | None) -> dict[str, Any]:
    """What is recorded of a fact that was let in for a reason: ``allowed``; empty where nothing looks like a secret."""
    secrets = [] if why is None else rows.marked(new, hide=False)["secrets"]
    return {"allowed": {"reason": why, "secrets": secrets}} if secrets else {}


def forget(connection: sqlite3.Connection, ids: Sequence[str], *, only: bool) -> tuple[list[str], list[str]]:
    """Delete facts inside the caller's transaction. Returns the ids that are gone, and those that live again.

    only: the facts that a deleted one replaced stay, and take its place: behind what replaced it, or live.
    """
    if only:
        back = live_again(connection, ids)
        gone = list(dict.fromkeys(ids))
        for name in gone:
            newer = _successor(connection, name)
            # In a circle what takes its place would be itself.
            pointing = "UPDATE memory SET superseded_by = nullif(?1, id) WHERE superseded_by = ?2"
            connection.execute(pointing, (newer, name))
    else:
        back, gone = [], rows.behind(connection, ids)
    # Out of a circle, if it is one; then the oldest first: SQLite's own cascade fails at a thousand levels.
    doomed = set(gone)
    for name in ids:
        if _successor(connection, name) in doomed:
            connection.execute("UPDATE memory SET superseded_by = NULL WHERE id = ?", (name,))
    connection.executemany("DELETE FROM memory WHERE id = ?", [(name,) for name in reversed(gone)])
    left = [name for name in gone if store.is_there(connection, name)]
    if left:
        raise store.Refused(
            f"a trigger of the store keeps {store.printable(left[0])}", "Look at it: sqlite3 STORE .schema"
        )
    return gone, back


def live_again(connection: sqlite3.Connection, ids: Sequence[str]) -> list[str]:
    """The facts that are live once only these are gone: what they replaced, unless that is replaced or over anyway."""
    gone = set(ids)
    query = "SELECT id FROM memory WHERE superseded_by = ? AND (expires_at IS NULL OR expires_at > datetime('now'))"
    older = [
        (str(row[0]), name) for name in ids for row in connection.execute(query, (name,)) if str(row[0]) not in gone
    ]
    found = []
    for fact, name in older:
        seen: set[str] = set()
        newer: str | None = name
        while newer in gone and newer not in seen:
            seen.add(str(newer))
            newer = _successor(connection, str(newer))
        if newer is None or newer in seen or newer == fact:
            found.append(fact)
    return list(dict.fromkeys(found))


def going(reader: rows.Reader, ids: Sequence[str], *, only: bool) -> dict[str, Any]:
    """What forgetting these facts takes: the ids ``gone`` and ``back``, and ``token``, which is another when any of
    it is another or says something else."""
    gone = list(dict.fromkeys(ids)) if only else rows.behind(reader.connection, ids)
    back = live_again(reader.connection, gone) if only else []
    said = hashlib.sha256()
    for name in [*sorted(gone), "", *sorted(back)]:
        said.update(f"{name} {reader.one(name)['seen'] if name else ''}\n".encode(errors="backslashreplace"))
    return {"gone": gone, "back": back, "token": said.hexdigest()[:16]}


def require_same(found: Mapping[str, Any], token: object) -> None:
    """Raise store.Refused where what would go is not any more what was shown, if it was: then ``token`` says so."""
    if token not in (None, found["token"]):
        raise store.Refused("what would go is not any more what was shown", "Look at it again.")


def _successor(connection: sqlite3.Connection, name: str) -> str | None:
    """What replaced a fact; None for a pointer to itself or into nothing, too."""
    row = connection.execute("SELECT superseded_by FROM memory WHERE id = ?", (name,)).fetchone()
    return str(row[0]) if row is not None and row[0] != name and store.is_there(connection, row[0]) else None


def record(state: str, done: Sequence[Mapping[str, Any]], by: str, *, terminal: bool) -> None:
    """Add to verdicts.jsonl in ``state`` who decided what; no text of a fact. Raises OSError."""
    at = job.now()
    lines = [
        {
            "at": at,
            "by": by[:100],
            "terminal": terminal,
            "id": each["id"][:100],
            "verdict": each["verdict"],
            "new": each["new"]["id"] if each["verdict"] == "replace" else None,
            **({"allowed": each["allowed"]} if "allowed" in each else {}),
        }
        for each in done
        if each["verdict"] != "skip"
    ]
    if lines:
        job.append_lines(state, FILE, lines, KEEP, 0o600)


def about(state: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The recorded verdicts about these facts, oldest first."""
    wanted = set(ids)
    return [line for line in job.read_lines(state, FILE) if {str(line.get("id")), str(line.get("new"))} & wanted]


def allowed(state: str) -> dict[str, dict[str, Any]]:
    """Facts of which somebody said that what looks like a credential is none: id → ``reason`` and ``secrets``."""
    found = {}
    for line in job.read_lines(state, FILE):
        given = line.get("allowed")
        if isinstance(given, dict) and isinstance(given.get("reason"), str) and isinstance(given.get("secrets"), list):
            found[str(line.get("new") or line.get("id"))] = given
    return found
