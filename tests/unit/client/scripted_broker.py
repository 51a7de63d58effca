"""A broker that answers from a script: for each API a function from the request to its response.

For what the librdkafka mock cluster cannot do: administration, and leaders or controllers that move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Self

from ottla.wire.apis import request_class
from ottla.wire.apis.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.apis.metadata import MetadataResponse, MetadataResponseBroker
from ottla.wire.header import encode_response_frame, read_request_header
from ottla.wire.message import Request, Response

Answer = Callable[[Any], Response | Awaitable[Response]]
"""All that comes later on a connection has to wait for one that is awaited."""


class ScriptedBroker:
    def __init__(self, node_id: int = 1) -> None:
        self.node_id = node_id
        self.answers: dict[int, Answer] = {}
        self.requests: list[Request] = []
        self.versions: dict[type[Request], set[int]] = {}
        """In which requests of a kind have come."""
        self.port = 0
        self._server: asyncio.Server | None = None

    def on(self, request: type[Request], answer: Answer) -> None:
        self.answers[request.API_KEY] = answer

    def asked(self, request: type[Request]) -> list[Any]:
        return [message for message in self.requests if isinstance(message, request)]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def metadata(self, *others: ScriptedBroker, controller_id: int | None = None, **fields: Any) -> MetadataResponse:
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.node_id, host="127.0.0.1", port=broker.port)
                for broker in (self, *others)
            ],
            controller_id=self.node_id if controller_id is None else controller_id,
            **fields,
        )

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                header = read_request_header(frame)
                message = request_class(header.api_key).decode(frame, header.api_version, header.body_position)[0]
                self.requests.append(message)
                self.versions.setdefault(type(message), set()).add(header.api_version)
                answer = self._answer(header.api_key, message)
                response = await answer if isawaitable(answer) else answer
                writer.write(encode_response_frame(response, header.api_version, header.correlation_id))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    def _answer(self, api_key: int, message: Request) -> Response | Awaitable[Response]:
        if api_key in self.answers:
            return self.answers[api_key](message)
        versions = [(key, request_class(key).VERSIONS) for key in (3, 18, *self.answers)]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=spoken.start, max_version=spoken.stop - 1)
                for key, spoken in versions
            ]
        )
