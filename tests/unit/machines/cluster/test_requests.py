"""What the controller sends to brokers."""

from __future__ import annotations

import pytest

from ottla.base.types import NIL_UUID, Endpoint, TopicPartition, Uuid
from ottla.machines.cluster.controller import decide
from ottla.machines.cluster.requests import Sender, leader_and_isr, stop_replica, update_metadata
from ottla.machines.cluster.state import ClusterState, LiveBroker, PartitionState, TopicState
from ottla.machines.cluster.topics import NewTopic, TopicWanted
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState
from ottla.wire.apis.stop_replica import StopReplicaPartitionState
from ottla.wire.apis.update_metadata import UpdateMetadataPartitionState

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def test_endpoints_are_told_with_kafkas_numbers_of_their_protocols() -> None:
    endpoints = tuple((Endpoint(f"L{number}", "host", 9092 + number), name) for number, name in enumerate(PROTOCOLS))
    state = ClusterState()
    state.brokers = {1: LiveBroker(7, endpoints, "r")}
    request = update_metadata(state, Sender(1, 3), 1, ())
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 3, 7)
    (broker,) = request.live_brokers
    assert (broker.id, broker.rack) == (1, "r")
    told = [(each.listener, each.host, each.port, each.security_protocol) for each in broker.endpoints]
    assert told == [(f"L{number}", "host", 9092 + number, number) for number in range(4)]


def test_roles_are_told_of_partitions_that_are_there() -> None:
    state = ClusterState()
    state.brokers = {1: LiveBroker(7, ((Endpoint("PLAINTEXT", "host", 9092), "PLAINTEXT"),), None)}
    created = decide(state, TopicWanted(NewTopic("t", 1, 1, {}), Uuid(bytes(16)), 0, 0), lambda _: False)
    for change in created.changes:
        state.note(change, 0)
    gone, there = TopicPartition("gone", 0), TopicPartition("t", 0)
    assert leader_and_isr(state, Sender(1, 3), 1, {gone: True}) is None
    request = leader_and_isr(state, Sender(1, 3), 1, {gone: True, there: True})
    assert request is not None
    assert [topic.topic_name for topic in request.topic_states] == ["t"]
    (told,) = request.topic_states[0].partition_states
    assert (told.partition_index, told.leader, told.isr, told.replicas, told.is_new) == (0, 1, [1], [1], True)


T_ID, DYING_ID = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))
T0, T1, DYING, GONE = (TopicPartition(*place) for place in (("t", 0), ("t", 1), ("dying", 0), ("gone", 5)))
SENDER = Sender(1, 3)


def state_of_four_brokers() -> ClusterState:
    """Brokers 1 and 2 live; 3 is dead; partition 0 moves from 3 to 2; a disk of 1 has failed under partition 1."""
    state = ClusterState()
    state.brokers = {number: LiveBroker(6 + number, (), None) for number in (1, 2)}
    moving = PartitionState((1, 2, 3), 1, 8, (1, 3), 11, adding=(2,), removing=(3,))
    state.topics = {
        "t": TopicState(T_ID, {0: moving, 1: PartitionState((2, 1), 2, 4, (2,), 5)}),
        "dying": TopicState(DYING_ID, {0: PartitionState((1,), 1, 2, (1,), 3)}),
    }
    state.pending_deletions = {"dying"}
    state.offline = {1: frozenset({T1})}
    return state


def test_the_whole_role_is_told() -> None:
    request = leader_and_isr(state_of_four_brokers(), SENDER, 2, {T0: False, T1: False, DYING: True})
    assert request is not None
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 3, 8)
    (topic,) = request.topic_states
    assert (topic.topic_name, topic.topic_id) == ("t", T_ID)
    assert topic.partition_states == [
        LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=3,
            leader=1,
            leader_epoch=8,
            isr=[1, 3],
            partition_epoch=11,
            replicas=[1, 2, 3],
            adding_replicas=[2],
            removing_replicas=[3],
            is_new=True,
        ),
        LeaderAndIsrPartitionState(
            partition_index=1,
            controller_epoch=3,
            leader=2,
            leader_epoch=4,
            isr=[2],
            partition_epoch=5,
            replicas=[2, 1],
            is_new=False,
        ),
    ]
    told = leader_and_isr(state_of_four_brokers(), SENDER, 1, {T0: False})
    assert told is not None and not told.topic_states[0].partition_states[0].is_new, "it was there before"
    assert leader_and_isr(state_of_four_brokers(), SENDER, 3, {T1: True}) is None, "it has no replica of it"


@pytest.mark.parametrize(
    ("adding", "isr", "is_new"), [((2,), (1,), True), ((2,), (1, 2), False), ((), (1,), False), ((), (1, 2), False)]
)
def test_a_replica_that_a_move_brings_is_new_until_it_is_in_sync(
    adding: tuple[int, ...], isr: tuple[int, ...], is_new: bool
) -> None:
    state = state_of_four_brokers()
    state.topics["t"].partitions[0] = PartitionState((1, 2), 1, 8, isr, 11, adding=adding)
    for is_said, expected in ((False, is_new), (True, True)):
        told = leader_and_isr(state, SENDER, 2, {T0: is_said})
        assert told is not None and told.topic_states[0].partition_states[0].is_new is expected


def test_who_leads_and_who_is_not_there_is_told_to_all() -> None:
    """-2 is what Kafka announces as the leader of a partition that is being deleted."""
    request = update_metadata(state_of_four_brokers(), SENDER, 9, [T0, T1, DYING, GONE])
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 3, -1)
    assert [(topic.topic_name, topic.topic_id) for topic in request.topic_states] == [
        ("t", T_ID),
        ("dying", DYING_ID),
        ("gone", NIL_UUID),
    ]

    def told(index: int, **fields: object) -> UpdateMetadataPartitionState:
        return UpdateMetadataPartitionState(partition_index=index, controller_epoch=3, **fields)  # type: ignore[arg-type]

    assert [told for topic in request.topic_states for told in topic.partition_states] == [
        told(0, leader=1, leader_epoch=8, isr=[1, 3], zk_version=11, replicas=[1, 2, 3], offline_replicas=[3]),
        told(1, leader=2, leader_epoch=4, isr=[2], zk_version=5, replicas=[2, 1], offline_replicas=[1]),
        told(0, leader=-2, leader_epoch=2, isr=[1], zk_version=3, replicas=[1]),
        told(5, leader=-2),
    ]


def test_replicas_are_stopped_that_a_broker_is_not_to_have() -> None:
    """-2 is the epoch of a deletion, which no role is younger than."""
    state = state_of_four_brokers()
    assert stop_replica(state, SENDER, 2, [T0, T1]) is None
    request = stop_replica(state, SENDER, 3, [T0, T1, DYING, GONE])
    assert request is not None
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 3, -1)
    assert {topic.topic_name: topic.partition_states for topic in request.topic_states} == {
        name: [StopReplicaPartitionState(partition_index=index, leader_epoch=epoch, delete_partition=True)]
        for name, index, epoch in (("t", 1, 4), ("dying", 0, -2), ("gone", 5, -2))
    }
