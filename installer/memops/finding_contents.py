"""Findings on what is in a store's databases: chains, dates, sources, keys, what waits to go. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memops import products
from memops.finding_text import as_owner, counted, doctor_fix, listed, quoted, title
from memops.found import Finding
from memops.health import name_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memops.found import Care, Database, Found, Part

PLAIN = "sqlite"
"""The product that is none: a SQLite file of the agent's own."""


def judge(found: Found, care: Care | None) -> Iterator[Finding]:
    """What is wrong in a store; ``care``: the store of memops that it is, if it is one."""
    for part in found.parts:
        if part.database is not None:
            yield from _log(found, part, part.database, care)
            yield from _modes(found, part, part.database, care)
            yield from _violations(found, part, part.database)
            yield from _chains(found, part, part.database, care)
            yield from _dates(found, part, part.database, care)
            yield from _sources(found, part, part.database, care)
            yield from _waiting(found, part, part.database, care)


def _figure(database: Database, key: str) -> int:
    """A figure, 0 where it was not counted."""
    value = database.facts.get(key)
    return value if type(value) is int and value > 0 else 0


def _is_ours(part: Part, care: Care | None) -> bool:
    """Whether a part is the database of a store of memops."""
    return care is not None and care.db == part.path


def _inspect(found: Found, part: Part, care: Care | None) -> str:
    """How the rows are looked at."""
    if care is not None and _is_ours(part, care):
        return f"sudo memops list all{name_option(care.name)}"
    return f"sudo memops inspect {quoted(part.seen if found.namespace else part.path)}"


def _log(found: Found, part: Part, database: Database, care: Care | None) -> Iterator[Finding]:
    if part.what == "change log":
        if not _is_ours(part, care):
            return
        log = f"the change log of {title(found.product)}"
        what = f"What memops looks after as memories is {log}: what goes here is remembered on."
    else:
        log = _log_table(database)
        if found.product != PLAIN or not log:
            return
        what = f"The table {quoted(log)} is a log of changes, as mem0 keeps one: its rows are not the memories."
    do = "Prune and restore it only with the vectors beside it: sudo memops doctor; see docs/findings.md"
    yield Finding("log-as-memories", "error" if care else "warning", part.path, what, do)


def _log_table(database: Database) -> str:
    """A table with all the columns of a product's change log."""
    logs = [
        set(columns)
        for product in products.known().values()
        for part in product.parts
        if part.what == "change log"
        for columns in part.tables.values()
    ]
    return next((name for name, has in database.columns.items() if any(log <= set(has) for log in logs)), "")


def _modes(found: Found, part: Part, database: Database, care: Care | None) -> Iterator[Finding]:
    known = products.known().get(found.product)
    ours = _is_ours(part, care)
    wanted = care.journal_mode if care is not None and ours else known.journal if known else ""
    if found.product == PLAIN and not care:
        wanted = "wal"
    if wanted == "wal" and database.journal_mode != "wal" and part.what in ("memories", "sessions"):
        what = f"The journal mode is {quoted(database.journal_mode)}: whoever writes keeps all others from reading."
        if ours:
            yield Finding("wal-off", "warning", part.path, what, doctor_fix("wal-off", part.path), fix=True)
        else:
            do = f"With the agent stopped: {as_owner(part)} sqlite3 {quoted(part.path)} 'PRAGMA journal_mode = WAL'"
            yield Finding("wal-off", "warning", part.path, what, do)
    broken = sum(database.violations.values()) or _figure(database, "chains_into_nothing")
    if _figure(database, "foreign_keys") and ((known and known.keys_off) or (broken and found.product == PLAIN)):
        who = known.title if known and known.keys_off else "Whoever deletes here"
        what = f"{who} leaves SQLite's foreign keys off, so what hangs on a row stays when that goes."
        do = "Let every connection that deletes begin with: PRAGMA foreign_keys = ON"
        yield Finding("foreign-keys-off", "warning", part.path, what, do)


def _violations(found: Found, part: Part, database: Database) -> Iterator[Finding]:
    known = products.known().get(found.product)
    alarms = set(known.false_alarms) if known else set()
    rows = {
        pair: count
        for pair, count in database.violations.items()
        if pair not in alarms and not (_figure(database, "chains_into_nothing") and _is_own(pair))
    }
    if rows:
        total = counted(sum(rows.values()), "row points", "rows point")
        pairs = listed([f"{count:,} {quoted(pair)}" for pair, count in sorted(rows.items())])
        what = f"{total} at rows that are not there ({pairs})."
        do = f"{as_owner(part)} sqlite3 -readonly {quoted(part.path)} 'PRAGMA foreign_key_check'"
        yield Finding("violations", "warning", part.path, what, do)


def _is_own(pair: str) -> bool:
    """Whether a table points at itself, as a chain does."""
    half = len(pair) // 2
    return pair[half : half + 1] == "." and pair[:half] == pair[half + 1 :]


