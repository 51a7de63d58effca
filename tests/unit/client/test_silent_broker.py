"""A broker that takes requests and answers none, as one does whose machine hangs, holds up only what it leads."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest

from ottla import TopicPartition, aio
from ottla.base.types import Uuid
from ottla.errors import ClientError
from ottla.records.builder import build_batch
from ottla.wire.apis.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.apis.fetch import FetchablePartitionResponse, FetchableTopicResponse, FetchRequest, FetchResponse
from ottla.wire.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.wire.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.waiting import run_async

from .scripted_broker import ScriptedBroker

TOPIC, TOPIC_ID = "read", Uuid(bytes(15) + b"\x01")
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
PATIENCE_S = 10
"""Less than request.timeout.ms."""


def leaders(*led: tuple[int, int]) -> MetadataResponseTopic:
    """The node that leads each partition, and its epoch."""
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=node, leader_epoch=epoch)
        for index, (node, epoch) in enumerate(led)
    ]
    return MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=partitions)


async def never(_: object) -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


def from_the_beginning(request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=TOPIC,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=0, leader_epoch=0)
                    for topic in request.topics
                    for asked in topic.partitions
                ],
            )
        ]
    )


def agrees(request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=TOPIC,
                partitions=[
                    EpochEndOffset(partition=asked.partition, leader_epoch=asked.leader_epoch, end_offset=9)
                    for topic in request.topics
                    for asked in topic.partitions
                ],
            )
        ]
    )


async def one_record(request: FetchRequest) -> FetchResponse:
    """At offset 0 of every partition; who asks for more has to wait a little."""
    asked = [entry for topic in request.topics for entry in topic.partitions if entry.fetch_offset == 0]
    if not asked:
        await asyncio.sleep(0.05)
    answers = [
        FetchablePartitionResponse(
            partition_index=entry.partition,
            high_watermark=1,
            records=build_batch([(None, b"%d" % entry.partition, (), 0)]),
        )
        for entry in asked
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=answers)])


async def read(consumer: aio.Consumer[Any, Any], *partitions: TopicPartition) -> None:
    """Until a record of each partition has come."""
    missing = set(partitions)
    async with asyncio.timeout(PATIENCE_S):
        while missing:
            missing -= {record.topic_partition for record in await consumer.poll(PATIENCE_S)}


def test_positions_are_found_where_brokers_answer() -> None:
    async def run() -> None:
        async with ScriptedBroker(1) as good, ScriptedBroker(2) as silent:
            topic = leaders((1, 0), (2, 0))
            good.on(MetadataRequest, lambda _: good.metadata(silent, topics=[topic]))
            good.on(ListOffsetsRequest, from_the_beginning)
            good.on(FetchRequest, one_record)
            silent.on(ListOffsetsRequest, never)
            async with aio.Consumer(bootstrap_servers=good.address, auto_offset_reset="earliest") as consumer:
                consumer.assign([SECOND])
                async with asyncio.timeout(PATIENCE_S):
                    while not silent.asked(ListOffsetsRequest):
                        await consumer.poll(0.05)
                consumer.assign([FIRST, SECOND])
                await read(consumer, FIRST)

    run_async(run())


def test_leaders_are_asked_whether_they_agree_while_another_is_silent() -> None:
    async def run() -> None:
        async with ScriptedBroker(1) as good, ScriptedBroker(2) as silent:
            topic = leaders((1, 3), (2, 3))
            good.on(MetadataRequest, lambda _: good.metadata(silent, topics=[topic]))
            good.on(OffsetForLeaderEpochRequest, agrees)
            good.on(FetchRequest, one_record)
            silent.on(OffsetForLeaderEpochRequest, never)
            async with aio.Consumer(bootstrap_servers=good.address) as consumer:
                consumer.assign([SECOND, FIRST])
                consumer.seek(SECOND, 0, leader_epoch=0)
                consumer.seek(FIRST, 0, leader_epoch=0)
                await read(consumer, FIRST)

    run_async(run())


def test_a_new_leader_is_fetched_from_while_the_last_one_is_silent() -> None:
    async def run() -> None:
        async with ScriptedBroker(1) as good, ScriptedBroker(2) as silent:
            topics = [leaders((1, 0), (2, 0))]
            good.on(MetadataRequest, lambda _: good.metadata(silent, topics=topics))
            for broker in (good, silent):
                broker.on(ListOffsetsRequest, from_the_beginning)
            good.on(OffsetForLeaderEpochRequest, agrees)
            good.on(FetchRequest, one_record)
            silent.on(FetchRequest, never)
            async with aio.Consumer(
                bootstrap_servers=good.address, auto_offset_reset="earliest", metadata_max_age_ms=100
            ) as consumer:
                consumer.assign([FIRST, SECOND])
                await read(consumer, FIRST)
                async with asyncio.timeout(PATIENCE_S):
                    while not silent.asked(FetchRequest):
                        await consumer.poll(0.05)
                topics[:] = [leaders((1, 0), (1, 1))]
                await read(consumer, SECOND)

    run_async(run())


def found(node: ScriptedBroker) -> FindCoordinatorResponse:
    coordinator = Coordinator(key="group", node_id=node.node_id, host="127.0.0.1", port=node.port)
    return FindCoordinatorResponse(coordinators=[coordinator])


def committed(_: OffsetCommitRequest) -> OffsetCommitResponse:
    partitions = [OffsetCommitResponsePartition(partition_index=0)]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=TOPIC, partitions=partitions)])


def test_a_coordinator_that_kept_silent_is_looked_for_again() -> None:
    async def run() -> None:
        async with ScriptedBroker(1) as good, ScriptedBroker(2) as silent:
            coordinators = [silent]
            for broker in (good, silent):  # either may be asked, depending on what else is under way
                broker.on(MetadataRequest, lambda _: good.metadata(silent, topics=[leaders((1, 0))]))
                broker.on(FindCoordinatorRequest, lambda _: found(coordinators[0]))
            good.on(OffsetCommitRequest, committed)
            silent.on(OffsetCommitRequest, never)
            async with aio.Consumer(bootstrap_servers=good.address, group_id="group") as consumer:
                consumer.assign([FIRST])
                with pytest.raises(ClientError, match="did not answer"):
                    await consumer.commit({FIRST: 5}, timeout=0.3)
                assert silent.asked(OffsetCommitRequest)
                coordinators[:] = [good]
                await consumer.commit({FIRST: 5}, timeout=PATIENCE_S)

    run_async(run())


def test_commits_do_not_wait_for_a_coordinator_that_heartbeats_have_lost() -> None:
    async def run() -> None:
        async with ScriptedBroker(1) as good, ScriptedBroker(2) as silent:
            coordinators, is_committing = [silent], asyncio.Event()
            target = Assignment(topic_partitions=[AssignedTopicPartitions(topic_id=TOPIC_ID, partitions=[0])])
            member = ConsumerGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=50, assignment=target)

            def lost_while_committing(_: object) -> ConsumerGroupHeartbeatResponse:
                if is_committing.is_set():
                    raise asyncio.IncompleteReadError(b"", 1)  # the connection is closed
                return member

            async def silently(asked: object) -> NoReturn:
                is_committing.set()
                coordinators[:] = [good]
                await never(asked)

            for broker in (good, silent):
                broker.on(FindCoordinatorRequest, lambda _: found(coordinators[0]))
                broker.on(MetadataRequest, lambda _: good.metadata(silent, topics=[leaders((1, 0))]))
                broker.on(OffsetFetchRequest, lambda _: OffsetFetchResponse())
            good.on(ListOffsetsRequest, from_the_beginning)
            good.on(FetchRequest, one_record)
            good.on(ConsumerGroupHeartbeatRequest, lambda _: member)
            good.on(OffsetCommitRequest, committed)
            silent.on(ConsumerGroupHeartbeatRequest, lost_while_committing)
            silent.on(OffsetCommitRequest, silently)
            async with aio.Consumer(
                bootstrap_servers=good.address,
                group_id="group",
                group_protocol="consumer",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer:
                consumer.subscribe([TOPIC])
                await read(consumer, FIRST)
                await consumer.commit(timeout=PATIENCE_S)
                assert good.asked(OffsetCommitRequest)

    run_async(run())
