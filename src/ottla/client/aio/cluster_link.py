"""A client's connections: found from bootstrap servers, one for each broker, dialled again with pauses.

Feeds a `MetadataCache` and finds coordinators; logs which brokers cannot be reached, when `Outages` says so. What is
asked and what an answer means is its callers' business. Every method is for the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ottla.base.errors import ErrorCode, KafkaError, kafka_error
from ottla.client.core.metadata import MetadataCache, least_loaded
from ottla.client.core.outages import Outages
from ottla.client.core.settings import ClientSettings, backoff_ms, parse_bootstrap_servers
from ottla.client.errors import ClusterUnreachableError
from ottla.net.connection import Connection
from ottla.net.sockets import wait_readable
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.message import Request, Response

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Response)

GROUP = 0
TRANSACTION = 1

_FIRST_WITH_MANY_KEYS = 4
_TRIES_TO_FIND = 5
_FIRST_LOOK_S = 3.0
"""How long a client that does not need the cluster yet waits for it when it starts."""
_UNREACHABLE = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})


class _Line:
    """The connection to one address, and how often it could not be made."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.dialling = asyncio.Lock()
        self.failures = 0
        self.not_before_s = 0.0
        self.was_reached = False
        """Whether somebody has picked up, even if the connection broke. Who picks up and is silent does not count."""


