"""Brokers that say what a test tells them to, at the other end of the simulated network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.net.limits import ConnectionLimits
from ottla.net.server_connection import ClientConnection
from ottla.net.service import Outcome
from ottla.records.batch import BatchHeader
from ottla.testing.sim.brokers import PORT
from ottla.testing.sim.loop import Party, SimLoop
from ottla.testing.sim.network import SimNetwork, SimServer
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.header import encode_response_frame, read_request_header
from ottla.wire.message import Request, Response

Answer = Callable[[str, Any], Response | None]
"""To a request that the broker of this name was asked; None is no answer, ever."""


class AnsweringBroker:
    def __init__(self, name: str, answers: dict[type[Request], Answer]) -> None:
        self.name = name
        self.asked: list[tuple[Any, int, str | None]] = []
        """Requests, their versions and who they say they are from."""
        self.versions_asked_for = 0
        self.is_silent = False
        self.answers = {request.API_KEY: (request, answer) for request, answer in answers.items()}

    def opened(self, connection: ClientConnection) -> None: ...

    def settle(self) -> None: ...

    def end_turn(self) -> None: ...

    def closed(self, connection: ClientConnection) -> None: ...

    def handle(self, connection: ClientConnection, frame: memoryview) -> Outcome:
        header = read_request_header(frame)
        if header.api_key == ApiKey.API_VERSIONS:
            self.versions_asked_for += 1
            response: Response | None = None if self.is_silent else self._versions()
        else:
            request_class, answer = self.answers[header.api_key]
            request, _ = request_class.decode(bytes(frame), header.api_version, header.body_position)
            self.asked.append((request, header.api_version, header.client_id))
            response = answer(self.name, request)
        return () if response is None else [encode_response_frame(response, header.api_version, header.correlation_id)]

    def _versions(self) -> ApiVersionsResponse:
        known = [ApiVersionsRequest, *(request for request, _ in self.answers.values())]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=request.API_KEY, min_version=request.VERSIONS.start, max_version=request.VERSIONS.stop - 1
                )
                for request in known
            ]
        )


class AnsweringCluster:
    """Brokers 1 and 2, which give the same answers."""

    def __init__(self, answers: dict[type[Request], Answer]) -> None:
        self.loop = SimLoop()  # type: ignore[abstract]
        self.network = SimNetwork(self.loop, Random(1))
        self.brokers = {name: AnsweringBroker(name, answers) for name in ("broker-1", "broker-2")}
        self.parties = {name: Party(name) for name in self.brokers}

    @property
    def names(self) -> list[str]:
        return list(self.brokers)

    def asked(self, kind: type[Request]) -> list[tuple[str, Any]]:
        """Who was asked for what."""
        return [(b.name, request) for b in self.brokers.values() for request, _, _ in b.asked if type(request) is kind]

    def answer(self, request: type[Request], answer: Answer) -> None:
        """From now on."""
        for broker in self.brokers.values():
            broker.answers[request.API_KEY] = request, answer

    def run(self, party: Party, scenario: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What `scenario` returns, run as this party."""

        async def run() -> Any:
            for name, answering in self.brokers.items():
                self.parties[name].run(self._serve, answering)
            return await party.run(self.loop.create_task, scenario())

        try:
            result = self.loop.run_until_complete(run())
            assert self.loop.failures == []
            return result
        finally:
            self.loop.close()

    def _serve(self, broker: AnsweringBroker) -> None:
        server = SimServer(self.network, broker, ConnectionLimits())
        server.bind("PLAINTEXT", broker.name, PORT)
        server.start_accepting()


async def for_a_while(work: Coroutine[Any, Any, Any], seconds: float) -> None:
    """What has no end of its own; what it raises meanwhile is raised."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(work, seconds)


def in_turn(*results: Any) -> Callable[..., Any]:
    """The first of them, then the next; the last for ever. One that can be called gives its own."""
    left = list(results)

    def take(*arguments: Any) -> Any:
        result = left.pop(0) if len(left) > 1 else left[0]
        return result(*arguments) if callable(result) else result

    return take


class Told:
    """What clients tell the checks."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[TopicPartition, int, int, int]] = []
        self.read: list[tuple[TopicPartition, BatchHeader]] = []
        self.checks: Any = SimpleNamespace(
            excused=set(),
            acknowledged=lambda *told: self.acknowledged.append(told),
            was_read=lambda *told: self.read.append(told),
        )


def metadata(topic_id: Any, leaders: Callable[[], list[tuple[int, int]]]) -> Answer:
    """Of topics whose partitions have these leaders, in these epochs."""

    def answer(name: str, request: MetadataRequest) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
            for index, (leader, epoch) in enumerate(leaders())
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=number, host=f"broker-{number}", port=PORT) for number in (1, 2)],
            topics=[
                MetadataResponseTopic(name=topic.name, topic_id=topic_id, partitions=partitions)
                for topic in request.topics or ()
            ],
        )

    return answer


def coordinator(find: Callable[[], tuple[ErrorCode, str]]) -> Answer:
    """That of whatever key: an error code and the name of a broker."""

    def answer(name: str, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        code, host = find()
        found = Coordinator(key=request.coordinator_keys[0], host=host, port=PORT, node_id=1, error_code=code)
        return FindCoordinatorResponse(coordinators=[found])

    return answer
