"""What a cluster on ZooKeeper is asked for and must refuse: our brokers answer with Apache Kafka's codes and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest

import ottla
from ottla import Admin, ConfigChange, ConfigResource, ElectionType, NewPartitions, NewTopic
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.cluster.processes_on_zookeeper import IDS, KAFKA, OTTLA, ProcessesOnZooKeeper
from tests.raw_client import RawClient
from tests.waiting import repeat_until
from tests.zookeeper_process import ZooKeeperProcesses

pytestmark = pytest.mark.timeout(300)

GONE = 3
"""The broker that is stopped before anything is asked."""
MOVED, LED, LOST = TopicPartition("t", 0), TopicPartition("led", 0), TopicPartition("lost", 0)
TOPICS = {"t": [1, 2], "led": [GONE, 1], "lost": [GONE]}
NOWHERE, NO_PARTITION = TopicPartition("nowhere", 0), TopicPartition("t", 9)

Ask = Callable[[Admin], ottla.Outcomes[object, object]]


def move(tp: TopicPartition, replicas: Sequence[int] | None) -> Ask:
    return lambda admin: admin.alter_partition_reassignments({tp: replicas})


def elect(tp: TopicPartition, kind: ElectionType) -> Ask:
    return lambda admin: admin.elect_leaders([tp], kind=kind)


def create(new: NewTopic) -> Ask:
    return lambda admin: admin.create_topics([new])


def grow(topic: str, new: NewPartitions) -> Ask:
    return lambda admin: admin.create_partitions({topic: new})


def change(resource: ConfigResource, name: str, value: str) -> Ask:
    return lambda admin: admin.incremental_alter_configs({resource: [ConfigChange(name, value)]})


# To cancel what is no partition at all is UNKNOWN_TOPIC_OR_PARTITION here and where Kafka needs no ZooKeeper; its
# brokers on ZooKeeper say that nothing is under way. A value that no setting of brokers has is INVALID_CONFIG here, as
# for topics, and INVALID_REQUEST there.
SAME_WORDS: dict[str, Ask] = {
    "to a broker that does not exist": move(MOVED, [1, 9]),
    "to a broker that is away": move(MOVED, [1, GONE]),
    "to one broker twice": move(MOVED, [1, 1]),
    "to a negative id": move(MOVED, [-1]),
    "of an unknown topic": move(NOWHERE, [1]),
    "of an unknown partition": move(NO_PARTITION, [1]),
    "cancel where nothing moves": move(MOVED, None),
    "preferred, and it is away": elect(LED, ElectionType.PREFERRED),
    "preferred, and nobody is there": elect(LOST, ElectionType.PREFERRED),
    "preferred, and it leads": elect(MOVED, ElectionType.PREFERRED),
    "preferred of an unknown topic": elect(NOWHERE, ElectionType.PREFERRED),
    "preferred of an unknown partition": elect(NO_PARTITION, ElectionType.PREFERRED),
    "unclean, and nobody is there": elect(LOST, ElectionType.UNCLEAN),
    "unclean, and somebody leads": elect(LED, ElectionType.UNCLEAN),
    "unclean of an unknown topic": elect(NOWHERE, ElectionType.UNCLEAN),
}
SAME_CODES: dict[str, Ask] = {
    "more replicas than brokers": create(NewTopic("new", 1, 3)),
    "no replicas": create(NewTopic("new", 1, 0)),
    "no partitions": create(NewTopic("new", 0, 1)),
    "one replica twice": create(NewTopic("new", assignments=[[1, 1]])),
    "a topic there is": create(NewTopic("t", 1, 1)),
    "a name that is none": create(NewTopic("a b", 1, 1)),
    "an unknown setting": create(NewTopic("new", 1, 1, configs={"nonsense": "1"})),
    "fewer partitions": grow("t", NewPartitions(1)),
    "as many partitions": grow("t", NewPartitions(2)),
    "more partitions of an unknown topic": grow("nowhere", NewPartitions(3)),
    "new partitions on an unknown broker": grow("t", NewPartitions(3, [[9, 1]])),
    "new partitions with fewer replicas": grow("t", NewPartitions(3, [[1]])),
    "new partitions without places": grow("t", NewPartitions(4, [[1, 2]])),
    "deletion of an unknown topic": lambda admin: admin.delete_topics(["nowhere"]),
    "a setting of a topic that is none": change(ConfigResource.topic("t"), "retention.ms", "soon"),
    "a setting of an unknown topic": change(ConfigResource.topic("nowhere"), "retention.ms", "5"),
}


class Side(NamedTuple):
    admin: Admin
    controller_port: int


@pytest.fixture(scope="module")
def sides(zookeeper: ZooKeeperProcesses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    """A cluster of each kind, of which one broker is away."""
    found: dict[str, Side] = {}
    clusters = {
        kind: ProcessesOnZooKeeper(
            tmp_path_factory.mktemp("cluster"), zookeeper.new_cluster(), dict.fromkeys(IDS, kind)
        )
        for kind in (KAFKA, OTTLA)
    }
    try:
        for kind, cluster in clusters.items():
            cluster.begin()
            admin = cluster.admin(1)
            found[kind] = Side(admin, cluster.ports[1])
            for name, replicas in TOPICS.items():
                admin.create_topics([NewTopic(name, assignments=[replicas] * (2 if name == "t" else 1))]).check()
            cluster.brokers[GONE].stop()
            repeat_until(lambda admin=admin: leaders(admin) == {"led": 1, "lost": -1})
            repeat_until(lambda admin=admin: GONE not in admin.describe_cluster().brokers)
        yield found
    finally:
        for side in found.values():
            side.admin.close()
        for cluster in clusters.values():
            cluster.end()


def leaders(admin: Admin) -> dict[str, int]:
    described = admin.describe_topics(["led", "lost"]).results
    return {name: info.partitions[0].leader_id for name, info in described.items()}


def refusal(side: Side, ask: Ask) -> tuple[str, str]:
    (error,) = ask(side.admin).errors.values()
    return error.code.name, as_lists(error.message)


def as_lists(text: str) -> str:
    """Scala names the kind of a collection."""
    return re.sub(r"\b[A-Z]\w*\(([-\d, ]*)\)", r"[\1]", text)


@pytest.mark.parametrize("what", SAME_WORDS)
def test_it_is_refused_with_the_same_words(sides: dict[str, Side], what: str) -> None:
    code, words = refusal(sides[OTTLA], SAME_WORDS[what])
    assert (code, words) == refusal(sides[KAFKA], SAME_WORDS[what])
    assert code != "NONE" and words


@pytest.mark.parametrize("what", SAME_CODES)
def test_it_is_refused_with_the_same_code(sides: dict[str, Side], what: str) -> None:
    code, words = refusal(sides[OTTLA], SAME_CODES[what])
    assert code == refusal(sides[KAFKA], SAME_CODES[what])[0]
    assert words


def test_a_move_to_no_brokers_is_refused_with_the_same_words(sides: dict[str, Side]) -> None:
    """Clients do not ask for it; others could."""
    moved = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[])])

    def answer(side: Side) -> tuple[int, str | None]:
        with RawClient(side.controller_port) as client:
            replied = client.call(AlterPartitionReassignmentsRequest(topics=[moved]), 0)
        assert isinstance(replied, AlterPartitionReassignmentsResponse)
        (partition,) = replied.responses[0].partitions
        return partition.error_code, partition.error_message

    assert answer(sides[OTTLA]) == answer(sides[KAFKA])
    assert answer(sides[OTTLA])[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_nothing_was_changed(sides: dict[str, Side]) -> None:
    """Of all that was asked for."""
    for admin, _ in sides.values():
        described = admin.describe_topics(sorted(TOPICS)).results
        assert {name: len(info.partitions) for name, info in described.items()} == {"t": 2, "led": 1, "lost": 1}
        assert {name: list(info.partitions[0].replicas) for name, info in described.items()} == TOPICS
        assert admin.list_partition_reassignments() == {}
        assert set(admin.list_topics()) == set(TOPICS)
