"""Writes of librdkafka while something is done to a cluster: not one of them may fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka

from tests.waiting import PATIENCE_S, join, repeat_until


@contextmanager
def load(servers: str, topic: str) -> Iterator[list[bytes]]:
    """Writes with acks=all until the end of the block; not one write may fail. What was acknowledged is in the list."""
    acknowledged: list[bytes] = []
    failures: list[Any] = []
    is_over = threading.Event()

    def told(error: Any, message: confluent_kafka.Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            acknowledged.append(message.value() or b"")

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "on_delivery": told,
            "log_level": 0,
        }
    )

    def write() -> None:
        number = 0
        while not is_over.is_set():
            producer.produce(topic, str(number).encode(), key=str(number).encode())
            producer.poll(0.001)
            number += 1
        assert producer.flush(PATIENCE_S) == 0

    writer = threading.Thread(target=write, name="load")
    writer.start()
    try:
        repeat_until(lambda: len(acknowledged) > 0)
        yield acknowledged
    finally:
        is_over.set()
        join(writer)
    assert failures == []
