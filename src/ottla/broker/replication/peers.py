"""Connections to the other brokers of the cluster, made when they are needed and made again when they are lost.

A connection carries one kind of work, because replies come in order: a fetch that waits for records must not hold up a
controller's order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Endpoint
from ottla.net.connection import Connection
from ottla.net.limits import OS_DEFAULT
from ottla.wire.message import Request, Response

R = TypeVar("R", bound=Response)

_SETUP_TIMEOUT_MS = 10_000
_SETUP_TIMEOUT_MAX_MS = 30_000


class Peers:
    def __init__(
        self,
        broker_id: int,
        find_address: Callable[[int], Endpoint | None],
        *,
        setup_timeout_ms: int = _SETUP_TIMEOUT_MS,
        setup_timeout_max_ms: int = _SETUP_TIMEOUT_MAX_MS,
    ) -> None:
        """`find_address` knows where a broker listens for others, or None if it is not alive. The time a connection may
        take to be set up doubles with each failure, up to a limit."""
        self._client_id = f"broker-{broker_id}"
        self._find_address = find_address
        self._setup_timeout_ms = setup_timeout_ms
        self._setup_timeout_max_ms = max(setup_timeout_ms, setup_timeout_max_ms)
        self._failures: Counter[int] = Counter()
        """Attempts to reach a broker since the last that succeeded."""
        self._connections: dict[tuple[int, str], Connection] = {}
        self._connecting: dict[tuple[int, str], asyncio.Lock] = {}
        self._is_closed = False

    async def request(
        self, broker_id: int, message: Request, response_class: type[R], *, work: str, timeout_ms: int
    ) -> R:
        """Raises KafkaError if the broker cannot be reached or does not answer in time."""
        connection = await self.connection(broker_id, work)
        return await connection.request(message, response_class, timeout_ms=timeout_ms)

    def setup_timeout_ms(self, broker_id: int) -> int:
        """How long the next attempt to reach the broker may take."""
        # More doublings than this are more than any limit.
        doubled = self._setup_timeout_ms << min(self._failures[broker_id], 32)
        return min(doubled, self._setup_timeout_max_ms)

    def close(self) -> None:
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def connection(self, broker_id: int, work: str, *, receive_buffer_bytes: int = OS_DEFAULT) -> Connection:
        """For who has many requests of this kind; raises KafkaError if there is none."""
        key = (broker_id, work)
        async with self._connecting.setdefault(key, asyncio.Lock()):
            address = self._find_address(broker_id)
            if address is None or self._is_closed:
                raise KafkaError(f"broker {broker_id} is not alive", code=ErrorCode.BROKER_NOT_AVAILABLE)
            found = self._connections.get(key)
            if found is not None and not found.is_closed and (found.host, found.port) == (address.host, address.port):
                return found
            if found is not None:
                found.close()
            try:
                made = await Connection.connect(
                    address.host,
                    address.port,
                    client_id=self._client_id,
                    connect_timeout_ms=self.setup_timeout_ms(broker_id),
                    receive_buffer_bytes=receive_buffer_bytes,
                )
            except KafkaError:
                self._failures[broker_id] += 1
                raise
            del self._failures[broker_id]
            try:
                await made.negotiate()
            except BaseException:
                made.close()
                raise
            self._connections[key] = made
            return made
