"""Roles that a broker cannot take: the controller is told why, and so is the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.log.config import LogConfig
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from tests.unit.broker.replica_world import BROKER, TOPIC_ID, ReplicaWorld, in_world


def test_a_log_that_cannot_be_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(topic: str) -> LogConfig:
        raise KafkaError("the disk is gone", code=ErrorCode.KAFKA_STORAGE_ERROR)

    async def scenario(world: ReplicaWorld) -> None:
        world.replicas._read_config = broken
        state = LeaderAndIsrPartitionState(partition_index=0, leader=BROKER, isr=[BROKER], replicas=[BROKER])
        topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
        answer = await world.replicas.apply_leader_and_isr(LeaderAndIsrRequest(topic_states=[topic]))
        assert answer == {TopicPartition("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}
        assert world.replicas.find("t", 0) is None

    in_world(tmp_path, scenario)
    assert caplog.messages == ["t-0: cannot take the role given by the controller: the disk is gone"]
