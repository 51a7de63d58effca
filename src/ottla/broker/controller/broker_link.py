"""How the controller reaches brokers: its own by a call, the others over the wire, with the same messages."""

from __future__ import annotations

from ottla.broker.replication.orders import Orders
from ottla.broker.replication.peers import Peers
from ottla.wire.apis import response_class
from ottla.wire.message import Request, Response


class ClusterLink:
    def __init__(self, broker_id: int, orders: Orders, peers: Peers, *, timeout_ms: int) -> None:
        self._broker_id = broker_id
        self._timeout_ms = timeout_ms
        self._orders = orders
        self._peers = peers

    async def send(self, broker_id: int, request: Request) -> Response:
        if broker_id == self._broker_id:
            return await self._orders.obey(request)
        expected = response_class(request.API_KEY)
        return await self._peers.request(broker_id, request, expected, work="orders", timeout_ms=self._timeout_ms)
