"""A follower that can be reached but does not reach a leader: what producers notice, and what becomes of the records.

docs/isr.md shows the same by hand.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from ottla.metadata import paths
from ottla.testing import EmbeddedCluster
from tests.waiting import PATIENCE_S, repeat_until

LEADER, OTHER, FOLLOWER = 1, 2, 3
TOPIC = "orders"
LED_BY_LEADER, LED_BY_OTHER, LED_BY_FOLLOWER = 0, 1, 2
ASSIGNMENT = {0: [LEADER, OTHER, FOLLOWER], 1: [OTHER, FOLLOWER, LEADER], 2: [FOLLOWER, LEADER, OTHER]}
ALL = {LEADER, OTHER, FOLLOWER}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    config = {"replica.lag.time.max.ms": 3_000, "min.insync.replicas": 2}
    with EmbeddedCluster(config=config) as made:
        made.create_topic(TOPIC, replicas=ASSIGNMENT)
        yield made


class Sender:
    """Numbers records over all partitions, and notes of each who was in sync when it was acknowledged."""

    def __init__(self, cluster: EmbeddedCluster, acks: str) -> None:
        self.told: dict[bytes, tuple[int, set[int]]] = {}
        """Of each value its partition, and the in-sync set."""
        self._cluster = cluster
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "acks": acks,
                "enable.idempotence": acks == "all",
                "log_level": 0,
            }
        )

    def send(self, name: str, count: int = 30) -> list[bytes]:
        values = [f"{name} {number}".encode() for number in range(count)]
        for place, value in enumerate(values):
            self._producer.produce(TOPIC, value, partition=place % len(ASSIGNMENT), on_delivery=self._acknowledged)
        return values

    def wait(self, *values: bytes) -> None:
        repeat_until(lambda: self.told.keys() >= set(values), lambda: self._producer.poll(0.05))

    def _acknowledged(self, error: object, message: Message) -> None:
        assert error is None, error
        partition, value = message.partition(), message.value()
        assert partition is not None and value is not None
        assert value not in self.told, f"{value!r} was acknowledged twice"
        self.told[value] = partition, self._cluster.isr_of(TOPIC, partition)


def changes(cluster: EmbeddedCluster) -> int:
    """How often the in-sync set or the leader of what the leader leads was changed."""
    node = cluster._stored(paths.partition_state(TOPIC, LED_BY_LEADER))
    assert node is not None
    return node.version


def controller_epoch(cluster: EmbeddedCluster) -> bytes:
    node = cluster._stored(paths.CONTROLLER_EPOCH)
    assert node is not None
    return node.data


def read_from(broker_servers: str, counts: dict[int, int]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for partition, count in counts.items():
        consumer = Consumer({"bootstrap.servers": broker_servers, "group.id": "reader"})
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        messages = consumer.consume(count, timeout=PATIENCE_S)
        assert consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=PATIENCE_S) == (0, count)
        consumer.close()
        found[partition] = [message.value() or b"" for message in messages]
    return found


def heal_and_compare(cluster: EmbeddedCluster, sent: list[bytes]) -> None:
    """The follower is in sync again, and has everything once, in order, when it leads."""
    cluster.heal()
    cluster.wait_in_sync(TOPIC)
    expected = {partition: sent[partition :: len(ASSIGNMENT)] for partition in ASSIGNMENT}
    for partition in ASSIGNMENT:
        cluster.move_leader(TOPIC, partition, to=FOLLOWER)
    counts = {partition: len(values) for partition, values in expected.items()}
    assert read_from(cluster[FOLLOWER].bootstrap_servers, counts) == expected


def test_with_acks_1_the_producer_never_stops(cluster: EmbeddedCluster) -> None:
    sender = Sender(cluster, "1")
    sent = sender.send("before")
    sender.wait(*sent)
    before, epoch = changes(cluster), controller_epoch(cluster)
    cluster.cut(FOLLOWER, LEADER, one_way=True)
    meanwhile = sender.send("meanwhile")
    sender.wait(*meanwhile)
    assert all(in_sync == ALL for _, in_sync in sender.told.values()), "nobody waited for the follower to leave"
    repeat_until(lambda: cluster.isr_of(TOPIC, LED_BY_LEADER) == {LEADER, OTHER})
    assert cluster.isr_of(TOPIC, LED_BY_OTHER) == ALL
    assert cluster.isr_of(TOPIC, LED_BY_FOLLOWER) == ALL
    after = sender.send("after")
    sender.wait(*after)
    cluster.heal()
    cluster.wait_in_sync(TOPIC)
    assert changes(cluster) == before + 2, "it left once, and came back once"
    assert controller_epoch(cluster) == epoch
    heal_and_compare(cluster, sent + meanwhile + after)


def test_with_acks_all_the_producer_waits_until_the_follower_has_left(cluster: EmbeddedCluster) -> None:
    sender = Sender(cluster, "all")
    sent = sender.send("before")
    sender.wait(*sent)
    before = changes(cluster)
    cluster.cut(FOLLOWER, LEADER, one_way=True)
    meanwhile = sender.send("meanwhile")
    of_others = [value for place, value in enumerate(meanwhile) if place % len(ASSIGNMENT) != LED_BY_LEADER]
    sender.wait(*of_others)
    assert all(sender.told[value][1] == ALL for value in of_others), "what others lead goes on"
    sender.wait(*meanwhile)
    waited = [sender.told[value][1] for value in meanwhile[LED_BY_LEADER :: len(ASSIGNMENT)]]
    assert waited == [{LEADER, OTHER}] * len(waited), "not before the follower had left"
    after = sender.send("after")
    sender.wait(*after)
    assert cluster.isr_of(TOPIC, LED_BY_OTHER) == cluster.isr_of(TOPIC, LED_BY_FOLLOWER) == ALL
    cluster.heal()
    cluster.wait_in_sync(TOPIC)
    assert changes(cluster) == before + 2
    heal_and_compare(cluster, sent + meanwhile + after)
