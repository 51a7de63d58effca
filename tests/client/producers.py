"""Both producers behind the same blocking calls, so that one suite can ask the same of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, Self

import confluent_kafka

from ottla.client import aio, sync
from ottla.client.core.producer.batch import RecordMetadata

PATIENCE_S = 30.0


class Future(Protocol):
    def done(self) -> bool: ...

    def result(self, timeout: float | None = None) -> RecordMetadata: ...


class SyncClient:
    name = "sync"

    def __init__(self, *config: Any, **settings: Any) -> None:
        self.producer = sync.Producer(*config, **settings)

    def send(self, *record: Any, **options: Any) -> Future:
        return self.producer.send(*record, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.producer, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.producer.close()


class AwaitedFuture:
    def __init__(self, client: AioClient, future: aio.SendFuture) -> None:
        self._client = client
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        async def wait() -> RecordMetadata:
            async with asyncio.timeout(timeout):
                return await self._future

        return self._client.runner.run(wait())


class AioClient:
    name = "aio"

    def __init__(self, *config: Any, **settings: Any) -> None:
        self.runner = asyncio.Runner()
        try:
            self.producer = aio.Producer(*config, **settings)
            self.runner.run(self.producer.start())
        except BaseException:
            self.runner.close()
            raise

    def send(self, *record: Any, **options: Any) -> Future:
        return AwaitedFuture(self, self.runner.run(self.producer.send(*record, **options)))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        block = self.producer.transaction()
        self.runner.run(block.__aenter__())
        try:
            yield
        except BaseException as e:
            self.runner.run(block.__aexit__(type(e), e, e.__traceback__))
            raise
        self.runner.run(block.__aexit__(None, None, None))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.producer, name)
        return lambda *arguments, **options: self.runner.run(method(*arguments, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.run(self.producer.close())
        self.runner.close()


class StoredRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def read_all(
    bootstrap: str, topic: str, *, committed: bool = False, at_least: int = 0
) -> dict[int, list[StoredRecord]]:
    """Every record of a topic, by partition, as confluent-kafka reads it: what we write is not read by us.

    Waits for `at_least` records, and for the end of transactions: Kafka writes their markers after it has answered.
    """
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "fetch.wait.max.ms": 20}
    reader = confluent_kafka.Consumer(
        {
            **settings,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    try:
        partitions = sorted(reader.list_topics(topic, PATIENCE_S).topics[topic].partitions)
        found: dict[int, list[StoredRecord]] = {partition: [] for partition in partitions}
        reader.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in partitions])
        ends = _log_end_offsets(settings, topic, partitions)
        reached: dict[int, int] = {}
        deadline_s = time.monotonic() + PATIENCE_S
        while sum(map(len, found.values())) < at_least or any(
            reached.get(partition, -1) < end_offset for partition, end_offset in ends.items()
        ):
            assert time.monotonic() < deadline_s, f"{reached} was read to, not {ends}"
            for message in reader.consume(10_000, 0.1):
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                error = message.error()
                if error is None:
                    headers = [(name, value) for name, value in message.headers() or ()]
                    record = StoredRecord(offset, message.timestamp()[1], message.key(), message.value(), headers)
                    found[partition].append(record)
                else:
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error.str()
                    reached[partition] = offset
        return found
    finally:
        reader.close()


def _log_end_offsets(settings: dict[str, Any], topic: str, partitions: list[int]) -> dict[int, int]:
    """With open transactions: `read_uncommitted` consumers see them."""
    consumer = confluent_kafka.Consumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        places = [confluent_kafka.TopicPartition(topic, partition) for partition in partitions]
        return {place.partition: consumer.get_watermark_offsets(place, PATIENCE_S)[1] for place in places}
    finally:
        consumer.close()


def values_of(bootstrap: str, topic: str, *, committed: bool = False, at_least: int = 0) -> list[bytes | None]:
    """The values of a topic with one partition, in order."""
    (records,) = read_all(bootstrap, topic, committed=committed, at_least=at_least).values()
    return [record.value for record in records]
