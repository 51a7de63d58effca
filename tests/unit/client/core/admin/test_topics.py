"""Calls about topics, without a broker."""

from __future__ import annotations

import uuid

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import NIL_UUID, Uuid, uuid_to_text
from ottla.client.core.admin.arguments import as_list, config_text
from ottla.client.core.admin.topics import (
    ALL_TOPICS,
    all_topics_call,
    create_partitions_call,
    create_topics_call,
    delete_topics_call,
    describe_topics_call,
)
from ottla.client.core.admin.types import CreatedTopic, NewPartitions, NewTopic
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.errors import ClientError
from ottla.wire.apis.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from ottla.wire.apis.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.apis.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from ottla.wire.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

ID = Uuid(bytes(15) + b"\7")
FOREIGN_ID = uuid.UUID(bytes=bytes(15) + b"\x08")
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def code_of(answer: object) -> ErrorCode:
    assert isinstance(answer, ClientError)
    return answer.code


def test_topics_are_created() -> None:
    plain = NewTopic("a", 3, 2, configs={"x": True, "y": 5})
    by_hand = NewTopic("b", assignments=[[1, 2], [2, 1]])
    call = create_topics_call([plain, by_hand, plain], validate_only=True, timeout_ms=9)
    request = call.build(["a", "b"], 5)
    assert (request.validate_only, request.timeout_ms) == (True, 9)
    first, second = request.topics
    assert (first.name, first.num_partitions, first.replication_factor, first.assignments) == ("a", 3, 2, [])
    assert [(c.name, c.value) for c in first.configs] == [("x", "true"), ("y", "5")]
    assert (second.num_partitions, second.replication_factor, second.configs) == (-1, -1, [])
    assert [(a.partition_index, a.broker_ids) for a in second.assignments] == [(0, [1, 2]), (1, [2, 1])]
    answers = call.read(
        CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name="a", topic_id=ID, num_partitions=3, replication_factor=2),
                CreatableTopicResult(name="b", error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="it does"),
            ]
        )
    )
    assert answers["a"] == CreatedTopic("a", ID, 3, 2)
    assert code_of(answers["b"]) is ErrorCode.TOPIC_ALREADY_EXISTS and "it does" in str(answers["b"])


@pytest.mark.parametrize(
    ("topic", "is_known_to_old_brokers"),
    [
        (NewTopic("a", 1, 1), True),
        (NewTopic("a", assignments=[[1]]), True),
        (NewTopic("a", 1), False),
        (NewTopic("a", replication_factor=1), False),
    ],
)
def test_old_brokers_have_no_defaults(topic: NewTopic, is_known_to_old_brokers: bool) -> None:
    call = create_topics_call([topic], validate_only=False, timeout_ms=1)
    assert call.build(["a"], 4).topics
    if is_known_to_old_brokers:
        assert call.build(["a"], 3).topics
    else:
        with pytest.raises(ClientError, match="too old"):
            call.build(["a"], 3)


def test_one_name_for_two_topics_is_a_slip() -> None:
    with pytest.raises(ValueError, match="two different topics"):
        create_topics_call([NewTopic("a", 1), NewTopic("a", 2)], validate_only=False, timeout_ms=1)


def test_partitions_are_added() -> None:
    call = create_partitions_call(
        {"a": NewPartitions(5), "b": NewPartitions(2, [[1]])}, validate_only=True, timeout_ms=9
    )
    request = call.build(["a", "b"], 3)
    assert (request.validate_only, request.timeout_ms) == (True, 9)
    first, second = request.topics
    assert (first.name, first.count, first.assignments) == ("a", 5, None)
    assert second.assignments is not None and [a.broker_ids for a in second.assignments] == [[1]]
    answers = call.read(
        CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name="a"),
                CreatePartitionsTopicResult(name="b", error_code=ErrorCode.INVALID_PARTITIONS, error_message="no"),
            ]
        )
    )
    assert answers["a"] is None and code_of(answers["b"]) is ErrorCode.INVALID_PARTITIONS


