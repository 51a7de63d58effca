"""Offsets by time, ends of epochs, records deleted up to an offset: what each special value means, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.broker.partition import Partition
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.apis.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.broker.replica_world import change_isr
from tests.unit.broker.running_broker import RunningBroker, running_broker
from tests.waiting import until

T0 = 1_700_000_000_000
FOLLOWER = 999
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    return broker.new_topic()


def produce(broker: RunningBroker, topic: str, *timestamps: int, **fields: Any) -> None:
    records = build_batch([NewRecord(None, b"v", (), at) for at in timestamps], **fields)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    (answer,) = broker.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data)).responses
    assert answer.partition_responses[0].error_code == 0


def led(broker: RunningBroker, topic: str) -> Partition:
    return broker.broker.replicas.led(topic, 0)


def with_follower(broker: RunningBroker, topic: str) -> Partition:
    partition = led(broker, topic)
    change_isr(broker.broker.replicas, partition, broker.broker.broker_id, FOLLOWER)
    return partition


# ListOffsets


def listed(broker: RunningBroker, topic: str, timestamp: int, version: int = 10, **fields: int) -> tuple[int, ...]:
    """Code, offset, timestamp and epoch."""
    epoch = fields.pop("epoch", -1)
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    topics = [ListOffsetsTopic(name=topic, partitions=[partition])]
    request = ListOffsetsRequest(replica_id=fields.get("replica_id", -1), topics=topics)
    (answer,) = broker.ask(request, version).topics
    (found,) = answer.partitions
    return found.error_code, found.offset, found.timestamp, found.leader_epoch


@pytest.mark.parametrize(
    ("timestamp", "version", "found"),
    [
        (-1, 3, (0, 3, -1, -1)),
        (-1, 4, (0, 3, -1, 0)),
        (-2, 4, (0, 1, -1, 0)),
        (-3, 6, (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)),
        (-3, 7, (0, 1, T0 + 9, 0)),
        (-4, 8, (0, 1, -1, 0)),
        (-5, 9, (0, -1, -1, -1)),
        (-6, 10, (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)),
        (0, 10, (0, 1, T0 + 9, 0)),
        (T0 + 9, 10, (0, 1, T0 + 9, 0)),
        (T0 + 9, 3, (0, 1, T0 + 9, -1)),
        (T0 + 10, 10, (0, -1, -1, -1)),
    ],
)
def test_what_a_time_or_a_special_value_stands_for(
    broker: RunningBroker, topic: str, timestamp: int, version: int, found: tuple[int, ...]
) -> None:
    for at in (T0 + 5, T0 + 9, T0 + 7):
        produce(broker, topic, at)
    led(broker, topic).log.advance_log_start_offset(1)
    assert listed(broker, topic, timestamp, version) == found


def test_consumers_are_told_of_nothing_that_they_cannot_read(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, T0)
    with_follower(broker, topic)
    produce(broker, topic, T0 + 1)
    assert listed(broker, topic, -1) == (0, 1, -1, 0)
    assert listed(broker, topic, T0 + 1) == (0, -1, -1, -1)
    assert listed(broker, topic, T0) == (0, 0, T0, 0)
    for replica in (0, FOLLOWER):
        assert listed(broker, topic, -1, replica_id=replica) == (0, 2, -1, 0)
        assert listed(broker, topic, T0 + 1, replica_id=replica) == (0, 1, T0 + 1, 0)


def test_a_new_leader_does_not_know_the_end(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, T0)
    leader = with_follower(broker, topic).leader
    assert leader is not None
    leader.epoch_start_offset = leader.high_watermark + 1
    assert listed(broker, topic, -1)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert listed(broker, topic, -2)[0] == 0
    assert listed(broker, topic, -1, replica_id=FOLLOWER)[:2] == (0, 1)


def test_readers_of_another_epoch_are_told(broker: RunningBroker, topic: str) -> None:
    led(broker, topic).leader_epoch = 5
    codes = [listed(broker, topic, -1, epoch=epoch)[0] for epoch in (4, 5, 6, -1)]
    assert codes == [ErrorCode.FENCED_LEADER_EPOCH, 0, ErrorCode.UNKNOWN_LEADER_EPOCH, 0]


def test_a_partition_is_named_once(broker: RunningBroker, topic: str) -> None:
    other = broker.new_topic()
    zero, one = (ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1))
    topics = [
        ListOffsetsTopic(name=topic, partitions=[zero, one]),
        ListOffsetsTopic(name=other, partitions=[zero]),
        ListOffsetsTopic(name=topic, partitions=[one]),
    ]
    answers = broker.ask(ListOffsetsRequest(replica_id=-1, topics=topics)).topics
    assert [(a.name, [(p.partition_index, p.error_code) for p in a.partitions]) for a in answers] == [
        (topic, [(0, 0), (1, ErrorCode.INVALID_REQUEST)]),
        (other, [(0, 0)]),
        (topic, [(1, ErrorCode.INVALID_REQUEST)]),
    ]


# OffsetForLeaderEpoch


def test_where_epochs_end(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, T0, T0)
    led(broker, topic).leader_epoch = 5

    def end(asked: int, current: int = -1, index: int = 0) -> tuple[int, int, int]:
        one = OffsetForLeaderPartition(partition=index, leader_epoch=asked, current_leader_epoch=current)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[one])])
        (found,) = broker.ask(request).topics
        (answer,) = found.partitions
        assert (found.topic, answer.partition) == (topic, index)
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert end(0) == (0, 0, 2)
    assert end(0, current=4) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end(0, current=6) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end(0, index=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


# DeleteRecords


def deletion(topic: str, offset: int, index: int = 0, timeout_ms: int = 60_000) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset)]
    topics = [DeleteRecordsTopic(name=topic, partitions=partitions)]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def deleted(broker: RunningBroker, *arguments: Any, **options: Any) -> tuple[int, int]:
    return _result(broker.ask(deletion(*arguments, **options)))


def _result(response: Any) -> tuple[int, int]:
    (topic,) = response.topics
    (found,) = topic.partitions
    return found.error_code, found.low_watermark


def test_records_are_deleted_up_to_what_is_committed(broker: RunningBroker, topic: str) -> None:
    for _ in range(3):
        produce(broker, topic, T0)
    partition = led(broker, topic)
    assert [deleted(broker, topic, offset) for offset in (4, -2)] == [(OUT_OF_RANGE, -1)] * 2
    assert deleted(broker, topic, 0) == (0, 0)
    assert deleted(broker, topic, 2) == (0, 2)
    assert deleted(broker, topic, 1) == (0, 2) and partition.log.log_start_offset == 2
    assert deleted(broker, topic, -1) == (0, 3)
    produce(broker, topic, T0)
    assert deleted(broker, topic, 4) == (0, 4), "all there is"


def test_what_is_compacted_only_is_not_deleted_so(broker: RunningBroker) -> None:
    topic = broker.new_topic(cleanup_policy="compact")
    assert deleted(broker, topic, -1) == (ErrorCode.POLICY_VIOLATION, -1)
    assert deleted(broker, topic, -1, index=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 1])
def test_a_live_follower_that_does_not_follow_is_waited_for_as_long_as_the_client_says(
    broker: RunningBroker, topic: str, timeout_ms: int
) -> None:
    produce(broker, topic, T0)
    with_follower(broker, topic)
    brokers = broker.broker.image.brokers
    brokers[FOLLOWER] = brokers[broker.broker.broker_id]._replace(broker_id=FOLLOWER)
    try:
        assert deleted(broker, topic, 1, timeout_ms=timeout_ms) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    finally:
        del brokers[FOLLOWER]
    assert led(broker, topic).log.log_start_offset == 1, "here it is done"
    assert deleted(broker, topic, 1) == (0, 1), "the dead are not waited for"


@pytest.mark.parametrize("event", ["it follows", "the leader changes", "it leads again"])
def test_the_client_is_told_when_the_last_follower_has_done_it(broker: RunningBroker, topic: str, event: str) -> None:
    produce(broker, topic, T0)
    partition = with_follower(broker, topic)
    brokers = broker.broker.image.brokers
    brokers[FOLLOWER] = brokers[broker.broker.broker_id]._replace(broker_id=FOLLOWER)

    async def scenario() -> tuple[int, int]:
        answer = asyncio.ensure_future(broker.answer(deletion(topic, 1)))
        await until(lambda: bool(partition.waiters))
        broker.broker.parked.moved(partition)
        await until(lambda: bool(partition.waiters) and not partition.is_moved)
        assert not answer.done()
        leader = partition.leader
        assert leader is not None
        if event == "it follows":
            leader.followers[FOLLOWER].log_start_offset = 1
        elif event == "it leads again":
            partition.leads_since += 1
        else:
            partition.leader = None
        broker.broker.parked.moved(partition)
        result = _result(await answer)
        partition.leader = leader
        return result

    try:
        result = broker.wait_for(scenario())
    finally:
        del brokers[FOLLOWER]
    assert result == ((0, 1) if event == "it follows" else (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1))
    assert not partition.waiters


# DescribeProducers


def test_who_writes_to_a_partition(broker: RunningBroker, topic: str) -> None:
    produce(broker, topic, T0, T0 + 3, producer_id=70, producer_epoch=2, base_sequence=5)
    asked = [TopicRequest(name=topic, partition_indexes=[0, 9])]
    (found,) = broker.ask(DescribeProducersRequest(topics=asked)).topics
    here, missing = found.partitions
    (producer,) = here.active_producers
    assert (here.partition_index, here.error_code, producer.producer_id, producer.producer_epoch) == (0, 0, 70, 2)
    assert (producer.last_sequence, producer.last_timestamp, producer.current_txn_start_offset) == (6, T0 + 3, -1)
    assert (missing.partition_index, missing.error_code) == (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert missing.active_producers == []
