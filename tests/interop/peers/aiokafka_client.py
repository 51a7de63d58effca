"""aiokafka. Each call runs an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code

from tests.interop.dataset import MESSAGE_BYTES_LIMIT, Received, Sample
from tests.interop.peers.peer import LONG_WAIT_MS, PATIENCE_S, SHORT_POLL_MS, Peer, RefusedError
from tests.waiting import run_async


def producer(bootstrap: str, **settings: Any) -> AIOKafkaProducer:
    defaults = {
        "bootstrap_servers": bootstrap,
        "acks": "all",
        "linger_ms": 5,
        "max_request_size": 10 * MESSAGE_BYTES_LIMIT,
    }
    return AIOKafkaProducer(**(defaults | settings))


def consumer(bootstrap: str, **settings: Any) -> AIOKafkaConsumer:
    defaults = {
        "bootstrap_servers": bootstrap,
        "auto_offset_reset": "none",
        "max_partition_fetch_bytes": 10 * MESSAGE_BYTES_LIMIT,
    }
    return AIOKafkaConsumer(**(defaults | settings))


async def poll_records(reader: AIOKafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(records) < count:
                for found in (await reader.getmany(timeout_ms=500, max_records=count - len(records))).values():
                    records += found
    except TimeoutError:
        pass  # The caller compares what is there with what it expects.
    return records


def received(record: Any) -> Received:
    return Received(record.offset, record.key, record.value, tuple(record.headers), record.timestamp)


class Aiokafka(Peer):
    name = "aiokafka"

    def create_topic(self, bootstrap: str, topic: str) -> None:
        async def run() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            try:
                response = await admin.create_topics([NewTopic(topic, 1, 1)])
            finally:
                await admin.close()
            ((_, code, *_),) = response.topic_errors
            if code:
                raise for_code(code)

        run_async(run())

    def can_send(self, sample: Sample) -> bool:
        return sample.key is not None or sample.value is not None

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
        async def run() -> None:
            compression = None if codec == "none" else codec
            async with producer(bootstrap, compression_type=compression, enable_idempotence=idempotent) as writer:
                sends = [
                    await writer.send(topic, value, key, partition, timestamp_ms, list(headers))
                    for key, value, headers, timestamp_ms in samples
                ]
                async with asyncio.timeout(PATIENCE_S):
                    await asyncio.gather(*sends)

        try:
            run_async(run())
        except KafkaError as e:
            raise RefusedError(e.errno, str(e)) from e

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Received]:
        async def run() -> list[Received]:
            async with consumer(bootstrap) as reader:
                assigned = TopicPartition(topic, partition)
                reader.assign([assigned])
                reader.seek(assigned, offset)
                return [received(record) for record in await poll_records(reader, count)]

        return run_async(run())

    def read_from_time(self, bootstrap: str, topic: str, timestamp_ms: int, count: int) -> list[Received]:
        async def run() -> list[Received]:
            async with consumer(bootstrap) as reader:
                assigned = TopicPartition(topic, 0)
                reader.assign([assigned])
                found = (await reader.offsets_for_times({assigned: timestamp_ms}))[assigned]
                if found is None:
                    await reader.seek_to_end(assigned)
                else:
                    reader.seek(assigned, found.offset)
                return [received(record) for record in await poll_records(reader, count)]

        return run_async(run())

    def read_at_end(
        self, bootstrap: str, topic: str, end_offset: int, once_waiting: Callable[[], None]
    ) -> list[Received]:
        async def run() -> list[Received]:
            async with consumer(bootstrap, fetch_max_wait_ms=LONG_WAIT_MS) as reader:
                assigned = TopicPartition(topic, 0)
                reader.assign([assigned])
                reader.seek(assigned, end_offset)
                assert await reader.getmany(timeout_ms=SHORT_POLL_MS) == {}
                await asyncio.to_thread(once_waiting)
                return [received(record) for record in await poll_records(reader, 1)]

        return run_async(run())
