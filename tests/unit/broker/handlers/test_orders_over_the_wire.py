"""What brokers ask of each other, as messages: roles, replicas to stop, in-sync sets, moves between directories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import Uuid
from ottla.broker.admission import AccessRules
from ottla.broker.table_authorizer import TableAuthorizer
from ottla.wire.apis.alter_partition import (
    AlterPartitionBrokerState,
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from ottla.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)
from ottla.wire.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
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
from ottla.wire.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.unit.broker.running_broker import RunningBroker, running_broker
from tests.waiting import repeat_until

E = ErrorCode
UNKNOWN = Uuid(b"?" * 16)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("broker")
    return [folder / "one", folder / "two"]


@pytest.fixture(scope="module")
def broker(directories: list[Path]) -> Iterator[RunningBroker]:
    with running_broker(directories[0], log_dirs=",".join(map(str, directories))) as running:
        yield running


def head(broker: RunningBroker, controller_epoch: int | None = None) -> dict[str, Any]:
    epoch = broker.broker.controller.epoch if controller_epoch is None else controller_epoch
    return {"controller_id": broker.broker.broker_id, "controller_epoch": epoch}


def role(broker: RunningBroker, topic: str, *epochs: int) -> LeaderAndIsrTopicState:
    me = broker.broker.broker_id
    states = [
        LeaderAndIsrPartitionState(
            topic_name=topic, partition_index=index, leader=me, leader_epoch=epoch, isr=[me], replicas=[me]
        )
        for index, epoch in enumerate(epochs)
    ]
    topic_id = broker.broker.image.topics[topic].topic_id
    return LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)


@pytest.mark.parametrize("version", [4, 5, 7])
def test_each_role_is_answered_by_name_or_by_id(broker: RunningBroker, version: int) -> None:
    first, second = broker.new_topic(), broker.new_topic()
    request = LeaderAndIsrRequest(topic_states=[role(broker, first, 5, 0), role(broker, second, 6)], **head(broker))
    stale = E.STALE_CONTROLLER_EPOCH
    codes = {first: [E.NONE, stale], second: [E.NONE]}
    answer = broker.ask(request, version)
    if version == 4:
        expected = LeaderAndIsrResponse(
            partition_errors=[
                LeaderAndIsrPartitionError(topic_name=name, partition_index=index, error_code=code)
                for name, each in codes.items()
                for index, code in enumerate(each)
            ]
        )
    else:
        expected = LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrTopicError(
                    topic_id=broker.broker.image.topics[name].topic_id,
                    partition_errors=[
                        LeaderAndIsrPartitionError(partition_index=index, error_code=code)
                        for index, code in enumerate(each)
                    ],
                )
                for name, each in codes.items()
            ]
        )
    assert answer == expected
    assert broker.broker.replicas.led(first, 0).leader_epoch == 5
    old = LeaderAndIsrRequest(topic_states=[role(broker, first, 7)], **head(broker, 0))
    assert broker.ask(old, version) == LeaderAndIsrResponse(error_code=stale)


def test_a_replica_is_stopped_and_an_older_order_is_not_obeyed(broker: RunningBroker) -> None:
    topic = broker.new_topic()
    states = [
        StopReplicaPartitionState(partition_index=0, leader_epoch=9, delete_partition=True),
        StopReplicaPartitionState(partition_index=1, leader_epoch=9, delete_partition=False),
    ]
    request = StopReplicaRequest(
        topic_states=[StopReplicaTopicState(topic_name=topic, partition_states=states)], **head(broker)
    )
    assert broker.ask(request) == StopReplicaResponse(
        partition_errors=[StopReplicaPartitionError(topic_name=topic, partition_index=index) for index in (0, 1)]
    )
    replicas = broker.broker.replicas
    assert replicas.find(topic, 0) is None
    stopped = replicas.find(topic, 1)
    assert stopped is not None and stopped.leader is None and stopped.leader_id == -1
    request.controller_epoch = 0
    assert broker.ask(request) == StopReplicaResponse(error_code=E.STALE_CONTROLLER_EPOCH)
    update = UpdateMetadataRequest(**head(broker, 0))
    assert broker.ask(update) == UpdateMetadataResponse(error_code=E.STALE_CONTROLLER_EPOCH)


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_asks_for_another_set_in_sync(broker: RunningBroker, version: int) -> None:
    topic = broker.new_topic()
    me = broker.broker.broker_id
    topic_id = broker.broker.image.topics[topic].topic_id
    state = broker.broker.controller.state
    epoch = state.brokers[me].epoch

    def asked(index: int, partition_epoch: int) -> AlterPartitionRequestPartition:
        members: dict[str, Any] = (
            {"new_isr": [me]}
            if version == 2
            else {"new_isr_with_epochs": [AlterPartitionBrokerState(broker_id=me, broker_epoch=epoch)]}
        )
        return AlterPartitionRequestPartition(
            partition_index=index, leader_epoch=0, partition_epoch=partition_epoch, **members
        )

    request = AlterPartitionRequest(
        broker_id=me,
        broker_epoch=epoch,
        topics=[
            AlterPartitionRequestTopic(topic_id=topic_id, partitions=[asked(0, 0), asked(1, 77), asked(9, 0)]),
            AlterPartitionRequestTopic(topic_id=UNKNOWN, partitions=[asked(4, 0)]),
        ],
    )
    answer = broker.ask(request, version)
    (known, unknown) = answer.topics
    assert (known.topic_id, unknown) == (
        topic_id,
        AlterPartitionResponseTopic(
            topic_id=UNKNOWN,
            partitions=[AlterPartitionResponsePartition(partition_index=4, error_code=E.UNKNOWN_TOPIC_ID)],
        ),
    )
    first = broker.broker.image.topics[topic].partitions[0]
    assert known.partitions == [
        AlterPartitionResponsePartition(
            partition_index=0,
            leader_id=me,
            leader_epoch=0,
            isr=[me],
            partition_epoch=known.partitions[0].partition_epoch,
        ),
        AlterPartitionResponsePartition(partition_index=1, error_code=E.NOT_CONTROLLER),
        AlterPartitionResponsePartition(partition_index=9, error_code=E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert known.partitions[0].partition_epoch >= first.partition_epoch
    request.broker_epoch = epoch - 1
    assert broker.ask(request, version) == AlterPartitionResponse(error_code=E.STALE_BROKER_EPOCH)


def test_a_broker_of_another_life_is_not_relieved(broker: RunningBroker) -> None:
    me = broker.broker.broker_id
    answer = broker.ask(ControlledShutdownRequest(broker_id=me, broker_epoch=0))
    assert answer == ControlledShutdownResponse(error_code=E.STALE_BROKER_EPOCH)


def test_replicas_are_moved_to_other_directories(broker: RunningBroker, directories: list[Path]) -> None:
    first, second = broker.new_topic(), broker.new_topic()

    def wanted(path: Path, *topics: tuple[str, list[int]]) -> AlterReplicaLogDir:
        return AlterReplicaLogDir(
            path=str(path), topics=[AlterReplicaLogDirTopic(name=name, partitions=each) for name, each in topics]
        )

    def told(name: str, *codes: tuple[int, ErrorCode]) -> AlterReplicaLogDirTopicResult:
        return AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[AlterReplicaLogDirPartitionResult(partition_index=i, error_code=code) for i, code in codes],
        )

    request = AlterReplicaLogDirsRequest(
        dirs=[
            wanted(directories[0], (first, [0, 1]), (second, [9])),
            wanted(Path("/nowhere"), (first, [1])),
            wanted(directories[1], (second, [0])),
        ]
    )
    assert broker.ask(request) == AlterReplicaLogDirsResponse(
        results=[
            told(first, (0, E.NONE), (1, E.NONE), (1, E.LOG_DIR_NOT_FOUND)),
            told(second, (9, E.REPLICA_NOT_AVAILABLE), (0, E.NONE)),
        ]
    )

    def homes() -> list[Path]:
        replicas = broker.broker.replicas
        return [replicas.led(*tp).log.directory.parent for tp in ((first, 0), (first, 1), (second, 0))]

    expected = [directories[0], directories[0], directories[1]]
    repeat_until(lambda: homes() == expected, lambda: broker.wait_for(asyncio.sleep(0.001)))


def test_who_may_not_act_on_the_cluster_orders_nothing(tmp_path: Path) -> None:
    with running_broker(tmp_path, AccessRules(TableAuthorizer([]))) as broker:
        refused = E.CLUSTER_AUTHORIZATION_FAILED
        epochs = head(broker)
        assert broker.ask(LeaderAndIsrRequest(**epochs)).error_code == refused
        assert broker.ask(StopReplicaRequest(**epochs)).error_code == refused
        assert broker.ask(UpdateMetadataRequest(**epochs)).error_code == refused
        assert broker.ask(AlterPartitionRequest()).error_code == refused
        assert broker.ask(ControlledShutdownRequest()).error_code == refused
        directory = AlterReplicaLogDir(path=str(tmp_path), topics=[AlterReplicaLogDirTopic(name="t", partitions=[4])])
        answer = broker.ask(AlterReplicaLogDirsRequest(dirs=[directory]))
        assert [part.error_code for topic in answer.results for part in topic.partitions] == [refused]
