"""Topics, partitions and the cluster: what is asked of brokers, and what their answers say. Sends nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ottla.base.errors import ErrorCode
from ottla.base.types import Uuid, uuid_to_text
from ottla.client.core.admin.arguments import config_text
from ottla.client.core.admin.outcomes import Call, admin_error, outcome
from ottla.client.core.admin.types import (
    BROKER_DEFAULT,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicDescription,
)
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.errors import ClientError
from ottla.wire.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.wire.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

TopicKey: TypeAlias = str | Uuid | uuid.UUID
"""A topic by its name, or by its id."""

ALL_TOPICS = "all topics"

_FIRST_DELETE_BY_STATE = 6
_FIRST_DESCRIBE_BY_ID = 12
_FIRST_BROKER_DEFAULTS = 4


def topic_label(topic: TopicKey) -> str:
    return f"topic {topic if isinstance(topic, str) else uuid_to_text(_id_of(topic))}"


def _id_of(topic: Uuid | uuid.UUID) -> Uuid:
    return Uuid(topic.bytes) if isinstance(topic, uuid.UUID) else topic


def _by_id(topics: Iterable[TopicKey]) -> dict[Uuid, TopicKey]:
    """The topics that were named by their ids, in whichever form."""
    return {_id_of(topic): topic for topic in topics if not isinstance(topic, str)}


# Creating


def create_topics_call(topics: Iterable[NewTopic], *, validate_only: bool, timeout_ms: int) -> Call[str, CreatedTopic]:
    by_name: dict[str, NewTopic] = {}
    for topic in topics:
        if by_name.setdefault(topic.name, topic) != topic:
            raise ValueError(f"two different topics are to be created with the name {topic.name!r}")

    def build(names: Sequence[str], version: int) -> CreateTopicsRequest:
        chosen = [by_name[name] for name in names]
        if version < _FIRST_BROKER_DEFAULTS and any(_wants_defaults(topic) for topic in chosen):
            raise admin_error(
                ErrorCode.UNSUPPORTED_VERSION,
                "the broker is too old to choose the number of partitions and replicas; name both",
            )
        return CreateTopicsRequest(
            topics=[_creatable(topic) for topic in chosen], timeout_ms=timeout_ms, validate_only=validate_only
        )

    return Call("create_topics", CreateTopicsRequest, CreateTopicsResponse, build, _read_created)


def _wants_defaults(topic: NewTopic) -> bool:
    return not topic.assignments and BROKER_DEFAULT in (topic.partitions, topic.replication_factor)


def _creatable(topic: NewTopic) -> CreatableTopic:
    by_hand = bool(topic.assignments)
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if by_hand else topic.partitions,
        replication_factor=BROKER_DEFAULT if by_hand else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(topic.assignments)
        ],
        configs=[CreatableTopicConfig(name=name, value=config_text(value)) for name, value in topic.configs.items()],
    )


def _read_created(response: CreateTopicsResponse) -> dict[str, CreatedTopic | ClientError]:
    return {
        answer.name: outcome(
            answer.error_code,
            CreatedTopic(answer.name, answer.topic_id, answer.num_partitions, answer.replication_factor),
            answer.error_message,
            where=topic_label(answer.name),
        )
        for answer in response.topics
    }


def create_partitions_call(
    totals: Mapping[str, NewPartitions], *, validate_only: bool, timeout_ms: int
) -> Call[str, None]:
    def build(names: Sequence[str], version: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(
                    name=name,
                    count=totals[name].total,
                    assignments=[
                        CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in totals[name].assignments
                    ]
                    or None,
                )
                for name in names
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )

    def read(response: CreatePartitionsResponse) -> dict[str, ClientError | None]:
        return {
            answer.name: outcome(answer.error_code, None, answer.error_message, where=topic_label(answer.name))
            for answer in response.results
        }

    return Call("create_partitions", CreatePartitionsRequest, CreatePartitionsResponse, build, read)


# Deleting


def delete_topics_call(asked: Iterable[TopicKey], *, timeout_ms: int) -> Call[TopicKey, None]:
    by_id = _by_id(asked)

    def build(topics: Sequence[TopicKey], version: int) -> DeleteTopicsRequest:
        if version >= _FIRST_DELETE_BY_STATE:
            states = [
                DeleteTopicState(name=topic)
                if isinstance(topic, str)
                else DeleteTopicState(name=None, topic_id=_id_of(topic))
                for topic in topics
            ]
            return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
        return DeleteTopicsRequest(topic_names=_only_names(topics), timeout_ms=timeout_ms)

    def read(response: DeleteTopicsResponse) -> dict[TopicKey, ClientError | None]:
        answers: dict[TopicKey, ClientError | None] = {}
        for answer in response.responses:
            # A topic that was named by its id is answered with its name as well.
            name = answer.topic_id if answer.name is None else answer.name
            key = by_id.get(answer.topic_id, name)
            answers[key] = outcome(answer.error_code, None, answer.error_message, where=topic_label(key))
        return answers

    return Call("delete_topics", DeleteTopicsRequest, DeleteTopicsResponse, build, read)


def _only_names(topics: Sequence[TopicKey]) -> list[str]:
    names = [topic for topic in topics if isinstance(topic, str)]
    if len(names) < len(topics):
        raise admin_error(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old for topic ids; name the topics")
    return names


# Describing


def describe_topics_call(asked: Sequence[TopicKey]) -> Call[TopicKey, TopicDescription]:
    names = set(asked)
    by_id = _by_id(asked)

    def build(topics: Sequence[TopicKey], version: int) -> MetadataRequest:
        if version < _FIRST_DESCRIBE_BY_ID:
            _only_names(topics)
        return MetadataRequest(
            topics=[
                MetadataRequestTopic(name=topic)
                if isinstance(topic, str)
                else MetadataRequestTopic(name=None, topic_id=_id_of(topic))
                for topic in topics
            ],
            # Before version 4 a broker that creates topics by itself does so when it is asked about one.
            allow_auto_topic_creation=version < _FIRST_BROKER_DEFAULTS,
        )

    def read(response: MetadataResponse) -> dict[TopicKey, TopicDescription | ClientError]:
        answers: dict[TopicKey, TopicDescription | ClientError] = {}
        for answer in response.topics:
            keys = [by_id[answer.topic_id]] if answer.topic_id in by_id else []
            if answer.name is not None and answer.name in names:
                keys.append(answer.name)
            for key in keys:
                answers[key] = outcome(answer.error_code, topic_description(answer), where=topic_label(key))
        return answers

    return Call("describe_topics", MetadataRequest, MetadataResponse, build, read)


def all_topics_call() -> Call[str, list[MetadataResponseTopic]]:
    def build(_: Sequence[str], version: int) -> MetadataRequest:
        return MetadataRequest(topics=None if version else [])

    def read(response: MetadataResponse) -> dict[str, list[MetadataResponseTopic] | ClientError]:
        topics = [topic for topic in response.topics if topic.name is not None]
        return {ALL_TOPICS: outcome(response.error_code, topics)}

    return Call("list_topics", MetadataRequest, MetadataResponse, build, read)


def topic_description(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = (
        PartitionInfo(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in topic.partitions
    )
    return TopicDescription(topic.name or "", topic.topic_id, topic.is_internal, tuple(sorted(partitions)))
