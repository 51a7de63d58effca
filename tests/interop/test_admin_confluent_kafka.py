"""Administration through confluent-kafka."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ottla.base.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.interop.dataset import SAMPLES, offset_at_time
from tests.interop.peers.confluent import LOG, ConfluentKafka
from tests.interop.peers.peer import PATIENCE_S

pytestmark = pytest.mark.interop


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap}, logger=LOG)


def one(futures: dict[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def refusal(futures: dict[Any, Future[Any]]) -> int:
    with pytest.raises(KafkaException) as refused:
        one(futures)
    return int(refused.value.args[0].code())


def broker_id(admin: AdminClient) -> int:
    return next(iter(admin.list_topics(timeout=PATIENCE_S).brokers))


def configs(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    entries: dict[str, ConfigEntry] = one(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    return entries


def overrides(admin: AdminClient, topic: str) -> dict[str, str]:
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in configs(admin, topic).items() if entry.source == source}


def test_topics_are_created_listed_described_and_deleted(admin: AdminClient, new_topic: str) -> None:
    assert one(admin.create_topics([NewTopic(new_topic, 3, 1, config={"retention.ms": "1000000"})])) is None
    assert refusal(admin.create_topics([NewTopic(new_topic, 3, 1)])) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert sorted(admin.list_topics(timeout=PATIENCE_S).topics[new_topic].partitions) == [0, 1, 2]
    described = one(admin.describe_topics(TopicCollection([new_topic]), include_authorized_operations=True))
    me = broker_id(admin)
    assert [(p.id, p.leader.id, [r.id for r in p.replicas], [r.id for r in p.isr]) for p in described.partitions] == [
        (i, me, [me], [me]) for i in range(3)
    ]
    assert described.authorized_operations
    assert not described.is_internal
    assert one(admin.delete_topics([new_topic])) is None
    assert new_topic not in admin.list_topics(timeout=PATIENCE_S).topics
    assert refusal(admin.delete_topics([new_topic])) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one(admin.create_topics([NewTopic(new_topic, 1, 1)])) is None


def test_the_brokers_defaults_fill_what_is_left_open(admin: AdminClient, new_topic: str) -> None:
    one(admin.create_topics([NewTopic(new_topic)]))
    assert list(admin.list_topics(timeout=PATIENCE_S).topics[new_topic].partitions) == [0]


def test_replicas_are_placed_where_the_client_says(admin: AdminClient, new_topic: str) -> None:
    me = broker_id(admin)
    one(admin.create_topics([NewTopic(new_topic, 2, replica_assignment=[[me], [me]])]))
    assert len(admin.list_topics(timeout=PATIENCE_S).topics[new_topic].partitions) == 2
    elsewhere = NewTopic(f"{new_topic}-2", 1, replica_assignment=[[me + 1]])
    assert refusal(admin.create_topics([elsewhere])) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_validation_creates_nothing(admin: AdminClient, new_topic: str) -> None:
    one(admin.create_topics([NewTopic(new_topic, 1, 1)], validate_only=True))
    assert new_topic not in admin.list_topics(timeout=PATIENCE_S).topics
    too_many = admin.create_topics([NewTopic(new_topic, 1, 3)], validate_only=True)
    assert refusal(too_many) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_topics_grow_and_do_not_shrink(admin: AdminClient, broker: BrokerProcess, new_topic: str) -> None:
    one(admin.create_topics([NewTopic(new_topic, 2, 1)]))
    one(admin.create_partitions([NewPartitions(new_topic, 4)]))
    one(admin.create_partitions([NewPartitions(new_topic, 5, [[broker_id(admin)]])]))
    assert len(admin.list_topics(timeout=PATIENCE_S).topics[new_topic].partitions) == 5
    for count in (5, 1):
        assert refusal(admin.create_partitions([NewPartitions(new_topic, count)])) == ErrorCode.INVALID_PARTITIONS
    ConfluentKafka().write(broker.bootstrap, new_topic, SAMPLES[:1], partition=4)


def test_a_topics_settings_are_replaced_as_a_whole(admin: AdminClient, new_topic: str) -> None:
    one(admin.create_topics([NewTopic(new_topic, 1, 1, config={"retention.ms": "1000000"})]))
    assert configs(admin, new_topic)["retention.ms"].value == "1000000"
    one(admin.alter_configs([ConfigResource(ResourceType.TOPIC, new_topic, set_config={"segment.bytes": "2000000"})]))
    assert overrides(admin, new_topic) == {"segment.bytes": "2000000"}
    assert configs(admin, new_topic)["retention.ms"].is_default


def test_a_topics_settings_are_changed_one_by_one(admin: AdminClient, new_topic: str) -> None:
    one(admin.create_topics([NewTopic(new_topic, 1, 1, config={"retention.ms": "1000000"})]))

    def change(name: str, value: str | None, operation: AlterConfigOpType) -> dict[Any, Future[Any]]:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, new_topic, incremental_configs=[entry])
        futures: dict[Any, Future[Any]] = admin.incremental_alter_configs([resource])
        return futures

    one(change("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    one(change("segment.bytes", "2000000", AlterConfigOpType.SET))
    assert overrides(admin, new_topic) == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "1000000",
        "segment.bytes": "2000000",
    }
    one(change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT))
    one(change("segment.bytes", None, AlterConfigOpType.DELETE))
    assert overrides(admin, new_topic) == {"cleanup.policy": "compact", "retention.ms": "1000000"}
    assert refusal(change("segment.bytes", "many", AlterConfigOpType.SET)) == ErrorCode.INVALID_CONFIG
    assert refusal(change("no.such.setting", "1", AlterConfigOpType.SET)) == ErrorCode.INVALID_CONFIG


def test_a_brokers_settings_are_described_and_changed(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.BROKER, str(broker_id(admin)))
    entries = one(admin.describe_configs([resource]))
    assert entries["log.dirs"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert entries["log.dirs"].is_read_only
    assert entries["num.partitions"].is_default
    assert entries["ssl.keystore.password"].is_sensitive and entries["ssl.keystore.password"].value is None

    def change(name: str, value: str, operation: AlterConfigOpType) -> dict[Any, Future[Any]]:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        changed = ConfigResource(ResourceType.BROKER, resource.name, incremental_configs=[entry])
        futures: dict[Any, Future[Any]] = admin.incremental_alter_configs([changed])
        return futures

    assert refusal(change("log.dirs", "/elsewhere", AlterConfigOpType.SET)) == ErrorCode.INVALID_CONFIG
    name = "log.cleaner.backoff.ms"
    default = entries[name].value
    for operation, expected in ((AlterConfigOpType.SET, "16000"), (AlterConfigOpType.DELETE, default)):
        one(change(name, "16000", operation))
        assert one(admin.describe_configs([resource]))[name].value == expected


def test_settings_of_what_does_not_exist(admin: AdminClient, new_topic: str) -> None:
    unknown = admin.describe_configs([ConfigResource(ResourceType.TOPIC, new_topic)])
    assert refusal(unknown) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offsets_are_listed(admin: AdminClient, broker: BrokerProcess, new_topic: str) -> None:
    ConfluentKafka().write(broker.bootstrap, new_topic, SAMPLES)
    one(admin.delete_records([TopicPartition(new_topic, 0, 2)]))
    times = [sample.timestamp_ms or 0 for sample in SAMPLES]

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        found = one(admin.list_offsets({TopicPartition(new_topic, 0): spec}))
        return found.offset, found.timestamp

    assert listed(OffsetSpec.earliest())[0] == 2
    assert listed(OffsetSpec.latest())[0] == len(SAMPLES)
    newest = max(times)
    assert listed(OffsetSpec.max_timestamp()) == (times.index(newest), newest)
    for timestamp_ms in (times[5], times[12] + 1):
        offset = offset_at_time(SAMPLES, timestamp_ms)
        assert offset is not None and offset >= 2
        assert listed(OffsetSpec.for_timestamp(timestamp_ms)) == (offset, times[offset])
    assert listed(OffsetSpec.for_timestamp(newest + 1))[0] == -1


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, broker: BrokerProcess, new_topic: str) -> None:
    peer = ConfluentKafka()
    peer.write(broker.bootstrap, new_topic, SAMPLES)
    assert one(admin.delete_records([TopicPartition(new_topic, 0, 5)])).low_watermark == 5
    assert peer.read(broker.bootstrap, new_topic, 1, offset=5)[0].offset == 5
    beyond = admin.delete_records([TopicPartition(new_topic, 0, len(SAMPLES) + 1)])
    assert refusal(beyond) == ErrorCode.OFFSET_OUT_OF_RANGE
    end = TopicPartition(new_topic, 0, -1)
    assert one(admin.delete_records([end])).low_watermark == len(SAMPLES)


def test_the_cluster_is_described(admin: AdminClient, broker: BrokerProcess) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE_S)
    assert [(node.host, node.port) for node in cluster.nodes] == [("127.0.0.1", broker.port)]
    assert cluster.controller.id == broker_id(admin)
    assert cluster.cluster_id == admin.list_topics(timeout=PATIENCE_S).cluster_id
    assert cluster.authorized_operations
