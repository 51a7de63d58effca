"""What the controller refuses when a topic is wanted."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Endpoint, Uuid
from ottla.machines.cluster.controller import decide
from ottla.machines.cluster.state import ClusterState, LiveBroker
from ottla.machines.cluster.topics import NewTopic, TopicWanted


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
