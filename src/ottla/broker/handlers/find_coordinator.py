"""FindCoordinator: which broker keeps the state of a group or of a transactional id."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.internal_topics import ensure_internal_topic
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.wire.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1


async def respond(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.version >= 4:
        found = [await _find(context, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = await _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(context: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        return await _locate(context, key_type, key)
    except KafkaError as e:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=e.code, error_message=e.message)


async def _locate(context: RequestContext, key_type: int, key: str) -> Coordinator:
    broker = context.broker
    if key_type == GROUP:
        context.require(ResourceType.GROUP, key)
        topic, index = GROUP_METADATA_TOPIC, broker.groups.runtime.partition_for
    elif key_type == TRANSACTION:
        context.require(ResourceType.TRANSACTIONAL_ID, key)
        topic, index = TRANSACTION_STATE_TOPIC, broker.transactions.runtime.partition_for
    else:
        raise InvalidRequestError(f"there is no coordinator for keys of type {key_type}")
    if not key and key_type == TRANSACTION:
        raise InvalidRequestError("the transactional id is empty")
    await ensure_internal_topic(broker, topic)
    leader = broker.image.live_leader(TopicPartition(topic, index(key)))
    endpoint = leader.endpoint(context.connection.listener) if leader is not None else None
    if leader is None or endpoint is None:
        raise KafkaError(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=leader.broker_id, host=endpoint.host, port=endpoint.port, error_message=None)


HANDLER = message_handler(FindCoordinatorRequest, (0, 6), respond)
