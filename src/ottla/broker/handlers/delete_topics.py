"""DeleteTopics: by name, or by id from version 6 on."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.base.types import NIL_UUID
from ottla.broker.authorizer import Operation, ResourceType, refusal
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


async def respond(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    context.broker.controller.require_active()
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    results = []
    for topic in asked:
        result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        try:
            await _delete(context, topic, result)
        except KafkaError as e:
            result.error_code, result.error_message = e.code, e.message
        results.append(result)
    return DeleteTopicsResponse(responses=results)


async def _delete(context: RequestContext, topic: DeleteTopicState, result: DeletableTopicResult) -> None:
    broker = context.broker
    if not broker.config.flag("delete.topic.enable"):
        raise KafkaError(code=ErrorCode.TOPIC_DELETION_DISABLED)
    if topic.name is not None and topic.topic_id != NIL_UUID:
        raise InvalidRequestError("name the topic or give its id, not both")
    name = topic.name if topic.name is not None else broker.image.topic_name(topic.topic_id)
    if name is None:
        raise KafkaError(code=ErrorCode.UNKNOWN_TOPIC_ID)
    found = broker.image.topics.get(name)
    if not context.may(ResourceType.CLUSTER):
        _check_access(context, topic, name, result)
    await broker.topic_admin.delete(name)
    result.name = name
    if found is not None:
        result.topic_id = found.topic_id


def _check_access(context: RequestContext, topic: DeleteTopicState, name: str, result: DeletableTopicResult) -> None:
    """Who may not describe a topic learns neither that it exists nor what it is called."""
    may_describe = context.may(ResourceType.TOPIC, name, operation=Operation.DESCRIBE)
    if topic.name is None:
        result.name = name if may_describe else None
    elif not may_describe:
        raise refusal(ResourceType.TOPIC)
    elif name not in context.broker.image.topics:
        return
    context.require(ResourceType.TOPIC, name)


HANDLER = message_handler(DeleteTopicsRequest, (1, 6), respond)
