"""Where one memory lives, whether it is recalled from there, and why it came back."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from memops import products, report, searching
from memops.errors import MemopsError
from memops.store import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memops.settings import Store

SHOWN = 40

_SHADOW = re.compile(r"(fts|words|search)\w*_(data|idx|content|docsize|config)$")


@dataclass(frozen=True)
class Place:
    """One place of a memory. ``recalled`` is whether an agent gets it from there; ``why`` says what it is."""

    what: str
    where: str
    recalled: bool
    why: str


def look(store: Store, what: str) -> dict[str, Any]:
    """What both halves say of the words, or of the fact with this id. Raises MemopsError."""
    found = searching.ask_owner(store, "trail", "look", {"what": what})
    found["sets"], found["root"] = [], os.geteuid() == 0
    if found["root"]:
        try:
            sets = searching.ask_sets(store, "erase_sets", "look", {"texts": found["texts"]})
        except MemopsError as error:
            found["unread"].append(error.message)
        else:
            found["sets"] = [each["name"] for each in sets["sets"] if each["holds"] in ("whole", "part")]
            found["unread"] += sets["unread"]
        found["unread"] += searching.away(store)
    else:
        found["unread"].append("the backup sets: they are root's")
    return found


def places(store: Store, found: Mapping[str, Any]) -> list[Place]:
    """What was found, with what each place is to an agent. Pure."""
    states = {fact["id"]: fact["state"] for fact in found["facts"]}
    listed = [_place(store, each, states) for each in found["places"]]
    listed += [Place("set", name, False, "comes back when it is restored") for name in found["sets"]]
    return sorted(listed, key=lambda place: not place.recalled)


def _place(store: Store, each: Mapping[str, Any], states: Mapping[str, str]) -> Place:
    kind, where = str(each["kind"]), str(each["where"])
    if kind == "fact":
        if store.has_ledger:
            return Place("ledger", where, False, "memops' own dates; the product has the memory itself")
        state = states.get(str(each["id"]), "live")
        said = {"expired": "past its end, gone at the next prune", "replaced": "replaced, kept as history"}
        return Place("fact", where, state == "live", said.get(state, state))
    if kind == "row":
        return _row(str(each.get("table", "")), where)
    if kind == "part" and _roles().get(str(each.get("table", ""))) == "queue":
        return _row(str(each["table"]), where)
    if kind == "part":
        name = where.rpartition("/")[2]
        if name == "chroma.sqlite3" or "/chroma" in where or "/qdrant" in where or name == "storage.sqlite":
            return Place("vectors", where, True, "what is searched by meaning")
        return Place("part", where, True, "a file that a program of its own keeps")
    known = {
        "schema": ("schema", False, "a definition"),
        "pages": ("free pages", False, "bytes that no value has; gone after VACUUM and a checkpoint"),
        "record": ("record", False, "memops' own digests and queue"),
        "copy": ("kept by a restore", False, "what was there before; it goes when somebody removes it"),
        "incoming": ("on its way into a set", False, "gone with the next backup"),
        "file": ("file", where.endswith((".md", ".markdown")), "a note, which agents read" if where.endswith(
            (".md", ".markdown")) else "not memops' own"),
    }  # fmt: skip
    what, recalled, why = known.get(kind, (kind, False, ""))
    return Place(what, where, recalled, why)


def _roles() -> dict[str, str]:
    return {text.table: text.role for product in products.known().values() for text in product.texts}


def _row(table: str, where: str) -> Place:
    role = _roles().get(table, "")
    if role == "memories":
        return Place("memories", where, True, "the product's own")
    logs = {
        "change log": "what was done to it; nothing is recalled from it",
        "queue": "waits to be written into the index",
        "messages": "the conversation in which it was said",
    }
    if role in logs:
        return Place(role, where, role == "messages", logs[role])
    if _SHADOW.search(table):
        return Place("full-text index", where, False, "follows its table")
    return Place("row", where, True, "a table of the agent's")


def reasons(store: Store, found: Mapping[str, Any]) -> list[str]:
    """Why it is still there, or again, as far as that can be told. Pure."""
    here = places(store, found)
    vectors = [place.where for place in here if place.what == "vectors"]
    live = {str(fact["id"]): fact for fact in found["facts"] if fact["state"] == "live"}
    said = [*_forgotten(found, live), *_logged(found, vectors)]
    if vectors and not live and not found["logged"] and not store.product:
        said.append(f"No fact says it any more, and {vectors[0]} still has it: it was deleted in one half only.")
    if any(place.what == "queue" for place in here):
        said.append("It waits in a queue: what reads that writes it into the index again.")
    return said


def _forgotten(found: Mapping[str, Any], live: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What is live although it was forgotten."""
    for each in [line for line in found["verdicts"] if line["verdict"] in ("forget", "erase")][-1:]:
        at, name = str(each["at"]), str(each["id"])
        later = [stamp for stamp in found["restores"] if _moment(stamp) > _moment(at)]
        if name in live and later:
            yield f"{name} was forgotten on {at}, and the restore of {later[0]} brought it back."
        elif name in live:
            yield f"{name} was forgotten on {at}: a restore brought it back, or something wrote it anew under its id."
        for other, fact in live.items():
            if other != name and _moment(str(fact["created_at"])) > _moment(at):
                yield f"{name} was forgotten on {at}, and learnt anew on {fact['created_at']} as {other}."


