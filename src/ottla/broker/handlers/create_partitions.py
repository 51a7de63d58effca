"""CreatePartitions: topics can only grow."""

from __future__ import annotations

from ottla.base.errors import InvalidRequestError, KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


async def respond(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    context.broker.controller.require_active()
    seen: set[str] = set()
    results = []
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if topic.name in seen:
                raise InvalidRequestError(f"the request names topic '{topic.name}' more than once")
            seen.add(topic.name)
            context.require(ResourceType.TOPIC, topic.name)
            chosen = None if topic.assignments is None else [a.broker_ids for a in topic.assignments]
            await context.broker.topic_admin.add_partitions(
                topic.name, topic.count, chosen, validate_only=request.validate_only
            )
        except KafkaError as e:
            result.error_code, result.error_message = e.code, e.message
        results.append(result)
    return CreatePartitionsResponse(results=results)


HANDLER = message_handler(CreatePartitionsRequest, (0, 3), respond)
