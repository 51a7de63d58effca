"""OffsetCommit: stores a group's positions."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.coordinators.pending_reply import PendingReply
from ottla.broker.handler import RequestContext
from ottla.broker.handlers.coordinated import by_access, group_handler
from ottla.machines.coordinator import Decision
from ottla.machines.groups.offset_requests import all_failed, commit_response
from ottla.machines.groups.shard import GroupShard
from ottla.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic, OffsetCommitResponse


def _commit(
    shard: GroupShard, context: RequestContext, request: OffsetCommitRequest, pending: PendingReply
) -> Decision:
    request.topics, refused = by_access(context, request.topics)
    if refused:
        pending.shape_with(lambda response: _with_refused(response, refused))
        if not request.topics:
            return Decision().reply(pending, OffsetCommitResponse())
    return shard.commit_offsets(request, pending, version=context.version, now_ms=context.broker.clock.wall_ms())


def _with_refused(response: OffsetCommitResponse, refused: Sequence[OffsetCommitRequestTopic]) -> OffsetCommitResponse:
    response.topics += commit_response(all_failed(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)).topics
    return response


def _failed(context: RequestContext, request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return commit_response(all_failed(request.topics, error.code))


HANDLER = group_handler(
    OffsetCommitRequest,
    (2, 9),
    _commit,
    group_of=lambda request: request.group_id,
    on_error=_failed,
    allows_empty_group=True,
)
