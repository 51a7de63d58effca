"""Produce requests on their way: written at once where nothing is in the way, and always in the order they were made.

What goes into a request, and what becomes of its batches, is decided by `BatchSender`; this only asks the brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from ottla.base.errors import ErrorCode, KafkaError, OttlaError
from ottla.base.types import TopicPartition
from ottla.client.aio.cluster_link import ClusterLink
from ottla.client.core.metadata import BrokerAddress
from ottla.client.core.producer.batch import Batch
from ottla.client.core.producer.batch_sender import ProduceCall
from ottla.client.core.producer.frames import ProduceFrames, read_reply
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.results import PartitionResult
from ottla.net.connection import Connection
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.header import encode_request_parts

MAX_PRODUCE_VERSION = 11
"""12 means that partitions join transactions by being written to, which only newer brokers do (KIP-890)."""


class ProduceReply(NamedTuple):
    results: dict[TopicPartition, PartitionResult]
    endpoints: list[BrokerAddress]


class Spawn(Protocol):
    def __call__(self, work: Coroutine[Any, Any, None], *, on_cancel: Callable[[], None]) -> None: ...


class ProduceRequests:
    def __init__(
        self,
        settings: ProducerSettings,
        link: ClusterLink,
        *,
        spawn: Spawn,
        tell: Callable[[ProduceCall, ProduceReply | Exception], None],
    ) -> None:
        """`tell` is called once for each call, with its reply or why there is none; never before `start` returns."""
        self._settings = settings
        self._link = link
        self._spawn = spawn
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._frames = ProduceFrames(settings, link.client_id)
        self._write_turns: dict[int, asyncio.Lock] = {}
        self._held_up: dict[int, int] = {}
        """How many requests wait until they can be written, by broker."""

    def start(self, call: ProduceCall) -> None:
        """Writes a request with one batch at once, if nothing is in its way."""
        node_id = call.node_id
        connection = self._link.ready_connection(node_id)
        if (
            connection is None
            or not connection.is_writable
            or len(call.batches) > 1
            or self._settings.acks == 0
            or self._held_up.get(node_id)
        ):
            self._held_up[node_id] = self._held_up.get(node_id, 0) + 1
            turn = _Turn(self._write_turns.setdefault(node_id, asyncio.Lock()), lambda: self._written(call))
            self._spawn(self._send(call, turn), on_cancel=lambda: self._broken_off(call, turn))
            return
        try:
            version = min(connection.version_for(ProduceRequest), MAX_PRODUCE_VERSION)
            batch = call.batches[0]
            payload = self._payload(batch)
            connection.begin(
                lambda number: self._frames.request(batch.topic_partition, payload, version, number),
                lambda reply: self._take_reply(call, version, reply),
                api_key=ApiKey.PRODUCE,
                timeout_ms=self._settings.client.request_timeout_ms,
            )
        except Exception as e:
            # Not now: whoever looks at what is due has further requests to write, in their order.
            self._loop.call_soon(self._tell, call, e)

    def _take_reply(self, call: ProduceCall, version: int, reply: memoryview | OttlaError) -> None:
        outcome: ProduceReply | Exception
        if isinstance(reply, OttlaError):
            outcome = reply
        else:
            try:
                place = call.batches[0].topic_partition
                stored = self._frames.stored(reply, place, version)
                outcome = ProduceReply(*(read_reply(reply, version) if stored is None else ({place: stored}, [])))
            except Exception as e:
                outcome = e
        self._tell(call, outcome)

    async def _send(self, call: ProduceCall, turn: _Turn) -> None:
        """Waits until the request can be written, and for its reply."""
        outcome: ProduceReply | Exception
        try:
            # Requests of a broker are written in the order in which they were drained, whatever each had to wait for.
            await turn.begin()
            try:
                connection = await self._link.connection_to(call.node_id)
                version = min(connection.version_for(ProduceRequest), MAX_PRODUCE_VERSION)
                request = self._request(call)
                if self._settings.acks == 0:
                    await connection.send(request, version=version)
                    outcome = ProduceReply({batch.topic_partition: PartitionResult(0) for batch in call.batches}, [])
                else:
                    frame = await self._exchange(connection, request, version, turn)
                    outcome = ProduceReply(*read_reply(frame, version))
            finally:
                turn.end()
        except Exception as e:
            outcome = e
        self._tell(call, outcome)

    def _broken_off(self, call: ProduceCall, turn: _Turn) -> None:
        """An event loop that is about to end cancels every task. Who closes the producer then waits for the batches."""
        turn.end()
        self._tell(call, KafkaError("the request was broken off", code=ErrorCode.NETWORK_EXCEPTION))

    def _written(self, call: ProduceCall) -> None:
        self._held_up[call.node_id] -= 1

    def _request(self, call: ProduceCall) -> ProduceRequest:
        settings = self._settings
        topics: dict[str, TopicProduceData] = {}
        for batch in call.batches:
            payload = self._payload(batch)
            topic = topics.setdefault(batch.topic, TopicProduceData(name=batch.topic))
            topic.partition_data.append(PartitionProduceData(index=batch.partition, records=payload))
        return ProduceRequest(
            transactional_id=settings.transactional_id,
            acks=settings.acks,
            timeout_ms=settings.client.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    def _payload(self, batch: Batch) -> bytes | memoryview:
        settings = self._settings
        return batch.encode(
            settings.codec, settings.compression_level, transactional=settings.transactional_id is not None
        )

    async def _exchange(self, connection: Connection, request: ProduceRequest, version: int, turn: _Turn) -> memoryview:
        def encode(correlation_id: int) -> list[bytes]:
            turn.end()
            # Megabytes of records are not copied once more to be one piece with their header.
            return encode_request_parts(request, version, correlation_id, connection.client_id)

        return await connection.exchange(encode, timeout_ms=self._settings.client.request_timeout_ms)


class _Turn:
    """The right to write to a broker, which ends when the request is written or has failed, whichever is first."""

    def __init__(self, lock: asyncio.Lock, on_end: Callable[[], None]) -> None:
        self._lock = lock
        self._on_end = on_end
        self._has_begun = self._has_ended = False

    async def begin(self) -> None:
        await self._lock.acquire()
        self._has_begun = True

    def end(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if self._has_begun:
            self._lock.release()
        self._on_end()