def _logged(found: Mapping[str, Any], vectors: Sequence[str]) -> Iterator[str]:
    """What change logs say was deleted."""
    events: dict[str, list[Mapping[str, Any]]] = {}
    for each in found["logged"]:
        events.setdefault(str(each["id"]), []).append(each)
    added = [(str(each["id"]), number) for number, each in enumerate(found["logged"]) if _is_add(each)]
    for name, lines in events.items():
        place = max(number for number, each in enumerate(found["logged"]) if str(each["id"]) == name)
        anew = next((other for other, number in added if other != name and number > place), "")
        words, at = [str(line["event"]).upper() for line in lines], lines[-1]["at"]
        if words[-1] == "DELETE" and anew:
            yield f"The change log says that {name} was deleted ({at}), and that it was learnt anew as {anew}."
        elif words[-1] == "DELETE" and vectors:
            yield f"The change log says that {name} was deleted ({at}), and {vectors[0]} still has it."
        elif words[-1] == "ADD" and "DELETE" in words:
            yield f"The change log says that {name} was deleted and added anew ({at})."


def _is_add(each: Mapping[str, Any]) -> bool:
    return str(each["event"]).upper() == "ADD"


def _moment(text: str) -> datetime:
    """A moment of memops' records, of a restore's directory or of a fact; the beginning of time for what is none."""
    digits = re.sub(r"\D", "", text)[:14]
    try:
        return datetime.strptime(digits.ljust(14, "0"), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def describe(store: Store, found: Mapping[str, Any], width: int) -> str:
    """The screen: the places, what deleting in one would leave, and why it is there. Pure."""
    there = places(store, found)
    lines = [printable(found["said"], 200), ""] if there else ["It is nowhere that could be looked at."]
    for title, recalled in (("An agent recalls it from:", True), ("It is also in:", False)):
        listed = [place for place in there if place.recalled == recalled]
        if listed:
            lines += [title]
            for place in listed[:SHOWN]:
                lines += report.wrap(f"{place.what}: {printable(place.where, 300)} ({place.why})", width, "  ", rest=4)
            if len(listed) > SHOWN:
                lines.append(f"  and {len(listed) - SHOWN:,} more")
            lines.append("")
    lines += report.wrap(leaves(there, of_a_product=bool(store.product)), width, "") if there else []
    for reason in reasons(store, found):
        lines += ["", *report.wrap(printable(reason, 500), width, "")]
    lines += [line for each in found["unread"] for line in report.wrap(printable(each, 400), width, "! not read: ")]
    return "\n".join(lines)


def leaves(there: Sequence[Place], *, of_a_product: bool = False) -> str:
    """What deleting it in one place would leave. Pure."""
    recalled = [place for place in there if place.recalled]
    rest = len(there) - len(recalled)
    if len(recalled) > 1:
        return f"Deleting it in one of these {len(recalled)} places leaves the others, and it is recalled from there."
    if recalled and rest:
        return f"Deleting it in the {recalled[0].what} ends that, and leaves its words in {rest} other places."
    if recalled:
        return f"Deleting it in the {recalled[0].what} leaves nothing that could be looked at."
    if of_a_product:
        return "Nothing recalls it. Its words are the product's to take out of these places."
    return "Nothing recalls it. Its words go for good with: sudo memops forget --erase --matching -"


def as_data(store: Store, found: Mapping[str, Any]) -> dict[str, Any]:
    """What ``memops trace --json`` prints. Pure."""
    return {
        "version": 1,
        "store": store.name,
        "places": [vars(place) for place in places(store, found)],
        "reasons": reasons(store, found),
        "unread": list(found["unread"]),
    }
