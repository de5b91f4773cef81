"""mem0 with its history and a local Qdrant, a tiny embedder instead of a model, and no network.

``write`` takes further lines: ``delete N`` deletes the Nth memory.
"""

import hashlib
import json
import os
import sys

verb, place = sys.argv[1:]
os.environ.update(MEM0_DIR=place, MEM0_TELEMETRY="False")

import mem0.memory.main  # noqa: E402


class Tiny:
    """Eight numbers of a text's hash."""

    def embed(self, text, _action=None):
        return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:8]]

    def embed_batch(self, texts, _action=None):
        return [self.embed(text) for text in texts]


mem0.memory.main.EmbedderFactory.create = staticmethod(lambda *_: Tiny())
memory = mem0.Memory.from_config(
    {
        "history_db_path": f"{place}/history.db",
        "vector_store": {
            "provider": "qdrant",
            "config": {"path": f"{place}/qdrant", "on_disk": True, "embedding_model_dims": 8},
        },
        "llm": {"provider": "openai", "config": {"api_key": "none"}},
    }
)


def dump():
    found = sorted(memory.get_all(filters={"user_id": "ada"}, top_k=10_000)["results"], key=lambda each: each["memory"])
    answer = {
        "memories": found,
        "nearest": [each["memory"] for each in memory.search("fact 5", filters={"user_id": "ada"})["results"]][:1],
        "history": {each["id"]: [row["event"] for row in memory.history(each["id"])] for each in found},
    }
    print(json.dumps(answer, sort_keys=True), flush=True)
    return found


if verb == "write":
    for number in range(40):
        memory.add(f"fact {number}", user_id="ada", infer=False, metadata={"number": number})
    found = dump()
    for line in sys.stdin:
        memory.delete(found[int(line.split()[1])]["id"])
        dump()
else:
    dump()
