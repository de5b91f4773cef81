"""A Chroma directory or the port of its server, PLACE, with a collection ``memories``."""

import hashlib
import sys

import chromadb
from agent import serve

place, settings = sys.argv[1], chromadb.Settings(anonymized_telemetry=False)
if place.isdigit():
    client = chromadb.HttpClient("127.0.0.1", int(place), settings=settings)
else:
    client = chromadb.PersistentClient(path=place, settings=settings)
memories = client.get_or_create_collection("memories", embedding_function=None)


def vector(text):
    return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:8]]


def add(text):
    identity = "m-" + hashlib.sha256(text.encode()).hexdigest()[:8]
    memories.add(ids=[identity], embeddings=[vector(text)], documents=[text], metadatas=[{"kind": "note"}])
    return identity


def read():
    found = memories.get()
    return dict(zip(found["ids"], found["documents"], strict=True))


def find(text):
    """The text, if any, of what is nearest."""
    return memories.query(query_embeddings=[vector(text)], n_results=1)["documents"][0][0]


serve(add=add, read=read, find=find, delete=lambda identity: memories.delete(ids=[identity]))
