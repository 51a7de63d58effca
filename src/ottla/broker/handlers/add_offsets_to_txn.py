"""AddOffsetsToTxn: the partition that keeps a group's offsets joins the transaction."""

from __future__ import annotations

from ottla.base.types import TopicPartition
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.handlers.transactional import ask
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


async def respond(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    context.require(ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    context.require(ResourceType.GROUP, request.group_id)
    partition = TopicPartition(GROUP_METADATA_TOPIC, context.broker.groups.runtime.partition_for(request.group_id))
    answer = await ask(
        context,
        request.transactional_id,
        lambda machine, token, now_ms: machine.add_offsets(
            request, partition, token, version=context.version, now_ms=now_ms
        ),
    )
    return AddOffsetsToTxnResponse(error_code=answer.error_code)


HANDLER = message_handler(AddOffsetsToTxnRequest, (0, 4), respond)
