"""The producer for threads against librdkafka's mock cluster: memory, callbacks, partitioners, and its end."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import pytest

import ottla
from ottla.client.errors import BufferExhaustedError, ClientClosedError, ClientError, ConcurrentUseError
from ottla.client.sync.producer import sending
from ottla.errors import ForkedError
from tests.waiting import PATIENCE_S, join, repeat_until

_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    return f"sync-producer-{next(_numbers)}"


def test_a_full_buffer_is_waited_for(mock_cluster: str, topic: str) -> None:
    with ottla.Producer(bootstrap_servers=mock_cluster, buffer_memory=40_000, batch_size=20_000) as producer:
        futures = [producer.send(topic, b"x" * 15_000, key=b"%d" % number, partition=0) for number in range(8)]
        assert [future.result(PATIENCE_S).offset for future in futures] == list(range(8))
        assert producer._accumulator.waiting == 0
        producer.flush()
        assert producer._accumulator.free_bytes == 40_000


def test_a_buffer_that_stays_full_is_an_error_after_max_block_ms(mock_cluster: str, topic: str) -> None:
    settings: dict[str, Any] = {"buffer_memory": 20_000, "batch_size": 15_000, "max_block_ms": 50}
    with ottla.Producer(bootstrap_servers=mock_cluster, **settings) as producer:
        producer.partitions_for(topic)
        producer._engine.wake_from_thread = lambda: None  # type: ignore[method-assign]
        with pytest.raises(BufferExhaustedError):
            for number in range(10):
                producer.send(topic, b"x" * 14_000, key=b"k", partition=number % 2)
        assert producer._accumulator.waiting == 0
        del producer._engine.wake_from_thread
        producer.flush()
        assert producer._accumulator.free_bytes == 20_000


def test_a_callback_may_send_but_not_wait(mock_cluster: str, topic: str) -> None:
    told: list[str] = []
    done = threading.Event()

    with ottla.Producer(bootstrap_servers=mock_cluster) as producer:

        def delivered(metadata: object, error: ClientError | None) -> None:
            try:
                for call in (
                    lambda: producer.send(f"{topic}-unknown", b"v"),
                    lambda: producer.send(topic, b"v", partition=900),
                    lambda: producer.flush(1),
                ):
                    try:
                        call()
                    except ClientError as e:
                        told.append(f"{type(e).__name__}: {e.message}")
                told.append(producer.send(topic, b"again", partition=0).__class__.__name__)
            finally:
                done.set()

        producer.send(topic, b"v", partition=0, on_delivery=delivered)
        assert done.wait(PATIENCE_S)
    not_known = "BufferExhaustedError: {} is not known yet, and a delivery callback cannot wait until it is"
    assert told[:2] == [
        not_known.format(f"topic {topic}-unknown"),
        not_known.format(f"partition 900 of topic {topic}"),
    ]
    assert [line.partition(":")[0] for line in told[2:]] == ["ConcurrentUseError", "SendFuture"]


def test_a_partitioner_must_not_use_its_producer(mock_cluster: str, topic: str) -> None:
    raised: list[Exception] = []

    def choose(topic: str, key: bytes | None, value: bytes | None, count: int, available: Sequence[int]) -> int:
        if value == b"wrong":
            for call in (lambda: producer.send(topic, b"v"), producer.close, producer.flush):
                try:
                    call()
                except ConcurrentUseError as e:
                    raised.append(e)
        return count - 1

    with ottla.Producer(bootstrap_servers=mock_cluster, partitioner=choose) as producer:
        sent = producer.send(topic, b"wrong", key=b"k")
        last = len(producer.partitions_for(topic)) - 1
        assert sent.result(PATIENCE_S).partition == last
        assert len(raised) == 3
        assert producer.send(topic, b"right").result(PATIENCE_S).partition == last
        assert len(raised) == 3, "whoever is not asked may use it"


def test_closing_ends_whoever_waits_and_every_later_call(mock_cluster: str, topic: str) -> None:
    producer = ottla.Producer(bootstrap_servers=mock_cluster)
    sent = producer.send(topic, b"v", partition=0)
    producer.close()
    producer.close()
    assert sent.done() and sent.result().offset == 0, "what was sent before is stored"
    for call in (lambda: producer.send(topic, b"v"), producer.flush, lambda: producer.partitions_for(topic)):
        with pytest.raises(ClientClosedError):
            call()


def test_in_a_child_process_the_producer_belongs_to_the_parent(mock_cluster: str, topic: str) -> None:
    """As after a fork, without one."""
    producer = ottla.Producer(bootstrap_servers=mock_cluster, linger_ms=60_000)
    sent = producer.send(topic, b"v", partition=0)
    lock = producer._lock
    producer._forked()
    with pytest.raises(ForkedError, match="create a new one after fork"):
        producer.send(topic, b"v")
    with pytest.raises(ForkedError):
        sent.result(PATIENCE_S)
    assert producer._lock is not lock, "somebody in the parent may hold that one for ever"
    producer._thread.stop()


def test_many_threads_send_and_nothing_is_lost(mock_cluster: str, topic: str) -> None:
    with ottla.Producer(bootstrap_servers=mock_cluster) as producer:
        counts: list[int] = []

        def send() -> None:
            futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(200)]
            counts.append(len({future.result(PATIENCE_S).offset for future in futures}))

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        join(*threads)
        assert counts == [200] * 3
        repeat_until(lambda: not producer._accumulator.incomplete)


def late_choice(topic: str, key: bytes | None, value: bytes | None, count: int, available: Sequence[int]) -> int:
    return 0


@pytest.mark.parametrize(
    ("parts", "has_gil", "is_short"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"value_serializer": bytes}, True, False),
        ({"partitioner": late_choice}, True, False),
    ],
)
def test_plain_bytes_take_the_short_way_where_one_thread_runs_at_a_time(
    mock_cluster: str, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], has_gil: bool, is_short: bool
) -> None:
    monkeypatch.setattr(sending, "_HAS_GIL", has_gil)
    with ottla.Producer(bootstrap_servers=mock_cluster, **parts) as producer:
        assert (producer._accumulator.lanes is producer._lanes) is is_short
