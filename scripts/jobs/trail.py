"""Where one memory lives, the owner's half: every place that has its words, and what is known of its past.

One request on standard input, one answer, both JSON. Nothing is written.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import sys
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import job
import rows
import search
import shown
import traces
import verdicts

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST: Final = 64 << 20
SHOWN: Final = 50


def look(task: search.Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """``texts``, the ``places`` (see search.py), ``facts``, ``verdicts``, ``restores`` and ``logged``.

    given: ``what``: the id of a fact, or words. ``facts``: those that have the words, with id, state, created_at.
    ``verdicts``: who decided what about them and about the id, oldest first. ``restores``: when restores moved the
    store aside. ``logged``: of change logs, the events about memories that have the words: ``file``, ``id``, ``event``,
    ``at``. Raises StoreError, sqlite3.Error.
    """
    what = str(given["what"])
    with contextlib.closing(
        store.connect(task.databases[0][0], readonly=True, timeout=search.WAIT, seconds=search.SECONDS)
    ) as connection:
        connection.text_factory = lambda text: text.decode(errors="backslashreplace")
        reader = rows.Reader(connection)
        texts = [what]
        for fact in reader.read("WHERE m.id = ?", (what,)):
            texts = [str(fact["fact"])]
        known = verdicts.about(task.state, [what])
        words = traces.Words(texts)
        found = search.search(task, words, hide=False)
        ids = list(dict.fromkeys(str(each["id"]) for each in found.places if each["kind"] == "fact"))
        facts = []
        for name in ids[:SHOWN]:
            with contextlib.suppress(store.Refused):
                fact = reader.one(name)
                facts.append({key: fact[key] for key in ("id", "state", "created_at", "superseded_by")})
    known += [each for each in verdicts.about(task.state, [*ids, *_told(task.state, words)]) if each not in known]
    logged = [each for seen, path in task.databases for each in _logged(seen, path, words, found)]
    return {
        **found.as_json(),
        "texts": list(words.texts),
        "said": shown.text(words.texts[0], 200),
        "facts": facts,
        "verdicts": [{key: each.get(key) for key in ("at", "by", "id", "verdict", "new")} for each in known][-SHOWN:],
        "restores": sorted(_restores(task)),
        "logged": logged[-SHOWN:],
    }


def _restores(task: search.Task) -> set[str]:
    """The moments of restores, as the directories are called that they made."""
    found = set()
    for seen, _ in task.beside:
        with contextlib.suppress(OSError):
            found |= {
                name.removeprefix("before-restore-") for name in os.listdir(seen) if name.startswith("before-restore-")
            }
    return {each[:20] for each in found}


_LOGS: Final = {
    "history": ("memory_id", "event", "created_at", ("old_memory", "new_memory")),
    "memory_history": ("memory_id", "action", "created_at", ("previous_value", "new_value")),
}
"""Change logs: table → the memory's id, what happened, when, and the columns with its text."""


def _told(state: str, words: traces.Words) -> set[str]:
    """The ids of facts that digests told of with these words, also when they are gone."""
    lines = job.read_lines(state, "digests.jsonl")
    facts = [fact for line in lines for fact in line.get("facts", ()) if isinstance(fact, dict)]
    return {str(fact.get("id")) for fact in facts if words.of(_bytes(fact.get("fact"))) == "whole"}


def _logged(seen: str, path: str, words: traces.Words, looked: search.Found) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    try:
        with contextlib.closing(
            store.connect(seen, readonly=True, timeout=search.WAIT, seconds=search.SECONDS)
        ) as connection:
            connection.text_factory = search.text_of
            for table, (name, event, at, texts) in _LOGS.items():
                has = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
                if not {name, event, *texts} <= has:
                    continue
                when = at if at in has else "NULL"
                lines = connection.execute(
                    f"SELECT {name}, {event}, {when}, {', '.join(texts)} FROM {table} ORDER BY rowid"
                ).fetchall()
                about = {row[0] for row in lines if any(words.of(_bytes(text)) for text in row[3:])}
                found += [
                    {"file": shown.text(path, 300), "id": shown.text(row[0], 100), "event": shown.text(row[1], 20),
                     "at": None if row[2] is None else shown.text(row[2], 40)}
                    for row in lines if row[0] in about
                ]  # fmt: skip
    except (sqlite3.Error, store.StoreError, OSError) as error:
        looked.failed(path, error)
    return found


def _bytes(text: object) -> bytes:
    return str(text).encode(errors="surrogateescape")


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request, in any case."""
    try:
        return {"value": look(search.Task.read(request["task"]), request["given"])}
    except store.Refused as error:
        return {"error": str(error), "hint": error.hint, "exit": job.REFUSED}
    except (sqlite3.Error, store.StoreError, OSError, UnicodeError) as error:
        return {"error": store.printable(error, 300), "hint": "", "exit": job.FAILED}


def main() -> int:
    """Read the request, print the answer."""
    argparse.ArgumentParser(description="Say where words are; the request comes by standard input.").parse_args()
    os.umask(0o077)
    print(json.dumps(answer(json.loads(sys.stdin.buffer.read(LARGEST)))), flush=True)
    return job.DONE


if __name__ == "__main__":
    sys.exit(main())
