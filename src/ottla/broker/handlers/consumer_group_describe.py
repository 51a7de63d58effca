"""ConsumerGroupDescribe (KIP-848): state and members of groups whose partitions the broker assigns."""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import Reply, RequestContext, message_handler
from ottla.broker.handlers.coordinated import require_consumer_protocol
from ottla.broker.handlers.state_reads import or_refused, respond_when_committed
from ottla.wire.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def respond(context: RequestContext, request: ConsumerGroupDescribeRequest) -> Reply:
    # One entry per id, whatever is wrong with it: librdkafka aborts its process over a missing one.
    return respond_when_committed(
        [_describe(context, request, group) for group in request.group_ids],
        lambda groups: ConsumerGroupDescribeResponse(groups=groups),
    )


def _describe(
    context: RequestContext, request: ConsumerGroupDescribeRequest, group_id: str
) -> DescribedGroup | asyncio.Future[DescribedGroup]:
    runtime = context.broker.groups.runtime
    try:
        require_consumer_protocol(context)
        context.require(ResourceType.GROUP, group_id)
        shard = runtime.shard_for(group_id)
    except KafkaError as e:
        return _refused(group_id, e)
    group = shard.machine.consumer_describe(group_id)
    group.authorized_operations = context.authorized_operations(
        request.include_authorized_operations, ResourceType.GROUP, group_id
    )
    if runtime.is_committed(shard):
        return group
    return or_refused(runtime.when_committed(shard, group), partial(_refused, group_id))


def _refused(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)


HANDLER = message_handler(ConsumerGroupDescribeRequest, (0, 1), respond)
