"""Chroma. ``write`` answers ``run`` with a line and then adds a document every few milliseconds until it is killed."""

import itertools
import json
import sys
import time

import chromadb

verb, place = sys.argv[1:]
client = chromadb.PersistentClient(path=place, settings=chromadb.Settings(anonymized_telemetry=False))


def vector(number):
    return [float(number % 91), float(number % 7), number / 1000]


def add(collection, first, count):
    numbers = range(first, first + count)
    collection.add(
        ids=[f"m{number}" for number in numbers],
        embeddings=[vector(number) for number in numbers],
        documents=[f"fact {number} about tea" for number in numbers],
        metadatas=[{"number": number} for number in numbers],
    )


def dump():
    found = {}
    for name in sorted(collection.name for collection in client.list_collections()):
        rows = client.get_collection(name, embedding_function=None).get(
            include=["embeddings", "documents", "metadatas"]
        )
        found[name] = {
            each: [list(map(float, embedding)), document, metadata]
            for each, embedding, document, metadata in zip(
                rows["ids"], rows["embeddings"], rows["documents"], rows["metadatas"], strict=True
            )
        }
    memories = client.get_collection("memories", embedding_function=None)
    found["nearest"] = memories.query(query_embeddings=[vector(1204)], n_results=5)["ids"]
    found["text"] = sorted(memories.get(where_document={"$contains": "fact 77"})["ids"])
    print(json.dumps(found, sort_keys=True), flush=True)


if verb == "write":
    memories = client.create_collection("memories", embedding_function=None)
    add(client.create_collection("memories_entities", embedding_function=None), 5000, 3)
    for first in range(0, 1200, 100):  # past the threshold at which vectors go to files
        add(memories, first, 100)
    add(memories, 1200, 17)
    memories.delete(ids=["m13"])
    dump()
    sys.stdin.readline()
    print("{}", flush=True)
    for number in itertools.count(2000):
        add(memories, number, 1)
        time.sleep(0.005)
else:
    dump()
