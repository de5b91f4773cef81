"""Not Qdrant: a stand-in for its server, since no package of the real one can be had.

Written from the public description of the HTTP API (api.qdrant.tech: collections, points, snapshots, aliases, cluster),
and strict: what is not in there (a path, a parameter, a field of a body, a content type) is answered with an error. Its
snapshots are tar archives, as Qdrant's are, but only it can read them.

``python fake_qdrant.py PORT [KEY]`` runs it alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
import threading
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

FIELDS = {
    "count": {"filter", "exact", "shard_key"},
    "scroll": {"limit", "offset", "with_payload", "with_vector", "filter", "shard_key", "order_by"},
    "points": {"points", "batch", "shard_key"},
    "retrieve": {"ids", "with_payload", "with_vector", "shard_key"},
    "delete": {"points", "filter", "shard_key"},
}


class RefusedError(Exception):
    def __init__(self, code, words):
        super().__init__(words)
        self.code = code


class Fake:
    """The server. ``misbehave`` names what goes wrong; ``asked`` has every request: method, path."""

    def __init__(self, port=0, key=None):
        self.key = key
        self.collections = {}  # name → id → {"id", "vector", "payload"}
        self.configurations = {}
        self.aliases = {}
        self.snapshots = {}  # name → snapshot's name → bytes
        self.asked = []
        self.misbehave = set()
        self.between = lambda: None  # called after a snapshot was made
        self._number = 0
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                fake.handle(self)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815  (the names that http.server asks for)

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def handle(self, request):
        size = int(request.headers.get("Content-Length", 0))
        body = request.rfile.read(size)
        parts = urlsplit(request.path)
        self.asked.append((request.command, request.path))
        try:
            if "redirect" in self.misbehave:
                return self.send(request, 307, b"", {"Location": "http://127.0.0.1:1/"})
            if (request.command, parts.path) == ("GET", "/"):  # for everybody, without a key
                return self.send_json(request, 200, {"title": "qdrant - vector search engine", "version": "1.16.0"})
            if self.key is not None and request.headers.get("api-key") != self.key:
                raise RefusedError(401, "Must provide an API key")
            path = [unquote(part) for part in parts.path.strip("/").split("/")]
            query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
            found = self.route(request.command, path, query, request.headers.get("Content-Type", ""), body)
        except RefusedError as error:
            return self.send_json(request, error.code, {"status": {"error": str(error)}, "time": 0})
        if isinstance(found, bytes):
            declared = len(found)
            if "cut" in self.misbehave:
                found = found[: len(found) // 2]
                request.close_connection = True
            return self.send(request, 200, found, {"Content-Type": "application/octet-stream"}, declared)
        return self.send_json(request, 200, {"result": found, "status": "ok", "time": 0.001})

    def send_json(self, request, code, value):
        self.send(request, code, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def send(self, request, code, body, headers, declared=None):
        request.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body) if declared is None else declared)}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    def route(self, method, path, query, kind, body):  # noqa: C901  (a table)
        match method, path:
            case "GET", [""]:
                return {"title": "qdrant - vector search engine", "version": "1.17.0"}
            case "GET", ["collections"]:
                return {"collections": [{"name": name} for name in self.collections]}
            case "GET", ["aliases"]:
                return {"aliases": [{"alias_name": a, "collection_name": c} for a, c in self.aliases.items()]}
            case "GET", ["cluster"]:
                if "cluster" in self.misbehave:
                    return {"status": "enabled", "peer_id": 1, "peers": {"1": {}, "2": {}}}
                return {"status": "disabled"}
            case "POST", ["collections", "aliases"]:
                return self.change_aliases(self.json(kind, body, {"actions"})["actions"])
            case "PUT", ["collections", name]:
                if name in self.collections:
                    raise RefusedError(409, f"Collection `{name}` already exists!")
                self.configurations[name] = self.json(kind, body, None)
                self.collections[name] = {}
                return True
            case "DELETE", ["collections", name]:
                return self.collections.pop(name, None) is not None
            case "GET", ["collections", name, "exists"]:
                return {"exists": name in self.collections}
            case "POST", ["collections", name, "snapshots", "upload"]:
                return self.upload(name, query, kind, body)
            case _, ["collections", name, *rest]:
                if name not in self.collections:
                    raise RefusedError(404, f"Not found: Collection `{name}` doesn't exist!")
                return self.route_collection(method, name, rest, query, kind, body)
        raise RefusedError(404, "no such path")

    def route_collection(self, method, name, rest, query, kind, body):  # noqa: C901  (a table)
        points = self.collections[name]
        match method, rest:
            case "GET", []:
                return self.information(name)
            case "PUT", ["index"]:
                return {"operation_id": 0, "status": "completed"}
            case "PUT", ["points"]:
                for point in self.json(kind, body, FIELDS["points"])["points"]:
                    points[point["id"]] = {key: point.get(key) for key in ("id", "vector", "payload")}
                return {"operation_id": 1, "status": "completed"}
            case "POST", ["points"]:
                ask = self.json(kind, body, FIELDS["retrieve"])
                return [self.record(points[each], ask) for each in ask["ids"] if each in points]
            case "POST", ["points", "delete"] if set(query) <= {"wait", "ordering"}:
                for each in self.json(kind, body, FIELDS["delete"])["points"]:
                    if "undeletable" not in self.misbehave:
                        points.pop(each, None)
                return {"operation_id": 2, "status": "completed"}
            case "POST", ["points", "count"]:
                self.json(kind, body, FIELDS["count"])
                return {"count": len(points) - ("miscount" in self.misbehave)}
            case "POST", ["points", "scroll"]:
                return self.scroll(points, self.json(kind, body, FIELDS["scroll"]))
            case "GET", ["snapshots"]:
                return [{"name": each, "size": len(data)} for each, data in self.snapshots.get(name, {}).items()]
            case "POST", ["snapshots"] if set(query) <= {"wait"} and not body:
                return self.make(name)
            case "GET", ["snapshots", given] if given in self.snapshots.get(name, {}):
                return self.snapshots[name][given]
            case "DELETE", ["snapshots", given] if given in self.snapshots.get(name, {}):
                if "undeletable" in self.misbehave:
                    raise RefusedError(500, "Service internal error")
                del self.snapshots[name][given]
                return True
        raise RefusedError(404, "no such path")

    def json(self, kind, body, fields):
        if kind.partition(";")[0] != "application/json":
            raise RefusedError(400, f"Content type error: {kind}")
        found = json.loads(body)
        if fields is not None and set(found) - fields:
            raise RefusedError(400, f"unknown field {set(found) - fields}")
        return found

    def scroll(self, points, ask):
        limit, offset = ask.get("limit") or 10, ask.get("offset")
        order = sorted(points, key=lambda i: (isinstance(i, str), i))
        order = order[order.index(offset) if offset is not None else 0 :]
        order = [each for each in order if self.matches(points[each]["payload"] or {}, ask.get("filter") or {})]
        page = [self.record(points[each], ask) for each in order[:limit]]
        return {"points": page, "next_page_offset": order[limit] if len(order) > limit else None}

    def information(self, name):
        given = self.configurations[name]
        return {
            "status": "green",
            "optimizer_status": "ok",
            "points_count": len(self.collections[name]),
            "segments_count": 1,
            "config": {
                "params": {key: given.get(key) for key in ("vectors", "sparse_vectors")},
                "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000},
                "optimizer_config": {
                    "deleted_threshold": 0.2,
                    "vacuum_min_vector_number": 1000,
                    "default_segment_number": 0,
                    "flush_interval_sec": 5,
                },
            },
            "payload_schema": {},
        }

    def matches(self, payload, asked):
        if set(asked) - {"must"} and any(asked[key] for key in set(asked) - {"must"}):
            raise RefusedError(400, "only must is known here")
        return all(payload.get(each["key"]) == each["match"]["value"] for each in asked.get("must") or ())

    def record(self, point, ask):
        found = {"id": point["id"]}
        if ask.get("with_payload", True):
            found["payload"] = point["payload"]
        if ask.get("with_vector"):
            found["vector"] = point["vector"]
        return found

    def make(self, name):
        self._number += 1
        given = f"{name}-1-2026-12-01-00-00-{self._number:02}.snapshot"
        text = json.dumps([self.configurations.get(name), list(self.collections[name].values())]).encode()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            entry = tarfile.TarInfo("0/segments/all.json")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        data = packed.getvalue()
        if "no tar" in self.misbehave:
            data = b"\1" * len(data)
        self.snapshots.setdefault(name, {})[given] = data
        self.between()
        checksum = "0" * 64 if "checksum" in self.misbehave else hashlib.sha256(data).hexdigest()
        return {"name": given, "creation_time": "2026-12-01T00:00:00", "size": len(data), "checksum": checksum}

    def upload(self, name, query, kind, body):
        if set(query) - {"wait", "priority", "checksum"} or query.get("priority") not in (
            None, "no_sync", "snapshot", "replica",
        ):  # fmt: skip
            raise RefusedError(400, "unknown parameter")
        if not kind.startswith("multipart/form-data; boundary="):
            raise RefusedError(400, "Content type error")
        form = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
        (part,) = form.get_payload()
        if part.get_param("name", header="content-disposition") != "snapshot":
            raise RefusedError(400, "Field `snapshot` is missing")
        start = body.index(b"\r\n\r\n") + 4
        data = body[start : body.rindex(b"\r\n--")]
        if "checksum" in query and hashlib.sha256(data).hexdigest() != query["checksum"]:
            raise RefusedError(400, "Snapshot checksum mismatch")
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            configuration, points = json.load(tar.extractfile("0/segments/all.json"))
        self.configurations[name] = configuration
        self.collections[name] = {point["id"]: point for point in points}
        self.snapshots.setdefault(name, {})[part.get_filename()] = data
        return True

    def change_aliases(self, actions):
        for action in actions:
            ((verb, given),) = action.items()
            if verb == "delete_alias" and set(given) == {"alias_name"}:
                self.aliases.pop(given["alias_name"])
            elif verb == "create_alias" and set(given) == {"alias_name", "collection_name"}:
                if given["collection_name"] not in self.collections or given["alias_name"] in self.aliases:
                    raise RefusedError(400, "the alias exists, or its collection does not")
                self.aliases[given["alias_name"]] = given["collection_name"]
            else:
                raise RefusedError(400, f"unknown action {verb}")
        return True


if __name__ == "__main__":
    fake = Fake(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
    print("ready", flush=True)
    fake.server.serve_forever()
