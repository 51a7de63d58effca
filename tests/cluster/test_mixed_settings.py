"""Two brokers of ours and one of Apache Kafka's in one cluster: settings that one side changes act on the other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import confluent_kafka
import pytest

from ottla import ConfigChange, ConfigOperation, ConfigResource, NewTopic
from tests.cluster.processes_on_zookeeper import KAFKA, OTTLA, ProcessesOnZooKeeper
from tests.waiting import PATIENCE_S, repeat_until
from tests.zookeeper_process import ZooKeeperProcesses

pytestmark = pytest.mark.timeout(300)

KINDS = {1: OTTLA, 2: KAFKA, 3: OTTLA}


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcesses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessesOnZooKeeper]:
    made = ProcessesOnZooKeeper(tmp_path_factory.mktemp("cluster"), zookeeper.new_cluster(), KINDS)
    try:
        made.begin()
        yield made
    finally:
        made.end()


def change(cluster: ProcessesOnZooKeeper, resource: ConfigResource, by: int, name: str, value: str | None) -> None:
    """Asks the broker `by` for it."""
    operation = ConfigOperation.SET if value is not None else ConfigOperation.DELETE
    with cluster.admin(by) as admin:
        admin.incremental_alter_configs({resource: [ConfigChange(name, value, operation)]}).check()


def is_shown(cluster: ProcessesOnZooKeeper, resource: ConfigResource, by: int, name: str, value: str) -> bool:
    with cluster.admin(by) as admin:
        entry = admin.describe_configs([resource])[resource].get(name)
        return entry is not None and entry.value == value


def is_taken(cluster: ProcessesOnZooKeeper, topic: str, partition: int, size: int) -> bool:
    """Whether the leader takes a record of this size."""
    outcomes: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.servers, "acks": "all", "message.max.bytes": 5_000_000, "log_level": 0}
    )
    producer.produce(topic, bytes(size), partition=partition, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes[0] is None or outcomes[0].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE, outcomes
    return outcomes[0] is None


@pytest.mark.parametrize("by", [1, 2], ids=["ours", "Kafka's"])
def test_a_setting_of_a_topic_is_everybodys(cluster: ProcessesOnZooKeeper, new_topic: str, by: int) -> None:
    """Each broker leads one partition."""
    topic = ConfigResource.topic(new_topic)
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(new_topic, assignments=[[1, 2], [2, 3], [3, 1]])]).check()
    assert all(is_taken(cluster, new_topic, partition, 10_000) for partition in range(3))
    change(cluster, topic, by, "max.message.bytes", "5000")
    for broker_id in KINDS:
        repeat_until(partial(is_shown, cluster, topic, broker_id, "max.message.bytes", "5000"))
    for partition in range(3):
        repeat_until(lambda partition=partition: not is_taken(cluster, new_topic, partition, 10_000))
        assert is_taken(cluster, new_topic, partition, 1000)
    change(cluster, topic, by, "max.message.bytes", None)
    for partition in range(3):
        repeat_until(lambda partition=partition: is_taken(cluster, new_topic, partition, 10_000))


@pytest.mark.parametrize("by", [1, 2], ids=["ours", "Kafka's"])
def test_a_default_of_all_brokers_is_everybodys(cluster: ProcessesOnZooKeeper, new_topic: str, by: int) -> None:
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(new_topic, assignments=[[1, 2], [2, 3], [3, 1]])]).check()
    change(cluster, ConfigResource.broker(), by, "message.max.bytes", "5000")
    for broker_id in KINDS:
        for resource in (ConfigResource.broker(broker_id), ConfigResource.broker()):
            repeat_until(partial(is_shown, cluster, resource, broker_id, "message.max.bytes", "5000"))
    for partition in range(3):
        repeat_until(lambda partition=partition: not is_taken(cluster, new_topic, partition, 10_000))
    change(cluster, ConfigResource.broker(), by, "message.max.bytes", None)
    for partition in range(3):
        repeat_until(lambda partition=partition: is_taken(cluster, new_topic, partition, 10_000))


@pytest.mark.parametrize(
    ("by", "whose"), [(1, 2), (2, 3)], ids=["Kafka's, asked through ours", "ours, through Kafka's"]
)
def test_a_setting_of_one_broker_is_set_through_another_side(
    cluster: ProcessesOnZooKeeper, by: int, whose: int
) -> None:
    """Clients take such a request to the broker itself, wherever they begin."""
    broker = ConfigResource.broker(whose)
    change(cluster, broker, by, "log.cleaner.threads", "2")
    repeat_until(partial(is_shown, cluster, broker, by, "log.cleaner.threads", "2"))
    change(cluster, broker, by, "log.cleaner.threads", None)
    repeat_until(partial(is_shown, cluster, broker, by, "log.cleaner.threads", "1"))
