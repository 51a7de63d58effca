"""DescribeTopicPartitions (KIP-966): Metadata for people, in pages of at most so many partitions."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, InvalidRequestError
from ottla.base.types import NIL_UUID
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.handlers.metadata import leader_error
from ottla.machines.cluster.image import NO_LEADER, TopicImage
from ottla.machines.cluster.topic_names import INTERNAL_TOPICS, why_illegal
from ottla.wire.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def respond(context: RequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    image = context.broker.image
    start_topic, start_partition = "", 0
    if request.cursor is not None:
        start_topic, start_partition = request.cursor.topic_name, request.cursor.partition_index
        if start_partition < 0:
            raise InvalidRequestError(f"the cursor's partition is {start_partition}, which is negative")
    configured = context.broker.config.integer("max.request.partition.size.limit")
    room = min(configured, request.response_partition_limit)
    asked = {topic.name for topic in request.topics} if request.topics else set(image.topics)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in sorted(name for name in asked if name >= start_topic):
        if room <= 0:
            cursor = Cursor(topic_name=name, partition_index=0)
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)
        if not context.may(ResourceType.TOPIC, name):
            if request.topics:
                topics.append(_refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        topic = image.topics.get(name)
        if topic is None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION if why_illegal(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(_refused(name, code))
            continue
        first = start_partition if name == start_topic else 0
        described, next_partition = _topic(context, topic, first, room)
        topics.append(described)
        room -= len(described.partitions)
        if next_partition is not None:
            cursor = Cursor(topic_name=name, partition_index=next_partition)
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)
    return DescribeTopicPartitionsResponse(topics=topics)


def _topic(
    context: RequestContext, topic: TopicImage, first: int, room: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    image = context.broker.image
    wanted = [index for index in sorted(topic.partitions) if index >= first]
    shown = [
        DescribeTopicPartitionsResponsePartition(
            error_code=leader_error(image, context.connection.listener, partition.leader, 12),
            partition_index=index,
            leader_id=partition.leader if partition.leader in image.brokers else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=list(partition.offline),
        )
        for index in wanted[:room]
        for partition in [topic.partitions[index]]
    ]
    described = DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=shown,
        topic_authorized_operations=context.authorized_operations(True, ResourceType.TOPIC, topic.name),
    )
    return described, wanted[room] if len(wanted) > room else None


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=NIL_UUID)


HANDLER = message_handler(DescribeTopicPartitionsRequest, (0, 0), respond)
