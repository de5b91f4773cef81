"""Qdrant's local mode. Further lines for ``write``: ``delete ID``, ``add N``."""

import json
import sys
import uuid

from qdrant_client import QdrantClient, models

verb, place = sys.argv[1:]
client = QdrantClient(path=place)


def dump():
    found = {}
    for each in sorted(client.get_collections().collections, key=lambda each: each.name):
        points, _ = client.scroll(each.name, limit=100_000, with_vectors=True)
        found[each.name] = {str(point.id): [point.vector, point.payload] for point in points}
    nearest = client.query_points("memories", query=[1.0, 0.5, 0.25, 0.1], limit=7).points
    found["nearest"] = [[str(point.id), round(point.score, 6)] for point in nearest]
    print(json.dumps(found, sort_keys=True), flush=True)


def add(first, count):
    points = [
        models.PointStruct(
            id=number if number % 2 else str(uuid.UUID(int=number << 64 | 4)),
            vector=[number % 17 + 0.5, number % 13 + 1, number / 1024, 1.0],
            payload={"data": f"fact {number} ✓", "tags": [number, None, {"deep": True}]},
        )
        for number in range(first, first + count)
    ]
    client.upsert("memories", points)


if verb == "write":
    # Not COSINE, of which a client returns what it wrote itself normalised, and what it read from the file not.
    size = models.VectorParams(size=4, distance=models.Distance.DOT)
    for name in ("memories", "memories_entities", "two words"):
        client.create_collection(name, vectors_config=size)
    add(1, 800)
    client.upsert("memories_entities", [models.PointStruct(id=9, vector=[1, 0, 0, 0], payload={"data": "Ada"})])
    client.delete("memories", points_selector=[11])
    dump()
    for line in sys.stdin:
        word, number = line.split()
        if word == "add":
            add(10_000, int(number))
        else:
            client.delete("memories", points_selector=[int(number)])
        dump()
else:
    dump()
