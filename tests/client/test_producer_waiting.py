"""What a record has to wait for before it is in a batch, which takes nothing from the time it has from then on."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from ottla.testing import ApiKey, EmbeddedBroker
from tests.client.producers import AioClient, SyncClient
from tests.waiting import join

Client = type[SyncClient] | type[AioClient]

pytestmark = pytest.mark.parametrize("client", [SyncClient, AioClient], ids=lambda kind: kind.name)


def test_a_topic_that_is_long_in_coming(client: Client) -> None:
    with (
        EmbeddedBroker(config={"auto.create.topics.enable": False}) as embedded,
        client(
            bootstrap_servers=embedded.bootstrap_servers, linger_ms=0, delivery_timeout_ms=300, request_timeout_ms=300
        ) as producer,
    ):
        created = threading.Timer(0.4, embedded.create_topic, ["late"])
        created.start()
        assert producer.send("late", b"").result(10).offset == 0
        join(created)


def test_many_values_for_which_there_is_never_memory_for_long(client: Client) -> None:
    """As long as some of them are taken within max.block.ms, it may take longer until all of them are."""
    with (
        EmbeddedBroker() as embedded,
        client(
            bootstrap_servers=embedded.bootstrap_servers, buffer_memory=40_000, batch_size=20_000, max_block_ms=400
        ) as producer,
    ):
        embedded.create_topic("t")
        embedded.faults.delay(ApiKey.PRODUCE, 50, times=None)
        futures = producer.send_many("t", [bytes(900)] * 400)
        producer.flush()
        assert len(futures) == 400 and futures.done()


def test_a_partition_without_a_leader_is_not_waited_for_by_records_that_may_go_elsewhere(client: Client) -> None:
    with (
        EmbeddedBroker() as embedded,
        client(bootstrap_servers=embedded.bootstrap_servers, linger_ms=0) as producer,
    ):
        embedded.create_topic("t", partitions=2)
        lost = producer.send("t", b"").result(10).partition
        embedded.take_leader_away("t", lost)
        deadline_s = time.monotonic() + 10
        stored = False
        while not stored and time.monotonic() < deadline_s:
            with suppress(TimeoutError):
                stored = producer.send("t", b"").result(0.02).partition != lost
        embedded.elect_leader("t", lost)
        assert stored


def test_who_waits_for_memory_gets_what_a_partition_without_a_leader_has_left(client: Client) -> None:
    with (
        EmbeddedBroker() as embedded,
        client(
            bootstrap_servers=embedded.bootstrap_servers,
            linger_ms=10_000,
            request_timeout_ms=10_000,
            delivery_timeout_ms=30_000,
            buffer_memory=100_000,
            batch_size=10_000,
            max_block_ms=5000,
        ) as producer,
    ):
        embedded.create_topic("t", partitions=2)
        embedded.take_leader_away("t", 0)
        held_up = [producer.send("t", bytes(1000), partition=0) for _ in range(70)]
        stored = [producer.send("t", bytes(1000), partition=1) for _ in range(200)]
        assert not any(future.done() for future in held_up)
        embedded.elect_leader("t", 0)
        producer.flush()
        assert {future.result(10).partition for future in stored} == {1}
        assert {future.result(10).partition for future in held_up} == {0}
