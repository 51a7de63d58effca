"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.dataset import MESSAGE_BYTES_LIMIT, Received, Sample
from tests.interop.peers.peer import LONG_WAIT_MS, PATIENCE_S, SHORT_POLL_MS, Peer, RefusedError

LOG = logging.getLogger("librdkafka")
"""Where the library says what it could not read. It then tries again, so a test might pass without noticing."""


def producer(bootstrap: str, **settings: Any) -> Producer:
    defaults = {
        "bootstrap.servers": bootstrap,
        "message.max.bytes": 10 * MESSAGE_BYTES_LIMIT,
        "linger.ms": 5,
        "message.timeout.ms": PATIENCE_S * 1000,
    }
    return Producer(defaults | {name.replace("_", "."): value for name, value in settings.items()}, logger=LOG)


def consumer(bootstrap: str, **settings: Any) -> Consumer:
    defaults = {
        "bootstrap.servers": bootstrap,
        "group.id": "not used",  # a setting the library insists on; assign() without commits asks no coordinator
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
    }
    return Consumer(defaults | {name.replace("_", "."): value for name, value in settings.items()}, logger=LOG)


def poll_messages(reader: Consumer, count: int, patience_s: float = PATIENCE_S) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + patience_s
    while len(messages) < count and time.monotonic() < deadline:
        for message in reader.consume(count - len(messages), timeout=0.1):
            error = message.error()
            if error is not None:
                raise RefusedError(error.code(), error.str())
            messages.append(message)
    return messages


def received(message: Message) -> Received:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Received(message.offset(), message.key(), message.value(), headers, message.timestamp()[1])


def make_topic(bootstrap: str, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, 1, config=configs or {})
    admin.create_topics([new], request_timeout=PATIENCE_S)[topic].result(PATIENCE_S)


class ConfluentKafka(Peer):
    name = "confluent-kafka"
    is_librdkafka = True

    def create_topic(self, bootstrap: str, topic: str) -> None:
        make_topic(bootstrap, topic)

    def write(
        self,
        bootstrap: str,
        topic: str,
        samples: Sequence[Sample],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        writer = producer(bootstrap, compression_type=codec, enable_idempotence=idempotent, acks="all")
        for key, value, headers, timestamp_ms in samples:
            given = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
            writer.produce(topic, value, key, partition, on_delivery=delivered, headers=list(headers), **given)
            writer.poll(0)
        assert writer.flush(PATIENCE_S) == 0, "not all records were delivered"
        if failures:
            raise RefusedError(failures[0].code(), failures[0].str())

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Received]:
        reader = consumer(bootstrap)
        reader.assign([TopicPartition(topic, partition, offset)])
        try:
            return [received(message) for message in poll_messages(reader, count)]
        finally:
            reader.close()

    def read_from_time(self, bootstrap: str, topic: str, timestamp_ms: int, count: int) -> list[Received]:
        reader = consumer(bootstrap)
        try:
            (found,) = reader.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=PATIENCE_S)
            if found.error:
                raise KafkaException(found.error)
            reader.assign([found])
            return [received(message) for message in poll_messages(reader, count)]
        finally:
            reader.close()

    def read_at_end(
        self, bootstrap: str, topic: str, end_offset: int, once_waiting: Callable[[], None]
    ) -> list[Received]:
        reader = consumer(bootstrap, fetch_wait_max_ms=LONG_WAIT_MS)
        reader.assign([TopicPartition(topic, 0, end_offset)])
        try:
            assert reader.poll(SHORT_POLL_MS / 1000) is None
            once_waiting()
            return [received(message) for message in poll_messages(reader, 1)]
        finally:
            reader.close()
