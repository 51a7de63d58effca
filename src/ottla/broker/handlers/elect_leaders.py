"""ElectLeaders: the preferred replica leads again, or any replica where nobody is left in sync (KIP-460)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.authorizer import ResourceType, refusal
from ottla.broker.handler import RequestContext, message_handler
from ottla.machines.cluster.controller import ElectionAsked, ElectionKind
from ottla.wire.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_AN_ERROR = 1
_KINDS = {0: ElectionKind.PREFERRED, 1: ElectionKind.UNCLEAN}
_RULES = {
    ElectionKind.PREFERRED: "PreferredReplicaPartitionLeaderElectionStrategy",
    ElectionKind.UNCLEAN: "OfflinePartitionLeaderElectionStrategy(true)",
}


async def respond(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Replies when the new leaders have heard of it."""
    named = _named(request)
    if not context.may(ResourceType.CLUSTER):
        return _failed(context, named, refusal(ResourceType.CLUSTER))
    kind = _KINDS.get(request.election_type)
    if kind is None:
        raise InvalidRequestError(f"there is no election of type {request.election_type}")
    controller = context.broker.controller
    if not controller.is_active:
        return _failed(context, named, KafkaError(code=ErrorCode.NOT_CONTROLLER))
    partitions = tuple(tp for tp, _ in controller.state.partitions()) if named is None else tuple(named)
    try:
        codes: dict[TopicPartition, ErrorCode] = await controller.submit(ElectionAsked(partitions, kind))
    except KafkaError as e:
        if e.code == ErrorCode.NOT_CONTROLLER or not partitions:
            raise
        # Only beside a partition there is room for words, which say what cannot be reached.
        return _response(dict.fromkeys(partitions, (e.code, e.message)))
    elected = [tp for tp, code in codes.items() if code == ErrorCode.NONE]
    if elected:
        log.info("%d leaders were elected (%s), such as that of %s", len(elected), kind.value, elected[0])
        codes |= await _delivered(context, elected, request.timeout_ms)
    if named is None:
        # Whoever asks for all wants to hear of what was done, not of what was right already.
        codes = {tp: code for tp, code in codes.items() if code != ErrorCode.ELECTION_NOT_NEEDED}
    return _response({tp: (code, _words(tp, code, kind)) for tp, code in codes.items()})


def _named(request: ElectLeadersRequest) -> list[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    named = [TopicPartition(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    return list(dict.fromkeys(named))


async def _delivered(
    context: RequestContext, elected: Iterable[TopicPartition], timeout_ms: int
) -> Mapping[TopicPartition, ErrorCode]:
    controller = context.broker.controller
    leaders = {partition.leader for tp in elected if (partition := controller.state.partition(tp)) is not None}
    try:
        await asyncio.wait_for(controller.delivered({*leaders, controller.broker_id}), max(timeout_ms, 1) / 1000)
    except (TimeoutError, KafkaError):
        return dict.fromkeys(elected, ErrorCode.REQUEST_TIMED_OUT)
    return {}


def _words(tp: TopicPartition, code: ErrorCode, kind: ElectionKind) -> str | None:
    """Kafka's, which its tools show."""
    match code:
        case ErrorCode.NONE:
            return None
        case ErrorCode.ELECTION_NOT_NEEDED:
            return "Leader election not needed for topic partition."
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return "The partition does not exist."
        case ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE | ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
            return f"Failed to elect leader for partition {tp} under strategy {_RULES[kind]}"
        case _:
            return KafkaError(code=code).message


def _failed(context: RequestContext, named: Iterable[TopicPartition] | None, error: KafkaError) -> ElectLeadersResponse:
    response = _response(dict.fromkeys(named or (), (error.code, error.message)))
    if context.version >= FIRST_VERSION_WITH_AN_ERROR:
        response.error_code = error.code
    return response


def _response(results: Mapping[TopicPartition, tuple[ErrorCode, str | None]]) -> ElectLeadersResponse:
    topics: dict[str, ReplicaElectionResult] = {}
    for tp, (error_code, message) in results.items():
        topic = topics.setdefault(tp.topic, ReplicaElectionResult(topic=tp.topic))
        topic.partition_result.append(
            PartitionResult(partition_id=tp.partition, error_code=error_code, error_message=message)
        )
    return ElectLeadersResponse(replica_election_results=list(topics.values()))


HANDLER = message_handler(ElectLeadersRequest, (0, 2), respond)
