"""Administration through kafka-python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    InvalidPartitionsError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from tests.broker_process import BrokerProcess
from tests.interop.dataset import SAMPLES, offset_at_time
from tests.interop.peers.confluent import ConfluentKafka

pytestmark = pytest.mark.interop


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def broker_id(admin: KafkaAdminClient) -> int:
    return int(admin.describe_cluster()["brokers"][0]["broker_id"])


def topic(name: str, configs: Any = None) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name, configs)


def overrides(admin: KafkaAdminClient, name: str) -> dict[str, str]:
    entries = admin.describe_configs([topic(name)])["topic"][name]
    return {key: entry["value"] for key, entry in entries.items()}


def test_topics_are_created_listed_described_and_deleted(admin: KafkaAdminClient, new_topic: str) -> None:
    me = broker_id(admin)
    asked = {"assignments": {0: [me], 1: [me]}, "configs": {"retention.ms": "1000000"}}
    (created,) = admin.create_topics({new_topic: asked}, wait_for_metadata=True)["topics"]
    assert (created["num_partitions"], created["replication_factor"]) == (2, 1)
    assert created["configs"]["retention.ms"]["value"] == "1000000"
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([new_topic])
    assert new_topic in admin.list_topics()
    (described,) = admin.describe_topics([new_topic])
    assert described["topic_id"] == created["topic_id"]
    assert [(p["partition_index"], p["leader_id"], p["isr_nodes"]) for p in described["partitions"]] == [
        (0, me, [me]),
        (1, me, [me]),
    ]
    admin.delete_topics([new_topic])
    assert new_topic not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([new_topic])


def test_topics_are_described_in_pages(admin: KafkaAdminClient, new_topic: str) -> None:
    admin.create_topics({new_topic: {"num_partitions": 5, "replication_factor": 1}})
    seen = []
    cursor = None
    for _ in range(3):
        page = admin.describe_topic_partitions([new_topic], response_partition_limit=2, cursor=cursor)
        seen.append([p["partition_index"] for t in page["topics"] for p in t["partitions"]])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [[0, 1], [2, 3], [4]]


def test_topics_grow_and_do_not_shrink(admin: KafkaAdminClient, new_topic: str) -> None:
    admin.create_topics({new_topic: {"num_partitions": 1, "replication_factor": 1}})
    admin.create_partitions({new_topic: 3})
    admin.create_partitions({new_topic: {"count": 4, "assignments": [[broker_id(admin)]]}})
    admin.create_partitions({new_topic: 9}, validate_only=True)
    assert len(admin.describe_topics([new_topic])[0]["partitions"]) == 4
    for count in (4, 2):
        with pytest.raises(InvalidPartitionsError):
            admin.create_partitions({new_topic: count})


def test_settings_are_described_and_changed(admin: KafkaAdminClient, new_topic: str) -> None:
    admin.create_topics({new_topic: {"configs": {"retention.ms": "1000000"}}})
    changes = {"cleanup.policy": (AlterConfigOp.APPEND, "compact"), "segment.bytes": "2000000"}
    assert admin.alter_configs([topic(new_topic, changes)]) == {"topic": {new_topic: "OK"}}
    assert overrides(admin, new_topic) == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "1000000",
        "segment.bytes": "2000000",
    }
    assert admin.alter_configs([topic(new_topic, {"segment.bytes": "3000000"})], incremental=False) == {
        "topic": {new_topic: "OK"}
    }
    assert overrides(admin, new_topic)["segment.bytes"] == "3000000"
    admin.reset_configs([topic(new_topic, ["cleanup.policy", "retention.ms"])])
    assert overrides(admin, new_topic) == {"segment.bytes": "3000000"}
    assert "segment.bytes" in admin.alter_configs([topic(new_topic, {"segment.bytes": "x"})])["topic"][new_topic]
    assert overrides(admin, new_topic) == {"segment.bytes": "3000000"}


def test_offsets_are_listed_and_records_deleted(admin: KafkaAdminClient, broker: BrokerProcess, new_topic: str) -> None:
    ConfluentKafka().write(broker.bootstrap, new_topic, SAMPLES)
    partition = TopicPartition(new_topic, 0)
    assert admin.delete_records({partition: 2})[partition]["low_watermark"] == 2
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({partition: len(SAMPLES) + 1})
    times = [sample.timestamp_ms or 0 for sample in SAMPLES]
    offset = offset_at_time(SAMPLES, times[12])
    for spec, expected in (
        (OffsetSpec.EARLIEST, 2),
        (OffsetSpec.LATEST, len(SAMPLES)),
        (OffsetSpec.MAX_TIMESTAMP, times.index(max(times))),
        (times[12], offset),
    ):
        assert admin.list_partition_offsets({partition: spec})[partition].offset == expected


def test_the_cluster_its_directories_and_producers_are_described(
    admin: KafkaAdminClient, broker: BrokerProcess, new_topic: str
) -> None:
    cluster = admin.describe_cluster()
    me = cluster["controller_id"]
    assert [(b["broker_id"], b["host"], b["port"]) for b in cluster["brokers"]] == [(me, "127.0.0.1", broker.port)]
    ConfluentKafka().write(broker.bootstrap, new_topic, SAMPLES[:3], idempotent=True)
    (directory,) = admin.describe_log_dirs({new_topic: [0]})[0]["log_dirs"]
    assert directory["log_dir"] == str(broker.data_dir)
    (partition,) = directory["topics"][0]["partitions"]
    assert partition["partition_size"] == (broker.data_dir / f"{new_topic}-0" / f"{0:020}.log").stat().st_size
    (producer,) = admin.describe_producers([TopicPartition(new_topic, 0)])[
        TopicPartition(new_topic, 0)
    ].active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (0, 2)
