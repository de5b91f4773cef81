"""Whether there is a backup so new that a scheduled prune may delete."""

from __future__ import annotations

import os

import health
import records
import survey
from store import printable


def advice(path: str) -> str:
    """What to type; the record's file has the store's name."""
    name = health.name_option(os.path.basename(path).partition(".")[0])
    return (
        "A run by the timer wants a backup of the last 48 hours. "
        f"Type: sudo memops backup{name}. Or, to prune without one: sudo memops install{name} --prune-without-backup"
    )


def make_objection(path: str, now: float) -> str | None:
    """What speaks against a scheduled prune, by root's record of the sets at ``path``; None when nothing does."""
    try:
        found = records.sets_record(path, printable)
    except records.NotAllowed:
        return f"{path} cannot be read, so nothing is known of the backups"
    except (ValueError, RecursionError):
        return f"{path} is damaged, so nothing is known of the backups"
    if found is None or not found["newest"]:
        return "there is no verified backup"
    newest = found["newest"]
    sealed_at = survey.seconds(str(newest.get("sealed_at"))) if isinstance(newest, dict) else None
    if sealed_at is None:
        return f"{path} is damaged, so nothing is known of the backups"
    name = printable(newest.get("set", "?"), 40)
    if any(name == failed["set"] for failed in found["failed"]):
        return f"the newest backup, {name}, did not pass its last verification"
    age = int(now - sealed_at)
    if age < -survey.CLOCK:
        return f"the newest verified backup is dated {health.span(age)} from now, so the clock may be wrong"
    if age <= health.OLD_SET:
        return None
    return f"the newest verified backup is {f'{age // 3600} hours' if age < 72 * 3600 else health.span(age)} old"
