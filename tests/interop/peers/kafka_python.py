"""kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from tests.interop.dataset import MESSAGE_BYTES_LIMIT, Received, Sample
from tests.interop.peers.peer import LONG_WAIT_MS, PATIENCE_S, SHORT_POLL_MS, Peer, RefusedError

RETRY_BACKOFF_MS = 5
"""The library waits this long before it looks for a partition's leader a second time, which it always does."""


def consumer(bootstrap: str, **settings: Any) -> KafkaConsumer:
    defaults = {
        "bootstrap_servers": bootstrap,
        "group_id": None,
        "auto_offset_reset": "none",
        "retry_backoff_ms": RETRY_BACKOFF_MS,
        "max_partition_fetch_bytes": 10 * MESSAGE_BYTES_LIMIT,
    }
    return KafkaConsumer(**(defaults | settings))


def poll_records(reader: KafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < count and time.monotonic() < deadline:
        for found in reader.poll(timeout_ms=500, max_records=count - len(records)).values():
            records += found
    return records


def received(record: Any) -> Received:
    return Received(record.offset, record.key, record.value, tuple(record.headers), record.timestamp)


class KafkaPython(Peer):
    name = "kafka-python"

    def create_topic(self, bootstrap: str, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
        finally:
            admin.close()

    def can_send(self, sample: Sample) -> bool:
        return (sample.key, sample.value) != (None, None) and all(value is not None for _, value in sample.headers)

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
        writer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=5,
            retry_backoff_ms=RETRY_BACKOFF_MS,
            max_request_size=10 * MESSAGE_BYTES_LIMIT,
        )
        try:
            sends = [
                writer.send(topic, value, key, list(headers), partition, timestamp_ms)
                for key, value, headers, timestamp_ms in samples
            ]
            writer.flush(PATIENCE_S)
            for future in sends:
                future.get(PATIENCE_S)
        except KafkaError as e:
            raise RefusedError(e.errno, str(e)) from e
        finally:
            writer.close()

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Received]:
        reader = consumer(bootstrap)
        try:
            assigned = TopicPartition(topic, partition)
            reader.assign([assigned])
            reader.seek(assigned, offset)
            return [received(record) for record in poll_records(reader, count)]
        finally:
            reader.close()

    def read_from_time(self, bootstrap: str, topic: str, timestamp_ms: int, count: int) -> list[Received]:
        reader = consumer(bootstrap)
        try:
            assigned = TopicPartition(topic, 0)
            reader.assign([assigned])
            found = reader.offsets_for_times({assigned: timestamp_ms})[assigned]
            if found is None:
                reader.seek_to_end(assigned)
            else:
                reader.seek(assigned, found.offset)
            return [received(record) for record in poll_records(reader, count)]
        finally:
            reader.close()

    def read_at_end(
        self, bootstrap: str, topic: str, end_offset: int, once_waiting: Callable[[], None]
    ) -> list[Received]:
        reader = consumer(bootstrap, fetch_max_wait_ms=LONG_WAIT_MS)
        try:
            assigned = TopicPartition(topic, 0)
            reader.assign([assigned])
            reader.seek(assigned, end_offset)
            assert reader.poll(timeout_ms=SHORT_POLL_MS) == {}
            once_waiting()
            return [received(record) for record in poll_records(reader, 1)]
        finally:
            reader.close()
