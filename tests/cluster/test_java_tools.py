"""Kafka's own tools on three brokers: those that its system tests judge it by, and what its operators look at."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.records.batch import iter_headers
from ottla.testing import ApiKey, EmbeddedCluster
from tests.interop.kafka_tools import KafkaTools
from tests.interop.kafka_tools import kafka_commands_fixture as kafka_commands_fixture
from tests.waiting import PATIENCE_S, repeat_until

pytestmark = pytest.mark.timeout(300)

TOOLS = "org.apache.kafka.tools"
RACKS = {1: "a", 2: "b", 3: "c"}
PARTITIONS = 3
CRC_POSITION = 17


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    config = {
        "min.insync.replicas": 2,
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.num.partitions": 3,
        "auto.create.topics.enable": False,
    }
    racks = {broker_id: {"broker.rack": rack} for broker_id, rack in RACKS.items()}
    with EmbeddedCluster(config=config, broker_config=racks) as made:
        yield made


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What a verifiable tool says, as it says it, to its end."""
    assert process.stdout is not None
    for line in process.stdout:
        assert line.startswith("{"), line
        yield json.loads(line)


def kill_and_restart(cluster: EmbeddedCluster, broker_id: int | None, *topics: str) -> None:
    assert broker_id is not None
    cluster.kill(broker_id)
    cluster.restart(broker_id)
    for topic in topics:
        cluster.wait_in_sync(topic)


