"""Orders of two controllers, the old and the new, that come at once: one after the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ottla.base.errors import ErrorCode
from ottla.broker.replication.orders import Orders
from ottla.log.config import LogConfig
from ottla.machines.cluster.image import ClusterImage
from ottla.wire.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from ottla.wire.apis.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from tests.unit.broker.replica_world import BROKER, TOPIC_ID, ReplicaWorld, in_world


def role(controller_epoch: int, leader_epoch: int) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(
        partition_index=0, leader=BROKER, leader_epoch=leader_epoch, isr=[BROKER], replicas=[BROKER]
    )
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
    return LeaderAndIsrRequest(controller_epoch=controller_epoch, topic_states=[topic])


class SlowToBegin:
    """Settings of topics that are long in coming: a new log waits for them."""

    def __init__(self, world: ReplicaWorld) -> None:
        self._config = world.log_config
        self.may_begin = asyncio.Event()
        world.replicas._read_config = self._read

    async def _read(self, topic: str) -> LogConfig:
        await self.may_begin.wait()
        return self._config


def test_the_same_partition_is_ordered_twice_before_its_log_is_there(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        slow = SlowToBegin(world)
        orders = Orders(world.replicas, ClusterImage("c"), on_metadata=lambda gone: None)
        both = [asyncio.ensure_future(orders.obey(role(epoch, leader_epoch=epoch))) for epoch in (1, 2)]
        await asyncio.sleep(0)
        slow.may_begin.set()
        for answer in await asyncio.gather(*both):
            assert isinstance(answer, LeaderAndIsrResponse)
            assert answer.topics[0].partition_errors[0].error_code == ErrorCode.NONE
        partition = world.replicas.find("t", 0)
        assert partition is not None
        assert partition.leader_epoch == 2

    in_world(tmp_path, scenario)


def test_an_older_controller_is_refused_when_its_turn_comes(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        slow = SlowToBegin(world)
        orders = Orders(world.replicas, ClusterImage("c"), on_metadata=lambda gone: None)
        new = asyncio.ensure_future(orders.obey(role(2, leader_epoch=2)))
        old = asyncio.ensure_future(orders.obey(role(1, leader_epoch=3)))
        await asyncio.sleep(0)
        assert not old.done()
        slow.may_begin.set()
        answer = await old
        assert isinstance(answer, LeaderAndIsrResponse)
        assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        await new
        partition = world.replicas.find("t", 0)
        assert partition is not None
        assert partition.leader_epoch == 2

    in_world(tmp_path, scenario)


def test_a_replica_is_stopped_after_it_was_begun(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        slow = SlowToBegin(world)
        orders = Orders(world.replicas, ClusterImage("c"), on_metadata=lambda gone: None)
        begun = asyncio.ensure_future(orders.obey(role(1, leader_epoch=1)))
        stop = StopReplicaPartitionState(partition_index=0, leader_epoch=2, delete_partition=True)
        topic = StopReplicaTopicState(topic_name="t", partition_states=[stop])
        stopped = asyncio.ensure_future(orders.obey(StopReplicaRequest(controller_epoch=1, topic_states=[topic])))
        await asyncio.sleep(0)
        slow.may_begin.set()
        await begun
        answer = await stopped
        assert isinstance(answer, StopReplicaResponse)
        assert [error.error_code for error in answer.partition_errors] == [ErrorCode.NONE]
        assert world.replicas.find("t", 0) is None
        assert not world.log_dirs.logs()

    in_world(tmp_path, scenario)
