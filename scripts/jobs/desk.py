"""What the commands on facts ask of a store: one request in, one answer out, both JSON.

It runs as the store's owner, who alone may open it; root's command starts it in a unit of its own. The request is
``{"op": …, "arguments": {…}}``, the answer ``{"value": …}`` or ``{"error": …, "hint": …, "exit": …}``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable  # noqa: TC003 - OPS has its type at run time
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import full_text
import job
import kept
import reviewing
import rows
import verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LARGEST: Final = 16 << 20
"""Bytes of a request."""

TREE: Final = 200
"""Facts of a chain that are shown."""

SHOWN: Final = 50
"""Facts that are shown of those that would go."""

SETTLING: Final = 20.0
"""Seconds that a full-text index may take to let go of words."""

TOGETHER: Final = 200
"""Facts with all behind them that are deleted in one transaction."""


class Desk:
    """An open store and what may be asked of it; see OPS."""

    def __init__(self, connection: sqlite3.Connection, state: str, sql: str, *, adopted: bool = False) -> None:
        """``adopted``: another program keeps these facts, so none is written here."""
        self._connection, self._state, self._sql, self._adopted = connection, state, sql, adopted
        self._connection.text_factory = lambda text: text.decode(errors="backslashreplace")
        self._reader = rows.Reader(connection)

    def remember(
        self,
        subject: str,
        fact: str,
        source: str,
        expires_at: str | None,
        replaces: str | None,
        terminal: bool,
        by: str,
        allow_secret: str | None = None,
    ) -> rows.Fact:
        """Add a fact, in place of another one perhaps; the new fact. allow_secret: why it holds no credential."""
        self._require_own()
        why = verdicts.reason(allow_secret)
        if replaces is not None:
            self._reader.one(replaces)  # an unknown id is answered with the nearest ones
        with store.writing(self._connection):
            texts, allow = (subject, fact, source), why is not None
            new = store.remember(self._connection, *texts, expires_at, replaces, by_person=terminal, allow_secret=allow)
            found = self._reader.one(new)
        done = {"id": replaces or new, "verdict": "replace" if replaces else "remember", "new": found}
        done |= verdicts.allowing(found, why)
        if replaces is not None or "allowed" in done:
            self._record([done], by, terminal=terminal)
        return self._marked([found])[0]

    def recall(self, query: str, subject: str | None, limit: int, max_chars: int | None) -> dict[str, Any]:
        """Live facts that a query finds: as data, and as lines for a prompt."""
        ranked = store.is_indexed(self._connection)
        view = store.view_of(self._connection)
        found = store.find(self._connection, query, subject, limit, self._reader.sources, ranked, view)
        chosen = store.fitting(found, max_chars)
        facts = self._marked(self._reader.named([fact.id for fact in chosen]), hide=False)
        return {"facts": facts, "block": store.block(chosen), "left": len(found) - len(chosen), "ranked": ranked}

    def listed(self, which: str, subject: str | None, source_class: str | None, limit: int) -> dict[str, Any]:
        """Facts of one sort, in the order of LISTS; ``more`` says whether there are more than ``limit``."""
        if which == "unused":
            path = f"{self._sql}/review.sql"
            found: Iterable[rows.Fact] = reviewing.queue(self._reader, path, None, sys.maxsize, unused=True)["facts"]
        else:
            where, order = LISTS[which]
            about = "" if subject is None else " AND m.subject = ?"
            values = () if subject is None else (subject,)
            found = self._reader.read(f"WHERE {where}{about} ORDER BY {order}", values)
        chosen: list[rows.Fact] = []
        for fact in found:
            if subject not in (None, fact["subject"]) or source_class not in (None, fact["class"]):
                continue
            if which == "doubtful" and not fact["doubtful"]:
                continue
            if len(chosen) == limit:
                return {"facts": self._marked(chosen), "more": True}
            chosen.append(fact)
        return {"facts": self._marked(chosen), "more": False}

    def show(self, id: str) -> dict[str, Any]:  # noqa: A002 - the word of the protocol
        """All about a fact: itself, its chain from the newest on, and who decided what about it."""
        chain, more = rows.chain(self._reader, id, TREE)
        facts = self._marked([each["fact"] for each in chain])
        ids = [fact["id"] for fact in facts]
        return {
            "fact": self._marked([self._reader.one(id)], hide=False)[0],
            "chain": [{**each, "fact": fact} for each, fact in zip(chain, facts, strict=True)],
            "more": more,
            "verdicts": verdicts.about(self._state, ids),
        }

    def queue(self, older_than: int | None, limit: int, unused: bool) -> dict[str, Any]:
        """What waits for a review, or what nobody used."""
        found = reviewing.queue(self._reader, f"{self._sql}/review.sql", older_than, limit, unused=unused)
        return {**found, "facts": self._marked(found["facts"])}

    def digest(self, since: str) -> dict[str, Any]:
        """The facts that came in since then; where the next nightly digest starts stays as it is."""
        import digest  # with all that a nightly job needs, which no other request does

        return digest.since(self._connection, self._sql, since)

    def apply(
        self, given: list[dict[str, Any]], by: str, terminal: bool, rehearse: bool = False
    ) -> list[dict[str, Any]]:
        """Carry out verdicts, all or none; with ``rehearse`` only say what that would do."""
        if any(each["verdict"] == "replace" for each in given):
            self._require_own()
        done = verdicts.apply(self._reader, given, terminal=terminal, rehearse=rehearse)
        if not rehearse:
            self._record(done, by, terminal=terminal)
            with contextlib.suppress(OSError):
                kept.drop(self._state, [name for each in done for name in each["gone"]])
        return [{**each, "new": each["new"] and self._marked([each["new"]])[0]} for each in done]

    def going(self, ids: list[str], only: bool, subject: str | None, user: str | None) -> dict[str, Any]:
        """What forgetting these facts would take: how many, the first of them, and what would live again."""
        if subject is not None or user is not None:
            where, values = self._all_of(subject, user)
            ids = [str(row[0]) for row in self._connection.execute(f"SELECT id FROM memory WHERE {where}", values)]
        else:
            self._reader.named(ids)
        found = verdicts.going(self._reader, ids, only=only)
        shown, lives = (self._marked(self._reader.named(some)) for some in (found["gone"][:SHOWN], found["back"]))
        return {"count": len(found["gone"]), "going": shown, "back": lives, "token": found["token"]}

    def forget(self, ids: list[str], only: bool, token: str | None, by: str, terminal: bool) -> dict[str, Any]:
        """Delete facts, with what is behind them or ``only`` them; what is ``gone`` and what lives again (``back``).

        token: of what was shown as going; refused where anything else would go by now.
        """
        with store.writing(self._connection):
            self._reader.named(ids)
            verdicts.require_same(verdicts.going(self._reader, ids, only=only), token)
            gone, back = verdicts.forget(self._connection, ids, only=only)
        self._forgotten(ids, gone, by, terminal=terminal)
        return {"gone": gone, "back": back}

    def forget_all(
        self, subject: str | None, user: str | None, token: str | None, by: str, terminal: bool
    ) -> dict[str, Any]:
        """Delete all facts of a subject or a user that were shown as going, with what is behind them; the ``count``."""
        where, values = self._all_of(subject, user)
        with store.writing(self._connection):
            ids = [str(row[0]) for row in self._connection.execute(f"SELECT id FROM memory WHERE {where}", values)]
            found = verdicts.going(self._reader, ids, only=False)
        verdicts.require_same(found, token)
        gone: list[str] = []
        for at in range(0, len(ids), TOGETHER):
            # In pieces, so that the agent hardly waits; each with its whole chains.
            with store.writing(self._connection):
                there = [name for name in ids[at : at + TOGETHER] if store.is_there(self._connection, name)]
                gone += verdicts.forget(self._connection, there, only=False)[0]
        self._forgotten(ids, gone, by, terminal=terminal)
        return {"count": len(gone)}

    def _forgotten(self, ids: list[str], gone: list[str], by: str, *, terminal: bool) -> None:
        """What follows once facts are gone: the record, and the places that still show them."""
        done = [{"id": name, "verdict": "forget", "new": None} for name in ids[:SHOWN]]
        self._record(done, by, terminal=terminal)
        with contextlib.suppress(OSError):
            kept.drop(self._state, gone)
        self._settle()

    def _require_own(self) -> None:
        if self._adopted:
            raise store.Refused(
                "another program keeps these facts, and what is new is written by the agent's own program",
                "Tell the agent; the next prune sees it. What is wrong can go: memops forget ID",
            )

    def _all_of(self, subject: str | None, user: str | None) -> tuple[str, list[object]]:
        terms: dict[str, str] = {} if subject is None else {"subject": subject}
        if user is not None:
            column = next((name for name in ("user_id", "user") if name in self._reader.columns), None)
            if column is None:
                raise store.Refused(
                    "the facts of this store belong to no user", "Name a subject instead: --subject SUBJECT"
                )
            terms[column] = user
        return " AND ".join(f'"{name}" = ?' for name in terms), list(terms.values())

    def _settle(self) -> None:
        """Let the words of forgotten facts leave the file; what is not done in time, the prune does."""
        end = time.monotonic() + SETTLING
        with contextlib.suppress(sqlite3.Error):
            full_text.settle(self._connection, lambda: time.monotonic() < end)

    def _marked(self, facts: list[rows.Fact], *, hide: bool = True) -> list[rows.Fact]:
        """Facts with what in them looks like a credential, masked with ``hide``; but not what is said to be none."""
        found = [rows.marked(fact, hide=hide) for fact in facts]
        if any(fact["secrets"] for fact in found):
            known = verdicts.allowed(self._state)
            for number, (plain, fact) in enumerate(zip(facts, found, strict=True)):
                given = known.get(str(plain["id"]))
                if fact["secrets"] and given and all(each in given["secrets"] for each in fact["secrets"]):
                    found[number] = {**plain, "secrets": [], "allowed": given["reason"]}
        return found

    def _record(self, done: list[dict[str, Any]], by: str, *, terminal: bool) -> None:
        with contextlib.suppress(OSError):  # it is done, and a full disk must not say otherwise
            verdicts.record(self._state, done, by, terminal=terminal)


LISTS: Final = {
    "live": (
        "likelihood(m.superseded_by IS NULL, 0.95) AND (m.expires_at IS NULL OR m.expires_at > datetime('now'))",
        "m.confirmed_at DESC",
    ),
    "dead": ("(m.superseded_by IS NOT NULL OR m.expires_at <= datetime('now'))", "m.id DESC"),
    "doubtful": ("1", "m.id DESC"),
    "all": ("1", "m.id DESC"),
}
"""Each sort of facts: which rows, in which order."""

OPS: Final[dict[str, Callable[..., Any]]] = {
    "remember": Desk.remember,
    "recall": Desk.recall,
    "list": Desk.listed,
    "show": Desk.show,
    "queue": Desk.queue,
    "digest": Desk.digest,
    "apply": Desk.apply,
    "going": Desk.going,
    "forget": Desk.forget,
    "forget_all": Desk.forget_all,
}

READING: Final = frozenset(["recall", "list", "show", "queue", "digest", "going"])
WAIT: Final = 5.0
"""Seconds to wait for the agent's lock."""

