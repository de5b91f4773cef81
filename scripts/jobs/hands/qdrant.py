"""Qdrant's server, over HTTP; the system's python3 is enough for it."""

from __future__ import annotations

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.sort(key=os.path.dirname(os.path.abspath(__file__)).__eq__)

from typing import TYPE_CHECKING, Any

import census
import job
from hands import _hand
from kinds import _mem0
from kinds._qdrant_http import Server, collection_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hands._hand import Request

TITLE = "Qdrant"
PAGE = 1000
SECONDS = 600
TEXTS = ("data", "text", "document", "page_content", "content", "memory", "fact")
"""Where clients put the text of a memory; ``text`` of the configuration names another key."""

SEGMENTS = "Qdrant's segments and log, until its optimizer has rewritten them"


class _Opened:
    """One collection of a server."""

    def __init__(self, request: Request) -> None:
        url = request.need("url")
        self.server = Server(url, census.Limit(SECONDS))
        names = [str(each["name"]) for each in self.server.ask("GET", "/collections")["collections"]]
        kept = [name for name in names if not _mem0.bookkeeping(name)]
        self.collection = _hand.only(kept, request.config.get("collection", ""), url)
        self.key = request.config.get("text", "")

    def ask(self, rest: str, body: dict[str, Any]) -> Any:
        return self.server.ask("POST", collection_path(self.collection, rest), body)

    def all(self) -> Iterator[dict[str, Any]]:
        """Every point with its payload."""
        offset = None
        while True:
            ask = {"limit": PAGE, "with_payload": True, "with_vector": False}
            page = self.ask("/points/scroll", ask if offset is None else {**ask, "offset": offset})
            yield from page["points"]
            offset = page.get("next_page_offset")
            if offset is None:
                return

    def there(self, ids: list[str]) -> set[str]:
        """Those of the ids that it has."""
        found = self.ask("/points", {"ids": [_id(each) for each in ids], "with_payload": False, "with_vector": False})
        return {str(point["id"]) for point in found}

    def text(self, point: dict[str, Any]) -> str:
        payload = point.get("payload") or {}
        for key in (self.key,) if self.key else TEXTS:
            if isinstance(payload.get(key), str):
                return str(payload[key])
        return ""


def _id(text: str) -> int | str:
    """A point's id is a number or a UUID."""
    return int(text) if text.isascii() and text.isdigit() else text


def _fact(opened: _Opened, point: dict[str, Any]) -> dict[str, str | None]:
    payload = point.get("payload") or {}
    last = _hand.utc(payload.get("expiration_date"))  # as mem0 has it: the day itself still counts
    return _hand.fact(
        str(point["id"]),
        opened.text(point),
        created=_hand.utc(payload.get("created_at")),
        updated=_hand.utc(payload.get("updated_at")),
        expires=_hand.utc(payload.get("expires_at")) or (_hand.days_after(last[:10] + " 00:00:00", 1) if last else ""),
        source=f"{TITLE}, collection {opened.collection}",
    )


def list_(request: Request) -> dict[str, Any]:
    """All points of the collection that have a text."""
    opened = _opened(request)
    points = [_fact(opened, point) for point in opened.all()]
    facts = [each for each in points if each["text"]]
    if points and not facts:
        raise _hand.Refused(
            f"no point of {opened.collection} has a text in its payload", "Name its key: text=KEY", "missing"
        )
    return {"facts": facts, "product": ""}


def _opened(request: Request) -> _Opened:
    try:
        return _Opened(request)
    except job.JobError as error:
        raise _hand.Refused(str(error)) from error


def delete(request: Request) -> dict[str, Any]:
    """Delete the points, wait for it, then ask for them again."""
    opened = _opened(request)
    left: dict[str, str] = {}
    before: set[str] = set()
    for ids in _hand.batches(request.ids):
        try:
            before |= opened.there(ids)
            opened.ask("/points/delete?wait=true", {"points": [_id(each) for each in ids]})
            left |= dict.fromkeys(opened.there(ids), "Qdrant still has it after it was deleted")
        except job.JobError as error:
            left |= dict.fromkeys(ids, str(error))
    snapshots = opened.server.ask("GET", collection_path(opened.collection, "/snapshots"))
    remains = [SEGMENTS, *([f"{len(snapshots)} snapshots on the server"] if snapshots else [])]
    gone = [each for each in request.ids if each not in left]
    return {"gone": gone, "left": left, "remains": {each: remains for each in gone if each in before}}


def places(request: Request) -> dict[str, Any]:
    """The points that are meant, by id and by what they say."""
    opened = _opened(request)
    wanted = {
        str(point["id"]): None
        for point in opened.all()
        if str(point["id"]) in request.ids or any(text in opened.text(point) for text in request.texts)
    }
    return {"places": [_hand.place(each, f"collection {opened.collection}", 1, retrieval=True) for each in wanted]}


if __name__ == "__main__":
    _hand.serve({"list": list_, "delete": delete, "places": places})
