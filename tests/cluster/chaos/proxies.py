"""The network on loopback: a proxy before each broker's inter-broker listener, which can hold back who connects; and
between brokers and ZooKeeper, where each broker has a proxy of its own for every server; and, where a row asks for it,
between clients and brokers."""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import suppress

from tests.cluster.chaos.cluster import CLIENTS, IDS
from tests.cluster.chaos.links import Link
from tests.ports import free_ports
from tests.zookeeper_process import ZooKeeperProcesses

_HEAD = struct.Struct(">ihhih")
_PIECE_BYTES = 1 << 16
_LOOK_S = 0.02
_PACKET_BYTES = 1 << 12
_RESEND_S = 0.2
"""After which TCP sends again what was lost at the end of what it has to send; twice as long the next time."""


class Proxies:
    """Runs on an event loop. A link that is cut loses nothing and delivers nothing: as if packets were dropped."""

    def __init__(self, zookeeper: ZooKeeperProcesses | None = None, *, has_client_links: bool = False) -> None:
        """`has_client_links`: clients reach brokers through proxies, too."""
        self.cut: set[Link] = set()
        self.loss = 0.0
        self.bytes_per_s: dict[Link, int] = {}
        self._rng = random.Random(7)
        self._servers: list[asyncio.Server] = []
        self._has_client_links = has_client_links
        port = free_ports(4 * len(IDS))
        self._ports = {broker_id: port + place for place, broker_id in enumerate(IDS)}
        self._internal = {broker_id: port + 3 + place for place, broker_id in enumerate(IDS)}
        self._proxied = {broker_id: port + 6 + place for place, broker_id in enumerate(IDS)}
        for_clients = port + 9 if has_client_links else port
        self._for_clients = {broker_id: for_clients + place for place, broker_id in enumerate(IDS)}
        self._zookeepers = [] if zookeeper is None else zookeeper.servers
        nodes = len(self._zookeepers)
        to_zookeeper = free_ports(nodes * len(IDS)) if nodes else 0
        self._to_zookeeper = {
            broker_id: range(to_zookeeper + place * nodes, to_zookeeper + (place + 1) * nodes)
            for place, broker_id in enumerate(IDS)
        }

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._for_clients.values())

    def address(self, broker_id: int) -> tuple[str, int]:
        return "127.0.0.1", self._ports[broker_id]

    def listeners(self, broker_id: int) -> dict[str, str]:
        own, inner, proxied, outer = (
            f"127.0.0.1:{ports[broker_id]}" for ports in (self._ports, self._internal, self._proxied, self._for_clients)
        )
        return {
            "listeners": f"PLAINTEXT://{own},INTERNAL://{inner}",
            "advertised.listeners": f"PLAINTEXT://{outer},INTERNAL://{proxied}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        }

    def zookeepers(self, broker_id: int) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._to_zookeeper[broker_id])

    def command(self, node: int) -> list[str]:
        return []

    async def open(self) -> None:
        for broker_id in IDS:
            await self._open(broker_id)
            for server, port in zip(self._zookeepers, self._to_zookeeper[broker_id], strict=True):
                await self._open_for((broker_id, -server.number), port, server.port)
            if self._has_client_links:
                await self._open_for((CLIENTS, broker_id), self._for_clients[broker_id], self._ports[broker_id])

    async def _open(self, broker_id: int) -> None:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._forward(broker_id, self._internal[broker_id], reader, writer)
            writer.close()

        self._servers.append(await asyncio.start_server(accepted, "127.0.0.1", self._proxied[broker_id]))

    async def _open_for(self, link: Link, port: int, target_port: int) -> None:
        """A proxy that only the first of the pair knows of."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                await self._join(link, target_port, b"", reader, writer)
            writer.close()

        self._servers.append(await asyncio.start_server(accepted, "127.0.0.1", port))

    def close(self) -> None:
        for server in self._servers:
            server.close()

    async def _forward(
        self, broker_id: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = await reader.readexactly(_HEAD.size)
        name = await reader.readexactly(_HEAD.unpack(head)[-1])
        link = (int(name.rpartition(b"-")[2]), broker_id)
        await self._join(link, port, head + name, reader, writer)

    async def _join(
        self, link: Link, port: int, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await self._while_cut(link)
            back_writer.write(first)
            ways = [
                asyncio.create_task(self._pump(link, reader, back_writer)),
                asyncio.create_task(self._pump(link, back_reader, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
        finally:
            back_writer.close()

    async def _pump(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_PIECE_BYTES if self._is_good(link) else _PACKET_BYTES):
            await self._while_cut(link)
            resend_s = _RESEND_S
            while self._rng.random() < self.loss:
                await asyncio.sleep(resend_s)
                resend_s *= 2
            if link in self.bytes_per_s:
                await asyncio.sleep(len(data) / self.bytes_per_s[link])
            writer.write(data)
            await writer.drain()

    def _is_good(self, link: Link) -> bool:
        return not self.loss and link not in self.bytes_per_s

    async def _while_cut(self, link: Link) -> None:
        while link in self.cut:
            await asyncio.sleep(_LOOK_S)
