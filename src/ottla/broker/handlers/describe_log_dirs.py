"""DescribeLogDirs: which partition lies in which directory, and how large it is."""

from __future__ import annotations

import shutil

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def respond(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not context.may(Operation.DESCRIBE, ResourceType.CLUSTER):
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
        for log in log_dirs.logs_in(path):
            tp = log.topic_partition
            if wanted is None or tp in wanted:
                topics.setdefault(tp.topic, []).append(
                    DescribeLogDirsPartition(partition_index=tp.partition, partition_size=log.size_bytes, offset_lag=0)
                )
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


HANDLER = message_handler(DescribeLogDirsRequest, (1, 4), respond)
