"""Qdrant's HTTP API, as far as snapshots need it. Nothing is redirected; every answer has a limit."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from store import printable

import job
import takeover
from kinds import _secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    import census

PORT: Final = 6333
"""Where an address has none, as Qdrant's own client has it."""

PATIENCE: Final = 600.0
"""Seconds that the server may say nothing: it answers when a snapshot is made or restored."""

ANSWER: Final = 64 << 20


class Server:
    """A Qdrant server. ``url`` is http:// or https://, host, port and perhaps a path; the key is no part of it."""

    def __init__(self, url: str, limit: census.Limit) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.username or parts.password:
            raise job.JobError("the address of the Qdrant server holds a secret; put the key into a file of its own")
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise job.JobError(f"{printable(url, 200)} is no address of a Qdrant server, such as http://127.0.0.1:6333")
        self._host, self._port, self._base = host, port or PORT, parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._limit = limit
        self._headers = {"Accept": "application/json", "User-Agent": "memops"}
        if path := _secret.path():
            with open(path, encoding="ascii") as file:
                key = file.read(4096).strip()
            if not key.isprintable():
                raise job.JobError("the file with the key holds more than one line")
            self._headers["api-key"] = key

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The ``result`` of a JSON answer. Raises JobError."""
        data = None if body is None else json.dumps(body).encode()
        return self._limit.run(lambda: self._ask(method, path, data, "application/json"))

    def upload(self, path: str, name: str, file: IO[bytes], size: int) -> Any:
        """Send a file as the form's field ``snapshot`` and return the answer's ``result``."""
        # Nobody can have put it into a fact before.
        boundary = f"memops-{os.urandom(16).hex()}"
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="snapshot"; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()

        def pieces() -> Iterator[bytes]:
            yield head
            while chunk := file.read(takeover.CHUNK):
                self._limit.check()
                yield chunk
            yield tail

        kind, length = f"multipart/form-data; boundary={boundary}", len(head) + size + len(tail)
        return self._limit.run(lambda: self._ask("POST", path, pieces(), kind, length))

    def _ask(self, method: str, path: str, data: Any, kind: str, length: int | None = None) -> Any:
        headers = {"Content-Type": kind} if data is not None else {}
        if length is not None:
            headers["Content-Length"] = str(length)
        connection, answer = self._send(method, path, data, headers)
        try:
            text = answer.read(ANSWER + 1)
            if len(text) > ANSWER:
                raise ValueError("the answer has no end")
            found = json.loads(text)
            if found["status"] != "ok":
                raise ValueError(f"status {found['status']}")
            return found["result"]
        except (ValueError, LookupError, TypeError, RecursionError, http.client.HTTPException) as error:
            raise job.JobError(f"Qdrant's answer to {method} {path} cannot be read: {printable(error, 100)}") from error
        finally:
            connection.close()

    def download(self, path: str, file: IO[bytes], size: int) -> None:
        """Write the file at ``path``, which has ``size`` bytes, to ``file``. Raises JobError when it has not."""
        self._limit.run(lambda: self._download(path, file, size))

    def _download(self, path: str, file: IO[bytes], size: int) -> None:
        connection, answer = self._send("GET", path, None, {"Accept": "*/*"})
        try:
            left = size
            while chunk := answer.read(min(takeover.CHUNK, left + 1)):
                left -= len(chunk)
                if left < 0:
                    break
                file.write(chunk)
                self._limit.check()
        except http.client.HTTPException as error:
            raise job.JobError(f"the snapshot broke off: {printable(error, 100)}") from error
        finally:
            connection.close()
        if left:
            raise job.JobError(f"the snapshot has not the {size:,} bytes that Qdrant said")

    def _send(
        self, method: str, path: str, data: Any, headers: dict[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        where = f"{self._host}:{self._port}"
        if self._tls is not None:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=PATIENCE, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE)
        try:
            connection.request(method, self._base + path, data, {**self._headers, **headers})
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise job.JobError(f"Qdrant at {where} does not answer: {printable(error, 100) or 'nothing'}") from error
        if answer.status == 200:
            return connection, answer
        try:
            said = printable(answer.read(500).decode(errors="replace"), 200)
        except (OSError, http.client.HTTPException):
            said = ""
        connection.close()
        if answer.status in (401, 403):
            raise job.JobError(f"Qdrant at {where} refuses the key (HTTP {answer.status})")
        if 300 <= answer.status < 400:
            raise job.JobError(f"Qdrant at {where} answers with a redirection, which is not followed")
        raise job.JobError(f"Qdrant at {where} answers {method} {path} with HTTP {answer.status}: {said}")


def collection_path(name: str, rest: str = "") -> str:
    """The path of a collection's resource."""
    return f"/collections/{quote(name, safe='')}{rest}"
