"""What tests of mirrors share: records with everything a record can have, and topics as a foreign client sees them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, TopicPartition

from tests.interop.peers.confluent import consumer
from tests.waiting import PATIENCE_S

ORIGIN = "ottla.mirror.origin"
_POLL_S = 0.05

Headers = tuple[tuple[str, bytes | None], ...]


class Seen(NamedTuple):
    """A record as librdkafka shows it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: tuple[int, int]
    """What kind of time it is, and the time."""

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers, int]:
        return self.key, self.value, self.headers, self.timestamp[1]

    def without_origin(self) -> Seen:
        return self._replace(headers=tuple(header for header in self.headers if header[0] != ORIGIN))

    @property
    def origin(self) -> bytes | None:
        return dict(self.headers).get(ORIGIN)


def read_topic(bootstrap: str, topic: str, partitions: Sequence[int]) -> dict[int, list[Seen]]:
    """All that is committed, per partition."""
    reader = consumer(bootstrap, isolation_level="read_committed", enable_partition_eof=True, fetch_wait_max_ms=10)
    reader.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: dict[int, list[Seen]] = {partition: [] for partition in partitions}
    unfinished = set(partitions)
    deadline_s = time.monotonic() + PATIENCE_S
    try:
        while unfinished:
            assert time.monotonic() < deadline_s, f"{topic}: the ends of {sorted(unfinished)} were not reached"
            for message in reader.consume(10_000, timeout=_POLL_S):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unfinished.discard(partition)
                    continue
                assert offset is not None
                headers = tuple((str(name), _bytes(value)) for name, value in message.headers() or [])
                seen = Seen(offset, _bytes(message.key()), _bytes(message.value()), headers, message.timestamp())
                found[partition].append(seen)
    finally:
        reader.close()
    return found


def contents(records: list[Seen]) -> list[object]:
    return [seen.without_origin().content for seen in records]


def assert_beginning(copies: dict[int, list[Seen]], originals: dict[int, list[Seen]]) -> int:
    """Each partition has what its original has, in its order, up to some record. Gives how many there are in all."""
    for partition, records in copies.items():
        assert contents(records) == contents(originals[partition][: len(records)])
    return sum(map(len, copies.values()))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
