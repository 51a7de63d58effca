"""The network between brokers: a proxy before each one's inter-broker listener, which can hold back who connects; and
between brokers and ZooKeeper, where each broker has a proxy of its own."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

_HEAD = struct.Struct(">ihhih")
_PIECE_BYTES = 1 << 16
_LOOK_S = 0.02


class Links:
    """Runs on an event loop. A link that is cut loses nothing and delivers nothing: as if packets were dropped."""

    def __init__(self) -> None:
        self.cut: set[tuple[int, int]] = set()
        """Pairs of who connects and to whom. Only a new set is ever assigned, so any thread may do it."""
        self._servers: list[asyncio.Server] = []

    async def open(self, broker_id: int, port: int, target_port: int) -> None:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._forward(broker_id, target_port, reader, writer)
            writer.close()

        self._servers.append(await asyncio.start_server(accepted, "127.0.0.1", port))

    async def open_for(self, link: tuple[int, int], port: int, target_port: int) -> None:
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
        self, link: tuple[int, int], port: int, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
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

    async def _pump(self, link: tuple[int, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_PIECE_BYTES):
            await self._while_cut(link)
            writer.write(data)
            await writer.drain()

    async def _while_cut(self, link: tuple[int, int]) -> None:
        while link in self.cut:
            await asyncio.sleep(_LOOK_S)
