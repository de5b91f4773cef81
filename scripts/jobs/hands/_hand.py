"""What the hands share: the request and the answer, the looks at databases beside a product, dates.

A request is ``{"op": "list" | "delete" | "places", "config": {…}, "ids": […], "texts": […]}``, an answer
``{"value": …}`` or ``{"error": sentence, "hint": what to type, "why": "held" | "version" | "missing" | "failed"}``.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta, timezone
from importlib import metadata
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

UTC = timezone.utc  # noqa: UP017 - datetime.UTC came with Python 3.11
LOOK_SECONDS = 60
"""What the questions to a database may take."""


class Refused(Exception):  # noqa: N818
    """It cannot be done. ``why`` is the answer's word for it, ``hint`` what to type."""

    def __init__(self, message: str, hint: str = "", why: str = "failed") -> None:
        super().__init__(message)
        self.hint, self.why = hint, why


class Request:
    """What is asked: ``config`` (KEY → VALUE), ``ids`` and ``texts``."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.config: dict[str, str] = {str(key): str(value) for key, value in given.get("config", {}).items()}
        self.ids: list[str] = [str(each) for each in given.get("ids", ())]
        self.texts: list[str] = [str(each) for each in given.get("texts", ()) if each]

    def need(self, key: str) -> str:
        """A value of the configuration. Raises Refused when it is not there."""
        if not self.config.get(key):
            raise Refused(f"the configuration has no {key}", "Adopt the store again: sudo memops adopt PATH", "missing")
        return self.config[key]

    def file(self, key: str) -> str:
        """The same for a file or directory that must be there, or a product would make a new and empty one."""
        path = self.need(key)
        if not os.path.lexists(path):
            raise Refused(f"{path} is not there", f"Look at: namei -l {path}", "missing")
        return path


def serve(operations: Mapping[str, Callable[[Request], dict[str, Any]]]) -> NoReturn:
    """Answer the request on standard input and end the process.

    Whatever else is printed, by a product or at its end, goes to standard error.
    """
    out = os.dup(1)
    os.dup2(2, 1)
    # Offline: a product that cannot find its model at once goes looking for it.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", DO_NOT_TRACK="1", ANONYMIZED_TELEMETRY="False")
    try:
        given = json.load(sys.stdin)
        answer: dict[str, Any] = {"value": operations[given["op"]](Request(given))}
    except Refused as error:
        answer = {"error": str(error), "hint": error.hint, "why": error.why}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:500], "hint": "", "why": "failed"}
    with os.fdopen(out, "w", encoding="utf-8") as file:
        json.dump(answer, file)
    sys.stderr.flush()
    # Products leave threads behind, some of which would speak to a server when they end.
    os._exit(0)


def secret() -> str:
    """The key of a server: what is in the file that the unit names (as ``kinds._secret`` has it); empty without one."""
    path = os.environ.get("MEMOPS_SECRETS", "")
    if not path and os.environ.get("MEMOPS_PART"):
        path = os.path.join(os.environ.get("CREDENTIALS_DIRECTORY", ""), os.environ["MEMOPS_PART"])
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="ascii") as file:
        return file.read(4096).strip()


def version(distribution: str) -> str:
    """The version of a package of this Python. Raises Refused when it has none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        raise Refused(
            f"{sys.executable} has no {distribution}",
            "Name the Python that the agent runs with: sudo memops adopt PATH --python PYTHON",
            "missing",
        ) from None


def numbers(text: str) -> tuple[int, ...]:
    """A version as numbers, to compare it; what follows them is left out."""
    found = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)


@contextlib.contextmanager
def elsewhere() -> Iterator[str]:
    """An empty directory for what a product writes beside its store when it is imported; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="memops-hand-", ignore_cleanup_errors=True) as directory:
        yield directory


_LOOK = """
import json, sqlite3, sys, time, urllib.parse
given = json.load(sys.stdin)
connection = sqlite3.connect(f"file:{urllib.parse.quote(given['path'])}?mode=ro", uri=True, timeout=10)
connection.text_factory = lambda data: data.decode(errors="replace")
end = time.monotonic() + given["seconds"]
connection.set_progress_handler(lambda: time.monotonic() > end, 10000)
found = []
for sql, values in given["questions"]:
    try:
        found.append(connection.execute(sql, values).fetchall())
    except sqlite3.OperationalError as error:
        if "no such" not in str(error):
            raise
        found.append([])
