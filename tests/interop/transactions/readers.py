"""What consumers see of a topic: by a client that reads committed records only, and by one that reads all."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, TopicPartition

from tests.interop.peers.confluent import consumer
from tests.interop.peers.peer import PATIENCE_S, RefusedError

_POLL_S = 0.03
"""librdkafka waits this long whenever there is less than it was asked for."""


def read_all(
    bootstrap: str, topic: str, partitions: Sequence[int] = (0,), isolation: str = "read_committed"
) -> dict[int, list[tuple[int, bytes]]]:
    """Everything from the beginning to the end that the isolation level allows, per partition: offset and value."""
    reader = consumer(bootstrap, isolation_level=isolation, enable_partition_eof=True, fetch_wait_max_ms=10)
    reader.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in partitions}
    unfinished = set(partitions)
    deadline_s = time.monotonic() + PATIENCE_S
    try:
        while unfinished:
            assert time.monotonic() < deadline_s, f"{topic}: the ends of {sorted(unfinished)} were not reached"
            for message in reader.consume(10_000, timeout=_POLL_S):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    offset, value = message.offset(), message.value()
                    assert offset is not None and value is not None
                    found[partition].append((offset, value))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(partition)
                else:
                    raise RefusedError(error.code(), error.str())
    finally:
        reader.close()
    return found


def read_values(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All values of partition 0."""
    return [value for _, value in read_all(bootstrap, topic, (0,), isolation)[0]]
