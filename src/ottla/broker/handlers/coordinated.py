"""What handlers of coordinator APIs share: find the shard, let its machine decide, reply when it is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.coordinators.pending_reply import PendingReply
from ottla.broker.handler import Handler, RequestContext, error_response
from ottla.machines.coordinator import Decision
from ottla.machines.groups.shard import GroupShard
from ottla.net.service import Outcome
from ottla.wire.message import Request, Response

Q = TypeVar("Q", bound=Request)


class _NamesTopic(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_NamesTopic)


def group_handler(
    request_type: type[Q],
    versions: tuple[int, int],
    decide: Callable[[GroupShard, RequestContext, Q, PendingReply], Decision],
    *,
    group_of: Callable[[Q], str],
    on_error: Callable[[RequestContext, Q, KafkaError], Response] | None = None,
    allows_empty_group: bool = False,
) -> Handler:
    """A handler for one group's request. `on_error` shapes a refusal where the API has no top-level error code."""

    def handle(context: RequestContext) -> Outcome:
        request, _ = request_type.decode(context.frame, context.version, context.position)

        def shape_error(error: KafkaError) -> Response:
            return on_error(context, request, error) if on_error is not None else error_response(context, error)

        pending = PendingReply(context, shape=lambda response: response, shape_error=shape_error)
        group_id = group_of(request)
        try:
            if not group_id and not allows_empty_group:
                raise KafkaError("the group id is empty", code=ErrorCode.INVALID_GROUP_ID)
            context.require(ResourceType.GROUP, group_id)
            runtime = context.broker.groups.runtime
            shard = runtime.shard_for(group_id)
            decision = decide(shard.machine, context, request, pending)
        except KafkaError as e:
            pending.fail(e)
        else:
            runtime.run(shard, decision)
        return pending.deferred

    return Handler(request_type.API_KEY, *versions, handle)


def require_consumer_protocol(context: RequestContext) -> None:
    if not context.broker.groups.serves_consumer_protocol:
        raise KafkaError(
            "group.coordinator.rebalance.protocols of this broker does not name the consumer protocol",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )


def by_access(context: RequestContext, topics: Iterable[T]) -> tuple[list[T], list[T]]:
    """The topics of a request with which the client may do what the API does, and the others."""
    allowed: list[T] = []
    refused: list[T] = []
    for topic in topics:
        (allowed if context.may(ResourceType.TOPIC, topic.name) else refused).append(topic)
    return allowed, refused
