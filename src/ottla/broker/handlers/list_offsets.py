"""ListOffsets: offsets by time, and the special ones: latest, earliest, that of the highest timestamp."""

from __future__ import annotations

from collections import Counter

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.partition import Partition
from ottla.log.partition_log import PartitionLog, TimestampOffset
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

FIRST_VERSION_WITH_EPOCHS = 4
_CONSUMER = -1
_READ_COMMITTED = 1


def respond(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    asked = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            found = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            try:
                if asked[topic.name, wanted.partition_index] > 1:
                    raise InvalidRequestError("the request names the partition twice")
                context.require(ResourceType.TOPIC, topic.name)
                _find(context, request, topic.name, wanted, found)
                if context.version < FIRST_VERSION_WITH_EPOCHS:
                    found.leader_epoch = -1
            except KafkaError as e:
                found.error_code = e.code
            partitions.append(found)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _find(
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    found: ListOffsetsPartitionResponse,
) -> None:
    partition = context.broker.replicas.led(topic, wanted.partition_index)
    partition.check_leader_epoch(wanted.current_leader_epoch)
    log = partition.log
    end_offset = _readable_end(partition, request)
    if request.replica_id == _CONSUMER:
        _check_end_is_known(partition, end_offset, wanted.timestamp, context.version)
    if wanted.timestamp == LATEST:
        found.offset, found.leader_epoch = end_offset, partition.leader_epoch
    elif wanted.timestamp in (EARLIEST, EARLIEST_LOCAL):
        found.offset = log.log_start_offset
        found.leader_epoch = log.epochs.epoch_for_offset(log.log_start_offset)
    elif wanted.timestamp == LATEST_TIERED:
        pass  # Nothing is tiered here: no offset, no error.
    else:
        at = _at_time(log, wanted.timestamp, context.version)
        if at is not None and at.offset < end_offset:
            found.timestamp, found.offset, found.leader_epoch = at.timestamp, at.offset, at.leader_epoch


def _at_time(log: PartitionLog, timestamp: int, version: int) -> TimestampOffset | None:
    if timestamp >= 0:
        return log.find_by_timestamp(timestamp)
    if timestamp == MAX_TIMESTAMP and version >= 7:
        return log.find_max_timestamp()
    raise KafkaError(f"timestamp {timestamp} has no meaning here", code=ErrorCode.UNSUPPORTED_VERSION)


def _readable_end(partition: Partition, request: ListOffsetsRequest) -> int:
    log = partition.log
    if request.replica_id != _CONSUMER:
        return log.log_end_offset
    return log.last_stable_offset if request.isolation_level == _READ_COMMITTED else log.high_watermark


def _check_end_is_known(partition: Partition, end_offset: int, timestamp: int, version: int) -> None:
    """A new leader's high watermark may lie below what the old one had shown; until it has caught up, nobody knows."""
    leader = partition.leader
    if leader is None or leader.high_watermark >= leader.epoch_start_offset:
        return
    if timestamp == LATEST or timestamp >= 0:
        raise KafkaError(code=ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE)


HANDLER = message_handler(ListOffsetsRequest, (1, 10), respond)
