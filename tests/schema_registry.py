"""A small schema registry that is really asked over HTTP, in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.waiting import join

NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}


class Registry(ThreadingHTTPServer):
    """Schemas by id and by subject; every request is noted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str]] = []
        self.auth: str | None = None
        self.moved_to: str | None = None
        self.broken = False
        self.failing_ids: set[int] = set()
        """Schemas that it cannot give at the moment."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, subject: str, schema: str, **more: Any) -> int:
        body = {"schema": schema, **more}
        for known, other in self.schemas.items():
            if other == body:
                schema_id = known
                break
        else:
            schema_id = 100_000 + len(self.schemas)
            self.schemas[schema_id] = body
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        match self.path.removeprefix("/moved").split("/")[1:]:
            case ["schemas", "ids", number] if int(number) in self.server.failing_ids:
                self._answer(503, {"error_code": 50003, "message": "Not now"})
            case ["schemas", "ids", number] if int(number) in self.server.schemas:
                self._answer(200, self.server.schemas[int(number)])
            case ["subjects", subject, "versions", version] if subject in self.server.subjects:
                at = -1 if version == "latest" else int(version) - 1
                self._answer(200, self.server.schemas[self.server.subjects[subject][at]])
            case _:
                self._answer(404, NOT_FOUND)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match self.path.split("/")[1:]:
            case ["subjects", subject, "versions"]:
                if "bad" in subject:
                    self._answer(409, {"error_code": 409, "message": "Schema is incompatible"})
                else:
                    self._answer(200, {"id": self.server.add(subject, body["schema"])})
            case ["subjects", subject]:
                known = [i for i in self.server.subjects.get(subject, []) if self.server.schemas[i] == body]
                self._answer(200, {"id": known[0]}) if known else self._answer(404, NOT_FOUND)

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.server.requests.append((self.command, self.path))
        self.server.auth = self.headers["Authorization"]
        data = b"<html>" if self.server.broken else json.dumps(body).encode()
        if self.server.moved_to is not None and not self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", self.server.moved_to + self.path)
        else:
            self.send_response(500 if self.server.broken else status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def running_registry() -> Iterator[Registry]:
    with Registry() as registry:
        thread = threading.Thread(target=registry.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield registry
        finally:
            registry.shutdown()
            join(thread)
