"""Topics made, grown, shown and deleted: the answer about each thing that was asked for, in any version."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import NIL_UUID, Uuid
from ottla.wire.apis.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.apis.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.broker.running_broker import RunningBroker, running_broker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker") / "data", num_partitions=3) as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = f"topic-{next(_numbers)}"
    assert codes(broker.ask(creation(CreatableTopic(name=name, num_partitions=2, replication_factor=1)))) == [0]
    return name


def creation(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


def codes(response: Any) -> list[int]:
    for field in ("topics", "responses", "results"):
        if hasattr(response, field):
            return [answer.error_code for answer in getattr(response, field)]
    raise AssertionError(response)


def shown(broker: RunningBroker, name: str) -> int | None:
    """How many partitions the topic has; None if it is not there."""
    (found,) = broker.ask(
        MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    ).topics
    return None if found.error_code else len(found.partitions)


# Creating


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"configs": [CreatableTopicConfig(name="nonsense", value="1")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [CreatableTopicConfig(name="retention.ms", value="soon")]}, ErrorCode.INVALID_CONFIG),
        (
            {"assignments": [CreatableReplicaAssignment(partition_index=0, broker_ids=[0])]},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_topics_that_cannot_be_made(broker: RunningBroker, fields: dict[str, Any], code: ErrorCode) -> None:
    wanted = {"name": f"bad-{next(_numbers)}", "num_partitions": 1, "replication_factor": 1, **fields}
    assert codes(broker.ask(creation(CreatableTopic(**wanted)))) == [code]
    assert shown(broker, wanted["name"]) is None


def test_a_topic_is_made_as_it_was_asked_for(broker: RunningBroker) -> None:
    name = f"topic-{next(_numbers)}"
    config = CreatableTopicConfig(name="max.message.bytes", value="5000")
    wanted = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, configs=[config])
    assert codes(broker.ask(creation(wanted, validate_only=True))) == [0]
    assert shown(broker, name) is None
    (answer,) = broker.ask(creation(wanted)).topics
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 3, 1)
    assert answer.topic_id != NIL_UUID
    assert {entry.name: entry.value for entry in answer.configs}["max.message.bytes"] == "5000"
    assert codes(broker.ask(creation(wanted))) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert shown(broker, name) == 3


def test_a_name_asked_for_twice_is_made_not_even_once(broker: RunningBroker) -> None:
    name = f"topic-{next(_numbers)}"
    twice = [CreatableTopic(name=name, num_partitions=number, replication_factor=1) for number in (1, 2)]
    answers = broker.ask(creation(*twice)).topics
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_REQUEST}
    assert shown(broker, name) is None


# Growing


def grown(*topics: CreatePartitionsTopic, validate_only: bool = False) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


def test_partitions_are_added(broker: RunningBroker, topic: str) -> None:
    wanted = CreatePartitionsTopic(name=topic, count=4, assignments=None)
    assert codes(broker.ask(grown(wanted, validate_only=True))) == [0]
    assert shown(broker, topic) == 2
    answers = broker.ask(
        grown(wanted, CreatePartitionsTopic(name="nowhere", count=4, assignments=None), wanted)
    ).results
    assert [(answer.name, answer.error_code) for answer in answers] == [
        (topic, 0),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic, ErrorCode.INVALID_REQUEST),
    ]
    assert shown(broker, topic) == 4


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (0, None, ErrorCode.INVALID_PARTITIONS),
        (4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[99]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added(
    broker: RunningBroker, topic: str, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    chosen = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    assert codes(broker.ask(grown(CreatePartitionsTopic(name=topic, count=count, assignments=chosen)))) == [code]
    assert shown(broker, topic) == 2


# Deleting


def test_topics_are_deleted_by_name_or_by_id(broker: RunningBroker, topic: str) -> None:
    topic_id = broker.broker.image.topics[topic].topic_id
    both = DeleteTopicState(name=topic, topic_id=topic_id)
    unknown = DeleteTopicState(name=None, topic_id=Uuid(b"?" * 16))
    asked = [both, unknown, DeleteTopicState(name="nowhere"), DeleteTopicState(name=None, topic_id=topic_id)]
    answers = broker.ask(DeleteTopicsRequest(topics=asked, timeout_ms=10_000)).responses
    assert [answer.error_code for answer in answers] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert (answers[3].name, answers[3].topic_id) == (topic, topic_id)
    assert shown(broker, topic) is None


@pytest.mark.parametrize("version", [1, 5])
def test_topics_are_deleted_by_name_in_old_versions(broker: RunningBroker, topic: str, version: int) -> None:
    request = DeleteTopicsRequest(topic_names=[topic, "nowhere"], timeout_ms=10_000)
    assert codes(broker.ask(request, version)) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert shown(broker, topic) is None


def test_deleting_may_be_forbidden(tmp_path: Any) -> None:
    with running_broker(tmp_path / "data", delete_topic_enable="false") as broker:
        assert codes(broker.ask(creation(CreatableTopic(name="t", num_partitions=1, replication_factor=1)))) == [0]
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
        assert codes(broker.ask(request)) == [ErrorCode.TOPIC_DELETION_DISABLED]
        assert shown(broker, "t") == 1


# Showing


@pytest.mark.parametrize(
    ("version", "topics", "shows_all"),
    [(0, [], True), (1, None, True), (1, [], False), (13, None, True), (13, [], False)],
)
def test_all_topics_or_none(
    broker: RunningBroker, topic: str, version: int, topics: list[MetadataRequestTopic] | None, shows_all: bool
) -> None:
    response = broker.ask(MetadataRequest(topics=topics), version)
    assert (topic in {found.name for found in response.topics}) is shows_all
    assert bool(response.topics) is shows_all
    assert [found.node_id for found in response.brokers] == [broker.broker.broker_id]


def test_a_topic_is_shown_by_name_or_by_id(broker: RunningBroker, topic: str) -> None:
    here = broker.broker.broker_id
    topic_id = broker.broker.image.topics[topic].topic_id
    asked = [
        MetadataRequestTopic(name=topic),
        MetadataRequestTopic(name=None, topic_id=topic_id),
        MetadataRequestTopic(name=None, topic_id=Uuid(b"?" * 16)),
        MetadataRequestTopic(name="nowhere"),
        MetadataRequestTopic(name="a/b"),
    ]
    for operations in (True, False, True):
        request = MetadataRequest(
            topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=operations
        )
        first, second, *others = broker.ask(request, 12).topics
        for found in (first, second):
            assert (found.name, found.topic_id, found.error_code, found.is_internal) == (topic, topic_id, 0, False)
            assert [
                (part.partition_index, part.leader_id, part.replica_nodes, part.isr_nodes, part.error_code)
                for part in found.partitions
            ] == [(index, here, [here], [here], 0) for index in range(2)]
            assert (found.topic_authorized_operations == -(2**31)) is not operations
        assert [found.error_code for found in others] == [
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]


@pytest.mark.parametrize("allows", [True, False])
def test_a_topic_is_made_for_who_asks_about_it_if_he_allows(broker: RunningBroker, allows: bool) -> None:
    name = f"wanted-{next(_numbers)}"
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=allows)
    broker.ask(request)
    assert shown(broker, name) == (3 if allows else None)


def test_partitions_are_shown_page_by_page(broker: RunningBroker) -> None:
    names = sorted(f"page-{next(_numbers):05}" for _ in range(2))
    broker.ask(creation(*(CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in names)))
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=2, cursor=cursor
        )
        response = broker.ask(request)
        page = [(found.name, part.partition_index) for found in response.topics for part in found.partitions]
        assert len(page) <= 2
        seen += page
        if response.next_cursor is None:
            break
        cursor = Cursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )
    assert seen == [(name, index) for name in names for index in range(3)]