class ClusterLink:
    def __init__(
        self,
        settings: ClientSettings,
        metadata: MetadataCache,
        *,
        default_client_id: str,
        outages: Outages | None = None,
    ) -> None:
        """`outages` are those of all links that shall speak with one voice."""
        self._bootstrap = parse_bootstrap_servers(settings.bootstrap_servers)
        self.settings = settings
        self.metadata = metadata
        self.client_id = settings.client_id or default_client_id
        self.outages = outages or Outages(self.client_id)
        self._lines: dict[tuple[str, int], _Line] = {}
        self._closed = False
        self._fails_fast = False
        """While it looks for the cluster: whoever waits is told by an error, and soon."""

    def close(self) -> None:
        self._closed = True
        self.hang_up()

    def hang_up(self) -> None:
        """Closes what is open; it is dialled again if it is needed."""
        for line in self._lines.values():
            if line.connection is not None:
                line.connection.close()
        self._lines.clear()

    # Connections

    async def connection_to(self, node_id: int) -> Connection:
        broker = self.metadata.brokers.get(node_id)
        if broker is None:
            raise KafkaError(f"broker {node_id} is not known", code=ErrorCode.NETWORK_EXCEPTION)
        return await self._connection(broker.host, broker.port)

    def ready_connection(self, node_id: int) -> Connection | None:
        """The connection that `connection_to` would give at once."""
        broker = self.metadata.brokers.get(node_id)
        line = None if broker is None else self._lines.get((broker.host, broker.port))
        connection = None if line is None else line.connection
        return None if connection is None or connection.is_closed else connection

    def receive_now(self, wait_s: float) -> bool:
        """Takes in what has come, or comes within `wait_s`; whether anything has.

        For the thread of the event loop, while the loop does not run.
        """
        connections = [line.connection for line in self._lines.values() if line.connection is not None]
        if sum(connection.receive_now() for connection in connections):
            return True
        awaited = [sock for connection in connections if (sock := connection.awaited_socket) is not None]
        if wait_s <= 0 or not awaited or not wait_readable(awaited, wait_s):
            return False
        return sum(connection.receive_now() for connection in connections) > 0

    def in_flight(self) -> dict[int, int]:
        """The unanswered requests of each broker that is known."""
        counts = {}
        for broker in self.metadata.brokers.values():
            line = self._lines.get((broker.host, broker.port))
            counts[broker.node_id] = line.connection.in_flight if line is not None and line.connection else 0
        return counts

    async def _connection(self, host: str, port: int) -> Connection:
        line = self._lines.setdefault((host, port), _Line())
        if line.connection is not None and not line.connection.is_closed:
            return line.connection
        async with line.dialling:
            if line.connection is not None and not line.connection.is_closed:
                return line.connection
            if self._closed:
                raise KafkaError("the client is closed", code=ErrorCode.NETWORK_EXCEPTION)
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, line.not_before_s - loop.time()))
            try:
                line.connection = await self._dial(line, host, port)
            except KafkaError as e:
                self._note_failure(host, port, e)
                line.failures += 1
                pause_ms = backoff_ms(
                    line.failures, self.settings.reconnect_backoff_ms, self.settings.reconnect_backoff_max_ms
                )
                line.not_before_s = loop.time() + pause_ms / 1000
                raise
            line.failures = 0
            line.connection.on_late = partial(self._note_failure, host, port)
            if (said := self.outages.reached(f"{host}:{port}", int(loop.time() * 1000))) is not None:
                log.info("%s", said)
            return line.connection

    def _note_failure(self, host: str, port: int, error: KafkaError) -> None:
        if self._closed or self._fails_fast or error.code not in _UNREACHABLE:
            return
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        if (said := self.outages.failed(f"{host}:{port}", _cause(host, port, error), now_ms)) is not None:
            log.warning("%s", said)

    async def _dial(self, line: _Line, host: str, port: int) -> Connection:
        settings = self.settings
        first_ms = settings.connect_timeout_ms
        longest_ms = max(first_ms, settings.connect_timeout_max_ms)
        try:
            connection = await Connection.connect(
                host,
                port,
                client_id=self.client_id,
                connect_timeout_ms=backoff_ms(line.failures + 1, first_ms, longest_ms),
                idle_ms=settings.connection_idle_ms,
                send_buffer_bytes=settings.send_buffer_bytes,
                receive_buffer_bytes=settings.receive_buffer_bytes,
            )
        except KafkaError as e:
            line.was_reached = isinstance(e.__cause__, ConnectionResetError)
            raise
        line.was_reached = True
        try:
            await connection.negotiate(timeout_ms=self._answer_timeout_ms)
        except BaseException:
            connection.close()
            raise
        if self._closed:
            connection.close()
        return connection

    # Requests

    @property
    def _answer_timeout_ms(self) -> int:
        """Who fails fast waits for a silent broker as long as for one that does not pick up."""
        settings = self.settings
        if self._fails_fast:
            return min(settings.request_timeout_ms, settings.connect_timeout_ms)
        return settings.request_timeout_ms

    async def request(
        self, node_id: int, message: Request, response_class: type[R], *, max_version: int | None = None
    ) -> R:
        connection = await self.connection_to(node_id)
        version = connection.version_for(type(message))
        return await connection.request(
            message,
            response_class,
            version=version if max_version is None else min(version, max_version),
            timeout_ms=self.settings.request_timeout_ms,
        )

    async def request_any(self, make: Callable[[Connection], tuple[Request, int]], response_class: type[R]) -> R:
        """To the least loaded broker that can be reached; `make` gives the request and version for a connection."""
        failures: list[str] = []
        for host, port in self._candidates():
            try:
                connection = await self._connection(host, port)
                message, version = make(connection)
                return await connection.request(
                    message, response_class, version=version, timeout_ms=self._answer_timeout_ms
                )
            except KafkaError as e:
                if e.code not in _UNREACHABLE:
                    raise
                if e.code is ErrorCode.REQUEST_TIMED_OUT and (line := self._lines.get((host, port))) is not None:
                    line.was_reached = False
                failures.append(f"{host}:{port}: {_cause(host, port, e)}")
        raise ClusterUnreachableError(failures)

    def _candidates(self) -> list[tuple[str, int]]:
        """Addresses to try: known brokers, the least loaded first, then the bootstrap servers."""
        nodes = dict(self.metadata.brokers)
        in_flight = self.in_flight()
        connected = {
            node_id
            for node_id, broker in nodes.items()
            if (line := self._lines.get((broker.host, broker.port))) is not None
            and line.connection is not None
            and not line.connection.is_closed
        }
        addresses = []
        while (node_id := least_loaded(nodes, in_flight, connected)) is not None:
            broker = nodes.pop(node_id)
            addresses.append((broker.host, broker.port))
        return list(dict.fromkeys([*addresses, *self._bootstrap]))

    async def find_cluster(self, now_ms: int) -> None:
        """Asks for the brokers. If none can be reached, whoever needs one asks again, unless the client fails fast."""
        if self.settings.fails_fast:
            self._fails_fast = True
            try:
                return await self._find_cluster_or_fail(now_ms)
            finally:
                self._fails_fast = False
        try:
            async with asyncio.timeout(_FIRST_LOOK_S):
                await self.refresh_metadata([], now_ms)
        except (ClusterUnreachableError, TimeoutError) as e:
            log.debug("%s starts without a broker: %s", self.client_id, e)

    async def _find_cluster_or_fail(self, now_ms: int) -> None:
        """Where nobody listens there is no point in waiting; a connection may break, though."""
        tries = 0
        while True:
            for line in self._lines.values():
                line.was_reached = False
            try:
                return await self.refresh_metadata([], now_ms)
            except ClusterUnreachableError:
                tries += 1
                if tries >= _TRIES_TO_FIND or not any(line.was_reached for line in self._lines.values()):
                    raise
            pause_ms = backoff_ms(tries, self.settings.reconnect_backoff_ms, self.settings.reconnect_backoff_max_ms)
            await asyncio.sleep(pause_ms / 1000)

    async def refresh_metadata(self, topics: list[str] | None, now_ms: int, *, create_missing: bool = False) -> None:
        response = await self.ask_metadata(topics, create_missing=create_missing)
        self.metadata.update(response, now_ms, is_about_all=topics is None)

    async def ask_metadata(self, topics: list[str] | None, *, create_missing: bool = False) -> MetadataResponse:
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=create_missing,
        )
        response = await self.request_any(lambda link: (request, link.version_for(MetadataRequest)), MetadataResponse)
        if response.error_code:
            raise kafka_error(response.error_code)
        return response

    async def find_coordinator(self, key: str, kind: int) -> int:
        """The node that coordinates a group or a transactional id; KafkaError, often a passing one, if none does."""

        def make(connection: Connection) -> tuple[Request, int]:
            version = connection.version_for(FindCoordinatorRequest)
            if version >= _FIRST_WITH_MANY_KEYS:
                return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), version
            return FindCoordinatorRequest(key=key, key_type=kind), version

        response = await self.request_any(make, FindCoordinatorResponse)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise kafka_error(found.error_code, found.error_message)
        if found.node_id not in self.metadata.brokers:
            self.metadata.request_update()
            raise KafkaError(f"broker {found.node_id} is not known yet", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return found.node_id


def _cause(host: str, port: int, error: KafkaError) -> str:
    """What is wrong, for those who name the address themselves."""
    return error.message.removeprefix(f"connection to {host}:{port}: ")
