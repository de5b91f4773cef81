"""mem0 (Python), with Qdrant as its vectors: a local directory, which only one process may have open, or a server.

mem0 deletes a vector and keeps the text in its log of changes; what has expired it only hides. Its clean-up of entities
happens only in a process that used them before, so they are touched first.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import pickle
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.sort(key=os.path.dirname(os.path.abspath(__file__)).__eq__)

from typing import TYPE_CHECKING, Any

from hands import _hand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hands._hand import Request

TITLE = "mem0 (Python)"
WIPES = (1, 0, 7)
"""The last version that removes a local Qdrant directory when it starts (mem0ai/mem0#4473)."""

FIRST = (2, 0)
"""The first version with this API: filters, and memories that expire."""

_SCOPES = ("user", "agent", "run")


class _Known:
    """In the place of the agent's embedder, which is a model or a service: only the entities' own vectors, unchanged.

    An entity that other memories name as well is written again by mem0, for the same text, when one of them goes.
    """

    def __init__(self, client: Any, collection: str) -> None:
        self._client, self._collection = client, collection

    def embed(self, text: str, _action: str = "") -> list[float]:
        models = importlib.import_module("qdrant_client.models")
        same = models.Filter(must=[models.FieldCondition(key="data", match=models.MatchValue(value=text))])
        points, _ = self._client.scroll(self._collection, scroll_filter=same, limit=1, with_vectors=True)
        if not points:
            raise LookupError("no entity has this text, and nothing is embedded here")
        vector = points[0].vector
        found: list[float] = vector[""] if isinstance(vector, dict) else vector
        return found


class _Opened:
    """mem0 with its store, open."""

    def __init__(self, memory: Any, request: Request, collection: str) -> None:
        self.memory, self.client, self.collection = memory, memory.vector_store.client, collection
        self.history, self.vectors = request.config["history"], request.config.get("qdrant", "")
        self.entities = f"{collection}_entities" if self.client.collection_exists(f"{collection}_entities") else ""
        if self.entities:
            memory.embedding_model = _Known(self.client, self.entities)
            _ = memory.entity_store

    def all(self) -> list[dict[str, Any]]:
        """Every memory, of all users, with those that are hidden because they expired."""
        most = self.client.count(self.collection, exact=True).count + 1000
        found: list[dict[str, Any]] = self.memory.get_all(filters={"user_id": "*"}, top_k=most, show_expired=True)[
            "results"
        ]
        return found

    def linked(self) -> dict[str, int]:
        """id of a memory → entities that name it."""
        found: dict[str, int] = {}
        offset = None
        while self.entities:
            points, offset = self.client.scroll(self.entities, limit=1000, offset=offset, with_payload=True)
            for point in points:
                for each in (point.payload or {}).get("linked_memory_ids") or ():
                    found[str(each)] = found.get(str(each), 0) + 1
            if offset is None:
                break
        return found


@contextlib.contextmanager
def _open(request: Request) -> Iterator[_Opened]:
    installed = _hand.version("mem0ai")
    if _hand.numbers(installed) <= WIPES:
        raise _hand.Refused(
            f"mem0 {installed} removes its local Qdrant directory when it starts", "Upgrade it: pip install -U mem0ai",
            "version",
        )  # fmt: skip
    if _hand.numbers(installed) < FIRST:
        raise _hand.Refused(f"mem0 {installed} is older than 2.0, the first whose API this speaks", "", "version")
    history = request.file("history")
    collection = request.config.get("collection") or "mem0"
    if url := request.config.get("url"):
        where: dict[str, Any] = {"url": url, **({"api_key": key} if (key := _hand.secret()) else {})}
    else:
        where = {"path": request.file("qdrant"), "on_disk": True}
        _require_collection(where["path"], collection)
    with _hand.elsewhere() as directory:
        os.environ.update(MEM0_DIR=directory, MEM0_TELEMETRY="False")
        mem0 = importlib.import_module("mem0")
        try:
            if url:
                _require_server(where, collection)
            memory = mem0.Memory.from_config(
                {
                    "history_db_path": history,
                    "vector_store": {"provider": "qdrant", "config": {"collection_name": collection, **where}},
                    # Both are made and never asked.
                    "embedder": {"provider": "openai", "config": {"api_key": "none"}},
                    "llm": {"provider": "openai", "config": {"api_key": "none"}},
                }
            )
        except RuntimeError as error:
            if "already accessed" not in str(error):
                raise
            raise _hand.held(where["path"], _hand.holders([os.path.join(where["path"], ".lock")])) from None
        opened = _Opened(memory, request, collection)
        try:
            yield opened
        finally:
            opened.client.close()
            memory.close()


def _require_collection(path: str, collection: str) -> None:
    """A collection that is not there would be made, of the wrong size."""
    try:
        with open(os.path.join(path, "meta.json"), encoding="utf-8") as file:
            names = list(json.load(file)["collections"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise _hand.Refused(f"{path} is no Qdrant directory: its meta.json says nothing", "", "missing") from error
    _hand.only(names, collection, path)


def _require_server(where: dict[str, Any], collection: str) -> None:
    client = importlib.import_module("qdrant_client").QdrantClient(**where)
    try:
        _hand.only([each.name for each in client.get_collections().collections], collection, where["url"])
    finally:
        client.close()


def _fact(memory: dict[str, Any]) -> dict[str, str | None]:
    scopes = [f"{scope} {memory[f'{scope}_id']}" for scope in _SCOPES if memory.get(f"{scope}_id")]
    last = _hand.utc(memory.get("expiration_date"))
    return _hand.fact(
        str(memory["id"]),
        str(memory.get("memory") or ""),
        created=_hand.utc(memory.get("created_at")),
        updated=_hand.utc(memory.get("updated_at")),
        # The day itself still counts.
        expires=_hand.days_after(last[:10] + " 00:00:00", 1) if last else "",
        source=", ".join([TITLE, *scopes]),
    )


def list_(request: Request) -> dict[str, Any]:
    """All memories, also those that mem0 hides."""
    with _open(request) as opened:
        facts = [_fact(each) for each in opened.all()]
    return {"facts": facts, "product": _hand.version("mem0ai")}


def delete(request: Request) -> dict[str, Any]:
    """Delete through mem0, then look: in what it recalls, in the vectors' file, in the log of changes."""
    failed: dict[str, str] = {}
    texts: dict[str, str] = {}
    with _open(request) as opened:
        for identity in request.ids:
            try:
                if (before := opened.memory.get(identity)) is not None:
                    texts[identity] = str(before.get("memory") or "")
                    opened.memory.delete(identity)
            except Exception as error:  # whatever the product raises, the others go on
                failed[identity] = f"mem0 could not delete it: {type(error).__name__}: {error}"[:300]
        recalled = {str(each["id"]) for each in opened.all()} & {*request.ids}
        recalled |= {each for each in request.ids if opened.memory.get(each) is not None}
        linked = opened.linked()
    left = {each: failed.get(each, "mem0 still has it after it was deleted") for each in recalled}
    remains: dict[str, list[str]] = {}
    for identity in request.ids:
        if identity in left:
            continue
        if files := [name for name, number in _vectors(opened.vectors, identity).items() if number]:
            left[identity] = f"its vector is still in {', '.join(files)}"
            continue
        said = [_hand.rows(number, where) for where, number in _logged(opened.history, identity, texts.get(identity))]
        if number := linked.get(identity):
            said.append(_hand.rows(number, f"{opened.entities} (entities that name it)"))
        if identity in failed:
            said.append(f"no DELETE in the history: {failed[identity]}")
        if identity in texts and opened.vectors and _keeps_free_pages():
            said.append("free pages of the vectors' storage.sqlite, until VACUUM")
        remains[identity] = said
    return {
        "gone": [each for each in request.ids if each not in left],
        "left": left,
        "remains": {identity: said for identity, said in remains.items() if said},
    }


def _logged(history: str, identity: str, text: str | None) -> Iterator[tuple[str, int]]:
    """Where the log and the last messages still have the text of a memory, and in how many rows."""
    kept = "SELECT count(*) FROM history WHERE memory_id = ? AND coalesce(old_memory, new_memory) IS NOT NULL"
    yield from (("history", number) for number in [_hand.count(history, kept, [identity])] if number)
    if text:
        said = "SELECT count(*) FROM messages WHERE instr(content, ?)"
        yield from (("messages", number) for number in [_hand.count(history, said, [text])] if number)


def _vectors(directory: str, identity: str) -> dict[str, int]:
    """Collection → points with that id, in the files of a local Qdrant. Nothing is unpickled: ids are compared."""
    if not directory:
        return {}
    keys = [base64.b64encode(pickle.dumps(identity, protocol=protocol)).decode() for protocol in range(2, 6)]
    found = {}
    top = os.path.join(directory, "collection")
    for name in sorted(os.listdir(top)):
        path = os.path.join(top, name, "storage.sqlite")
        if os.path.isfile(path):
            found[name] = _hand.count(path, f"SELECT count(*) FROM points WHERE id IN ({_hand.marks(keys)})", keys)
    return found


def _keeps_free_pages() -> bool:
    """Whether this Python's SQLite, with which Qdrant's client deletes, leaves the text in pages that are free."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        return bool(connection.execute("PRAGMA secure_delete").fetchone() == (0,))


def places(request: Request) -> dict[str, Any]:
    """Where memories are, by id and by what they say."""
    with _open(request) as opened:
        memories = {str(each["id"]): str(each.get("memory") or "") for each in opened.all()}
        linked = opened.linked()
    wanted = [*request.ids, *(each for each, said in memories.items() if any(text in said for text in request.texts))]
    for text in request.texts:  # of those that are deleted only the log knows
        sql = "SELECT DISTINCT memory_id FROM history WHERE instr(old_memory, ?) OR instr(new_memory, ?)"
        ((found),) = _hand.look(opened.history, (sql, [text, text]))
        wanted += [str(row[0]) for row in found]
    answer = []
    for identity in dict.fromkeys(wanted):
        if identity in memories:
            answer.append(_hand.place(identity, f"vectors {opened.collection}", 1, retrieval=True))
        if number := linked.get(identity):
            answer.append(_hand.place(identity, f"vectors {opened.entities}", number, retrieval=True))
        for where, number in _logged(opened.history, identity, memories.get(identity)):
            answer.append(_hand.place(identity, where, number, retrieval=False))
    return {"places": answer}


if __name__ == "__main__":
    _hand.serve({"list": list_, "delete": delete, "places": places})
