"""What the controller sends to brokers."""

from __future__ import annotations

from ottla.base.types import Endpoint, TopicPartition, Uuid
from ottla.machines.cluster.controller import decide
from ottla.machines.cluster.requests import Sender, leader_and_isr, update_metadata
from ottla.machines.cluster.state import ClusterState, LiveBroker
from ottla.machines.cluster.topics import NewTopic, TopicWanted

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
