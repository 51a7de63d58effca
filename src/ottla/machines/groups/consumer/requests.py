"""ConsumerGroupHeartbeat requests looked at on their own: which break the rules whatever the state of the group."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.machines.groups.consumer.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Partitions
from ottla.machines.groups.consumer.pattern import compile_topic_pattern
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

CLIENT_MAKES_MEMBER_ID_VERSION = 1


def validate(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Raises INVALID_REQUEST, UNSUPPORTED_ASSIGNOR or INVALID_REGULAR_EXPRESSION."""
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{name} cannot be empty")
    if request.member_epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequestError(f"{request.member_epoch} is not a member epoch")
    if not request.member_id and (version >= CLIENT_MAKES_MEMBER_ID_VERSION or request.member_epoch != JOIN_EPOCH):
        raise InvalidRequestError("MemberId cannot be empty")
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise InvalidRequestError("only a static member can leave for a while: InstanceId is missing")
    if request.member_epoch == JOIN_EPOCH:
        _validate_join(request)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            f"there is no assignor {request.server_assignor!r} here, only {', '.join(assignors)}",
            code=ErrorCode.UNSUPPORTED_ASSIGNOR,
        )
    if request.subscribed_topic_regex:
        compile_topic_pattern(request.subscribed_topic_regex)


def _validate_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequestError("a member that joins must say its RebalanceTimeoutMs")
    if request.topic_partitions is None or request.topic_partitions:
        raise InvalidRequestError("a member that joins owns nothing: TopicPartitions must be an empty list")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise InvalidRequestError("a member that joins must say SubscribedTopicNames or SubscribedTopicRegex")


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """What the member says it holds; None if it did not say."""
    if request.topic_partitions is None:
        return None
    return frozenset((topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member said everything of itself, as it does when it joins or may have missed a reply."""
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
