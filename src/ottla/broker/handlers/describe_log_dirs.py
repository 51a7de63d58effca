"""DescribeLogDirs: which partition lies in which directory, and how large it is."""

from __future__ import annotations

import shutil

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.log.log_dir import LogDirs
from ottla.log.partition_log import PartitionLog
from ottla.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def respond(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not context.may(ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
    log_dirs = context.broker.replicas.log_dirs
    results = []
    for path in log_dirs.paths:
        if path in log_dirs.failed:
            results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path)))
            continue
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for log in (*log_dirs.logs_in(path), *log_dirs.futures_in(path)):
            tp = log.topic_partition
            if wanted is None or tp in wanted:
                topics.setdefault(tp.topic, []).append(_describe(log, log_dirs))
        for log in context.broker.replica_moves.not_begun(path):
            tp = log.topic_partition
            if wanted is None or tp in wanted:
                topics.setdefault(tp.topic, []).append(_describe_wish(log))
        space = shutil.disk_usage(path)
        results.append(
            DescribeLogDirsResult(
                log_dir=str(path),
                topics=[DescribeLogDirsTopic(name=name, partitions=found) for name, found in sorted(topics.items())],
                total_bytes=space.total,
                usable_bytes=space.free,
            )
        )
    return DescribeLogDirsResponse(results=results)


def _describe(log: PartitionLog, log_dirs: LogDirs) -> DescribeLogDirsPartition:
    """A copy that will take a partition's place shows how far it is behind; a replica, what it lacks of what counts."""
    current = log_dirs.get(log.topic_partition)
    is_future = current is not None and current is not log
    goal = current.log_end_offset if current is not None and is_future else log.high_watermark
    return DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition,
        partition_size=log.size_bytes,
        offset_lag=max(goal - log.log_end_offset, 0),
        is_future_key=is_future,
    )


def _describe_wish(log: PartitionLog) -> DescribeLogDirsPartition:
    """A copy that was asked for and is not begun lacks everything; who asked must not be told that nothing moves."""
    lag = log.log_end_offset - log.log_start_offset
    return DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition, partition_size=0, offset_lag=lag, is_future_key=True
    )


HANDLER = message_handler(DescribeLogDirsRequest, (1, 4), respond)
