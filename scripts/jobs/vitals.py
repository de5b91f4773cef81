"""How the facts of a store are: what is dead and why, how old confirmations are, where facts come from, what waits.

health.sql has the queries. The figures are plain numbers in one object, so that they fit in a run record; survey.py
makes of them what ``memops status`` shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store import CLASSES

import reading

if TYPE_CHECKING:
    import sqlite3

    from store import Sources

SECTIONS: Final = ("confirmed", "origins")
REASONS: Final = ("expired", "superseded", "chain")
WAITING: Final = ("count",)
"""The section of review.sql that says what waits."""

Sections = dict[str, list[str]]


def look(connection: sqlite3.Connection, sections: Sections, sources: Sources) -> dict[str, int]:
    """The figures of live facts. ``sections``: of health.sql, and ``WAITING``.

    Where the store has no column ``origin``, a fact counts for the class of its own source.
    """
    confirmed = reading.one_row(connection, sections["confirmed"])
    waiting, _ = connection.execute(sections["count"][0], {"older_than": None}).fetchone()
    classes = dict.fromkeys(CLASSES, 0)
    for source, origin, count in connection.execute(sections["origins"][0], {"all": 1}):
        classes[sources.class_of(source, origin)] += count
    return {
        **{f"confirmed_{age}": count for age, count in confirmed.items()},
        **{f"source_{name}": count for name, count in classes.items()},
        "waiting": waiting,
    }


def dead(connection: sqlite3.Connection) -> dict[str, int]:
    """What is dead, by reason, once ``prune.prepare`` has listed the doomed rows."""
    found = dict(connection.execute("SELECT reason, count(*) FROM doomed GROUP BY reason").fetchall())
    return {f"dead_{reason}": found.get(reason, 0) for reason in REASONS}
