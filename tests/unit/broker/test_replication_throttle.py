"""What a leader holds back while a throttle is set: the copies of followers that are not in sync, and nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.machines.cluster.topics import NewTopic
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from tests.unit.broker.running_broker import RunningBroker, running_broker

FOLLOWER = 999
THROTTLE = {"leader_replication_throttled_rate": 10}


def lead(running: RunningBroker, *, isr: list[int], throttled: str) -> None:
    """A partition with a record, which the follower lacks."""
    broker = running.broker
    own = broker.broker_id
    configs = {"leader.replication.throttled.replicas": throttled} if throttled else {}
    running.wait_for(broker.topic_admin.create(NewTopic("t", 1, 1, configs=configs)))
    state = LeaderAndIsrPartitionState(
        partition_index=0, leader=own, leader_epoch=5, isr=[own, *isr], replicas=[own, FOLLOWER]
    )
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=broker.image.topics["t"].topic_id, partition_states=[state])
    request = LeaderAndIsrRequest(controller_epoch=broker.controller.epoch, topic_states=[topic])
    running.wait_for(broker.replicas.apply_leader_and_isr(request))
    now_ms = broker.clock.wall_ms()
    records = memoryview(bytearray(build_batch([NewRecord(None, b"v" * 100, (), now_ms)])))
    broker.replicas.append(broker.replicas.led("t", 0), records, requires_all_replicas=False, now_ms=now_ms)


def fetched(running: RunningBroker, replica_id: int) -> int:
    """Bytes of records in one answer."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=5)
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    (topic,) = running.ask(request, 12).responses
    (answer,) = topic.partitions
    assert answer.error_code == 0
    return len(answer.records or b"")


@pytest.mark.parametrize(
    ("settings", "isr", "throttled", "is_held_back"),
    [
        (THROTTLE, [], "*", True),
        (THROTTLE, [], "0:{own}", True),
        (THROTTLE, [], "1:{own}", False),
        (THROTTLE, [], "", False),
        (THROTTLE, [FOLLOWER], "*", False),
        ({}, [], "*", False),
    ],
)
def test_who_is_held_back(
    tmp_path: Path, settings: dict[str, Any], isr: list[int], throttled: str, is_held_back: bool
) -> None:
    """The first answer uses up what a second may carry."""
    with running_broker(tmp_path / "data", broker_id=1, **settings) as running:
        lead(running, isr=isr, throttled=throttled.format(own=1))
        assert fetched(running, FOLLOWER) > 100
        assert (fetched(running, FOLLOWER) == 0) == is_held_back


def test_consumers_are_not(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", broker_id=1, **THROTTLE) as running:
        lead(running, isr=[], throttled="*")
        running.broker.replicas.led("t", 0).log.advance_high_watermark(1)
        assert fetched(running, -1) == fetched(running, -1) > 100
