"""Reads a topic and writes it to another, exactly once: records and positions in the same transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import ottla
from ottla.errors import ClientError

_BATCH_RECORDS = 1000
_PATIENCE_S = 120.0
_CONSUMER = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    # Small answers: large ones would hardly ever come through whole.
    "max.partition.fetch.bytes": 20_000,
}
_PRODUCER_ONLY = ("linger.ms", "delivery.timeout.ms", "enable.idempotence", "max.in.flight.requests.per.connection")


class StuckError(Exception):
    """Nothing has been copied for too long."""


def consumer_settings(settings: Mapping[str, object], source: str) -> dict[str, object]:
    shared = {name: value for name, value in settings.items() if name not in _PRODUCER_ONLY}
    return {**shared, **_CONSUMER, "group.id": f"copiers of {source}"}


def positions_after(
    records: list[ottla.ConsumerRecord[bytes | None, bytes | None]],
) -> dict[ottla.TopicPartition, ottla.OffsetAndMetadata]:
    return {record.topic_partition: ottla.OffsetAndMetadata(record.offset + 1) for record in records}


def copy_with_threads(
    settings: Mapping[str, object],
    source: str,
    target: str,
    is_enough: Callable[[int], bool],
    begin: Callable[[], None] = lambda: None,
) -> None:
    """Returns when enough records have been copied; calls `begin` when the clients have found their cluster."""
    copied = 0
    with (
        ottla.Producer({**settings, "transactional.id": f"copier of {source}"}) as producer,
        ottla.Consumer(consumer_settings(settings, source)) as consumer,
    ):
        begin()
        producer.init_transactions()
        consumer.subscribe([source])
        deadline_s = time.monotonic() + _PATIENCE_S
        while not is_enough(copied):
            if time.monotonic() > deadline_s:
                raise StuckError(f"{copied} records were copied, and then no more")
            records = consumer.poll(1.0, _BATCH_RECORDS)
            if not records:
                continue
            try:
                with producer.transaction():
                    for record in records:
                        producer.send(target, record.value, record.key)
                    producer.send_offsets(positions_after(records), consumer.membership)
            except ClientError as e:
                if e.fatal:
                    raise
                for partition, committed in consumer.committed(consumer.assignment).items():
                    consumer.seek(partition, 0 if committed is None else committed.offset)
                continue
            copied += len(records)
            deadline_s = time.monotonic() + _PATIENCE_S


async def copy_with_asyncio(
    settings: Mapping[str, object],
    source: str,
    target: str,
    is_enough: Callable[[int], bool],
    begin: Callable[[], None] = lambda: None,
) -> None:
    """Returns when enough records have been copied; calls `begin` when the clients have found their cluster."""
    copied = 0
    async with (
        ottla.aio.Producer({**settings, "transactional.id": f"copier of {source}"}) as producer,
        ottla.aio.Consumer(consumer_settings(settings, source)) as consumer,
    ):
        begin()
        await producer.init_transactions()
        consumer.subscribe([source])
        deadline_s = time.monotonic() + _PATIENCE_S
        while not is_enough(copied):
            if time.monotonic() > deadline_s:
                raise StuckError(f"{copied} records were copied, and then no more")
            records = await consumer.poll(1.0, _BATCH_RECORDS)
            if not records:
                continue
            try:
                async with producer.transaction():
                    for record in records:
                        await producer.send(target, record.value, record.key)
                    await producer.send_offsets(positions_after(records), consumer.membership)
            except ClientError as e:
                if e.fatal:
                    raise
                for partition, committed in (await consumer.committed(consumer.assignment)).items():
                    consumer.seek(partition, 0 if committed is None else committed.offset)
                continue
            copied += len(records)
            deadline_s = time.monotonic() + _PATIENCE_S
