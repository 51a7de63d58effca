"""The published examples of assignors, by consumers in a real group: who ends up with which partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

import ottla
from ottla import TopicPartition
from ottla.testing import EmbeddedBroker
from tests.client.consumer_shells import Shell, open_shell, wait_until

QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100}


@pytest.fixture
def shell(ottla_broker: EmbeddedBroker) -> Iterator[Shell]:
    with open_shell("sync", ottla_broker.bootstrap_servers) as opened:
        yield opened


class Moves(ottla.RebalanceListener):
    """What a member had to give away."""

    def __init__(self) -> None:
        self.given: set[TopicPartition] = set()

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.given |= set(partitions)


def numbers(consumer: ottla.Consumer[bytes | None, bytes | None]) -> list[int]:
    return sorted(partition.partition for partition in consumer.assignment)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("range", [[0, 1, 2], [3, 4, 5], [6, 7]]),
        ("roundrobin", [[0, 3, 6], [1, 4, 7], [2, 5]]),
    ],
)
def test_eight_partitions_and_three_members(
    shell: Shell, ottla_broker: EmbeddedBroker, strategy: str, expected: list[list[int]]
) -> None:
    topic = ottla_broker.new_topic(partitions=8)
    # Instances have an order of their own; the ids of other members are chance.
    members = [
        shell(group_id=topic, group_instance_id=name, partition_assignment_strategy=strategy, **QUICK)
        for name in ("a", "b", "c")
    ]
    for member in members:
        member.subscribe([topic])
    wait_until(lambda: [numbers(member) for member in members] == expected, *members)


@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_a_member_that_leaves_moves_only_what_it_must(
    shell: Shell, ottla_broker: EmbeddedBroker, strategy: str
) -> None:
    topic = ottla_broker.new_topic(partitions=8)
    members = [shell(group_id=topic, partition_assignment_strategy=strategy, **QUICK) for _ in range(3)]
    moves = [Moves() for _ in members]
    for member, listener in zip(members, moves, strict=True):
        member.subscribe([topic], listener=listener)
    everything = {TopicPartition(topic, number) for number in range(8)}
    wait_until(lambda: sorted(len(member.assignment) for member in members) == [2, 3, 3], *members)
    before = [set(member.assignment) for member in members]
    assert set().union(*before) == everything
    for listener in moves:
        listener.given.clear()
    members[0].close()
    wait_until(lambda: sorted(len(member.assignment) for member in members[1:]) == [4, 4], *members[1:])
    assert set(members[1].assignment) > before[1]
    assert set(members[2].assignment) > before[2]
    if strategy == "cooperative-sticky":
        assert moves[1].given == moves[2].given == set(), "nobody stopped reading what it kept"


@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_uneven_subscriptions(shell: Shell, ottla_broker: EmbeddedBroker, strategy: str) -> None:
    topics = [ottla_broker.new_topic(partitions=count) for count in (1, 2, 3)]
    parts = [{TopicPartition(topic, number) for number in range(count)} for count, topic in enumerate(topics, start=1)]
    members = [shell(group_id=topics[0], partition_assignment_strategy=strategy, **QUICK) for _ in range(3)]
    for count, member in enumerate(members, start=1):
        member.subscribe(topics[:count])
    wait_until(lambda: [set(member.assignment) for member in members] == parts, *members)
    members[0].close()
    wait_until(
        lambda: [set(member.assignment) for member in members[1:]] == [parts[0] | parts[1], parts[2]], *members[1:]
    )
