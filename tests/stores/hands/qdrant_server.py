"""Qdrant's client on a server's address; ``write`` fills two collections and an alias."""

import json
import sys
import uuid

from qdrant_client import QdrantClient, models

verb, url = sys.argv[1:]
client = QdrantClient(url=url, api_key="s3cret", check_compatibility=False)
if verb == "write":
    for name, count in (("memories", 700), ("a b", 3)):
        client.create_collection(name, vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
        points = [
            models.PointStruct(id=n if n % 3 else str(uuid.UUID(int=n << 64)), vector=[n, 1.5], payload={"n": n})
            for n in range(1, count + 1)
        ]
        client.upsert(name, points, wait=True)
    operation = models.CreateAlias(collection_name="memories", alias_name="current")
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=operation)])
found = {}
for each in client.get_collections().collections:
    points, _ = client.scroll(each.name, limit=10_000, with_vectors=True)
    found[each.name] = {str(point.id): [point.vector, point.payload] for point in points}
found["aliases"] = {each.alias_name: each.collection_name for each in client.get_aliases().aliases}
print(json.dumps(found, sort_keys=True), flush=True)
