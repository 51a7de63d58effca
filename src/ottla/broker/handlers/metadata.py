"""Metadata: brokers, topics, leaders. Creates missing topics where both the broker and the client allow it."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import NIL_UUID
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.machines.cluster.image import NO_LEADER, ClusterImage, TopicImage
from ottla.machines.cluster.topic_names import INTERNAL_TOPICS, why_illegal
from ottla.wire.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

MAX_CREATED_PER_REQUEST = 1_000
"""A request that names more missing topics than this is a mistake or an attack; the rest stays unknown."""


def respond(
    context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    missing = _to_create(context, request)
    if missing:
        return _create_and_respond(context, request, missing)
    return _response(context, request, {})


def _to_create(context: RequestContext, request: MetadataRequest) -> list[str]:
    broker = context.broker
    if (
        not request.topics
        or not request.allow_auto_topic_creation
        or not broker.config.flag("auto.create.topics.enable")
    ):
        return []
    topics = broker.image.topics
    names = dict.fromkeys(t.name for t in request.topics if t.name is not None and t.name not in topics)
    legal = [name for name in names if why_illegal(name) is None]
    return [
        name
        for name in legal[:MAX_CREATED_PER_REQUEST]
        if context.may(Operation.CREATE, ResourceType.CLUSTER)
        or context.may(Operation.CREATE, ResourceType.TOPIC, name)
    ]


async def _create_and_respond(
    context: RequestContext, request: MetadataRequest, missing: list[str]
) -> MetadataResponse:
    errors: dict[str, ErrorCode] = {}
    for name in missing:
        try:
            await context.broker.create_missing_topic(name)
        except KafkaError as e:
            if e.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                errors[name] = e.code
    return _response(context, request, errors)


def _response(context: RequestContext, request: MetadataRequest, errors: dict[str, ErrorCode]) -> MetadataResponse:
    image = context.broker.image
    listener = context.connection.listener
    brokers = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            brokers.append(
                MetadataResponseBroker(
                    node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    return MetadataResponse(
        brokers=brokers,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=_topics(context, request, errors),
        cluster_authorized_operations=context.authorized_operations(
            request.include_cluster_authorized_operations, ResourceType.CLUSTER
        ),
    )


def _topics(
    context: RequestContext, request: MetadataRequest, errors: dict[str, ErrorCode]
) -> list[MetadataResponseTopic]:
    image = context.broker.image
    wants_all = request.topics is None or (context.version == 0 and not request.topics)
    if wants_all:
        readable = (t for t in image.topics.values() if context.may(Operation.DESCRIBE, ResourceType.TOPIC, t.name))
        return [_topic(context, request, topic) for topic in readable]
    return [_asked_topic(context, request, asked, errors) for asked in request.topics or ()]


def _asked_topic(
    context: RequestContext, request: MetadataRequest, asked: MetadataRequestTopic, errors: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    image = context.broker.image
    name = asked.name
    if name is None:
        name = image.topic_name(asked.topic_id)
        if name is None or not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
    elif not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=NIL_UUID)
    topic = image.topics.get(name)
    if topic is not None:
        return _topic(context, request, topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if why_illegal(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(
        error_code=errors.get(name, unknown), name=name, is_internal=name in INTERNAL_TOPICS, topic_id=NIL_UUID
    )


def _topic(context: RequestContext, request: MetadataRequest, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=list(_partitions(context, topic)),
        topic_authorized_operations=context.authorized_operations(
            request.include_topic_authorized_operations, ResourceType.TOPIC, topic.name
        ),
    )


def _partitions(context: RequestContext, topic: TopicImage) -> Iterable[MetadataResponsePartition]:
    image = context.broker.image
    for index, partition in topic.partitions.items():
        yield MetadataResponsePartition(
            error_code=leader_error(image, context.connection.listener, partition.leader, context.version),
            partition_index=index,
            leader_id=partition.leader if partition.leader in image.brokers else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=list(partition.offline),
        )


def leader_error(image: ClusterImage, listener: str, leader: int, version: int) -> ErrorCode:
    broker = image.brokers.get(leader)
    if broker is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if broker.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE


HANDLER = message_handler(MetadataRequest, (0, 13), respond)
