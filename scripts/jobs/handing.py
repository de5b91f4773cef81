"""Asking a hand: the program that speaks to a product as the agent's user, with the agent's own Python.

Whatever it is, it is the agent's word: it has its time and its size, its end is not waited for, and what it answers is
checked before it is believed. What products print goes nowhere; of a failure only its last line is told, masked.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import store

import job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SECONDS: Final = 900.0
"""For one answer."""

LARGEST: Final = 128 << 20
"""Bytes of an answer, and of what a product prints."""

MOST: Final = 1_000_000
"""Memories of one store."""

LONGEST_ID: Final = 1000
LONGEST: Final = 100_000
"""Characters of a text; of a longer one the beginning is kept."""

_SAID: Final = 300


class HandError(job.JobError):
    """The hand gave no answer, or a refusal: ``why`` is its word for it, ``hint`` what to type."""

    def __init__(self, message: str, hint: str = "", why: str = "failed") -> None:
        super().__init__(f"{message}. {hint}".rstrip(". ") if hint else message)
        self.sentence, self.hint, self.why = message, hint, why


@dataclass(frozen=True)
class Memory:
    """A memory as the product has it: texts are the agent's, dates are UTC text or None where they are no dates."""

    id: str
    text: str
    created: str | None = None
    updated: str | None = None
    expires: str | None = None
    subject: str = ""
    source: str = ""


@dataclass(frozen=True)
class Listing:
    """All that the product holds, by id. ``unread``: beginnings of ids of which it could tell nothing now."""

    memories: Mapping[str, Memory]
    unread: tuple[str, ...] = ()


