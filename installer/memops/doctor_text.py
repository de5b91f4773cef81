"""The text of ``memops doctor``: the stores one after the other, then what is wrong, worst first. Pure but for colour.

Nearly all words are the agent's, so all are escaped.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from memops import products
from memops.fact_text import WHOLE
from memops.found import LEVELS
from memops.report import colour, size, wrap
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memops.doctor import Seen
    from memops.found import Finding, Found, Holder, Part

_TINTS = {"error": "red", "warning": "yellow", "note": "dim"}
HOLDERS = 5
"""Processes of a store that are shown."""


def text(seen: Seen, width: int) -> str:
    """The whole report."""
    blocks = [_store(store, width) for store in seen.found]
    blocks += [finding(each, width) for each in seen.findings]
    blocks.append([*_sum(seen), *_unread(seen.machine.unread, width)])
    return "\n\n".join("\n".join(block) for block in blocks)


def _sum(seen: Seen) -> Iterator[str]:
    if not seen.found:
        yield "No memory was found."
    levels = Counter(each.level for each in seen.findings)
    counts = [f"{levels[level]:,} {level}{'' if levels[level] == 1 else 's'}" for level in LEVELS if levels[level]]
    stores = f"{len(seen.found):,} store{'' if len(seen.found) == 1 else 's'}"
    if seen.found or counts:
        yield f"{', '.join(counts) or 'Nothing wrong'} in {stores}."


def _unread(unread: Iterable[str], width: int) -> list[str]:
    return [line for each in unread for line in wrap(printable(each, WHOLE), width, "Not read: ")]


def finding(each: Finding, width: int) -> list[str]:
    """A finding: what is so, what to type, and the mend written out."""
    head = f"{each.level} {each.code}: "
    where = f"{printable(each.path, WHOLE)}: " if each.path else ""
    lines = wrap(f"{head}{where}{printable(each.what, WHOLE)}", width, "", rest=2)
    lines[0] = colour(lines[0], _TINTS[each.level], sys.stdout)
    lines += wrap(printable(each.do, WHOLE), width, "  Type: ", "bold")
    # Whoever copies a command copies all of it, so these are not wrapped.
    return [*lines, *(f"    {printable(line, WHOLE)}" for line in each.mend)]


def _store(store: Found, width: int) -> list[str]:
    known = products.known().get(store.product)
    title = f"{known.title if known else store.product} {store.version}".rstrip()
    lines = wrap(f"{printable(title, 100)}  {printable(store.path, WHOLE)}", width, "")
    lines[0] = colour(lines[0], "bold", sys.stdout)
    alone = f"; {store.namespace} alone sees it" if store.namespace else ""
    rows = [("found", f"{store.how}{alone}")]
    rows += [(part.what, _part(part, store.path)) for part in store.parts]
    rows += [("missing", ", ".join(store.lacking))] if store.lacking else []
    rows += [("used by", _holders(store.holders))] if store.holders else []
    rows += [("care", f"the store {store.care}" if store.care else "nobody's")]
    for label, words in rows:
        lines += wrap(printable(words, WHOLE), width, f"  {label:<12} ")
    return lines


def _part(part: Part, path: str) -> str:
    words = [part.path] if part.path != path else []
    words += [size(part.size)]
    words += [f"{part.rows:,} rows"] if part.rows is not None else []
    words += [f"{part.owner or part.uid} {part.mode & 0o7777:04o}"]
    if part.database is not None:
        words += [f"journal {part.database.journal_mode}"]
        forms = sorted({form for forms in part.database.dates.values() for form, count in forms.items() if count})
        words += [f"dates {' and '.join(forms)}"] if forms else []
    words += [f"not read: {part.unread}"] if part.unread else []
    return ", ".join(words)


def _holders(holders: Sequence[Holder]) -> str:
    words = [
        f"process {each.pid} ({', '.join(word for word in (each.command, each.user, each.unit) if word)})"
        for each in holders[:HOLDERS]
    ]
    return ", ".join(words) + (f" and {len(holders) - HOLDERS:,} more" if len(holders) > HOLDERS else "")
