"""LangGraph's SQLite store, PLACE, with an index of vectors, and its checkpointer in the same file."""

import hashlib
import sqlite3
import sys

from agent import serve
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.sqlite import SqliteStore


def embed(texts):
    return [[byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:8]] for text in texts]


connection = sqlite3.connect(sys.argv[1], check_same_thread=False, isolation_level=None)
store = SqliteStore(connection, index={"dims": 8, "embed": embed, "fields": ["text"]})
store.setup()
saver = SqliteSaver(connection)
ADA = ("users", "ada")


def add(key, text, minutes=None):
    store.put(ADA, key, {"text": text}, ttl=minutes)


def say(text):
    """A state of a conversation with the words in it."""
    checkpoint = {**empty_checkpoint(), "channel_values": {"messages": [text]}}
    saver.put({"configurable": {"thread_id": "1", "checkpoint_ns": ""}}, checkpoint, {"step": 1}, {})


def read():
    return {item.key: item.value["text"] for item in store.search(ADA, limit=1000, refresh_ttl=False)}


def find(text):
    return [item.key for item in store.search(ADA, query=text, limit=3, refresh_ttl=False)]


def delete(key):
    store.delete(ADA, key)


serve(add=add, say=say, read=read, find=find, delete=delete, sweep=store.sweep_ttl)
