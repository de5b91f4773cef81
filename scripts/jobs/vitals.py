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
OVERDUE: Final = ("half", "year", "older", "never")
"""The ages of a confirmation that the review asks about: more than 90 days, or none."""

Sections = dict[str, list[str]]


def look(connection: sqlite3.Connection, sections: Sections, sources: Sources) -> dict[str, int]:
    """The figures of live facts. ``sections``: of health.sql.

    Where the store has no column ``origin``, a fact counts for the class of its own source.
    """
    confirmed = reading.one_row(connection, sections["confirmed"])
    classes = dict.fromkeys(CLASSES, 0)
    for source, origin, count in connection.execute(sections["origins"][0], {"all": 1}):
        classes[sources.class_of(source, origin)] += count
    return {
        **{f"confirmed_{age}": count for age, count in confirmed.items()},
        **{f"source_{name}": count for name, count in classes.items()},
        "waiting": sum(confirmed[age] for age in OVERDUE),
    }


def dead(connection: sqlite3.Connection) -> dict[str, int]:
    """What is dead, by reason, once ``prune.prepare`` has listed the doomed rows."""
    found = dict(connection.execute("SELECT reason, count(*) FROM doomed GROUP BY reason").fetchall())
    return {f"dead_{reason}": found.get(reason, 0) for reason in REASONS}
