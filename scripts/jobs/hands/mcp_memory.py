"""mcp-memory-service: its SQLite file through its own storage class, beside the service, or the service's HTTP API.

It deletes by marking: the text stays for ``tombstones`` days (30, as its own purge has it), and is then purged. The
storage class is not initialized, which would load a model, and change the schema; it only connects.
"""

from __future__ import annotations

import asyncio
import glob
import importlib
import json
import os
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.sort(key=os.path.dirname(os.path.abspath(__file__)).__eq__)

import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hands import _hand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hands._hand import Request

TITLE = "mcp-memory-service"
TOMBSTONES = 30
DAY = 86400
PAGE = 100
PATIENCE = 60
ANSWER = 64 << 20

_ROWS = """SELECT content_hash, content, created_at, updated_at, tags, memory_type, deleted_at FROM memories
    WHERE deleted_at IS NULL OR deleted_at < ?"""
_STATE = "SELECT id, content, deleted_at FROM memories WHERE content_hash = ?"


def _days(request: Request) -> int:
    return int(request.config.get("tombstones") or TOMBSTONES)


def _fact(found: dict[str, Any], days: int) -> dict[str, str | None]:
    deleted = _hand.utc(found.get("deleted_at"))
    tags = found.get("tags") or ""
    tags = ", ".join(tags) if isinstance(tags, list) else str(tags).replace(",", ", ")
    source = ", ".join([TITLE, *([f"tags {tags}"] if tags else []), *([f"deleted {deleted[:10]}"] if deleted else [])])
    return _hand.fact(
        str(found["content_hash"]),
        str(found.get("content") or ""),
        created=_hand.utc(found.get("created_at")),
        updated=_hand.utc(found.get("updated_at")),
        expires=_hand.days_after(deleted, days) if deleted else "",
        subject=str(found.get("memory_type") or ""),
        source=source,
    )


def list_(request: Request) -> dict[str, Any]:
    """All memories, and the tombstones that are past their days: those have expired."""
    days = _days(request)
    if request.config.get("url"):
        return {"facts": [_fact(each, days) for each in _Service(request).all()], "product": ""}
    ((rows),) = _hand.look(_path(request), (_ROWS, [time.time() - days * DAY]))
    names = ("content_hash", "content", "created_at", "updated_at", "tags", "memory_type", "deleted_at")
    facts = [_fact(dict(zip(names, row, strict=True)), days) for row in rows]
    return {"facts": facts, "product": _hand.version("mcp-memory-service")}


def _path(request: Request) -> str:
    path = request.file("path")
    tables = "SELECT count(*) FROM sqlite_master WHERE name IN ('memories', 'memory_embeddings')"
    if not os.path.isfile(path) or _hand.count(path, tables) != 2:
        raise _hand.Refused(f"{path} is no store of mcp-memory-service's", "Give its sqlite_vec.db", "missing")
    return path


def delete(request: Request) -> dict[str, Any]:
    """Delete through the service's code or API, then look: in what it recalls, its tables, its index, its backups."""
    if request.config.get("url"):
        return _Service(request).delete(request.ids)
    path, days = _path(request), _days(request)
    before = {each: _state(path, each) for each in request.ids}
    failed = asyncio.run(_delete(path, before, days))
    left: dict[str, str] = {}
    remains: dict[str, list[str]] = {}
    for identity in request.ids:
        live = "SELECT count(*) FROM memories WHERE content_hash = ? AND deleted_at IS NULL"
        vector = "SELECT count(*) FROM memory_embeddings_rowids WHERE rowid = ?"
        if _hand.count(path, live, [identity]):
            left[identity] = failed.get(identity, f"{TITLE} still has it after it was deleted")
        elif before[identity] and _hand.count(path, vector, [before[identity][0]]):
            left[identity] = "its vector is still in memory_embeddings"
        elif before[identity]:
            remains[identity] = [
                *_remains(path, identity, before[identity], days),
                *([failed[identity]] if identity in failed else []),
            ]
    return {
        "gone": [each for each in request.ids if each not in left],
        "left": left,
        "remains": {identity: said for identity, said in remains.items() if said},
    }


def _state(path: str, identity: str) -> list[Any]:
    """rowid, text and moment of deletion of a memory; empty where there is none."""
    ((rows),) = _hand.look(path, (_STATE, [identity]))
    return rows[0] if rows else []


async def _delete(path: str, before: dict[str, list[Any]], days: int) -> dict[str, str]:
    """Delete what is live, purge what was deleted and is past its days; what failed, with a sentence."""
    failed: dict[str, str] = {}
    with _hand.elsewhere() as directory:
        os.environ.update(MCP_MEMORY_BASE_DIR=directory, MCP_MEMORY_STORAGE_BACKEND="sqlite_vec")
        # Where the service writes down what happens, for others to follow, this must stand there as well.
        ((events),) = _hand.look(path, ("SELECT agent_id FROM sync_events ORDER BY seq DESC LIMIT 1", []))
        if events:
            os.environ.update(MCP_SYNC_EVENTLOG="on", MCP_AGENT_ID=str(events[0][0]))
        installed = _hand.version("mcp-memory-service")
        module = importlib.import_module("mcp_memory_service.storage.sqlite_vec")
        storage = module.SqliteVecMemoryStorage(path)
        needed = ("_connect_and_load_extension", "_purge_tombstone", "delete")
        if missing := [name for name in needed if not hasattr(storage, name)]:
            raise _hand.Refused(f"{TITLE} {installed} has no {missing[0]}, by which this deletes", "", "version")
        await asyncio.to_thread(storage._connect_and_load_extension)
        try:
            for identity, state in before.items():
                if not state:
                    continue
                try:
                    if state[2] is None:
                        done, said = await storage.delete(identity)
                        if not done:
                            failed[identity] = str(said)[:300]
                    elif state[2] < time.time() - days * DAY:
                        storage._purge_tombstone(identity)
                        storage.conn.commit()
                except Exception as error:  # whatever the product raises, the others go on
                    storage.conn.rollback()
                    failed[identity] = f"{type(error).__name__}: {error}"[:300]
        finally:
            await storage.close()
    return failed


