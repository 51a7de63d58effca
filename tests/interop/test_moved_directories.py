"""Log directories that move between Apache Kafka and Ottla: what was written is served as it was, on both sides."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest

import ottla
from ottla.base.types import TopicPartition
from ottla.testing import EmbeddedBroker
from tests.interop.kafka_tools import fetch_kafka_libs
from tests.interop.moved_data import FIRST_MS, LEFT_OPEN, MOVER, fill, observe, wait_until_compacted, write
from tests.kafka_process import KafkaOnZooKeeper, KafkaProcess
from tests.ports import free_port
from tests.zookeeper_process import ZooKeeperProcesses

CLEANER = {"log.cleaner.backoff.ms": "200"}


def differences(before: dict[str, object], after: dict[str, object]) -> dict[str, tuple[object, object]]:
    return {what: (seen, after[what]) for what, seen in before.items() if after[what] != seen}


@pytest.mark.xdist_group("moved-directories")
def test_ottla_serves_the_directory_of_a_kafka_broker_in_kraft_mode(tmp_path: Path) -> None:
    kafka = KafkaProcess(fetch_kafka_libs(), tmp_path, {**CLEANER, "log.initial.task.delay.ms": "100"}).start()
    try:
        left = fill(kafka.bootstrap)
        wait_until_compacted(tmp_path / "logs")
        before = observe(kafka.bootstrap)
    finally:
        kafka.stop()
    del left
    with EmbeddedBroker(tmp_path / "logs") as broker:
        assert differences(before, observe(broker.bootstrap_servers)) == {}
        assert {partition.log.epochs.latest_epoch for partition in broker.running.replicas} <= {0, 1}
        assert go_on(broker.bootstrap_servers) >= 1000, "Kafka has given the ids of the first block away"
        broker.restart()
        assert records_of(broker, "open") == [b"another try"]


def go_on(bootstrap: str) -> int:
    """Ends the transaction that was left open, runs others; returns the id of a new producer."""
    for transactional_id, topic in ((LEFT_OPEN, "open"), (MOVER, "transactional"), ("newcomer", "transactional")):
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"another try", b"k", timestamp=FIRST_MS)
        producer.commit_transaction(30)
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        return admin.describe_transactions(["newcomer"])["newcomer"].producer_id


def records_of(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        return [record.value for record in consumer.poll(timeout=30)]


@pytest.mark.xdist_group("moved-directories")
def test_kafka_serves_the_directory_of_ottla_and_gives_it_back(tmp_path: Path, zookeeper: ZooKeeperProcesses) -> None:
    settings = {
        **CLEANER,
        "broker.id": "1",
        "zookeeper.connect": zookeeper.new_cluster(),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    data = tmp_path / "logs"
    with EmbeddedBroker(data, config=settings) as broker:
        left = fill(broker.bootstrap_servers)
        broker.restart()
        write(broker.bootstrap_servers, "codecs", "zstd", first_ms=FIRST_MS + 100_000)
        wait_until_compacted(data)
        before = observe(broker.bootstrap_servers)
    port = free_port()
    listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": str(data)}
    kafka = KafkaOnZooKeeper(fetch_kafka_libs(), tmp_path / "kafka", port, {**settings, **listeners}).start()
    try:
        assert differences(before, observe(kafka.bootstrap)) == {}
        write(kafka.bootstrap, "codecs", "lz4", first_ms=FIRST_MS + 200_000)
        before = observe(kafka.bootstrap)
    finally:
        kafka.stop()
    with EmbeddedBroker(data, config=settings) as broker:
        assert differences(before, observe(broker.bootstrap_servers)) == {}
    del left
