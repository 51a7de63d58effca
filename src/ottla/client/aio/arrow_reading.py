"""A bounded read into a table: from one place in each partition to another, with a consumer made for it alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.aio.group_runner import RebalanceStep
from ottla.client.core.on_demand import load_fetched_columns
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.aio.consumer import Consumer

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
        claimed = await consumer._polls.next_claim(patience_s, reading.CLAIM_BYTES)
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
    if not isinstance(what, str):
        return list(dict.fromkeys(TopicPartition(*partition) for partition in what))
    found = await consumer.partitions_for(what)
    if not found:
        raise ClientError(f"there is no topic {what}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return [TopicPartition(what, info.partition) for info in found]


async def _offsets(
    consumer: Consumer[Any, Any], partitions: list[TopicPartition], bounds: Bounds
) -> dict[TopicPartition, int]:
    """The offset of each bound, at most the end of the log: what is not written yet is not waited for."""
    log_ends = await consumer.end_offsets(partitions)
    offsets: dict[TopicPartition, int] = {}
    times: dict[TopicPartition, int] = {}
    earliest: list[TopicPartition] = []
    for partition in partitions:
        bound = bounds[partition] if isinstance(bounds, Mapping) else bounds
        if isinstance(bound, datetime):
            times[partition] = int(bound.timestamp() * 1000)
        elif bound == "earliest":
            earliest.append(partition)
        elif bound == "latest":
            offsets[partition] = log_ends[partition]
        elif isinstance(bound, int) and bound >= 0:
            offsets[partition] = min(bound, log_ends[partition])
        else:
            raise ValueError(
                f"{partition}: a bound is an offset, 'earliest', 'latest' or a datetime, but was {bound!r}"
            )
    if earliest:
        offsets |= await consumer.beginning_offsets(earliest)
    if times:
        for partition, found in (await consumer.offsets_for_times(times)).items():
            offsets[partition] = log_ends[partition] if found is None else min(found.offset, log_ends[partition])
    return offsets
