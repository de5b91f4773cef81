"""What a power cut leaves on the disk, out of the record of a program's calls.

The model: names (made, renamed, removed) reach the disk in their order, and none later than a sync of the directory
that it is in; what is in a file reaches it no later than a sync of the file, before that each 512-byte sector by itself
or not at all. A sync of a file keeps the time of its last change, and not its name, which is less than Linux' file
systems give. What was written by way of a shared mapping (SQLite's -shm only) is lost.
"""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from pathlib import Path

SECTOR = 512

Record = tuple[str, list[str], bytes]
"""The letter of a call, its words, and what was written."""


@dataclass(eq=False)
class Node:
    """A file or directory: what the disk has, and what has yet to reach it."""

    mode: int
    uid: int
    gid: int
    content: bytearray = field(default_factory=bytearray)
    waiting: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Offset and bytes of each write since the last sync; a size and None."""
    kept: dict[str, Node] = field(default_factory=dict)
    now: dict[str, Node] = field(default_factory=dict)
    changed: int | None = None
    """When it was last written to, in nanoseconds, where the disk has that."""

    def put(self, offset: int, data: bytes) -> None:
        """Write to the disk."""
        if len(self.content) < offset:
            self.content.extend(bytes(offset - len(self.content)))
        self.content[offset : offset + len(data)] = data

    def size(self, size: int) -> None:
        """Cut off, or extend with zeros."""
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))

    def sync(self) -> None:
        """All of it reaches the disk."""
        for offset, data in self.waiting:
            if data is None:
                self.size(offset)
            else:
                self.put(offset, data)
        self.waiting.clear()

    def cut(self, chance: random.Random) -> None:
        """Of what has yet to reach the disk, let some."""
        share = chance.choice([0.0, 0.5, 0.9, 1.0])
        for offset, data in self.waiting:
            if data is None:
                if chance.random() < share:
                    self.size(offset)
                continue
            at = offset
            while at < offset + len(data):
                end = min((at // SECTOR + 1) * SECTOR, offset + len(data))
                if chance.random() < share:
                    self.put(at, data[at - offset : end - offset])
                at = end
        self.waiting.clear()


Change = tuple[Node, str, Node | None]
"""The directory, the name in there, and what it names from now on (None: nothing)."""


class Disk:
    """Everything below a directory, as it is when this is made; then what calls do to it."""

    def __init__(self, top: Path) -> None:
        self._top, self._inodes = str(top), dict[int, Node]()
        self._names: list[list[Change]] = []
        self._root = self._read(self._top)

    def _read(self, path: str) -> Node:
        status = os.lstat(path)
        node = self._inodes[status.st_ino] = Node(status.st_mode, status.st_uid, status.st_gid)
        if stat.S_ISDIR(status.st_mode):
            node.kept = {name: self._read(f"{path}/{name}") for name in sorted(os.listdir(path))}
            node.now = dict(node.kept)
        else:
            with open(path, "rb") as file:
                node.content = bytearray(file.read())
            node.changed = status.st_mtime_ns
        return node

    def _place(self, path: str) -> tuple[Node, str]:
        *above, name = os.path.relpath(path, self._top).split("/")
        node = self._root
        for each in above:
            node = node.now[each]
        return node, name

    def _change(self, *changes: Change) -> None:
        for directory, name, node in changes:
            if node is None:
                directory.now.pop(name, None)
            else:
                directory.now[name] = node
        self._names.append(list(changes))

    def call(self, record: Record) -> None:
        """Take one call in."""
        letter, words, data = record
        if letter in "OM":
            ino, mode, uid, gid, path = words
            node = self._inodes[int(ino)] = Node(int(mode, 8), int(uid), int(gid))
            self._change((*self._place(path), node))
        elif letter == "U":
            self._change((*self._place(words[0]), None))
        elif letter == "R":
            (old, name), target = self._place(words[0]), self._place(words[1])
            self._change((old, name, None), (*target, old.now[name]))
        elif letter in "WT":
            node = self._inodes[int(words[0])]
            node.waiting.append((int(words[1]), data if letter == "W" else None))
            node.changed = None
        elif letter == "S":
            self._sync(self._inodes[int(words[0])])

    def _sync(self, node: Node) -> None:
        node.sync()
        last = max((n for n, changes in enumerate(self._names, 1) if any(c[0] is node for c in changes)), default=0)
        self._keep(last)

    def _keep(self, count: int) -> None:
        for changes in self._names[:count]:
            for directory, name, node in changes:
                if node is None:
                    directory.kept.pop(name, None)
                else:
                    directory.kept[name] = node
        del self._names[:count]

    def cut(self, chance: random.Random) -> None:
        """The power is cut: lay what is left on the disk into the directory."""
        self._keep(chance.randint(0, len(self._names)))
        self._note_times(self._top)
        for name in os.listdir(self._top):
            path = f"{self._top}/{name}"
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        self._lay(self._root, self._top, chance)

    def _note_times(self, directory: str) -> None:
        for entry in os.scandir(directory):
            node = self._inodes.get(entry.inode())
            if entry.is_dir(follow_symlinks=False):
                self._note_times(entry.path)
            elif node is not None and not node.waiting:
                node.changed = entry.stat(follow_symlinks=False).st_mtime_ns

    def _lay(self, node: Node, path: str, chance: random.Random) -> None:
        if stat.S_ISDIR(node.mode):
            if node is not self._root:
                os.mkdir(path)
            for name, inner in node.kept.items():
                self._lay(inner, f"{path}/{name}", chance)
        else:
            node.cut(chance)
            with open(path, "wb") as file:
                file.write(node.content)
            if node.changed is not None:
                os.utime(path, ns=(node.changed, node.changed))
        if os.geteuid() == 0:
            os.chown(path, node.uid, node.gid)
        os.chmod(path, stat.S_IMODE(node.mode))


def read(path: Path) -> list[Record]:
    """The calls in a record, in their order."""
    text, at, found = path.read_bytes(), 0, []
    while at < len(text):
        end = text.index(b"\n", at)
        letter, _, rest = text[at:end].decode().partition(" ")
        words = (
            rest.split("\t") if letter == "R" else rest.split(" ", 4 if letter in "OM" else 0 if letter == "U" else 2)
        )
        at, data = end + 1, b""
        if letter == "W":
            data = text[at : at + int(words[2])]
            at += int(words[2])
        found.append((letter, words, data))
    return found