def _remains(path: str, identity: str, state: list[Any], days: int) -> Iterator[str]:
    rowid, text, _ = state
    for where, number in _logged(path, identity, text, rowid):
        yield _hand.rows(number, where)
    ((rows),) = _hand.look(path, ("SELECT deleted_at FROM memories WHERE content_hash = ?", [identity]))
    if rows and rows[0][0]:
        yield f"memories: its text, marked as deleted, until {_hand.days_after(_hand.utc(rows[0][0]), days)[:10]}"


def _logged(path: str, identity: str, text: str, rowid: int | None) -> Iterator[tuple[str, int]]:
    """Where else its text lies, and in how many rows: logs, beliefs, the index of words, the service's own copies."""
    events = "SELECT count(*) FROM sync_events WHERE content_hash = ? AND instr(payload, '\"content\"')"
    found: dict[str, tuple[str, list[Any]]] = {
        "sync_events": (events, [identity]),
        "beliefs": ("SELECT count(*) FROM beliefs WHERE instr(content, ?)", [text]),
    }
    if len(text) >= 3 and rowid is not None:
        # The index has its own copy of the words, and a purge takes the text before the index could look at it.
        phrase = '"' + text[:200].replace('"', '""') + '"'
        sql = "SELECT count(*) FROM memory_content_fts WHERE memory_content_fts MATCH ? AND rowid = ?"
        found["memory_content_fts"] = (sql, [phrase, rowid])
    for where, (sql, values) in found.items():
        if number := _hand.count(path, sql, values):
            yield where, number
    top = os.path.dirname(path)
    for copy in sorted(glob.glob(os.path.join(glob.escape(top), "backups", "*.db"))):
        if number := _hand.count(copy, "SELECT count(*) FROM memories WHERE content_hash = ?", [identity]):
            yield f"backups/{os.path.basename(copy)}", number


def places(request: Request) -> dict[str, Any]:
    """Where memories are, by id and by what they say."""
    if request.config.get("url"):
        there = {str(each["content_hash"]): str(each.get("content") or "") for each in _Service(request).all()}
        wanted = [each for each, said in there.items() if each in request.ids or _says(said, request)]
        return {"places": [_hand.place(each, "memories", 1, retrieval=True) for each in wanted]}
    path = _path(request)
    wanted = list(request.ids)
    for text in request.texts:
        ((rows),) = _hand.look(path, ("SELECT content_hash FROM memories WHERE instr(content, ?)", [text]))
        wanted += [str(row[0]) for row in rows]
    answer = []
    for identity in dict.fromkeys(wanted):
        state = _state(path, identity)
        if not state:
            continue
        rowid, text, deleted = state
        where = "memories" if deleted is None else "memories (marked as deleted)"
        answer.append(_hand.place(identity, where, 1, retrieval=deleted is None))
        if number := _hand.count(path, "SELECT count(*) FROM memory_embeddings_rowids WHERE rowid = ?", [rowid]):
            answer.append(_hand.place(identity, "memory_embeddings", number, retrieval=True))
        for where, number in _logged(path, identity, text, rowid):
            searched = where == "memory_content_fts" and deleted is None
            answer.append(_hand.place(identity, where, number, retrieval=searched))
    return {"places": answer}


def _says(said: str, request: Request) -> bool:
    return any(text in said for text in request.texts)


class _Service:
    """The service's HTTP API."""

    def __init__(self, request: Request) -> None:
        self.url = request.need("url").rstrip("/")
        self.headers = {"Accept": "application/json"}
        if key := _hand.secret():
            self.headers["Authorization"] = f"Bearer {key}"

    def ask(self, method: str, path: str) -> Any:
        """The JSON of an answer, None where there is no such memory. Raises Refused."""
        asked = urllib.request.Request(f"{self.url}/api{path}", method=method, headers=self.headers)  # noqa: S310
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:  # noqa: S310 - the address of the store
                return json.loads(answer.read(ANSWER))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            hint = "Give its key" if error.code in (401, 403) else ""
            raise _hand.Refused(f"{self.url} answers {method} {path} with HTTP {error.code}", hint) from error
        except (OSError, ValueError) as error:
            raise _hand.Refused(f"{self.url} does not answer: {error}", "Is the service running?", "missing") from error

    def all(self) -> Iterator[dict[str, Any]]:
        """Every memory of every partition; of tombstones the API tells nothing."""
        number = 1
        while True:
            page = self.ask("GET", f"/memories?page={number}&page_size={PAGE}&store=all")
            yield from page["memories"]
            if not page["has_more"]:
                return
            number += 1

    def delete(self, ids: list[str]) -> dict[str, Any]:
        left: dict[str, str] = {}
        remains: dict[str, list[str]] = {}
        for each in ids:
            try:
                done = self.ask("DELETE", f"/memories/{quote(each, safe='')}")
                if self.ask("GET", f"/memories/{quote(each, safe='')}?store=all") is not None:
                    left[each] = f"{TITLE} still has it: {(done or {}).get('message') or 'it is in another partition'}"
                elif done:
                    remains[each] = ["memories: its text, marked as deleted, until the service's own purge"]
            except _hand.Refused as error:
                left[each] = str(error)
        return {"gone": [each for each in ids if each not in left], "left": left, "remains": remains}


if __name__ == "__main__":
    _hand.serve({"list": list_, "delete": delete, "places": places})