def test_topics_are_deleted_by_name_or_id() -> None:
    call = delete_topics_call(["a", ID, FOREIGN_ID], timeout_ms=9)
    request = call.build(["a", ID, FOREIGN_ID], 6)
    assert request.timeout_ms == 9
    asked = [(state.name, state.topic_id) for state in request.topics]
    assert asked == [("a", NIL_UUID), (None, ID), (None, Uuid(FOREIGN_ID.bytes))]
    assert call.build(["a"], 5).topic_names == ["a"]
    with pytest.raises(ClientError, match="too old for topic ids"):
        call.build(["a", ID], 5)
    answers = call.read(
        DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name="a", topic_id=Uuid(bytes(15) + b"\1")),
                DeletableTopicResult(name="b", topic_id=ID, error_code=UNKNOWN),
                DeletableTopicResult(name=None, topic_id=Uuid(FOREIGN_ID.bytes), error_code=ErrorCode.UNKNOWN_TOPIC_ID),
            ]
        )
    )
    assert answers["a"] is None and answers.keys() == {"a", ID, FOREIGN_ID}
    assert code_of(answers[ID]) is UNKNOWN and uuid_to_text(ID) in str(answers[ID])
    assert code_of(answers[FOREIGN_ID]) is ErrorCode.UNKNOWN_TOPIC_ID


def test_topics_are_described_by_name_or_id() -> None:
    call = describe_topics_call(["a", ID])
    request = call.build(["a", ID], 12)
    assert request.topics is not None
    assert [(topic.name, topic.topic_id) for topic in request.topics] == [("a", NIL_UUID), (None, ID)]
    assert request.allow_auto_topic_creation is False
    assert call.build(["a"], 4).allow_auto_topic_creation is False
    assert call.build(["a"], 3).allow_auto_topic_creation is True
    with pytest.raises(ClientError, match="too old for topic ids"):
        call.build([ID], 11)
    partitions = [
        MetadataResponsePartition(
            partition_index=index,
            leader_id=1,
            leader_epoch=2,
            replica_nodes=[1, 2],
            isr_nodes=[1],
            offline_replicas=[2],
        )
        for index in (1, 0)
    ]
    topic = MetadataResponseTopic(name="a", topic_id=ID, is_internal=True, partitions=partitions)
    answers = call.read(MetadataResponse(topics=[topic]))
    assert (
        answers["a"]
        == answers[ID]
        == ("a", ID, True, tuple(PartitionInfo(n, 1, 2, (1, 2), (1,), (2,)) for n in (0, 1)))
    )
    gone = call.read(
        MetadataResponse(
            topics=[
                MetadataResponseTopic(name="a", error_code=UNKNOWN),
                MetadataResponseTopic(name=None, topic_id=ID, error_code=ErrorCode.UNKNOWN_TOPIC_ID),
                MetadataResponseTopic(name="not asked for"),
            ]
        )
    )
    assert {key: code_of(answer) for key, answer in gone.items()} == {"a": UNKNOWN, ID: ErrorCode.UNKNOWN_TOPIC_ID}


def test_all_topics() -> None:
    call = all_topics_call()
    assert call.build([ALL_TOPICS], 0).topics == []
    assert call.build([ALL_TOPICS], 1).topics is None
    named = MetadataResponseTopic(name="a")
    assert call.read(MetadataResponse(topics=[named, MetadataResponseTopic(name=None)])) == {ALL_TOPICS: [named]}


def test_values_are_written_as_kafka_writes_them() -> None:
    assert [config_text(value) for value in (True, False, 1, 1.5, "x", None)] == [
        "true",
        "false",
        "1",
        "1.5",
        "x",
        None,
    ]


def test_one_thing_is_no_list() -> None:
    assert as_list(iter("ab"), "topics") == ["a", "b"]
    for wrong in ("ab", b"ab", NewTopic("a"), 5):
        with pytest.raises(ValueError, match="topics must be a list, such as"):
            as_list(wrong, "topics")  # type: ignore[arg-type]
