"""What a row may do to the network, and what a cluster has to know of it, whatever the network is made of."""

from __future__ import annotations

from typing import Protocol

Link = tuple[int, int]
"""Who connects, and to whom. Brokers have their ids, ZooKeeper's servers negative numbers, and all clients one."""


class Links(Protocol):
    """Any thread may assign to the attributes; only whole new values are ever assigned."""

    cut: set[Link]
    """Of connections over these links no packet arrives, in either direction."""
    loss: float
    """The share of packets that are lost, on all links. TCP sends them again, so what a link carries comes late."""
    bytes_per_s: dict[Link, int]
    """Of links that are slow, in each direction."""

    async def open(self) -> None: ...

    def close(self) -> None: ...

    @property
    def servers(self) -> str:
        """Where clients find the brokers."""

    def address(self, broker_id: int) -> tuple[str, int]:
        """Where a broker answers whatever becomes of the network: for who judges it."""

    def listeners(self, broker_id: int) -> dict[str, str]:
        """A broker's settings."""

    def zookeepers(self, broker_id: int) -> str:
        """Addresses, as this broker reaches them."""

    def command(self, node: int) -> list[str]:
        """What starts a broker's or a ZooKeeper's command line where that node is."""
