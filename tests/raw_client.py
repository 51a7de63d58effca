"""A blocking client for tests that must send exactly these bytes: no retries, no metadata, no buffering."""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

from ottla.wire.apis import response_class
from ottla.wire.header import encode_request_frame, read_response_header
from ottla.wire.message import Request, Response

R = TypeVar("R", bound=Response)


class ConnectionClosedError(Exception):
    """The broker closed the connection instead of replying."""


class RawClient:
    def __init__(
        self,
        port: int,
        *,
        timeout_s: float = 20,
        client_id: str | None = "raw",
        host: str = "127.0.0.1",
        source_host: str = "",
    ) -> None:
        self._socket = socket.create_connection((host, port), timeout_s, (source_host, 0))
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send(self, request: Request, version: int) -> int:
        """Sends without waiting for the reply; returns the correlation id."""
        self._correlation_id += 1
        self.send_bytes(encode_request_frame(request, version, self._correlation_id, self._client_id))
        return self._correlation_id

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def receive(self, response_type: type[R], version: int) -> R:
        frame = self.receive_frame()
        correlation_id, position = read_response_header(frame, response_type.API_KEY, version)
        assert correlation_id <= self._correlation_id
        response, end = response_type.decode(frame, version, position)
        assert end == len(frame), f"{len(frame) - end} bytes after the response"
        return response

    def call(self, request: Request, version: int) -> Response:
        self.send(request, version)
        return self.receive(response_class(request.API_KEY), version)

    def is_closed_by_broker(self) -> bool:
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                part = self._socket.recv(count - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                raise ConnectionClosedError(f"after {len(data)} of {count} bytes")
            data += part
        return bytes(data)
