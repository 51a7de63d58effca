"""The cluster as a client sees it: found from bootstrap servers, one connection per broker, requests routed.

Owns what is known of brokers and leaders, and the retries that go with not knowing it any more. What a request means is
its caller's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple, Self, TypeVar

from ottla.base.errors import ERRORS, ErrorCode, KafkaError, kafka_error
from ottla.base.types import TopicPartition, Uuid
from ottla.client.core.topic_info import PartitionInfo as PartitionInfo
from ottla.client.errors import ClusterUnreachableError
from ottla.net.connection import Connection
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.wire.message import Request, Response

R = TypeVar("R", bound=Response)
T = TypeVar("T")

DEFAULT_PORT = 9092
LEADER_ERRORS = frozenset(code for code, info in ERRORS.items() if info.refreshes_metadata)
"""Errors that say: look again who leads, and ask there."""

_RETRY_BACKOFF_MS = 100
_RETRY_BACKOFF_MS_MAX = 1000


class Broker(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class TopicInfo(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    error_code: int


class ClusterView(NamedTuple):
    """One answer to a metadata request."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Broker]
    topics: dict[str, TopicInfo]


def parse_bootstrap_servers(text: str) -> list[tuple[str, int]]:
    """Addresses from `host:port,host:port`; ValueError says which one is not an address."""
    addresses = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = entry.rpartition(":")
        if not colon:
            host, port = entry, str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{entry!r} is not of the form host:port")
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise ValueError("no bootstrap server is given")
    return addresses


class Cluster:
    """Made by `Cluster.connect`; every method is for the thread of the event loop."""

    def __init__(
        self,
        bootstrap_servers: Sequence[tuple[str, int]],
        *,
        client_id: str,
        request_timeout_ms: int = 30_000,
        api_timeout_ms: int = 60_000,
        connect_timeout_ms: int = 10_000,
    ) -> None:
        self.bootstrap_servers = list(bootstrap_servers)
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.api_timeout_ms = api_timeout_ms
        """How long a call is retried, all in all."""
        self.connect_timeout_ms = connect_timeout_ms
        self.view = ClusterView(None, -1, {}, {})
        self._connections: dict[tuple[str, int], Connection] = {}
        self._connecting: dict[tuple[str, int], asyncio.Lock] = {}

    @classmethod
    async def connect(cls, bootstrap_servers: str, *, client_id: str, **timeouts: int) -> Self:
        """Finds the cluster. Tries every address once and does not wait for a broker that is not there."""
        cluster = cls(parse_bootstrap_servers(bootstrap_servers), client_id=client_id, **timeouts)
        try:
            await cluster.refresh([])
        except BaseException:
            cluster.close()
            raise
        return cluster

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # What is known of the cluster

    async def refresh(self, topics: Collection[str] | None = None, *, create_missing: bool = False) -> ClusterView:
        """Asks for metadata, of all topics if none are named, and remembers it."""
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=create_missing,
        )
        response = await self.request_any(request, MetadataResponse)
        if response.error_code:
            raise kafka_error(response.error_code)
        answered = {topic.name: _topic_info(topic) for topic in response.topics if topic.name is not None}
        self.view = ClusterView(
            response.cluster_id,
            response.controller_id,
            {
                broker.node_id: Broker(broker.node_id, broker.host, broker.port, broker.rack)
                for broker in response.brokers
            },
            answered if topics is None else {**self.view.topics, **answered},
        )
        return self.view

    async def topic(self, name: str, *, create_missing: bool = False) -> TopicInfo:
        """A topic with all its leaders elected; KafkaError if there is no such topic."""

        async def attempt() -> TopicInfo:
            info = (await self.refresh([name], create_missing=create_missing)).topics[name]
            if info.error_code:
                raise kafka_error(info.error_code, f"topic {name}: {_words(info.error_code)}")
            if any(partition.leader_id < 0 for partition in info.partitions):
                raise KafkaError(f"topic {name} has partitions without a leader", code=ErrorCode.LEADER_NOT_AVAILABLE)
            return info

        transient = {ErrorCode.LEADER_NOT_AVAILABLE}
        if create_missing:
            # A topic that is being created is unknown for a moment.
            transient.add(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return await self.retry(attempt, transient)

    def leader_of(self, topic_partition: TopicPartition) -> int:
        """The leader by what is known now; KafkaError, which a refresh may heal, if there is none."""
        info = self.view.topics.get(topic_partition.topic)
        for partition in info.partitions if info is not None else ():
            if partition.partition == topic_partition.partition and partition.leader_id >= 0:
                return partition.leader_id
        raise KafkaError(f"no leader is known for {topic_partition}", code=ErrorCode.LEADER_NOT_AVAILABLE)

    # Requests

    async def request_any(self, message: Request, response_class: type[R]) -> R:
        """To any broker that can be reached, those with an open connection first."""
        known = [(broker.host, broker.port) for broker in self.view.brokers.values()]
        open_first = sorted(dict.fromkeys([*known, *self.bootstrap_servers]), key=lambda a: a not in self._connections)
        failures: list[str] = []
        for address in open_first:
            try:
                connection = await self._connection(*address)
                return await connection.request(message, response_class, timeout_ms=self.request_timeout_ms)
            except KafkaError as e:
                if e.code not in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
                    raise
                failures.append(f"{_address(*address)}: {_reason(e, *address)}")
        raise ClusterUnreachableError(failures)

    async def request_broker(self, node_id: int, message: Request, response_class: type[R]) -> R:
        connection = await self.connection_to(node_id)
        return await connection.request(message, response_class, timeout_ms=self.request_timeout_ms)

    async def retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        transient: Collection[ErrorCode],
        *,
        refresh: Collection[str] = (),
    ) -> T:
        """Calls `attempt` until it succeeds, fails for good, or the time is up. Metadata is renewed in between."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.api_timeout_ms / 1000
        backoff_ms = _RETRY_BACKOFF_MS
        while True:
            try:
                return await attempt()
            except ClusterUnreachableError:
                raise
            except KafkaError as e:
                if e.code not in transient or loop.time() + backoff_ms / 1000 > deadline:
                    raise
            await asyncio.sleep(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, _RETRY_BACKOFF_MS_MAX)
            await self.refresh(refresh)

    async def connection_to(self, node_id: int) -> Connection:
        broker = self.view.brokers.get(node_id)
        if broker is None:
            raise KafkaError(f"broker {node_id} is not known", code=ErrorCode.BROKER_NOT_AVAILABLE)
        return await self._connection(broker.host, broker.port)

    async def _connection(self, host: str, port: int) -> Connection:
        address = (host, port)
        # Callers that need the same broker at once share one attempt to connect.
        async with self._connecting.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is not None and not connection.is_closed:
                return connection
            connection = await Connection.connect(
                host, port, client_id=self.client_id, connect_timeout_ms=self.connect_timeout_ms
            )
            try:
                await connection.negotiate(timeout_ms=self.request_timeout_ms)
            except BaseException:
                connection.close()
                raise
            self._connections[address] = connection
            return connection


def _topic_info(topic: MetadataResponseTopic) -> TopicInfo:
    partitions = (
        PartitionInfo(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in topic.partitions
    )
    return TopicInfo(topic.name or "", topic.topic_id, topic.is_internal, tuple(sorted(partitions)), topic.error_code)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: KafkaError, host: str, port: int) -> str:
    return error.message.removeprefix(f"connection to {host}:{port}: ")


def _words(error_code: int) -> str:
    return kafka_error(error_code).message
