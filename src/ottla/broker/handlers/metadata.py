"""Metadata: brokers, topics, leaders. Creates missing topics where both the broker and the client allow it.

Every client asks for it again and again, and the answer rarely changes: a topic's encoded bytes are kept until anything
in the cluster does.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.authorizer import NOT_REQUESTED, Operation, ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.machines.cluster.image import NO_LEADER, ClusterImage, TopicImage
from ottla.machines.cluster.topic_names import INTERNAL_TOPICS, why_illegal
from ottla.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.fused.metadata import (
    MetadataBroker,
    MetadataPartition,
    encode_metadata_response,
    encode_metadata_topic,
)

MAX_CREATED_PER_REQUEST = 1_000
"""A request that names more missing topics than this is a mistake or an attack; the rest stays unknown."""


def respond(context: RequestContext, request: MetadataRequest) -> bytes | Coroutine[Any, Any, bytes]:
    if not context.broker.introduced.is_set():
        return _respond_once_introduced(context, request)
    errors: dict[str, ErrorCode] = {}
    missing = _to_create(context, request, errors)
    if missing:
        return _create_and_respond(context, request, missing, errors)
    return _response(context, request, errors)


async def _respond_once_introduced(context: RequestContext, request: MetadataRequest) -> bytes:
    """Until then there are no brokers to name, and a client that is told so may not ask again for long."""
    await context.broker.introduced.wait()
    response = respond(context, request)
    return response if isinstance(response, bytes) else await response


def _to_create(context: RequestContext, request: MetadataRequest, errors: dict[str, ErrorCode]) -> list[str]:
    """Topics to be made for who may make them, and may know of them at all; for the others an error is noted."""
    broker = context.broker
    if not (request.topics and request.allow_auto_topic_creation and broker.config.flag("auto.create.topics.enable")):
        return []
    topics = broker.image.topics
    names = dict.fromkeys(t.name for t in request.topics if t.name is not None and t.name not in topics)
    wanted = [name for name in names if context.may(ResourceType.TOPIC, name)]
    if not wanted:
        return []
    may_create_all = context.may(ResourceType.CLUSTER)
    legal = []
    for name in wanted:
        if not (may_create_all or context.may(ResourceType.TOPIC, name, operation=Operation.CREATE)):
            errors[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif why_illegal(name) is None:
            legal.append(name)
    return legal[:MAX_CREATED_PER_REQUEST]


async def _create_and_respond(
    context: RequestContext, request: MetadataRequest, missing: list[str], errors: dict[str, ErrorCode]
) -> bytes:
    for name in missing:
        try:
            await context.broker.create_missing_topic(name)
        except KafkaError as e:
            if e.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                errors[name] = e.code
    return _response(context, request, errors)


def _response(context: RequestContext, request: MetadataRequest, errors: dict[str, ErrorCode]) -> bytes:
    image = context.broker.image
    return encode_metadata_response(
        context.version,
        context.correlation_id,
        brokers=[
            MetadataBroker(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
            for broker in image.brokers.values()
            for endpoint in [broker.endpoint(context.connection.listener)]
            if endpoint is not None
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=list(_topics(context, request, errors)),
        cluster_authorized_operations=context.cluster_operations(request.include_cluster_authorized_operations),
    )


def _topics(context: RequestContext, request: MetadataRequest, errors: dict[str, ErrorCode]) -> Iterable[bytes]:
    asked = request.topics
    if asked is None or (context.version == 0 and not asked):
        for topic in context.broker.image.topics.values():
            if context.may(ResourceType.TOPIC, topic.name):
                yield _topic(context, request, topic)
    else:
        for one in asked:
            yield _asked_topic(context, request, one, errors)


def _asked_topic(
    context: RequestContext, request: MetadataRequest, asked: MetadataRequestTopic, errors: dict[str, ErrorCode]
) -> bytes:
    image = context.broker.image
    version = context.version
    name = asked.name
    if name is None:
        name = image.topic_name(asked.topic_id)
        if name is None or not context.may(ResourceType.TOPIC, name):
            # The id is no secret, its client has it; the name is.
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return encode_metadata_topic(version, error_code=code, name=None, topic_id=asked.topic_id)
    elif not context.may(ResourceType.TOPIC, name):
        return encode_metadata_topic(version, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    topic = image.topics.get(name)
    if topic is not None:
        return _topic(context, request, topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if why_illegal(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    return encode_metadata_topic(
        version, error_code=errors.get(name, unknown), name=name, is_internal=name in INTERNAL_TOPICS
    )


def _topic(context: RequestContext, request: MetadataRequest, topic: TopicImage) -> bytes:
    cache = context.broker.metadata_cache
    operations = context.authorized_operations(
        request.include_topic_authorized_operations, ResourceType.TOPIC, topic.name
    )
    key = (topic.name, context.version, context.connection.listener)
    if operations == NOT_REQUESTED:
        cached = cache.get(context.broker.image.generation, key)
        if cached is not None:
            return cached
    encoded = encode_metadata_topic(
        context.version,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=list(_partitions(context, topic)),
        authorized_operations=operations,
    )
    if operations == NOT_REQUESTED:
        cache.put(key, encoded)
    return encoded


def _partitions(context: RequestContext, topic: TopicImage) -> Iterable[MetadataPartition]:
    image = context.broker.image
    for index, partition in topic.partitions.items():
        yield MetadataPartition(
            leader_error(image, context.connection.listener, partition.leader, context.version),
            index,
            partition.leader if partition.leader in image.brokers else NO_LEADER,
            partition.leader_epoch,
            partition.replicas,
            partition.isr,
            partition.offline,
        )


def leader_error(image: ClusterImage, listener: str, leader: int, version: int) -> ErrorCode:
    broker = image.brokers.get(leader)
    if broker is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if broker.endpoint(listener) is None:
        return ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE


HANDLER = message_handler(MetadataRequest, (0, 13), respond)