SECONDS: Final = 300.0
"""That an answer may take; whoever asked waits twice as long."""


def answer(
    path: str, state: str, sql: str, request: Mapping[str, Any], make: Callable[..., Desk] = Desk
) -> dict[str, Any]:
    """The answer to a request, in any case, of the desk that ``make`` makes."""
    op, arguments = request["op"], request["arguments"]
    try:
        with contextlib.closing(
            store.connect(path, readonly=op in READING, timeout=WAIT, seconds=SECONDS)
        ) as connection:
            before = os.stat(path)
            value = getattr(make(connection, state, sql), OPS[op].__name__)(**arguments)
        if op not in READING and store.is_replaced(path, before):
            raise job.JobError(
                "another file took the place of the store meanwhile; what was asked is done in the old one"
            )
        return {"value": value}
    except store.Refused as error:
        return {"error": str(error), "hint": error.hint, "exit": job.REFUSED}
    except UnicodeEncodeError:
        return {"error": "what was typed is not UTF-8", "hint": "", "exit": job.USAGE}
    except sqlite3.Error as error:
        failure = job.explain(error)
        return {"error": str(failure), "hint": "", "exit": failure.exit_code}
    except (job.JobError, store.StoreError, OSError) as error:
        hint = getattr(error, "hint", "")
        said = getattr(error, "sentence", str(error))
        return {"error": said, "hint": hint, "exit": getattr(error, "exit_code", job.FAILED)}


def main() -> int:
    """Read the request, print the answer; then note which facts were recalled, which nobody waits for."""
    parser = argparse.ArgumentParser(description="Answer one request about the facts of a store.")
    parser.add_argument("--store", required=True, help="the database")
    parser.add_argument("--state", required=True, help="the directory for the record of verdicts")
    parser.add_argument("--sql", required=True, help="the directory of the store's SQL files")
    parser.add_argument("--adopted", action="store_true", help="another program keeps these facts: none is written")
    options = parser.parse_args()
    request = json.loads(sys.stdin.buffer.read(LARGEST))
    make = functools.partial(Desk, adopted=options.adopted)
    found = answer(options.store, options.state, options.sql, request, make)
    print(json.dumps(found), flush=True)
    if request["op"] == "recall" and "value" in found:
        # Whatever becomes of it, the recall is done.
        with (
            contextlib.suppress(sqlite3.Error, store.StoreError),
            contextlib.closing(store.connect(options.store, seconds=WAIT)) as c,
        ):
            store.mark_used(c, [fact["id"] for fact in found["value"]["facts"]], 0)
    return job.DONE


if __name__ == "__main__":
    sys.exit(main())