@dataclass
class Deleted:
    """What a hand says of a deletion: ``left`` id → sentence, ``remains`` id → where its text still lies."""

    left: dict[str, str] = field(default_factory=dict)
    remains: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Hand:
    """A hand by name, the Python it runs with, and its configuration. stop: asked whether to give up."""

    name: str
    python: str
    config: Mapping[str, str]
    stop: Callable[[], object] = bool
    seconds: float = SECONDS
    store: str = "NAME"

    def listing(self) -> Listing:
        """Everything. Raises HandError."""
        found = self._ask("list", ())
        facts, unread = found.get("facts"), found.get("unread", [])
        if not isinstance(facts, list) or not isinstance(unread, list) or not all(isinstance(e, str) for e in unread):
            raise self._wrong("its list is none")
        if len(facts) > MOST:
            raise self._wrong(f"it lists more than {MOST:,} memories")
        memories: dict[str, Memory] = {}
        for each in facts:
            memory = self._memory(each)
            if memory.id in memories:
                raise self._wrong("two memories have one id")
            memories[memory.id] = memory
        return Listing(memories, tuple(unread))

    def delete(self, ids: Sequence[str]) -> Deleted:
        """Delete these; what it says of that, for ids that were asked for. Raises HandError."""
        found, wanted = self._ask("delete", ids), set(ids)
        left, remains = found.get("left", {}), found.get("remains", {})
        if not isinstance(left, dict) or not isinstance(remains, dict):
            raise self._wrong("it does not say what it deleted")
        return Deleted(
            {name: said(why) for name, why in left.items() if name in wanted},
            {
                name: [said(each) for each in where[:20]]
                for name, where in remains.items()
                if name in wanted and isinstance(where, list)
            },
        )

    def _memory(self, given: object) -> Memory:
        if not isinstance(given, dict) or not isinstance(given.get("id"), str):
            raise self._wrong("a memory has no id")
        name = given["id"]
        if not name or len(name) > LONGEST_ID or _clean(name) != name:
            raise self._wrong("an id is empty, too long or no text")
        dates = {key: _date(given.get(key)) for key in ("created", "updated", "expires")}
        subject, source = (_clean(given.get(key), store.LONGEST[key]) for key in ("subject", "source"))
        return Memory(name, _clean(given.get("text"), LONGEST), **dates, subject=subject, source=source)

    def _wrong(self, what: str) -> HandError:
        return HandError(f"the hand {self.name} gave an answer that cannot be right: {what}")

    def _ask(self, op: str, ids: Sequence[str]) -> dict[str, Any]:
        given = json.dumps({"op": op, "config": dict(self.config), "ids": list(ids), "texts": []})
        out, errors, code = self._run(given.encode())
        try:
            answer = json.loads(out)
        except (ValueError, RecursionError):
            last = errors.decode(errors="replace").strip().rpartition("\n")[2] or f"exit code {code}"
            raise HandError(f"the hand {self.name} gave no answer: {said(last)}") from None
        if not isinstance(answer, dict):
            raise self._wrong("it is no object")
        if "error" in answer:
            hint = said(answer.get("hint", "")).replace("--name NAME", f"--name {self.store}")
            raise HandError(said(answer["error"]).rstrip("."), hint, said(answer.get("why", "failed")))
        value = answer.get("value")
        if not isinstance(value, dict):
            raise self._wrong("it has no value")
        return value

    def _run(self, given: bytes) -> tuple[bytes, bytes, int]:
        """Run the program to its end: what it answered and printed, and its exit code. Raises HandError."""
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hands", f"{self.name}.py")
        # In memory: what they hold are memories, and no disk keeps them.
        files = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("request", "answer", "errors")]
        try:
            _write(files[0], given)
            os.lseek(files[0], 0, os.SEEK_SET)
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}
            for name in ("JOURNAL_STREAM", "NOTIFY_SOCKET", "PYTHONPATH", "PYTHONSTARTUP"):
                environment.pop(name, None)
            try:
                process = subprocess.Popen(
                    [self.python, script], stdin=files[0], stdout=files[1], stderr=files[2], env=environment,
                    start_new_session=True, cwd="/",
                )  # fmt: skip
            except OSError as error:
                what = f"{self.python} cannot be started ({error.strerror})"
                hint = f"Name the agent's Python: sudo memops install --name {self.store} --python PYTHON"
                raise HandError(what, hint, "missing") from None
            try:
                self._wait(process, files)
            finally:
                # What it started as well: nothing of it outlives the job's question.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            answer, errors = (_read(file) for file in files[1:])
            return answer, errors[-4000:], process.returncode
        finally:
            for file in files:
                os.close(file)

    def _wait(self, process: subprocess.Popen[bytes], files: Sequence[int]) -> None:
        end, pause = time.monotonic() + self.seconds, 0.01
        while process.poll() is None:
            if self.stop():
                raise HandError("told to stop before the product answered", why="stopped")
            if time.monotonic() > end:
                raise HandError(f"the hand {self.name} gave no answer within {self.seconds:.0f} s")
            if any(os.fstat(file).st_size > LARGEST for file in files[1:]):
                raise HandError(f"the hand {self.name} answered more than {LARGEST >> 20} MB")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.2)
        if any(os.fstat(file).st_size > LARGEST for file in files[1:]):
            raise HandError(f"the hand {self.name} answered more than {LARGEST >> 20} MB")


def said(text: object) -> str:
    """The agent's words as they may go to the journal: escaped, masked, and not long."""
    return store.printable(store.mask(str(text)[: 4 * _SAID]), _SAID)


def _clean(text: object, most: int = LONGEST_ID + 1) -> str:
    """A text that SQLite takes, and no more of it."""
    if not isinstance(text, str):
        return ""
    return text[:most].encode("utf-8", "replace").decode()


def _date(text: object) -> str | None:
    return str(text) if isinstance(text, str) and store.moment_of(text) is not None else None


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _read(file: int) -> bytes:
    os.lseek(file, 0, os.SEEK_SET)
    parts = []
    while part := os.read(file, 1 << 20):
        parts.append(part)
    return b"".join(parts)
