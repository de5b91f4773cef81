"""A product that is a JSON file, a hand on it that can be told to misbehave, and the ledger's job in front of both."""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import handing
import ledger
import shape
from memops import render
from memops.settings import Store

HAND = """
import json, os, sys, time
place = {place!r}
out = os.dup(1)
os.dup2(2, 1)
asked = json.load(sys.stdin)
with open(place + "/product.json") as file:
    product = json.load(file)
with open(place + "/how") as file:
    how = file.read().split()
print("noise of a product", file=sys.stdout)
def answer(value):
    with os.fdopen(out, "w") as file:
        json.dump(value, file)
    os._exit(0)
if asked["op"] in how:  # "list" or "delete" fails
    answer({{"error": "the product is ill", "hint": "Heal it: --name NAME", "why": "failed"}})
if asked["op"] + ":crash" in how:
    print("Traceback\\nValueError: password: hunter2hunter2", file=sys.stderr)
    os._exit(7)
if asked["op"] + ":hang" in how:
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)
if asked["op"] == "list":
    unread = json.loads(how[-1]) if how else []
    answer({{"value": {{"facts": list(product.values()), "product": "1", "unread": unread}}}})
most = next((int(word[5:]) for word in how if word.startswith("most:")), None)
lies = "lies" in how
for each in asked["ids"][:most]:
    if not lies:
        product.pop(each, None)
with open(place + "/product.json", "w") as file:
    json.dump(product, file)
if most is not None and "delete:late" in how:
    answer({{"error": "it broke on its way", "hint": "", "why": "failed"}})
left = {{}} if lies else {{each: "the product keeps it" for each in asked["ids"] if each in product}}
remains = {{each: ["history: 2 rows"] for each in asked["ids"] if each not in product}}
answer({{"value": {{"gone": asked["ids"], "left": left, "remains": remains}}}})
"""


class Product:
    """The product, and memops' ledger of it."""

    def __init__(self, directory: Path, lib: Path, level: str = "ledger") -> None:
        self.place = directory
        self.state, self.sql = directory / "state", directory / "sql"
        self.state.mkdir()
        self.sql.mkdir()
        for name in ("prune", "review", "digest"):
            (self.sql / f"{name}.sql").write_text(render.sql(name, Store()))
        self.path = str(directory / "memory.db")
        shape.create(self.path, render.sql("schema", Store()) + render.sql("ledger", Store()))
        (lib / "hands" / "pretended.py").write_text(HAND.format(place=str(directory)))
        self.lib = lib
        self.save({})
        self.how("")
        words = ["store", self.path, "name", "work", "sql", f"{self.sql}/prune.sql", "state", str(self.state)]
        (directory / "hand.json").write_text('{"place": "here"}')
        words += ["config", str(directory / "hand.json")]
        words += ["hand", "pretended", "python", sys.executable, "level", level, "mode_file", str(directory / "mode")]
        self.arguments = argparse.Namespace(sets_record=None, **dict(zip(words[::2], words[1::2], strict=True)))

    def how(self, words: str) -> None:
        """How the hand is to be from now on."""
        (self.place / "how").write_text(words)

    def save(self, memories: dict[str, dict[str, Any]]) -> None:
        """What the product holds."""
        (self.place / "product.json").write_text(json.dumps(memories))

    def held(self) -> dict[str, dict[str, Any]]:
        """The same, read."""
        found: dict[str, dict[str, Any]] = json.loads((self.place / "product.json").read_text())
        return found

    def put(self, name: str, text: str = "f", **more: Any) -> None:
        """Add a memory to the product, or change it there."""
        self.save({**self.held(), name: {"id": name, "text": text, "created": None, "updated": None, **more}})

    def drop(self, *names: str) -> None:
        """Delete memories in the product."""
        self.save({name: each for name, each in self.held().items() if name not in names})

    def mode(self, word: str) -> None:
        """Root's word to the next runs; empty for none."""
        path = self.place / "mode"
        path.unlink(missing_ok=True)
        if word:
            path.write_text(json.dumps({"mode": word, "until": time.time() + 60}))
            path.chmod(0o644)

    def run(self, word: str = "") -> Any:
        """A run of the service."""
        self.mode(word)
        return ledger.run(self.arguments)

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        """What the ledger's desk answers."""
        return ledger.answer(self.arguments, {"op": op, "arguments": arguments})

    def sql_(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """SQL in the ledger, as its owner may run it."""
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def rows(self) -> dict[str, tuple[Any, ...]]:
        """id → text, confirmed_at, expires_at in the ledger."""
        return {row[0]: row[1:] for row in self.sql_("SELECT id, fact, confirmed_at, expires_at FROM memory")}

    def hand(self, **more: Any) -> handing.Hand:
        """The hand alone."""
        return handing.Hand("pretended", sys.executable, {}, **more)


def processes(words: str) -> list[str]:
    """Processes whose command line has these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if words in line:
                found.append(line)
    return found
