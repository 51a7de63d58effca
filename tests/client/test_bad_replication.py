"""What only a follower may ask, asked by somebody else, and copies that cannot be had: one answer, Kafka's."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import Uuid
from ottla.wire.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker_process import BrokerProcess
from tests.kafka_process import KafkaProcess
from tests.raw_client import RawClient
from tests.waiting import PATIENCE_S, repeat_until


def create(client: RawClient, name: str, replication_factor: int, **configs: str) -> int:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=replication_factor, configs=settings)
    response = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
    assert isinstance(response, CreateTopicsResponse)
    return response.topics[0].error_code


def topic_id(client: RawClient, name: str) -> Uuid:
    found: list[Uuid] = []

    def is_led() -> bool:
        response = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
        assert isinstance(response, MetadataResponse)
        found[:] = [topic.topic_id for topic in response.topics if topic.partitions and not topic.error_code]
        return bool(found)

    repeat_until(is_led)
    return found[0]


def codes_of(client: RawClient, request: FetchRequest) -> list[int]:
    response = client.call(request, 17)
    assert isinstance(response, FetchResponse)
    return [each.error_code for topic in response.responses for each in topic.partitions]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"replica": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica": 9, "epoch": -1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"replica": 9, "epoch": 5}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica": 9, "topic_id": Uuid(bytes(range(16)))}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"replica": -1, "offset": 50, "epoch": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"replica": -1, "epoch": 5}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_who_fetches_as_a_follower_and_is_none(
    broker: BrokerProcess | KafkaProcess, new_topic: str, given: dict[str, Any], code: ErrorCode
) -> None:
    with RawClient(broker.port) as client:
        assert create(client, new_topic, 1) == 0
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=given.get("epoch", 0),
            fetch_offset=given.get("offset", 0),
            partition_max_bytes=1000,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=given["replica"], replica_epoch=-1),
            max_bytes=1000,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=given.get("topic_id") or topic_id(client, new_topic), partitions=[partition])],
        )
        # Kafka shows a topic a moment before its partitions are led.
        reading = FetchRequest(
            max_bytes=1000,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=topic_id(client, new_topic), partitions=[FetchPartition(partition=0)])],
        )
        repeat_until(lambda: codes_of(client, reading) == [0])
        assert codes_of(client, request) == [code]


@pytest.mark.parametrize("replication_factor", [2, 0])
def test_copies_that_cannot_be_had(
    broker: BrokerProcess | KafkaProcess, new_topic: str, replication_factor: int
) -> None:
    with RawClient(broker.port) as client:
        assert create(client, new_topic, replication_factor) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_more_in_sync_than_there_are_replicas(broker: BrokerProcess | KafkaProcess, new_topic: str) -> None:
    """It can be created, and written with acks=all."""
    with RawClient(broker.port) as client:
        assert create(client, new_topic, 1, min_insync_replicas="2") == 0
    told: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    producer.produce(new_topic, b"v", on_delivery=lambda error, message: told.append((error, message.offset())))
    assert producer.flush(PATIENCE_S) == 0
    assert told == [(None, 0)]