def send(cluster: EmbeddedCluster, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def read_committed(cluster: EmbeddedCluster, topic: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found: list[bytes] = []
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


def test_what_a_verifiable_producer_was_told_a_verifiable_consumer_reads_once(
    cluster: EmbeddedCluster,
    kafka_commands: KafkaTools,
    tmp_path: Path,
) -> None:
    topic, count = cluster.create_topic("verifiable", partitions=PARTITIONS), 3_000
    servers = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic]
    # By itself the tool does not retry.
    (tmp_path / "producer.properties").write_text("retries=2147483647\nenable.idempotence=true\n")
    arguments = [*servers, "--max-messages", str(count), "--throughput", "1000"]
    arguments += ["--producer.config", str(tmp_path / "producer.properties")]
    told: dict[tuple[int, int], str] = {}
    with running(kafka_commands.start(f"{TOOLS}.VerifiableProducer", *arguments)) as producer:
        for event in events(producer):
            assert event["name"] != "producer_send_error", event
            if event["name"] == "producer_send_success":
                told[event["partition"], event["offset"]] = event["value"]
                if len(told) in (count // 4, count // 2):
                    kill_and_restart(cluster, cluster.leader_of(topic, event["partition"]), topic)
    assert sorted(told.values(), key=int) == [str(number) for number in range(count)]
    read: dict[tuple[int, int], str] = {}
    arguments = [*servers, "--group-id", "verifiers", "--max-messages", str(count), "--verbose"]
    with running(kafka_commands.start(f"{TOOLS}.VerifiableConsumer", *arguments)) as consumer:
        killed = False
        for event in events(consumer):
            if event["name"] == "record_data":
                place = event["partition"], event["offset"]
                assert place not in read, f"{place} was read twice"
                read[place] = event["value"]
            elif event["name"] == "offsets_committed":
                assert event["success"], event
                if not killed:
                    kill_and_restart(cluster, cluster.leader_of("__consumer_offsets", 0), topic)
                    killed = True
    assert killed and read == told


def test_a_transactional_copier_copies_once_while_brokers_die(
    cluster: EmbeddedCluster,
    kafka_commands: KafkaTools,
) -> None:
    source, target = cluster.create_topic("source"), cluster.create_topic("target")
    values = [str(number).encode() for number in range(3_000)]
    send(cluster, source, values)
    arguments = ["--broker-list", cluster.bootstrap_servers, "--input-topic", source, "--input-partition", "0"]
    arguments += ["--output-topic", target, "--transactional-id", "copier", "--consumer-group", "copiers"]
    arguments += ["--transaction-size", "100", "--enable-random-aborts"]
    victims = iter([1, 2, 3])
    with running(kafka_commands.start(f"{TOOLS}.TransactionalMessageCopier", *arguments)) as copier:
        remaining = len(values)
        for event in events(copier):
            if event.get("remaining", remaining) <= remaining - 500:
                remaining = event["remaining"]
                if (victim := next(victims, None)) is not None:
                    kill_and_restart(cluster, victim, source, target)
        assert copier.wait(PATIENCE_S) == 0
    assert next(victims, None) is None, "all of them died once"
    assert read_committed(cluster, target) == values


def differences(tool: subprocess.Popen[str], is_enough: Callable[[str], bool]) -> str:
    """What ReplicaVerificationTool says until it is enough."""
    assert tool.stdout is not None
    said = ""
    for line in tool.stdout:
        said += line
        if is_enough(line):
            return said
    raise AssertionError(said)


def test_replicas_are_verified_and_one_with_a_difference_is_found(
    cluster: EmbeddedCluster,
    kafka_commands: KafkaTools,
) -> None:
    topic = cluster.create_topic("compared", partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        for number in range(5):
            send(cluster, topic, [f"{partition} {number} {part}".encode() for part in range(20)], partition)
    kill_and_restart(cluster, cluster.leader_of(topic), topic)
    arguments = ["--broker-list", cluster.bootstrap_servers, "--topics-include", topic, "--time", "-2"]
    arguments += ["--report-interval-ms", "500", "--max-wait-ms", "100"]
    with running(kafka_commands.start(f"{TOOLS}.ReplicaVerificationTool", *arguments)) as tool:
        said = differences(tool, lambda line: "at offset 100" in line)
    assert re.search(r"max lag is 0 for partition compared-\d at offset 100 among 3 partitions", said), said
    assert not re.search("checksum|number of messages", said), said
    damaged = next(broker_id for broker_id in RACKS if broker_id != cluster.leader_of(topic))
    cluster[damaged].stop()
    _change_a_checksum(cluster[damaged].data_dir / f"{topic}-0")
    cluster[damaged].start()
    cluster.wait_in_sync(topic)
    with running(kafka_commands.start(f"{TOOLS}.ReplicaVerificationTool", *arguments)) as tool:
        differences(tool, lambda line: f"partition {topic}-0" in line and "checksum" in line)


def _change_a_checksum(directory: Path) -> None:
    (path,) = directory.glob("*.log")
    data = bytearray(path.read_bytes())
    position = [position for position, _ in iter_headers(memoryview(bytes(data)))][2]
    data[position + CRC_POSITION] ^= 1
    path.write_bytes(data)


def test_topics_are_described_as_kafka_describes_its_own(
    cluster: EmbeddedCluster,
    kafka_commands: KafkaTools,
) -> None:
    cluster.create_topic("described", replicas={0: [1, 2, 3], 1: [2, 3, 1]}, config={"min.insync.replicas": 1})
    cluster.create_topic("single", replicas={0: [3]}, config={"min.insync.replicas": 1})
    cluster.create_topic("strict", replicas={0: [1, 3]})

    def described(*flags: str) -> str:
        servers = ["--bootstrap-server", cluster.bootstrap_servers]
        return kafka_commands.run(f"{TOOLS}.TopicCommand", *servers, "--describe", *flags)

    well = described("--topic", "described").rstrip("\n").split("\n")
    head = r"Topic: described\tTopicId: \S{22}\tPartitionCount: 2\tReplicationFactor: 3\tConfigs: min.insync.replicas=1"
    assert re.fullmatch(head, well[0]), well[0]
    assert well[1:] == [
        "\tTopic: described\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\tElr: \tLastKnownElr: ",
        "\tTopic: described\tPartition: 1\tLeader: 2\tReplicas: 2,3,1\tIsr: 2,3,1\tElr: \tLastKnownElr: ",
    ]
    cluster.kill(3)
    repeat_until(lambda: cluster.leader_of("single") is None and cluster.isr_of("strict") == {1})
    ours = ["--topic", "described|single|strict"]
    assert _places(described("--under-replicated-partitions", *ours)) == {"described": [0, 1], "strict": [0]}
    unavailable = described("--unavailable-partitions", *ours)
    assert _places(unavailable) == {"single": [0]}
    assert "Leader: none\tReplicas: 3\tIsr: 3" in unavailable
    assert _places(described("--under-min-isr-partitions", *ours)) == {"single": [0], "strict": [0]}
    cluster.restart(3)
    for name in ("described", "single", "strict"):
        cluster.wait_in_sync(name)


def _places(text: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for topic, partition in re.findall(r"Topic: (\S+)\tPartition: (\d+)", text):
        found[topic].append(int(partition))
    return dict(found)


def test_a_java_consumer_reads_from_the_replica_in_its_rack(
    cluster: EmbeddedCluster,
    kafka_commands: KafkaTools,
    tmp_path: Path,
) -> None:
    topic = cluster.create_topic("racked", replicas={0: [1, 2, 3]})
    values = [str(number) for number in range(500)]
    send(cluster, topic, [value.encode() for value in values])
    (tmp_path / "consumer.properties").write_text("client.rack=c\nclient.id=racked-consumer\n")
    asked = {
        broker_id: cluster[broker_id].faults.delay(ApiKey.FETCH, 0, times=None, client_id="racked-consumer")
        for broker_id in RACKS
    }
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group-id", "racked", "--verbose"]
    arguments += ["--max-messages", str(len(values)), "--consumer.config", str(tmp_path / "consumer.properties")]
    with running(kafka_commands.start(f"{TOOLS}.VerifiableConsumer", *arguments)) as consumer:
        read = [event["value"] for event in events(consumer) if event["name"] == "record_data"]
    assert read == values
    assert asked[3].hits > 0 and asked[2].hits == 0
    for fault in asked.values():
        fault.cancel()
