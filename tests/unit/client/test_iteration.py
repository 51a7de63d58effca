"""Reading record by record: each counts as read when it is asked for, and what was not asked for is read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ottla import aio
from ottla.records.builder import build_batch
from ottla.wire.apis.fetch import FetchablePartitionResponse, FetchableTopicResponse, FetchRequest, FetchResponse
from ottla.wire.apis.list_offsets import ListOffsetsRequest
from ottla.wire.apis.metadata import MetadataRequest
from tests.waiting import run_async

from .scripted_broker import ScriptedBroker
from .test_silent_broker import FIRST, PATIENCE_S, SECOND, TOPIC, TOPIC_ID, from_the_beginning, leaders

COUNT = 6


async def records(request: FetchRequest) -> FetchResponse:
    """Each partition has COUNT records, and all that are asked for come at once."""
    asked = [entry for topic in request.topics for entry in topic.partitions if entry.fetch_offset < COUNT]
    if not asked:
        await asyncio.sleep(0.02)
    answers = [
        FetchablePartitionResponse(
            partition_index=entry.partition,
            high_watermark=COUNT,
            records=build_batch(
                [(None, b"%d" % offset, (), 0) for offset in range(entry.fetch_offset, COUNT)],
                base_offset=entry.fetch_offset,
            ),
        )
        for entry in asked
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=answers)])


@asynccontextmanager
async def consuming(*partitions: Any) -> AsyncIterator[aio.Consumer[bytes | None, bytes | None]]:
    async with ScriptedBroker() as broker:
        broker.on(MetadataRequest, lambda _: broker.metadata(topics=[leaders((1, 0), (1, 0))]))
        broker.on(ListOffsetsRequest, from_the_beginning)
        broker.on(FetchRequest, records)
        async with aio.Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
            consumer.assign(list(partitions))
            yield consumer


def test_the_position_goes_on_with_every_record() -> None:
    async def scenario() -> None:
        async with consuming(FIRST) as consumer:
            async for record in consumer:
                assert await consumer.position(FIRST) == record.offset + 1
                if record.offset == COUNT - 1:
                    break

    run_async(scenario())


def test_what_was_not_asked_for_is_read_again() -> None:
    async def scenario() -> None:
        async with consuming(FIRST) as consumer:
            async for record in consumer:
                if record.offset == 2:
                    break
            assert await consumer.position(FIRST) == 3
            rest: list[int] = []
            while len(rest) < COUNT - 3:
                rest += [one.offset for one in await consumer.poll(PATIENCE_S)]
            assert rest == [3, 4, 5]
            assert await consumer.position(FIRST) == COUNT

    run_async(scenario())


def test_who_seeks_in_the_midst_goes_on_there() -> None:
    async def scenario() -> None:
        async with consuming(FIRST) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 2:
                    consumer.seek(FIRST, 4)
                if len(seen) == 4:
                    break
            assert seen == [0, 1, 4, 5]

    run_async(scenario())


def test_a_partition_that_was_moved_does_not_hold_up_the_other() -> None:
    async def scenario() -> None:
        async with consuming(FIRST, SECOND) as consumer:
            seen: dict[int, list[int]] = {0: [], 1: []}
            async for record in consumer:
                seen[record.partition].append(record.offset)
                if sum(map(len, seen.values())) == 1:
                    first = record.partition
                    consumer.seek((TOPIC, first), 5)
                if len(seen[1 - first]) == COUNT and seen[first][-1:] == [5]:
                    break
            assert seen[first] == [0, 5]
            assert seen[1 - first] == list(range(COUNT))

    run_async(scenario())
