"""Connections to other brokers: how long one may take to be set up."""

from __future__ import annotations

import socket

import pytest

from ottla.base.errors import KafkaError
from ottla.base.types import Endpoint
from ottla.broker.replication.peers import Peers
from tests.waiting import run_async


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