json.dump(found, sys.stdout)
"""


def look(path: str, *questions: tuple[str, Sequence[Any]]) -> list[list[list[Any]]]:
    """Ask a SQLite file: the rows for each question, none where it has no such table or column.

    In a process of its own, for locks are lost when another library in one process closes the same file. Raises
    Refused.
    """
    asked = json.dumps({"path": path, "seconds": LOOK_SECONDS, "questions": questions})
    command = [sys.executable, "-I", "-c", _LOOK]
    ran = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=LOOK_SECONDS * 2, check=False)
    if ran.returncode:
        said = ran.stderr.strip().splitlines()[-1:] or [""]
        raise Refused(f"{path} cannot be read: {said[0][:300]}")
    answer: list[list[list[Any]]] = json.loads(ran.stdout)
    return answer


def count(path: str, sql: str, values: Sequence[Any] = ()) -> int:
    """The number that one question answers with; 0 where the table is not there."""
    ((rows),) = look(path, (sql, values))
    return int(rows[0][0] or 0) if rows else 0


def marks(values: Sequence[Any]) -> str:
    """``?, ?, …``, one for each."""
    return ", ".join("?" * len(values))


def batches(values: Sequence[str], size: int = 500) -> Iterator[list[str]]:
    """The values in lists short enough for one statement."""
    for first in range(0, len(values), size):
        yield list(values[first : first + size])


def rows(number: int, where: str) -> str:
    """``where: 2 rows``."""
    return f"{where}: {number:,} row{'' if number == 1 else 's'}"


def holders(paths: Iterable[str]) -> list[str]:
    """The other processes of this user's that have one of the files open, or one below: ``process 12 (python3)``."""
    wanted = [os.path.realpath(path) for path in paths]
    found = {}
    for entry in glob.iglob("/proc/[0-9]*/fd/*"):
        pid = entry.split("/")[2]
        if pid in found or int(pid) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            target = os.readlink(entry)
            if any(target == path or target.startswith(path + "/") for path in wanted):
                with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                    found[pid] = f"process {pid} ({file.read().strip()})"
    return list(found.values())


def held(path: str, by: Iterable[str]) -> Refused:
    """What is said where another process has the store for itself."""
    return Refused(
        f"{path} is held by {', '.join(by) or 'another process'}",
        "Name the agent's unit, which is then paused: sudo memops install --name NAME --agent-unit UNIT",
        "held",
    )


def utc(value: object) -> str:
    """A moment as ``YYYY-MM-DD HH:MM:SS`` in UTC: ISO 8601, SQLite's text, or seconds since 1970. Else empty.

    What names no zone is UTC.
    """
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            # Some keep milliseconds; as seconds those would be after the year 5000.
            moment = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        elif isinstance(value, str):
            text = value.strip()
            # Before 3.11 Python knows neither Z nor a fraction that is not 3 or 6 digits long.
            moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        else:
            return ""
    except (ValueError, OverflowError, OSError):
        return ""
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def days_after(moment: str, days: int) -> str:
    """A moment of ``utc`` so many days later."""
    later = datetime.strptime(moment, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) + timedelta(days=days)
    return later.strftime("%Y-%m-%d %H:%M:%S")


def fact(identity: str, text: str, **more: str) -> dict[str, str | None]:
    """A memory as ``list`` answers with it; a date that is not known is null."""
    found: dict[str, str | None] = {"id": identity, "text": text, "subject": "", "source": ""}
    for key in ("created", "updated", "expires"):
        found[key] = more.pop(key, "") or None
    return {**found, **more}


def place(identity: str, where: str, number: int, *, retrieval: bool) -> dict[str, Any]:
    """A place as ``places`` answers with it; ``retrieval``: what the agent recalls comes from there."""
    return {"id": identity, "place": where, "rows": number, "retrieval": retrieval}


def listed_places(facts: Iterable[Mapping[str, str | None]], request: Request, where: str) -> dict[str, Any]:
    """What ``places`` answers where all memories lie in one place, from which the agent recalls them."""
    wanted = set(request.ids)
    found = [
        str(each["id"])
        for each in facts
        if each["id"] in wanted or any(text in str(each["text"]) for text in request.texts)
    ]
    return {"places": [place(each, where, 1, retrieval=True) for each in found]}


def only(names: Sequence[str], wanted: str, path: str) -> str:
    """The collection that is meant: the one that was named, else the only one. Raises Refused."""
    if wanted in names:
        return wanted
    listed = ", ".join(sorted(names)[:10]) or "none"
    if wanted:
        raise Refused(f"{path} has no collection {wanted}; there are: {listed}", "", "missing")
    if len(names) == 1:
        return names[0]
    raise Refused(
        f"{path} has {len(names)} collections: {listed}",
        "Name one: sudo memops adopt PATH --collection COLLECTION",
        "missing",
    )
