"""The simulated network: what arrives, in which order, and what is heard of links and processes that fail."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.types import FileSlice
from ottla.net.channel import FileTruncatedError
from ottla.testing.sim.loop import Party, SimLoop
from ottla.testing.sim.network import SimNetwork

PORT = 9092


class Protocol(asyncio.BaseProtocol):
    """The calling side."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: list[Exception | None] = []
        self.when_told: Callable[[], None] = lambda: None
        self._buffer = bytearray(3)

    def get_buffer(self, size_hint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, count: int) -> None:
        self.received += self._buffer[:count]
        self.when_told()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class World:
    """A client and a server, which keeps what it receives."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimLoop()  # type: ignore[abstract]
        self.network = SimNetwork(self.loop, Random(seed))
        self.client, self.host = Party("client"), Party("server")
        self.accepted: list[Any] = []
        self.woken = 0
        self.arrives: Callable[[], None] = lambda: None
        turns = SimpleNamespace(channels={}, wake=self._wake)
        self.server = cast(Any, SimpleNamespace(party=self.host, turns=turns, take=self._take))
        self.network.add_server("server", PORT, self.server)

    def _wake(self) -> None:
        self.woken += 1
        self.arrives()

    def _take(self, channel: Any, peer: str) -> None:
        assert peer == "client"
        self.accepted.append(channel)

    async def connect(self, host: str = "server", port: int = PORT) -> tuple[Any, Any]:
        return await self.network.connect(Protocol, host, port)

    def run(self, scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        self.loop.run_until_complete(self.client.run(self.loop.create_task, scenario(self)))
        assert self.loop.failures == []
        self.loop.close()

    def received(self, place: int = 0) -> bytes:
        """What the server has got so far of a connection, taken out."""
        channel, data = self.accepted[place], b""
        buffer = memoryview(bytearray(2))
        while channel._received:
            data += bytes(buffer[: channel.receive_into(buffer)])
        return data


def test_most_of_what_is_sent_is_fast_and_some_is_slow() -> None:
    network = World().network
    drawn = [network.latency_s() for _ in range(10_000)]
    slow = [latency for latency in drawn if latency > 0.002]
    assert 0.01 < len(slow) / len(drawn) < 0.03
    assert 0.005 <= min(slow) < 0.02 and 0.18 < max(slow) <= 0.2
    assert 0.0001 <= min(drawn) < 0.00012


def test_some_deliveries_come_in_two_parts() -> None:
    network = World().network
    assert {network.split_at(size) for size in (0, 1) for _ in range(1000)} == {None}
    found = [place for _ in range(10_000) if (place := network.split_at(5)) is not None]
    assert set(found) == {1, 2, 3, 4} and 0.04 < len(found) / 10_000 < 0.06
    assert network.split_at(2) in (None, 1)


def test_both_ways_keep_their_order() -> None:
    async def scenario(world: World) -> None:
        transport, protocol = await world.connect()
        words = [bytes([number]) * (number % 7 + 1) for number in range(200)]
        for word in words:
            transport.write(word)
        transport.writelines([b"the", b"end"])
        await asyncio.sleep(60)
        (channel,) = world.accepted
        assert world.received() == b"".join(words) + b"theend"
        for word in words:
            assert channel.send(word, 0) == len(word)
        await asyncio.sleep(60)
        assert protocol.received == b"".join(words)
        assert world.woken >= len(words) and transport.get_write_buffer_size() == 0

    World().run(scenario)


def test_a_link_is_cut_one_way_and_loses_nothing() -> None:
    async def scenario(world: World) -> None:
        network = world.network
        transport, protocol = await world.connect()
        transport.write(b"1")
        network.cut("client", "server")
        assert network.is_cut("client", "server") and not network.is_cut("server", "client")
        transport.write(b"2")
        await asyncio.sleep(60)
        assert world.received() == b""
        world.accepted[0].send(b"answer", 0)
        await asyncio.sleep(60)
        assert protocol.received == b"answer", "the other way is another link"
        network.heal([("server", "client")])
        await asyncio.sleep(60)
        assert world.received() == b""
        network.cut("a", "b")
        network.heal([("client", "server")])
        await asyncio.sleep(60)
        assert world.received() == b"12" and network.is_cut("a", "b")
        network.heal()
        assert not network.is_cut("a", "b")

    World().run(scenario)


@pytest.mark.parametrize("link", [("client", "server"), ("server", "client")])
def test_who_calls_over_a_link_that_is_cut_waits(link: tuple[str, str]) -> None:
    async def scenario(world: World) -> None:
        world.network.cut(*link)
        calling = asyncio.ensure_future(world.connect())
        await asyncio.sleep(60)
        assert not calling.done() and world.accepted == []
        world.network.heal()
        await asyncio.wait_for(calling, 1)
        await asyncio.sleep(1)
        assert len(world.accepted) == 1

    World().run(scenario)


@pytest.mark.parametrize("why", ["no such host", "no such port", "it is dead", "it was removed"])
def test_calls_that_are_refused(why: str) -> None:
    async def scenario(world: World) -> None:
        if why == "it is dead":
            world.host.is_dead = True
        elif why == "it was removed":
            world.network.remove_server(world.server)
        host, port = ("nowhere" if why == "no such host" else "server"), PORT + (why == "no such port")
        with pytest.raises(ConnectionRefusedError) as refused:
            await world.connect(host, port)
        assert refused.value.errno == errno.ECONNREFUSED

    World().run(scenario)


def test_either_side_can_close_and_both_know() -> None:
    async def scenario(world: World) -> None:
        transport, protocol = await world.connect()
        other, other_protocol = await world.connect()
        await asyncio.sleep(1)
        transport.write(b"last words")
        transport.close()
        transport.abort()
        transport.write(b"said too late")
        world.accepted[1].send(b"bye", 0)
        world.accepted[1].close()
        world.accepted[1].close()
        await asyncio.sleep(60)
        channel = world.accepted[0]
        assert not channel.peer_has_closed() and channel.is_readable
        assert world.received() == b"last words"
        assert channel.peer_has_closed() and channel.is_readable
        assert channel.receive_into(memoryview(bytearray(1))) == 0
        assert (other_protocol.received, other.is_closing()) == (b"bye", True)
        assert protocol.lost == other_protocol.lost == [None]
        assert world.network.reset_some(9) == 0
        fds = [channel.fileno() for channel in world.accepted]
        assert set(world.server.turns.channels) == {fds[0]} and fds[0] != fds[1]

    World().run(scenario)


def test_what_is_under_way_arrives_one_after_the_other() -> None:
    async def scenario(world: World) -> None:
        began_s = world.loop.time()
        transport, _ = await world.connect()
        assert world.loop.time() > began_s, "a call takes time, too"
        await asyncio.sleep(0.01)
        (channel,) = world.accepted
        arrived_s: list[float] = []
        world.arrives = lambda: arrived_s.append(world.loop.time())
        for _ in range(100):
            transport.write(b"w")
        await asyncio.sleep(60)
        assert len(arrived_s) == 100 and channel.is_readable
        assert min(later - at for at, later in itertools.pairwise(arrived_s)) >= 0.0001

    World().run(scenario)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_who_has_closed_hears_nothing_more(how: str) -> None:
    async def scenario(world: World) -> None:
        transport, protocol = await world.connect()
        await asyncio.sleep(1)
        protocol.when_told = getattr(transport, how)
        world.accepted[0].send(b"abcdef", 0)
        world.accepted[0].send(b"g", 0)
        await asyncio.sleep(60)
        assert protocol.received in (b"abc", b"ab", b"a"), "the first piece of what came"
        assert transport.is_closing() and protocol.lost == [None]
        assert world.accepted[0].peer_has_closed()

    World().run(scenario)


def test_pieces_of_files_are_sent() -> None:
    async def scenario(world: World) -> None:
        _, protocol = await world.connect()
        await asyncio.sleep(1)
        (channel,) = world.accepted
        fd = os.memfd_create("log")
        os.write(fd, b"0123456789")
        file = FileSlice(SimpleNamespace(fd=fd), 2, 5)  # type: ignore[arg-type]
        assert channel.send_file(file, 3) == 3 and channel.send_file(file, 99) == 5
        with pytest.raises(FileTruncatedError):
            channel.send_file(file._replace(position=10), 99)
        os.close(fd)
        await asyncio.sleep(1)
        assert protocol.received == b"23423456"

    World().run(scenario)


def test_who_has_nothing_to_read_waits() -> None:
    async def scenario(world: World) -> None:
        await world.connect()
        await asyncio.sleep(1)
        (channel,) = world.accepted
        assert not channel.is_readable and not channel.peer_has_closed()
        with pytest.raises(BlockingIOError):
            channel.receive_into(memoryview(bytearray(1)))

    World().run(scenario)


@pytest.mark.parametrize("whose", ["client", "server"])
def test_the_end_of_a_process_ends_its_connections(whose: str) -> None:
    async def scenario(world: World) -> None:
        transport, _ = await world.connect()
        await asyncio.sleep(1)
        world.network.process_ended(Party("somebody else"))
        await asyncio.sleep(1)
        assert not transport.is_closing() and not world.accepted[0].is_readable
        world.network.process_ended(world.client if whose == "client" else world.host)
        await asyncio.sleep(1)
        assert transport.is_closing() is (whose == "server")
        assert world.accepted[0].peer_has_closed(), "a client closes when it hears of the end"
        assert world.network.reset_some(9) == 0
        if whose == "server":
            with pytest.raises(ConnectionRefusedError):
                await world.connect()
        else:
            await world.connect()

    World().run(scenario)


def test_connections_break_and_what_is_under_way_is_lost() -> None:
    async def scenario(world: World) -> None:
        assert world.network.reset_some(1) == 0
        pairs = [await world.connect() for _ in range(3)]
        await asyncio.sleep(1)
        for transport, _ in pairs:
            transport.write(b"lost")
        assert world.network.reset_some(2) == 2
        await asyncio.sleep(1)
        broken = [place for place, (transport, _) in enumerate(pairs) if transport.is_closing()]
        assert len(broken) == 2
        for place, (_, protocol) in enumerate(pairs):
            assert protocol.lost == ([None] if place in broken else [])
            assert world.received(place) == (b"" if place in broken else b"lost")
            assert world.accepted[place].peer_has_closed() is (place in broken)
        assert world.network.reset_some(5) == 1

    World().run(scenario)
