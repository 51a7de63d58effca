"""OffsetFetch: a group's stored positions; of many groups at once from version 8 on."""

from __future__ import annotations

import asyncio

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import Reply, RequestContext, message_handler
from ottla.broker.handlers.state_reads import or_refused, respond_when_committed
from ottla.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

FIRST_BATCHED_VERSION = 8
FIRST_VERSION_WITH_TOP_LEVEL_ERROR = 2
NO_OFFSET = -1


def respond(context: RequestContext, request: OffsetFetchRequest) -> Reply:
    if context.version >= FIRST_BATCHED_VERSION:
        return respond_when_committed(
            [_fetch(context, group, request.require_stable) for group in request.groups],
            lambda groups: OffsetFetchResponse(groups=groups),
        )
    topics = request.topics
    group = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics],
    )
    return respond_when_committed(
        [_fetch(context, group, request.require_stable)],
        lambda groups: _single(context.version, group, groups[0]),
    )


def _fetch(
    context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup | asyncio.Future[OffsetFetchResponseGroup]:
    runtime = context.broker.groups.runtime
    try:
        context.require(ResourceType.GROUP, group.group_id)
        shard = runtime.shard_for(group.group_id)
    except KafkaError as e:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=e.code)
    found = shard.machine.fetch_offsets(group, require_stable=require_stable)
    names_all = group.topics is None
    allowed: list[OffsetFetchResponseTopics] = []
    for topic in found.topics:
        if context.may(ResourceType.TOPIC, topic.name):
            allowed.append(topic)
        elif not names_all:
            allowed.append(_refused(topic))
    found.topics = allowed
    if runtime.is_committed(shard):
        return found
    return or_refused(
        runtime.when_committed(shard, found),
        lambda e: OffsetFetchResponseGroup(group_id=group.group_id, error_code=e.code),
    )


def _refused(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        partitions=[
            _unknown(partition.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for partition in topic.partitions
        ],
    )


def _unknown(index: int, code: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
    )


def _single(version: int, asked: OffsetFetchRequestGroup, found: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    if found.error_code and version < FIRST_VERSION_WITH_TOP_LEVEL_ERROR:
        found.topics = [
            OffsetFetchResponseTopics(
                name=topic.name, partitions=[_unknown(index, found.error_code) for index in topic.partition_indexes]
            )
            for topic in asked.topics or ()
        ]
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in found.topics
        ],
    )


HANDLER = message_handler(OffsetFetchRequest, (1, 9), respond)
