"""mem0 with its history below PLACE, a tiny embedder instead of a model, and no network.

Its local Qdrant is there too, or where VECTORS says: a directory, or the address of Qdrant's server.
"""

import hashlib
import os
import sys

place = sys.argv[1]
vectors = os.environ.get("VECTORS", f"{place}/qdrant")
os.environ.update(MEM0_DIR=place, MEM0_TELEMETRY="False")

import mem0.memory.main  # noqa: E402
from agent import serve  # noqa: E402


class Tiny:
    """Eight numbers of a text's hash."""

    def embed(self, text, _action=None):
        return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:8]]

    def embed_batch(self, texts, _action=None):
        return [self.embed(text) for text in texts]


mem0.memory.main.EmbedderFactory.create = staticmethod(lambda *_: Tiny())
where = {"url": vectors, "api_key": "s3cret"} if "://" in vectors else {"path": vectors, "on_disk": True}
memory = mem0.Memory.from_config(
    {
        "history_db_path": f"{place}/history.db",
        "vector_store": {"provider": "qdrant", "config": {**where, "embedding_model_dims": 8}},
        "llm": {"provider": "openai", "config": {"api_key": "none"}},
    }
)


def add(text, user="ada", expires=None):
    return memory.add(text, user_id=user, infer=False, expiration_date=expires)["results"][0]["id"]


def link(entity, identity, user="ada"):
    """An entity as mem0 finds it in a text with a language model, which is not to be had here."""
    memory._upsert_entity(entity, "PROPER", identity, {"user_id": user})


def say(text, user="ada"):
    """A message of a conversation, of which mem0 keeps the last ten as they are."""
    memory.db.save_messages([{"role": "user", "content": text}], f"user_id={user}")


def entities():
    points = memory.entity_store.list(top_k=100)[0]
    return {point.payload["data"]: sorted(point.payload["linked_memory_ids"]) for point in points}


def read(user="ada", hidden=False):
    found = memory.get_all(filters={"user_id": user}, top_k=1000, show_expired=hidden)["results"]
    return {each["id"]: each["memory"] for each in found}


def find(text, user="ada"):
    return [each["id"] for each in memory.search(text, filters={"user_id": user})["results"]]


def log(identity):
    return [row["event"] for row in memory.history(identity)]


serve(add=add, link=link, say=say, entities=entities, read=read, find=find, log=log, delete=memory.delete)
