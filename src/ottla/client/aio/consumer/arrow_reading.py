"""A bounded read into a table: from one place in each partition to another, with a consumer made for it alone."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.aio.group.runner import RebalanceStep
from ottla.client.aio.topic_lookup import find_topics
from ottla.client.core.on_demand import load_fetched_columns
from ottla.client.core.settings import backoff_ms
from ottla.client.errors import ClientError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from ottla.client.aio.consumer.consumer import Consumer

Bound: TypeAlias = int | str | datetime
"""An offset, "earliest", "latest", or a time: the first record at or after it."""
Bounds: TypeAlias = Bound | Mapping[TopicPartition, Bound]
Readable: TypeAlias = str | Iterable[TopicPartition | tuple[str, int]]
"""All partitions of a topic, or these."""

GROUP_SETTINGS = frozenset(
    {
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "enable.auto.commit",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "heartbeat.interval.ms",
    }
)

_GRACE_TRIES = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def read_table(
    consumer: Consumer[Any, Any], what: Readable, start: Bounds, end: Bounds, columns: Iterable[str] | None
) -> Any:
    """The records between the bounds as a pyarrow Table, partition after partition. The end does not move with the log.

    `consumer` is started, and used for nothing else.
    """
    reading = load_fetched_columns()
    schema = reading.chosen_columns(columns)
    partitions = await _partitions(consumer, what)
    ends = await _offsets(consumer, partitions, end)
    starts = await _offsets(consumer, partitions, start)
    parts: dict[TopicPartition, list[Any]] = {partition: [] for partition in partitions}
    unread = [partition for partition in partitions if starts[partition] < ends[partition]]
    consumer.assign(unread)
    for partition in unread:
        consumer.seek(partition, starts[partition])
    patience_s = consumer.settings.api_timeout_ms / 1000
    while unread:
        try:
            claimed = await consumer._polls.next_claim(patience_s, reading.CLAIM_BYTES)
        except OffsetOutOfRangeError as e:
            raise OffsetOutOfRangeError(
                f'offset {e.offset} is not in the log any more; to read what there is, start at "earliest"',
                topic_partition=e.topic_partition,
                offset=e.offset,
            ) from None
        if isinstance(claimed, RebalanceStep):
            raise AssertionError("a consumer without a group has no rebalances")
        if not claimed:
            raise ClientError(
                f"nothing came of {unread[0]} within default.api.timeout.ms ({patience_s} s)",
                code=ErrorCode.REQUEST_TIMED_OUT,
            )
        for part in claimed:
            parts[part.cursor.topic_partition].append(reading.decode_claimed([part], schema, None, ends))
        finished = [partition for partition in unread if await consumer.position(partition) >= ends[partition]]
        consumer.pause(finished)
        unread = [partition for partition in unread if partition not in finished]
        await asyncio.sleep(0)
    return reading.as_table([batch for batches in parts.values() for batch in batches], schema)


async def _partitions(consumer: Consumer[Any, Any], what: Readable) -> list[TopicPartition]:
    """Looked up first, for to read a topic that is not there might create it, and takes long to fail."""
    chosen = what if isinstance(what, str) else list(dict.fromkeys(map(_partition, what)))
    client = consumer.settings.client
    tries = 0
    while True:
        try:
            return await _look_up(consumer, chosen)
        except ClientError as e:
            tries += 1
            # What was made just now may not be known to every broker.
            if e.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or tries > _GRACE_TRIES:
                raise
        await asyncio.sleep(backoff_ms(tries, client.retry_backoff_ms, client.retry_backoff_max_ms) / 1000)


async def _look_up(consumer: Consumer[Any, Any], chosen: str | list[TopicPartition]) -> list[TopicPartition]:
    if isinstance(chosen, str):
        found = await _find(consumer, [chosen])
        return [TopicPartition(chosen, partition) for partition in found[chosen]]
    found = await _find(consumer, list(dict.fromkeys(partition.topic for partition in chosen)))
    for topic, partition in chosen:
        if partition not in found[topic]:
            raise ClientError(
                f"topic {topic} has no partition {partition}; those it has: {', '.join(map(str, found[topic]))}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
    return chosen


def _partition(given: TopicPartition | tuple[str, int]) -> TopicPartition:
    if isinstance(given, str):
        raise ValueError(f"what to read is a topic, or a list of (topic, partition), but {given!r} was in the list")
    return TopicPartition(*given)


async def _find(consumer: Consumer[Any, Any], topics: list[str]) -> dict[str, list[int]]:
    if not topics:
        return {}
    found = await find_topics(consumer._engine, topics, consumer.settings.api_timeout_ms)
    for topic in topics:
        if not found.get(topic):
            raise ClientError(f"there is no topic {topic}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {topic: [info.partition for info in partitions] for topic, partitions in found.items()}


async def _offsets(
    consumer: Consumer[Any, Any], partitions: list[TopicPartition], bounds: Bounds
) -> dict[TopicPartition, int]:
    """The offset of each bound, at most the end of the log: what is not written yet is not waited for."""
    log_ends = await consumer.end_offsets(partitions)
    offsets: dict[TopicPartition, int] = {}
    times: dict[TopicPartition, int] = {}
    earliest: list[TopicPartition] = []
    for partition in partitions:
        bound = _bound_of(partition, bounds)
        if isinstance(bound, datetime):
            times[partition] = _milliseconds(bound)
        elif bound == "earliest":
            earliest.append(partition)
        elif bound == "latest":
            offsets[partition] = log_ends[partition]
        else:
            offsets[partition] = min(_offset(partition, bound), log_ends[partition])
    if earliest:
        offsets |= await consumer.beginning_offsets(earliest)
    if times:
        for partition, found in (await consumer.offsets_for_times(times)).items():
            offsets[partition] = log_ends[partition] if found is None else min(found.offset, log_ends[partition])
    return offsets


def _bound_of(partition: TopicPartition, bounds: Bounds) -> Bound:
    if not isinstance(bounds, Mapping):
        return bounds
    if partition not in bounds:
        raise ValueError(f"the bounds leave out {partition}: give one for each partition, or one for all")
    return bounds[partition]


def _offset(partition: TopicPartition, bound: object) -> int:
    """NumPy's whole numbers are offsets as well."""
    try:
        offset = operator.index(bound)  # type: ignore[arg-type]
    except TypeError:
        offset = -1
    if offset < 0:
        raise ValueError(f"{partition}: a bound is an offset, 'earliest', 'latest' or a datetime, but was {bound!r}")
    return offset


def _milliseconds(time: datetime) -> int:
    """The first whole millisecond that is not before it. Floating-point seconds would miss some by one."""
    return -((_EPOCH - time.astimezone(UTC)) // timedelta(milliseconds=1))
