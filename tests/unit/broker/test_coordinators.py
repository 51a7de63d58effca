"""What the group coordinator knows of the cluster and its settings, and the topics coordinators write to."""

from __future__ import annotations

import pytest

from ottla.base.types import TopicPartition, Uuid
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.coordinators.groups import ImageTopics, group_config
from ottla.broker.coordinators.transactions import transaction_config
from ottla.broker.internal_topics import internal_topic
from ottla.machines.cluster.image import ClusterImage, PartitionImage
from ottla.machines.cluster.topics import NewTopic
from ottla.machines.groups.config import ConsumerTimeouts, GroupConfig, MigrationPolicy
from ottla.machines.transactions.shard import TransactionConfig

T_ID, OTHER_ID = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))


def test_topics_are_those_of_the_image_as_it_is_now() -> None:
    image = ClusterImage("cluster")
    topics = ImageTopics(image)
    assert (topics.names(), topics.partition_count("t"), topics.topic_id("t")) == ([], None, None)
    for index in range(3):
        image.set_partition(TopicPartition("t", index), T_ID, PartitionImage(1, 0, 0, (1,), (1,), ()))
    image.set_partition(TopicPartition("other", 0), OTHER_ID, PartitionImage(1, 0, 0, (1,), (1,), ()))
    assert topics.names() == ["t", "other"]
    assert [topics.partition_count(name) for name in ("t", "other", "none")] == [3, 1, None]
    assert [topics.topic_id(name) for name in ("t", "other", "none")] == [T_ID, OTHER_ID, None]
    assert [topics.name_of(topic_id) for topic_id in (T_ID, OTHER_ID, Uuid(bytes(16)))] == ["t", "other", None]


def test_settings_of_groups() -> None:
    own = {"g": ConsumerTimeouts(1, 2)}
    settings = {
        "group.min.session.timeout.ms": 11,
        "group.max.session.timeout.ms": 12,
        "group.initial.rebalance.delay.ms": 13,
        "group.max.size": 14,
        "offset.metadata.max.bytes": 15,
        "offsets.retention.minutes": 16,
        "group.consumer.session.timeout.ms": 45_017,
        "group.consumer.heartbeat.interval.ms": 5018,
        "group.consumer.max.size": 19,
        "group.consumer.migration.policy": "Downgrade",
        "group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform",
    }
    assert group_config(BrokerConfig({name: str(value) for name, value in settings.items()}), own) == GroupConfig(
        min_session_timeout_ms=11,
        max_session_timeout_ms=12,
        initial_rebalance_delay_ms=13,
        max_size=14,
        offset_metadata_max_bytes=15,
        offsets_retention_ms=960_000,
        consumer_session_timeout_ms=45_017,
        consumer_heartbeat_interval_ms=5018,
        consumer_max_size=19,
        own_consumer_timeouts=own,
        migration_policy=MigrationPolicy.DOWNGRADE,
        consumer_assignors=("range", "uniform"),
    )


def test_settings_of_transactions() -> None:
    settings = {
        "transaction.max.timeout.ms": "11",
        "transactional.id.expiration.ms": "12",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "13",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "14",
    }
    assert transaction_config(BrokerConfig(settings)) == TransactionConfig(11, 12, 13, 14)


def test_internal_topics_are_made_as_their_settings_say() -> None:
    config = BrokerConfig(
        {
            "offsets.topic.num.partitions": "7",
            "offsets.topic.replication.factor": "2",
            "offsets.topic.segment.bytes": "1001",
            "transaction.state.log.num.partitions": "8",
            "transaction.state.log.replication.factor": "4",
            "transaction.state.log.min.isr": "3",
            "transaction.state.log.segment.bytes": "1002",
        }
    )
    compact = {"cleanup.policy": "compact"}
    assert internal_topic("__consumer_offsets", config) == NewTopic(
        "__consumer_offsets", 7, 2, configs={**compact, "compression.type": "producer", "segment.bytes": "1001"}
    )
    assert internal_topic("__transaction_state", config) == NewTopic(
        "__transaction_state",
        8,
        4,
        configs={
            **compact,
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": "3",
            "segment.bytes": "1002",
        },
    )
    with pytest.raises(ValueError, match="not an internal topic"):
        internal_topic("t", config)
