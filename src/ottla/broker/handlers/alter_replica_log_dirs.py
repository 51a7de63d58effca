"""AlterReplicaLogDirs (KIP-113): moves a replica to another directory of the same broker."""

from __future__ import annotations

from pathlib import Path

from ottla.base.errors import KafkaError
from ottla.broker.authorizer import ResourceType
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def respond(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    by_topic: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                result = AlterReplicaLogDirPartitionResult(partition_index=index)
                try:
                    context.require(ResourceType.CLUSTER)
                    context.broker.replica_moves.start(topic.name, index, Path(directory.path))
                except KafkaError as e:
                    result.error_code = e.code
                by_topic.setdefault(topic.name, []).append(result)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=results) for name, results in by_topic.items()
        ]
    )


HANDLER = message_handler(AlterReplicaLogDirsRequest, (1, 2), respond)
