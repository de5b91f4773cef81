"""mcp-memory-service's storage class on the file PLACE. Without its extras its vectors are made of hashes."""

import asyncio
import os
import sys
import time
from pathlib import Path

place = sys.argv[1]
os.environ.update(
    MCP_MEMORY_BASE_DIR=str(Path(place).parent),
    MCP_MEMORY_SQLITE_PATH=place,
    MCP_MEMORY_ALLOW_HASH_EMBEDDINGS="1",
    MCP_SEMANTIC_DEDUP_ENABLED="false",
)

from agent import serve  # noqa: E402
from mcp_memory_service.models.memory import Memory  # noqa: E402
from mcp_memory_service.storage.sqlite_vec import SqliteVecMemoryStorage  # noqa: E402
from mcp_memory_service.utils.hashing import generate_content_hash  # noqa: E402

loop = asyncio.new_event_loop()
storage = SqliteVecMemoryStorage(place)
loop.run_until_complete(storage.initialize())


def add(text, tag="tea"):
    identity = generate_content_hash(text)
    memory = Memory(content=text, content_hash=identity, tags=[tag], memory_type="note")
    done, said = loop.run_until_complete(storage.store(memory))
    assert done, said
    return identity


def read():
    return {each.content_hash: each.content for each in loop.run_until_complete(storage.get_all_memories())}


def find(text):
    return [each.memory.content_hash for each in loop.run_until_complete(storage.retrieve(text, 3))]


def delete(identity, days_ago=0):
    """The service's own deletion, so many days ago: by a clock that is turned back."""
    now = time.time
    time.time = lambda: now() - days_ago * 86400
    try:
        return loop.run_until_complete(storage.delete(identity))[0]
    finally:
        time.time = now


serve(add=add, read=read, find=find, delete=delete)
