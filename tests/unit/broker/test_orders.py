"""Orders of controllers: one after the other, those of old controllers refused, the others carried out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import Endpoint, Uuid
from ottla.broker.replication.orders import Orders
from ottla.log.config import LogConfig
from ottla.machines.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from ottla.wire.apis.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from ottla.wire.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from tests.log_lines import messages_of
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


# What is refused, and what an update of the metadata changes


def metadata(*topics: UpdateMetadataTopicState, **fields: Any) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(topic_states=[*topics], **fields)


@pytest.mark.parametrize(
    ("epoch", "controller_epoch", "code"),
    [
        (-1, 5, ErrorCode.NONE),
        (0, 5, ErrorCode.STALE_BROKER_EPOCH),
        (6, 5, ErrorCode.STALE_BROKER_EPOCH),
        (7, 5, ErrorCode.NONE),
        (8, 5, ErrorCode.NONE),
        (7, 4, ErrorCode.STALE_CONTROLLER_EPOCH),
        (-1, 4, ErrorCode.STALE_CONTROLLER_EPOCH),
        (6, 4, ErrorCode.STALE_BROKER_EPOCH),
        (7, 6, ErrorCode.NONE),
    ],
)
def test_an_order_for_an_earlier_life_or_of_an_earlier_controller_is_refused_whatever_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, epoch: int, controller_epoch: int, code: ErrorCode
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        heard: list[set[str]] = []
        image = ClusterImage("c")
        orders = Orders(world.replicas, image, on_metadata=heard.append)
        orders.broker_epoch = 7
        world.replicas.check_controller(5)
        stop = StopReplicaPartitionState(partition_index=0, leader_epoch=2, delete_partition=True)
        stopped = StopReplicaTopicState(topic_name="t", partition_states=[stop])
        head: dict[str, Any] = {"controller_id": 3, "controller_epoch": controller_epoch, "broker_epoch": epoch}
        answers = [
            await orders.obey(LeaderAndIsrRequest(topic_states=role(0, 1).topic_states, **head)),
            await orders.obey(StopReplicaRequest(topic_states=[stopped], **head)),
            await orders.obey(metadata(**head)),
        ]
        answered = [StopReplicaPartitionError(topic_name="t", partition_index=0)] if not code else []
        begun = LeaderAndIsrTopicError(
            topic_id=TOPIC_ID, partition_errors=[LeaderAndIsrPartitionError(partition_index=0)]
        )
        assert answers == [
            LeaderAndIsrResponse(error_code=code, topics=[] if code else [begun]),
            StopReplicaResponse(error_code=code, partition_errors=answered),
            UpdateMetadataResponse(error_code=code),
        ]
        assert heard == ([] if code else [set()])
        assert image.controller_id == (-1 if code else 3)
        with pytest.raises(TypeError, match="the controller does not send FindCoordinatorRequest"):
            await orders.obey(FindCoordinatorRequest())

    in_world(tmp_path, scenario)
    kinds = ["LeaderAndIsr", "StopReplica", "UpdateMetadata"] if code else []
    assert messages_of(caplog, "ottla.broker.replication.orders") == [
        f"{kind} of controller 3, epoch {controller_epoch}, for broker epoch {epoch} is refused: {code.name}"
        for kind in kinds
    ]


def told(name: str, topic_id: Uuid, *leaders: int, replicas: tuple[int, ...] = (BROKER, 2)) -> UpdateMetadataTopicState:
    states = [
        UpdateMetadataPartitionState(
            partition_index=index,
            leader=leader,
            leader_epoch=10 + index,
            zk_version=20 + index,
            replicas=[*replicas],
            isr=[2],
            offline_replicas=[replicas[0]],
        )
        for index, leader in enumerate(leaders)
    ]
    return UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=states)


def test_an_update_is_what_the_cluster_looks_like(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        image = ClusterImage("c")
        gone: list[set[str]] = []
        orders = Orders(world.replicas, image, on_metadata=gone.append)
        endpoints = [
            UpdateMetadataEndpoint(host="h", port=91, listener="IN"),
            UpdateMetadataEndpoint(host="h2", port=92, listener="OUT"),
        ]
        brokers = [UpdateMetadataBroker(id=4, endpoints=endpoints, rack="r"), UpdateMetadataBroker(id=5, rack=None)]
        other = Uuid(b"o" * 16)
        await orders.obey(
            metadata(
                told("t", TOPIC_ID, 2, BROKER),
                told("u", other, 2),
                controller_id=4,
                controller_epoch=6,
                live_brokers=brokers,
            )
        )
        assert (image.controller_id, image.controller_epoch) == (4, 6)
        assert image.brokers == {
            4: BrokerImage(4, (Endpoint("IN", "h", 91), Endpoint("OUT", "h2", 92)), "r"),
            5: BrokerImage(5, (), None),
        }
        assert image.topics == {
            "t": TopicImage(
                "t",
                TOPIC_ID,
                {
                    0: PartitionImage(2, 10, 20, (BROKER, 2), (2,), (BROKER,)),
                    1: PartitionImage(BROKER, 11, 21, (BROKER, 2), (2,), (BROKER,)),
                },
            ),
            "u": TopicImage("u", other, {0: PartitionImage(2, 10, 20, (BROKER, 2), (2,), (BROKER,))}),
        }
        again = Uuid(b"a" * 16)
        for topics in ((told("t", again, 2), told("u", other, 2)), (told("u", other, -2),), (told("u", other, -2),)):
            await orders.obey(metadata(*topics, controller_epoch=6))
        assert gone == [set(), {"t"}, {"u"}, {"u"}], "a topic made again is another one"
        assert image.brokers == {}

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(("replicas", "stays"), [((2, 3), False), ((BROKER, 2), True), ((2, BROKER), True)])
def test_a_copy_that_the_cluster_has_given_to_others_is_deleted(
    tmp_path: Path, replicas: tuple[int, ...], stays: bool
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        orders = Orders(world.replicas, ClusterImage("c"), on_metadata=lambda gone: None)
        await world.lead("t")
        await orders.obey(metadata(told("t", TOPIC_ID, 2, replicas=replicas), controller_epoch=1))
        assert (world.replicas.find("t", 0) is not None) is stays
        assert bool(world.log_dirs.logs()) is stays

    in_world(tmp_path, scenario)
