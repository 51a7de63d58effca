"""What the controller refuses when a topic is wanted."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import NIL_UUID, Endpoint, TopicPartition, Uuid
from ottla.machines.cluster.controller import decide
from ottla.machines.cluster.decision import Decision, TellMetadata, TellRoles
from ottla.machines.cluster.reassignment import ReassignmentsAdvanced
from ottla.machines.cluster.state import (
    ClusterState,
    LiveBroker,
    NoteTopic,
    PartitionState,
    TopicState,
    WritePartition,
    WriteTopic,
)
from ottla.machines.cluster.topics import (
    CreatedTopic,
    DeletionWanted,
    NewTopic,
    PartitionsWanted,
    TopicFound,
    TopicWanted,
)


def cluster() -> ClusterState:
    state = ClusterState()
    state.brokers = {1: LiveBroker(1, ((Endpoint("PLAINTEXT", "host", 9092), "PLAINTEXT"),), None)}
    return state


def refusal(topic: NewTopic) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        decide(cluster(), TopicWanted(topic, Uuid(bytes(16)), 0, 0), lambda _: False)
    return raised.value.code


@pytest.mark.parametrize(("partitions", "replication_factor"), [(1, -1), (-1, 1), (1, 1)])
def test_an_assignment_and_numbers_exclude_each_other(partitions: int, replication_factor: int) -> None:
    assert refusal(NewTopic("t", partitions, replication_factor, {0: [1]})) is ErrorCode.INVALID_REQUEST


def test_an_assignment_names_live_brokers_only() -> None:
    assert refusal(NewTopic("t", -1, -1, {0: [2]})) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("partitions", [0, -2])
def test_a_topic_has_partitions(partitions: int) -> None:
    assert refusal(NewTopic("t", partitions, 1, {})) is ErrorCode.INVALID_PARTITIONS


def test_a_request_makes_ten_thousand_partitions_and_no_more() -> None:
    asked = TopicWanted(NewTopic("t", 10_000, 1, {}), Uuid(bytes(16)), 0, 0, validate_only=True)
    decision = decide(cluster(), asked, lambda _: False)
    assert decision == Decision(result=CreatedTopic(Uuid(bytes(16)), 10_000, 1)), "nothing is made of it"
    assert refusal(NewTopic("t", 10_001, 1, {})) is ErrorCode.INVALID_PARTITIONS


def test_there_are_as_many_brokers_as_replicas() -> None:
    assert refusal(NewTopic("t", 1, 2, {})) is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("there", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("going", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_name_is_valid_and_free(name: str, code: ErrorCode) -> None:
    state = cluster()
    for present in ("there", "a.b"):
        decision = decide(state, TopicWanted(NewTopic(present, 1, 1, {}), Uuid(bytes(16)), 0, 0), lambda _: False)
        for change in decision.changes:
            state.note(change, 0)
    state.pending_deletions.add("going")
    with pytest.raises(KafkaError) as raised:
        decide(state, TopicWanted(NewTopic(name, 1, 1, {}), Uuid(bytes(16)), 0, 0), lambda _: False)
    assert raised.value.code is code


def grown(total: int, assignment: list[list[int]] | None = None, *, validate_only: bool = False) -> Decision:
    """What is decided when a topic of two partitions, of one replica each, is to have so many."""
    state = cluster()
    state.topics["t"] = TopicState(
        Uuid(bytes(15) + b"\x01"), {index: PartitionState((1,), 1, 0, (1,), 0) for index in range(2)}, 4
    )
    return decide(state, PartitionsWanted("t", total, assignment, validate_only=validate_only), lambda _: False)


@pytest.mark.parametrize(
    ("total", "assignment", "code", "words"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partitions."),
        (1, None, ErrorCode.INVALID_PARTITIONS, "currently has 2 partition(s); 1 would not be an increase."),
        (4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 partitions are to be added, but replicas are given for 1"),
        (3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, ""),
    ],
)
def test_partitions_that_cannot_be_added(
    total: int, assignment: list[list[int]] | None, code: ErrorCode, words: str
) -> None:
    with pytest.raises(KafkaError) as raised:
        grown(total, assignment)
    assert raised.value.code is code and words in raised.value.message


@pytest.mark.parametrize("name", ["none", "going"])
def test_a_topic_that_is_not_there_or_going_to_go_is_neither_grown_nor_deleted(name: str) -> None:
    state = cluster()
    state.topics["going"] = TopicState(Uuid(bytes(15) + b"\x01"), {0: PartitionState((1,), 1, 0, (1,), 0)})
    state.pending_deletions.add("going")
    for event in (PartitionsWanted(name, 2), DeletionWanted(name)):
        with pytest.raises(KafkaError) as raised:
            decide(state, event, lambda _: False)
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("adding", "code"), [((2,), ErrorCode.REASSIGNMENT_IN_PROGRESS), ((), None)])
def test_a_topic_that_moves_does_not_grow(adding: tuple[int, ...], code: ErrorCode | None) -> None:
    state = cluster()
    partitions = {
        0: PartitionState((1,), 1, 0, (1,), 0),
        1: PartitionState((1,), 1, 0, (1,), 0)._replace(adding=adding),
    }
    state.topics["t"] = TopicState(Uuid(bytes(15) + b"\x01"), partitions)
    if code is None:
        assert decide(state, PartitionsWanted("t", 3), lambda _: False).result == 2
        return
    with pytest.raises(KafkaError) as raised:
        decide(state, PartitionsWanted("t", 3), lambda _: False)
    assert raised.value.code is code


@pytest.mark.parametrize("assignment", [None, [[1]]])
def test_partitions_that_can(assignment: list[list[int]] | None) -> None:
    (written, *_) = [one for one in grown(3, assignment).changes if isinstance(one, WriteTopic)]
    assert (written.name, sorted(written.assignment), written.expected_version) == ("t", [0, 1, 2], 4)
    assert grown(3, assignment, validate_only=True).changes == []


@pytest.mark.parametrize(
    ("live", "expected"),
    [((1, 2, 3), {0: (2,), 1: (3,), 2: (1,), 3: (2,)}), ((1, 3), {0: (2,), 1: (3,), 2: (1,), 3: (3,)})],
)
def test_added_partitions_go_on_behind_the_first_one(live: tuple[int, ...], expected: dict[int, tuple[int]]) -> None:
    """Or as if it had been on the first broker, if the one it is on is not there."""
    state = cluster()
    state.brokers = {broker_id: LiveBroker(broker_id, (), None) for broker_id in live}
    state.topics["t"] = TopicState(Uuid(bytes(15) + b"\x01"), {0: PartitionState((2,), 2, 0, (2,), 0)}, 4)
    decision = decide(state, PartitionsWanted("t", 4), lambda _: False)
    (written,) = [one for one in decision.changes if isinstance(one, WriteTopic)]
    assert written.assignment == expected


def test_without_brokers_there_is_no_topic() -> None:
    with pytest.raises(KafkaError) as raised:
        decide(ClusterState(), TopicWanted(NewTopic("t", 1, 1, {}), Uuid(bytes(16)), 5, 5), lambda _: False)
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_topic_that_somebody_else_has_written_gets_an_id_and_leaders() -> None:
    """Of its partitions one has a leader, one can have one, and one waits for a broker."""
    led = PartitionState((1,), leader=1, leader_epoch=4, isr=(1,), partition_epoch=9)
    stored = TopicState(NIL_UUID, {0: led, 1: PartitionState((2, 1)), 2: PartitionState((2,))}, node_version=3)
    given = Uuid(bytes(range(16)))
    state = cluster()
    decision = decide(state, TopicFound("t", stored, given), lambda _: False)
    everything: dict[int, tuple[int, ...]] = {0: (1,), 1: (2, 1), 2: (2,)}
    assert decision.changes == [
        NoteTopic("t", stored),
        WriteTopic("t", given, everything, 3, adding={}, removing={}),
        WritePartition(TopicPartition("t", 1), 1, 0, (1,), -1),
    ]
    assert decision.messages == [
        TellRoles(1, (TopicPartition("t", 1),), are_new=True),
        TellMetadata(1, tuple(TopicPartition("t", index) for index in range(3))),
    ]
    assert decision.next_event is None
    for change in decision.changes:
        state.note(change, 4)
    assert (state.topics["t"].topic_id, state.topics["t"].node_version) == (given, 4)
    assert state.topics["t"].is_unfinished, "as long as a partition has never been led"


@pytest.mark.parametrize("leader_epoch", [0, 4])
def test_a_topic_that_has_all_is_only_noted(leader_epoch: int) -> None:
    led = PartitionState((1,), leader=1, leader_epoch=leader_epoch, isr=(1,), partition_epoch=9)
    stored = TopicState(Uuid(bytes(range(16))), {0: led}, node_version=3)
    decision = decide(cluster(), TopicFound("t", stored, NIL_UUID), lambda _: False)
    assert decision.changes == [NoteTopic("t", stored)]
    assert not stored.is_unfinished


def test_a_topic_that_somebody_else_has_written_may_be_on_the_move() -> None:
    still = PartitionState((1,), leader=1, leader_epoch=4, isr=(1,), partition_epoch=9)
    moving = still._replace(replicas=(1, 2), adding=(2,))
    stored = TopicState(Uuid(bytes(range(16))), {0: still, 1: moving}, node_version=3)
    decision = decide(cluster(), TopicFound("t", stored, NIL_UUID), lambda _: False)
    assert decision.next_event == ReassignmentsAdvanced((TopicPartition("t", 1),))
