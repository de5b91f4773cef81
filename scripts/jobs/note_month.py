"""The look at notes in plain files once a month, with the weekly reminder of the review."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Final

import records
import store

import job
import notes
import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

DAYS: Final = 27
"""Days between two looks: four weeks, less what a timer's delay may take from them."""

STAMP: Final = "notes.json"
"""In the state directory: when the last look was, and at what."""


def due(state: str, places: Sequence[str], now: float) -> bool:
    """Whether the last look is a month ago, lies in the future, or was at other places. Damaged, the stamp is none."""
    try:
        stamp = json.loads(records.read(os.path.join(state, STAMP)) or "")
        age = now - float(stamp["at"])
        return not 0 <= age < DAYS * 86400 or list(stamp["places"]) != list(places)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, records.NotAllowed):
        return True


def look(state: str, pairs: Sequence[tuple[str, str]], now: float | None = None) -> tuple[list[str], dict[str, int]]:
    """Look at the notes when that is due. Returns lines for the mail and counts for the record; empty when it is not.

    pairs: of each path, where it is seen and what it is called. Raises OSError when the stamp cannot be written.
    """
    now = time.time() if now is None else now
    places = [name for _, name in pairs]
    if not pairs or not due(state, places, now):
        return [], {}
    own = [pair for pair in pairs if _is_own(pair[0])]
    found = notes.look([seen for seen, _ in own], now, names=dict(own))
    others = [name for pair in pairs if pair not in own for name in pair[1:]]
    for name in others:
        found.problems.insert(0, {"where": name, "what": "not read: it is gone, or belongs to another user now"})
    unread = len(found.problems) + found.unsaid
    job.replace_file(os.path.join(state, STAMP), json.dumps({"at": now, "places": places}) + "\n")
    counts = {"notes": found.entries, "notes_old": found.old, "notes_undated": found.undated, "notes_unread": unread}
    return _lines(found, unread), counts


def line(counts: dict[str, int]) -> str:
    """What the journal gets of a look: counts."""
    unread = f", {counts['notes_unread']} things not read" if counts["notes_unread"] else ""
    return (
        f"notes in plain files: {counts['notes']}, {counts['notes_old']} older than {notes.OLD} days,"
        f" {counts['notes_undated']} without a date{unread}"
    )


def _is_own(path: str) -> bool:
    """Whether what is there is this user's: a link in its place may lead to what the user could not reach otherwise."""
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False


def _lines(found: notes.Summary, unread: int) -> list[str]:
    """What the mail says: counts of each file, the oldest entries, what was not read; escaped, credentials masked."""
    more = len(found.files) - notes.SHOWN
    return [
        f"Notes in plain files: {_counts(found)}.",
        *(f"{_text(each.file)}: {_counts(each)}" for each in found.files[: notes.SHOWN]),
        *([f"... and {more} more files"] if more > 0 else []),
        *(f"{_text(e.file)}:{e.line}  {e.date or 'unknown'}  {shown.text(e.text, 100)}" for e in found.listed),
        *(f"! {_text(each['where'])}: {_text(each['what'])}" for each in found.problems[: notes.SHOWN]),
        *([f"! ... and {unread - notes.SHOWN} more"] if unread > notes.SHOWN else []),
    ]


def _counts(of: notes.Summary | notes.Counts) -> str:
    return f"{of.entries}, {of.old} older than {notes.OLD} days, {of.undated} without a date"


def _text(text: Any) -> str:
    return store.printable(text, 150)
