"""Replicas on real log directories, led by this broker alone: what tests of the work around them share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from ottla.base.clock import ManualClock
from ottla.base.errors import ErrorCode
from ottla.base.ids import Ids
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.background import BackgroundThreads
from ottla.broker.parked import Parked
from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.log.config import LogConfig
from ottla.log.log_dir import LogDirs
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.wire.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from tests.waiting import run_async

BROKER = 1
TOPIC_ID = Uuid(bytes(range(16)))


def change_isr(replicas: Replicas, partition: Partition, *isr: int) -> None:
    """As the controller's answer does that the leader has asked, within its epoch; new members are silent followers."""
    leader = partition.leader
    assert leader is not None
    leader._set_replicas(isr, now_ms=0)
    leader.isr_confirmed(isr, leader.partition_epoch + 1)
    replicas.isr_changed(partition)


class ReplicaWorld:
    def __init__(self, tmp_path: Path, log_config: LogConfig) -> None:
        self.paths = [tmp_path / "a", tmp_path / "b"]
        self.clock = ManualClock()
        self.log_config = log_config
        self.log_dirs = LogDirs.open(
            self.paths,
            broker_id=BROKER,
            cluster_id=None,
            clock=self.clock,
            ids=Ids(),
            config_for=lambda topic: log_config,
        )
        self.all_failed = False
        self.replicas = Replicas(
            BROKER,
            self.log_dirs,
            Parked(asyncio.get_running_loop()),
            self.clock,
            BackgroundThreads(2),
            read_config=self._read_config,
            on_all_failed=self._on_all_failed,
        )

    async def _read_config(self, topic: str) -> LogConfig:
        return self.log_config

    def _on_all_failed(self) -> None:
        self.all_failed = True

    async def lead(self, topic: str, topic_id: Uuid = TOPIC_ID) -> Partition:
        state = LeaderAndIsrPartitionState(partition_index=0, leader=BROKER, isr=[BROKER], replicas=[BROKER])
        request = LeaderAndIsrRequest(
            topic_states=[LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=[state])]
        )
        assert await self.replicas.apply_leader_and_isr(request) == {TopicPartition(topic, 0): ErrorCode.NONE}
        partition = self.replicas.find(topic, 0)
        assert partition is not None
        return partition

    async def delete(self, topic: str) -> None:
        stop = StopReplicaPartitionState(partition_index=0, delete_partition=True)
        await self.replicas.apply_stop_replica(
            StopReplicaRequest(topic_states=[StopReplicaTopicState(topic_name=topic, partition_states=[stop])])
        )

    def append(self, partition: Partition, value: bytes = b"v") -> int:
        now_ms = self.clock.wall_ms()
        batch = memoryview(bytearray(build_batch([NewRecord(b"k", value, (), now_ms)])))
        return self.replicas.append(partition, batch, requires_all_replicas=True, now_ms=now_ms).last_offset


def in_world(
    tmp_path: Path, scenario: Callable[[ReplicaWorld], Awaitable[None]], log_config: LogConfig | None = None
) -> None:
    async def run() -> None:
        world = ReplicaWorld(tmp_path, log_config or LogConfig(segment_index_bytes=4096))
        try:
            await scenario(world)
        finally:
            world.log_dirs.close()

    run_async(run())
