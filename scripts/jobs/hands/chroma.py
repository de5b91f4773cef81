"""Chroma: a directory (chromadb.PersistentClient), beside the agent's process, or a server's address.

A deleted document stays in Chroma's queue. A process that has the collection open goes on finding its vector, without
its text, until it writes to the collection or is started again.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.sort(key=os.path.dirname(os.path.abspath(__file__)).__eq__)

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hands import _hand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hands._hand import Request

TITLE = "Chroma"
DATABASE = "chroma.sqlite3"
PAGE = 1000
QUEUED = "the server's embeddings_queue, which its API does not show"

_SEGMENT = """SELECT s.id FROM segments s JOIN collections c ON c.id = s.collection
    JOIN databases d ON d.id = c.database_id WHERE c.name = ? AND d.name = ? AND s.scope = 'METADATA'"""
_CREATED = f"SELECT embedding_id, created_at FROM embeddings WHERE segment_id IN ({_SEGMENT})"
_ROWS = f"SELECT count(*) FROM embeddings WHERE embedding_id = ? AND segment_id IN ({_SEGMENT})"
_QUEUE = """SELECT count(*) FROM embeddings_queue WHERE id = ? AND metadata LIKE '%chroma:document%'
    AND substr(topic, -36) IN (SELECT c.id FROM collections c JOIN databases d ON d.id = c.database_id
        WHERE c.name = ? AND d.name = ?)"""
_WORDS = "SELECT count(*) FROM embedding_fulltext_search_content WHERE instr(c0, ?)"


@contextlib.contextmanager
def _open(request: Request) -> Iterator[Any]:
    _hand.version("chromadb")
    url, path = request.config.get("url", ""), ""
    if not url:
        path = request.file("path")
        if not os.path.isfile(os.path.join(path, DATABASE)):
            raise _hand.Refused(f"{path} has no {DATABASE}", f"Look at: ls -la {path}", "missing")
    chromadb = importlib.import_module("chromadb")
    settings = chromadb.Settings(anonymized_telemetry=False)
    where = {"tenant": request.config.get("tenant") or "default_tenant", "database": _database(request)}
    if url:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 8000)
        headers = {"x-chroma-token": key} if (key := _hand.secret()) else {}
        client = chromadb.HttpClient(
            parts.hostname or "", port, ssl=secure, headers=headers, settings=settings, **where
        )
    else:
        client = chromadb.PersistentClient(path, settings=settings, **where)
    try:
        names = [str(getattr(each, "name", each)) for each in client.list_collections()]
        kept = [name for name in names if name != "mem0migrations" and not name.endswith("_entities")]
        name = _hand.only(kept, request.config.get("collection", ""), url or path)
        request.config["collection"] = name
        yield client.get_collection(name, embedding_function=None)
    finally:
        if hasattr(client, "close"):
            client.close()


def _database(request: Request) -> str:
    return request.config.get("database") or "default_database"


def _all(collection: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    offset = 0
    while True:
        page = collection.get(limit=PAGE, offset=offset, include=["documents", "metadatas"])
        for identity, text, more in zip(page["ids"], page["documents"], page["metadatas"], strict=True):
            yield str(identity), str(text or ""), dict(more or {})
        if len(page["ids"]) < PAGE:
            return
        offset += PAGE


def _asked(request: Request) -> tuple[str, str]:
    return request.config["collection"], _database(request)


def _file(request: Request) -> str:
    """chroma.sqlite3, empty where a server has it."""
    path = "" if request.config.get("url") else request.config["path"]
    return path and os.path.join(path, DATABASE)


def list_(request: Request) -> dict[str, Any]:
    """All documents of the collection. Chroma knows no end of a memory; when one was added only its file says."""
    with _open(request) as collection:
        found = list(_all(collection))
    created: dict[str, str] = {}
    if file := _file(request):
        ((rows),) = _hand.look(file, (_CREATED, _asked(request)))
        created = {str(identity): str(moment) for identity, moment in rows}
    facts = [
        _hand.fact(
            identity,
            text,
            created=_hand.utc(created.get(identity)) or _hand.utc(more.get("created_at")),
            updated=_hand.utc(more.get("updated_at")),
            source=f"{TITLE}, collection {request.config['collection']}",
        )
        for identity, text, more in found
    ]
    return {"facts": facts, "product": _hand.version("chromadb")}


def delete(request: Request) -> dict[str, Any]:
    """Delete through Chroma, then look: in what it finds, in its tables, in its queue."""
    texts: dict[str, str] = {}
    with _open(request) as collection:
        for ids in _hand.batches(request.ids, 100):
            page = collection.get(ids=ids, include=["documents"])
            texts.update(zip(page["ids"], (str(text or "") for text in page["documents"]), strict=True))
            if page["ids"]:
                collection.delete(ids=page["ids"])
        recalled = {str(each) for ids in _hand.batches(request.ids, 100) for each in collection.get(ids=ids)["ids"]}
    left = dict.fromkeys(recalled, "Chroma still has it after it was deleted")
    file = _file(request)
    remains: dict[str, list[str]] = {} if file else {each: [QUEUED] for each in texts if each not in left}
    holders = _hand.holders([file]) if file else []
    for identity in (each for each in request.ids if file and each not in left):
        if _hand.count(file, _ROWS, [identity, *_asked(request)]):
            left[identity] = "its row is still in embeddings"
            continue
        said = list(_queued(request, file, identity))
        if texts.get(identity) and (number := _hand.count(file, _WORDS, [texts[identity]])):
            said.append(_hand.rows(number, "embedding_fulltext_search"))
        if identity in texts and holders:
            said.append(f"the vector, in the memory of {', '.join(holders)} until it writes or is started again")
        remains[identity] = said
    return {
        "gone": [each for each in request.ids if each not in left],
        "left": left,
        "remains": {identity: said for identity, said in remains.items() if said},
    }


def _queued(request: Request, file: str, identity: str) -> Iterator[str]:
    if number := _hand.count(file, _QUEUE, [identity, *_asked(request)]):
        yield _hand.rows(number, "embeddings_queue")


def places(request: Request) -> dict[str, Any]:
    """Where memories are, by id and by what they say."""
    with _open(request) as collection:
        there = {identity: text for identity, text, _ in _all(collection)}
    file = _file(request)
    wanted = [*request.ids, *(each for each, said in there.items() if any(text in said for text in request.texts))]
    for text in request.texts if file else ():
        ((found),) = _hand.look(file, ("SELECT DISTINCT id FROM embeddings_queue WHERE instr(metadata, ?)", [text]))
        wanted += [str(row[0]) for row in found]
    answer = []
    for identity in dict.fromkeys(wanted):
        if identity in there:
            answer.append(_hand.place(identity, f"collection {request.config['collection']}", 1, retrieval=True))
        if file and (number := _hand.count(file, _QUEUE, [identity, *_asked(request)])):
            answer.append(_hand.place(identity, "embeddings_queue", number, retrieval=False))
    return {"places": answer}


if __name__ == "__main__":
    _hand.serve({"list": list_, "delete": delete, "places": places})