def _chains(found: Found, part: Part, database: Database, care: Care | None) -> Iterator[Finding]:
    look = _inspect(found, part, care)
    if count := _figure(database, "temporary_over_permanent"):
        what = f"Memories without an end that were replaced by one with an end, and go with it: {count:,}."
        do = f"Give the new one no end, or say what holds afterwards: {look}"
        yield Finding("temporary-replaces-permanent", "warning", part.path, what, do)
    if count := _figure(database, "cycles"):
        what = f"Memories in chains that go round, none of which counts as live: {count:,}."
        do = f"Decide which holds, and forget the others: {look}"
        yield Finding("cycle", "warning", part.path, what, do)
    if count := _figure(database, "self_references"):
        what = f"Memories that are replaced by themselves, and so do not count: {count:,}."
        do = f"Decide whether they hold, and write them anew: {look}"
        yield Finding("self-reference", "warning", part.path, what, do)
    if count := _figure(database, "chains_into_nothing"):
        what = f"Memories that were replaced by one which is not there any more: {count:,}."
        if _is_ours(part, care):
            do = doctor_fix("chain-into-nothing", part.path)
            yield Finding("chain-into-nothing", "warning", part.path, what, do, fix=True)
        else:
            do = f"Remove them with what they replaced; a pointer set to NULL brings a dead one back: {look}"
            yield Finding("chain-into-nothing", "warning", part.path, what, do)


FORMS = {
    "utc": "YYYY-MM-DD HH:MM:SS",
    "iso": "with a T",
    "epoch": "seconds",
    "epoch-ms": "milliseconds",
    "naive": "with fractions and no zone",
    "day": "days",
    "odd": "no date",
}
"""The formats of Database.dates, in words."""


def _dates(found: Found, part: Part, database: Database, care: Care | None) -> Iterator[Finding]:
    ours = _is_ours(part, care)
    doubtful = {column: _doubtful(forms, ours=ours) for column, forms in sorted(database.dates.items())}
    texts = [f"{quoted(column)}: {text}" for column, text in doubtful.items() if text]
    if not texts and not (count := _figure(database, "doubtful")):
        return
    if not texts:
        texts = [counted(count, "row")]
    what = f"Dates that cannot be relied on, nor compared: {listed(texts)}."
    do = f"sudo memops prune --dry-run{name_option(care.name)}" if care and ours else _inspect(found, part, care)
    yield Finding("doubtful-dates", "warning", part.path, what, do)


def _doubtful(forms: Mapping[str, int], *, ours: bool) -> str:
    """The formats of a column that are not the main one (in a store of memops': not UTC), or empty."""
    present = {form: count for form, count in forms.items() if count}
    usual = "utc" if ours else max((form for form in present if form != "odd"), key=lambda f: present[f], default="")
    others = {form: count for form, count in present.items() if form != usual}
    return ", ".join(f"{count:,} {FORMS.get(form, form)}" for form, count in sorted(others.items()))


def _sources(found: Found, part: Part, database: Database, care: Care | None) -> Iterator[Finding]:
    empty, vague = _figure(database, "empty_sources"), _figure(database, "vague_sources")
    if empty or vague:
        words = [f"{empty:,} none"] if empty else []
        words += [f"{vague:,} one that says nothing"] if vague else []
        what = f"Where memories came from is not to be told: {' and '.join(words)}."
        do = f"Let the agent say it when it writes; see which: {_inspect(found, part, care)}"
        yield Finding("vague-sources", "warning" if empty else "note", part.path, what, do)


def _waiting(found: Found, part: Part, database: Database, care: Care | None) -> Iterator[Finding]:
    if count := _figure(database, "tombstones"):
        what = (
            f"{counted(count, 'memory', 'memories')} marked as deleted for over thirty days, still there word for word."
        )
        yield Finding("tombstones", "note", part.path, what, _adopted(found, part, "prune"))
    rows, dead = _figure(database, "rows"), _figure(database, "dead")
    gap = rows - _figure(database, "live") if "live" in database.facts else 0
    if dead > max(100, rows // 10):
        what = f"{dead:,} of {counted(rows, 'row is', 'rows are')} dead and still there."
        if _is_ours(part, care):
            yield Finding("gap", "warning", part.path, what, doctor_fix("gap", part.path), fix=True)
        else:
            yield Finding("gap", "warning", part.path, what, _adopted(found, part, "prune"))
    elif gap > max(100, rows // 2):
        what = f"{gap:,} of {rows:,} rows do not count any more: whoever reads past the live ones recalls what is dead."
        yield Finding(
            "gap", "note", part.path, what, f"Let the agent read the live ones only: {_inspect(found, part, care)}"
        )


def _adopted(found: Found, part: Part, command: str) -> str:
    """A command of a store under care, or how it comes there."""
    if found.care:
        return f"sudo memops {command}{name_option(found.care)}"
    return f"sudo memops adopt {quoted(part.path)}"
