"""CreateTopics: each topic on its own; one that is refused costs the others nothing."""

from __future__ import annotations

from collections import Counter

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.machines.cluster.topics import NewTopic
from ottla.wire.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def respond(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    context.broker.controller.require_active()
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {t.name: t for t in request.topics}.values():
        try:
            if counts[topic.name] > 1:
                raise InvalidRequestError(f"the request names topic '{topic.name}' {counts[topic.name]} times")
            results.append(await _create(context, topic, validate_only=request.validate_only))
        except KafkaError as e:
            results.append(
                CreatableTopicResult(name=topic.name, error_code=e.code, error_message=e.message, configs=None)
            )
    return CreateTopicsResponse(topics=results)


async def _create(context: RequestContext, topic: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    if not context.may(ResourceType.CLUSTER):
        context.require(ResourceType.TOPIC, topic.name)
    broker = context.broker
    created = await broker.topic_admin.create(new_topic(context, topic), validate_only=validate_only)
    result = CreatableTopicResult(name=topic.name, topic_id=created.topic_id, error_message=None)
    if context.may(ResourceType.TOPIC, topic.name, operation=Operation.DESCRIBE_CONFIGS):
        result.num_partitions, result.replication_factor = created.partitions, created.replication_factor
        overrides = {config.name: config.value or "" for config in topic.configs}
        result.configs = [
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.source,
                is_sensitive=config.sensitive,
            )
            for config in broker.dynamic_configs.describe_topic(overrides)
        ]
    else:
        result.configs = None
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return result


def new_topic(context: RequestContext, topic: CreatableTopic) -> NewTopic:
    """The topic as asked for, with the broker's defaults where the request leaves them open (KIP-464)."""
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidRequestError(f"the value of {config.name} is null")
        if config.name in configs:
            raise InvalidRequestError(f"{config.name} is given twice")
        configs[config.name] = config.value
    if topic.assignments:
        assignment = {a.partition_index: a.broker_ids for a in topic.assignments}
        if len(assignment) != len(topic.assignments):
            raise KafkaError("a partition is assigned twice", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignment, configs)
    settings = context.broker.config
    partitions = settings.integer("num.partitions") if topic.num_partitions == -1 else topic.num_partitions
    factor = topic.replication_factor
    if factor == -1:
        factor = settings.integer("default.replication.factor")
    return NewTopic(topic.name, partitions, factor, configs=configs)


HANDLER = message_handler(CreateTopicsRequest, (2, 7), respond)
