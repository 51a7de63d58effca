"""No request that a client really sends is too much for the fused decoders: none of them is read the slow way."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import ottla
from ottla.testing import EmbeddedBroker
from ottla.wire.fused.fallbacks import FALLBACKS
from tests.interop.dataset import numbered
from tests.interop.peers import PEERS
from tests.interop.peers.peer import PATIENCE_S, Peer

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedBroker]:
    """In this process, so that what it counts can be looked at."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
@pytest.mark.parametrize("idempotent", [False, True])
def test_foreign_clients(embedded: EmbeddedBroker, peer: Peer, idempotent: bool) -> None:
    FALLBACKS.clear()
    topic = embedded.create_topic(f"{peer.name}-{idempotent}", partitions=2)
    for partition in (0, 1):
        peer.write(embedded.bootstrap_servers, topic, numbered(50), partition=partition, idempotent=idempotent)
        assert len(peer.read(embedded.bootstrap_servers, topic, 50, partition=partition)) == 50
    assert not FALLBACKS


def test_our_own_client(embedded: EmbeddedBroker) -> None:
    FALLBACKS.clear()
    topic = embedded.create_topic("our-own", partitions=3)
    with ottla.Producer(bootstrap_servers=embedded.bootstrap_servers) as producer:
        for number in range(90):
            producer.send(topic, value=b"%d" % number, partition=number % 3)
        producer.flush(PATIENCE_S)
    settings = {"bootstrap.servers": embedded.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    received = 0
    with ottla.Consumer(settings) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        while received < 90 and time.monotonic() < deadline:
            received += len(consumer.poll(timeout=1))
    assert received == 90
    assert not FALLBACKS
