"""Connections to the other brokers of the cluster, made when they are needed and made again when they are lost.

A connection carries one kind of work, because replies come in order: a fetch that waits for records must not hold up a
controller's order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Endpoint
from ottla.net.connection import Connection
from ottla.net.limits import OS_DEFAULT
from ottla.wire.message import Request, Response

R = TypeVar("R", bound=Response)

_CONNECT_TIMEOUT_MS = 10_000


class Peers:
    def __init__(self, broker_id: int, find_address: Callable[[int], Endpoint | None]) -> None:
        """`find_address` knows where a broker listens for others, or None if it is not alive."""
        self._client_id = f"broker-{broker_id}"
        self._find_address = find_address
        self._connections: dict[tuple[int, str], Connection] = {}
        self._connecting: dict[tuple[int, str], asyncio.Lock] = {}
        self._is_closed = False

    async def request(
        self, broker_id: int, message: Request, response_class: type[R], *, work: str, timeout_ms: int
    ) -> R:
        """Raises KafkaError if the broker cannot be reached or does not answer in time."""
        connection = await self.connection(broker_id, work)
        return await connection.request(message, response_class, timeout_ms=timeout_ms)

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
            made = await Connection.connect(
                address.host,
                address.port,
                client_id=self._client_id,
                connect_timeout_ms=_CONNECT_TIMEOUT_MS,
                receive_buffer_bytes=receive_buffer_bytes,
            )
            try:
                await made.negotiate()
            except BaseException:
                made.close()
                raise
            self._connections[key] = made
            return made
