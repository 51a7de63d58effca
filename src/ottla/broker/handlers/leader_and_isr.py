"""LeaderAndIsr: the controller gives this broker roles."""

from __future__ import annotations

from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionError, LeaderAndIsrRequest, LeaderAndIsrResponse

FIRST_VERSION_WITH_IDS = 5


async def respond(context: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    context.require(ResourceType.CLUSTER)
    response = await context.broker.orders.obey(request)
    assert isinstance(response, LeaderAndIsrResponse)
    if context.version < FIRST_VERSION_WITH_IDS:
        response.partition_errors = [
            LeaderAndIsrPartitionError(
                topic_name=topic.topic_name, partition_index=error.partition_index, error_code=error.error_code
            )
            for topic, told in zip(request.topic_states, response.topics, strict=False)
            for error in told.partition_errors
        ]
        response.topics = []
    return response


HANDLER = message_handler(LeaderAndIsrRequest, (2, 7), respond)
