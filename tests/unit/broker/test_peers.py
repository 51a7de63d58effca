"""Connections to other brokers: how long one may take to be set up, and how long one is kept."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Endpoint
from ottla.broker.replication.peers import Peers
from ottla.net.connection import Connection
from ottla.wire.apis.fetch import FetchRequest, FetchResponse
from tests.waiting import run_async

REFUSES = 666
"""Who listens there understands nothing."""


def test_the_time_for_a_connection_doubles_with_each_failure_up_to_a_limit() -> None:
    async def scenario() -> None:
        # A queue that is full and of which nobody takes anything: the system lets the next ones wait.
        with (
            socket.create_server(("127.0.0.1", 0), backlog=0) as deaf,
            socket.socket() as first,
            socket.socket() as second,
        ):
            address = deaf.getsockname()
            for waiting in (first, second):
                waiting.setblocking(False)
                waiting.connect_ex(address)
            peers = Peers(1, lambda _: Endpoint("PLAINTEXT", *address), setup_timeout_ms=20, setup_timeout_max_ms=70)
            for expected_ms in (20, 40, 70, 70):
                assert peers.setup_timeout_ms(2) == expected_ms
                with pytest.raises(KafkaError, match=f"no answer within {expected_ms} ms"):
                    await peers.connection(2, "orders")
            assert peers.setup_timeout_ms(3) == 20, "another broker has failed nobody yet"

    run_async(scenario())


class Made:
    """A connection that a test can lose."""

    def __init__(self, host: str, port: int, fields: dict[str, Any]) -> None:
        self.host, self.port, self.fields = host, port, fields
        self.is_closed = False
        self.closes = 0

    async def negotiate(self) -> None:
        if self.port == REFUSES:
            raise KafkaError("speaks another language", code=ErrorCode.UNSUPPORTED_VERSION)

    def close(self) -> None:
        self.is_closed = True
        self.closes += 1

    async def request(self, message: Any, response_class: Any, *, timeout_ms: int) -> Any:
        return self, message, response_class, timeout_ms


class World:
    """Two brokers, of which the addresses change, and the connections that were made to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses = {2: Endpoint("A", "h", 92), 3: Endpoint("A", "g", 93)}
        self.made: list[Made] = []
        self.is_down = False
        self.peers = Peers(7, self.addresses.get, setup_timeout_ms=20, setup_timeout_max_ms=50)
        monkeypatch.setattr(Connection, "connect", self._connect)

    async def _connect(self, host: str, port: int, **fields: Any) -> Made:
        if self.is_down:
            raise KafkaError("nobody there", code=ErrorCode.NETWORK_EXCEPTION)
        await asyncio.sleep(0)
        self.made.append(Made(host, port, fields))
        return self.made[-1]


def test_a_connection_is_kept_for_its_work_until_it_is_lost_or_the_broker_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)

    async def scenario() -> None:
        connection = world.peers.connection
        first: Any
        same: Any
        first, same = await asyncio.gather(connection(2, "fetch"), connection(2, "fetch"))
        assert first is same and world.made == [first]
        others = [await connection(2, "orders"), await connection(3, "fetch", receive_buffer_bytes=5)]
        assert [(each.host, each.port, each.fields) for each in world.made] == [
            ("h", 92, {"client_id": "broker-7", "connect_timeout_ms": 20, "receive_buffer_bytes": -1}),
            ("h", 92, {"client_id": "broker-7", "connect_timeout_ms": 20, "receive_buffer_bytes": -1}),
            ("g", 93, {"client_id": "broker-7", "connect_timeout_ms": 20, "receive_buffer_bytes": 5}),
        ]
        assert [await connection(2, "orders"), await connection(3, "fetch")] == others
        first.close()
        second = await connection(2, "fetch")
        assert second is not first
        for moved in (Endpoint("A", "h", 99), Endpoint("A", "hh", 99)):
            world.addresses[2] = moved
            third = await connection(2, "fetch")
            assert (third.host, third.port) == (moved.host, moved.port)
            assert second.is_closed, "nobody is there any more"
            second = third
        answer: Any = await world.peers.request(3, FetchRequest(), FetchResponse, work="fetch", timeout_ms=70)
        assert answer == (others[1], FetchRequest(), FetchResponse, 70)

    run_async(scenario())


def test_who_is_not_alive_is_not_asked_and_nobody_is_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)

    async def scenario() -> None:
        kept: Any = await world.peers.connection(2, "fetch")
        for broker_id in (4, 2):
            with pytest.raises(KafkaError, match=f"broker {broker_id} is not alive") as refused:
                await world.peers.connection(broker_id, "fetch")
            assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
            world.peers.close()
        assert kept.is_closed and len(world.made) == 1
        world.peers.close()
        assert kept.closes == 1

    run_async(scenario())


def test_failures_count_until_a_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)

    async def scenario() -> None:
        world.is_down = True
        for expected_ms in (40, 50, 50):
            with pytest.raises(KafkaError, match="nobody there"):
                await world.peers.connection(2, "fetch")
            assert (world.peers.setup_timeout_ms(2), world.peers.setup_timeout_ms(3)) == (expected_ms, 20)
        world.is_down = False
        await world.peers.connection(2, "fetch")
        assert (world.made[0].fields["connect_timeout_ms"], world.peers.setup_timeout_ms(2)) == (50, 20)

    run_async(scenario())


def test_a_connection_to_who_speaks_another_language_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)

    async def scenario() -> None:
        world.addresses[2] = Endpoint("A", "h", REFUSES)
        for number in range(2):
            with pytest.raises(KafkaError, match="another language"):
                await world.peers.connection(2, "fetch")
            assert [each.is_closed for each in world.made] == [True] * (number + 1)
        assert world.peers.setup_timeout_ms(2) == 20

    run_async(scenario())


def test_a_connection_has_ten_seconds_and_at_most_thirty() -> None:
    peers = Peers(7, lambda broker_id: None)
    limits = []
    for failures in (0, 1, 2, 40):
        peers._failures[2] = failures
        limits.append(peers.setup_timeout_ms(2))
    assert limits == [10_000, 20_000, 30_000, 30_000]
    assert Peers(7, lambda broker_id: None, setup_timeout_ms=9, setup_timeout_max_ms=5).setup_timeout_ms(2) == 9
