"""ConsumerGroupDescribe (KIP-848): state and members of groups whose partitions the broker assigns."""

from __future__ import annotations

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def respond(context: RequestContext, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    # One entry per id, whatever is wrong with it: librdkafka aborts its process over a missing one.
    return ConsumerGroupDescribeResponse(groups=[_describe(context, request, group) for group in request.group_ids])


def _describe(context: RequestContext, request: ConsumerGroupDescribeRequest, group_id: str) -> DescribedGroup:
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = context.broker.groups.runtime.shard_for(group_id).machine.consumer_describe(group_id)
    except KafkaError as e:
        return DescribedGroup(error_code=e.code, error_message=e.message, group_id=group_id)
    group.authorized_operations = context.authorized_operations(
        request.include_authorized_operations, ResourceType.GROUP, group_id
    )
    return group


HANDLER = message_handler(ConsumerGroupDescribeRequest, (0, 1), respond)
