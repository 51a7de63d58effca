"""DeleteRecords: raises a partition's log start offset."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


def respond(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            try:
                context.require(ResourceType.TOPIC, topic.name)
                result.low_watermark = _delete(context, topic.name, asked.partition_index, asked.offset)
            except KafkaError as e:
                result.error_code = e.code
            partitions.append(result)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=topics)


def _delete(context: RequestContext, topic: str, index: int, offset: int) -> int:
    replicas = context.broker.replicas
    partition = replicas.led(topic, index)
    log = partition.log
    if not log.config.deletes_old_segments:
        raise KafkaError("the topic's cleanup.policy does not include delete", code=ErrorCode.POLICY_VIOLATION)
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0 or offset > log.high_watermark:
        raise OffsetOutOfRangeError(f"offset {offset} is not between 0 and the high watermark, {log.high_watermark}")
    if offset > log.log_start_offset:
        log.advance_log_start_offset(offset)
        replicas.moved(partition)
    return log.log_start_offset


HANDLER = message_handler(DeleteRecordsRequest, (0, 2), respond)
