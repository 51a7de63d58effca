"""DeleteRecords: raises a partition's log start offset, here and at its followers.

It is answered when no live replica holds the records any more (KIP-107), so that a new leader cannot bring them back.
"""

from __future__ import annotations

import asyncio

from ottla.base.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.partition import Partition
from ottla.wire.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
_LOOK_AGAIN_MS = 500
"""The last of the followers may be gone meanwhile: then no fetch tells that there is nobody left to wait for."""


async def respond(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    until_ms = context.broker.clock.monotonic_ms() + max(request.timeout_ms, 0)

    async def delete(topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
        try:
            context.require(ResourceType.TOPIC, topic)
            result.low_watermark = await _delete(context, topic, index, offset, until_ms)
        except KafkaError as e:
            result.error_code = e.code
        return result

    topics = []
    for topic in request.topics:
        deleting = (delete(topic.name, asked.partition_index, asked.offset) for asked in topic.partitions)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=list(await asyncio.gather(*deleting))))
    return DeleteRecordsResponse(topics=topics)


async def _delete(context: RequestContext, topic: str, index: int, offset: int, until_ms: int) -> int:
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
    return await _wait_for_followers(context, partition, offset, until_ms)


async def _wait_for_followers(context: RequestContext, partition: Partition, offset: int, until_ms: int) -> int:
    broker = context.broker
    leads_since = partition.leads_since
    while True:
        leader = partition.leader
        if leader is None or partition.leads_since != leads_since:
            raise KafkaError(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        low_watermark = leader.low_watermark(partition.log.log_start_offset, broker.image.brokers)
        if low_watermark >= offset:
            return low_watermark
        left_ms = until_ms - broker.clock.monotonic_ms()
        if left_ms <= 0:
            raise KafkaError(code=ErrorCode.REQUEST_TIMED_OUT)
        waiter = _Moved(asyncio.get_running_loop().create_future())
        parked = broker.parked.park(waiter, [partition], min(left_ms, _LOOK_AGAIN_MS))
        try:
            await waiter.moved
        finally:
            parked.forget()


class _Moved:
    """Waits for anything to happen to a partition."""

    def __init__(self, moved: asyncio.Future[None]) -> None:
        self.moved = moved

    def try_complete(self) -> bool:
        if not self.moved.done():
            self.moved.set_result(None)
        return True

    def expire(self) -> None:
        self.try_complete()


HANDLER = message_handler(DeleteRecordsRequest, (0, 2), respond)
