"""Both producers behind the same blocking calls, so that one suite can ask the same of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self

from ottla.base.types import TopicPartition
from ottla.client import aio, sync
from ottla.client.cluster import Cluster
from ottla.client.core.producer_batch import RecordMetadata
from ottla.client.reading import FetchedRecord, Isolation, PartitionReader


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

    def close(self, timeout: float | None = None) -> None:
        self.runner.run(self.producer.close(None if timeout is None else int(timeout * 1000)))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.producer, name)
        return lambda *arguments, **options: self.runner.run(method(*arguments, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.run(self.producer.close())
        self.runner.close()


def read_all(bootstrap: str, topic: str, *, committed: bool = False) -> dict[int, list[FetchedRecord]]:
    """Every record of a topic, by partition."""

    async def read() -> dict[int, list[FetchedRecord]]:
        cluster = await Cluster.connect(bootstrap, client_id="reader")
        try:
            info = await cluster.topic(topic)
            isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
            partitions = [TopicPartition(topic, entry.partition) for entry in info.partitions]
            reader = PartitionReader(cluster, dict.fromkeys(partitions, 0), isolation=isolation)
            found: dict[int, list[FetchedRecord]] = {partition: [] for _, partition in partitions}
            while True:
                before = dict(reader.positions)
                for record in await reader.read(max_wait_ms=50):
                    found[record.topic_partition.partition].append(record)
                if reader.positions == before:
                    return found
        finally:
            cluster.close()

    return asyncio.run(read())


def values_of(bootstrap: str, topic: str, *, committed: bool = False) -> list[bytes | None]:
    """The values of a topic with one partition, in order."""
    (records,) = read_all(bootstrap, topic, committed=committed).values()
    return [record.record.value for record in records]
