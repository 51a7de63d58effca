"""The simulated server: which sockets have a turn, who is served, and who is not any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.net.limits import ConnectionLimits
from ottla.net.server_connection import ClientConnection
from ottla.testing.sim.loop import Party, SimLoop
from ottla.testing.sim.network import SimNetwork, SimServer, SimTurns
from tests.sim.answering import AnsweringBroker


class Turns:
    """The turns of a simulated server, whose sockets the test makes."""

    def __init__(self, loop: SimLoop) -> None:
        self.taken: list[str] = []
        service: Any = SimpleNamespace(settle=lambda: None, end_turn=lambda: self.taken.append("end"))
        self.turns = SimTurns(loop, service, lambda: None)

    def channel(self, fd: int, *, is_readable: bool) -> Any:
        channel: Any = SimpleNamespace(is_readable=is_readable)
        self.turns.channels[fd] = channel
        return channel


def test_a_turn_has_the_sockets_that_are_ready() -> None:
    loop = SimLoop()  # type: ignore[abstract]
    world = Turns(loop)
    turns = world.turns
    ready, quiet = world.channel(1, is_readable=True), world.channel(2, is_readable=False)

    def read(name: str, channel: Any) -> None:
        world.taken.append(name)
        channel.is_readable = False

    async def scenario() -> None:
        turns.watch_readable(1, lambda: read("ready", ready))
        turns.watch_readable(2, lambda: read("quiet", quiet))
        turns.watch_readable(3, lambda: world.taken.append("nobody"))
        await asyncio.sleep(1)
        assert [name for name in world.taken if name != "end"] == ["ready"]
        quiet.is_readable = True
        await asyncio.sleep(1)
        assert "quiet" not in world.taken, "somebody has to wake it"
        turns.wake()
        await asyncio.sleep(1)
        assert world.taken.count("quiet") == 1

        def write() -> None:
            world.taken.append("written")
            turns.forget(2)

        turns.watch_writable(2, write)
        await asyncio.sleep(1)
        assert world.taken.count("written") == 1, "whoever wants to write can"
        ready.is_readable = True
        turns.close()
        turns.wake()
        await asyncio.sleep(1)
        assert world.taken.count("ready") == 1

    loop.run_until_complete(scenario())
    assert loop.failures == []
    loop.close()


def test_who_has_more_to_read_than_a_turn_takes_has_several() -> None:
    loop = SimLoop()  # type: ignore[abstract]
    world = Turns(loop)
    channel = world.channel(1, is_readable=True)

    def read() -> None:
        world.taken.append("read")
        channel.is_readable = world.taken.count("read") < 3

    async def scenario() -> None:
        world.turns.watch_readable(1, read)
        await asyncio.sleep(1)
        assert world.taken == ["read", "end"] * 3

    loop.run_until_complete(scenario())
    loop.close()


def test_who_wanted_to_write_and_wants_to_read_now_waits_until_it_can() -> None:
    loop = SimLoop()  # type: ignore[abstract]
    world = Turns(loop)
    channel = world.channel(1, is_readable=False)

    def written() -> None:
        world.taken.append("written")
        world.turns.forget(1)
        world.turns.watch_readable(1, read)

    def read() -> None:
        world.taken.append("read")
        channel.is_readable = False

    async def scenario() -> None:
        world.turns.watch_writable(1, written)
        await asyncio.sleep(1)
        assert world.taken == ["written", "end"]
        channel.is_readable = True
        world.turns.wake()
        await asyncio.sleep(1)
        assert world.taken == ["written", "end", "read", "end"]

    loop.run_until_complete(scenario())
    loop.close()


def test_however_often_it_is_woken_it_looks_once() -> None:
    loop = SimLoop()  # type: ignore[abstract]
    turns = Turns(loop).turns

    async def scenario() -> int:
        before = loop.events
        for _ in range(5):
            turns.wake()
        await asyncio.sleep(1)
        return loop.events - before

    looked_once = loop.run_until_complete(scenario())
    loop.close()
    assert looked_once < 5


# The server


class Service(AnsweringBroker):
    """Keeps what it is told of."""

    def __init__(self) -> None:
        super().__init__("server", {})
        self.met: list[ClientConnection] = []

    def opened(self, connection: ClientConnection) -> None:
        self.met.append(connection)


def serving(scenario: Callable[[SimNetwork, SimServer, Service], Coroutine[Any, Any, None]]) -> None:
    loop = SimLoop()  # type: ignore[abstract]
    network, service = SimNetwork(loop, Random(1)), Service()

    async def run() -> None:
        server = Party("server").run(SimServer, network, service, ConnectionLimits())
        assert server.bind("INNER", "server", 9092) == 9092 and server.bind("OUTER", "server", 9093) == 9093
        await Party("client").run(loop.create_task, scenario(network, server, service))

    loop.run_until_complete(run())
    assert loop.failures == []
    loop.close()


def test_who_comes_early_is_served_once_the_server_accepts() -> None:
    async def scenario(network: SimNetwork, server: SimServer, service: Service) -> None:
        await network.connect(asyncio.BaseProtocol, "server", 9092)
        await asyncio.sleep(1)
        assert service.met == [] and server.connections() == []
        server.start_accepting()
        assert len(service.met) == 1
        server.start_accepting()
        await network.connect(asyncio.BaseProtocol, "server", 9093)
        await asyncio.sleep(1)
        assert [(met.listener, met.peer_host, met.peer_port) for met in service.met] == [("INNER", "client", 1)] * 2
        assert server.party.name == "server" and set(server.turns.channels) == {met._fd for met in service.met}

    serving(scenario)


def test_a_server_that_has_stopped_serves_nobody() -> None:
    async def scenario(network: SimNetwork, server: SimServer, service: Service) -> None:
        server.start_accepting()
        await network.connect(asyncio.BaseProtocol, "server", 9092)
        server.close()
        await asyncio.sleep(1)
        assert service.met == [], "who was on its way"
        for port in (9092, 9093):
            with pytest.raises(ConnectionRefusedError):
                await network.connect(asyncio.BaseProtocol, "server", port)

    serving(scenario)
