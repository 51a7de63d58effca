"""Asks a leader where its log begins and ends: a follower that is out of its range has to know."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.partition import Partition
from ottla.broker.replication.peers import Peers
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_EARLIEST, _LATEST = -2, -1


async def ask_leader_offsets(
    peers: Peers, partition: Partition, source: int, *, replica_id: int, work: str, timeout_ms: int
) -> tuple[int, int]:
    found = []
    for timestamp in (_EARLIEST, _LATEST):
        asked = ListOffsetsPartition(
            partition_index=partition.tp.partition, current_leader_epoch=partition.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=replica_id, topics=[ListOffsetsTopic(name=partition.tp.topic, partitions=[asked])]
        )
        response = await peers.request(source, request, ListOffsetsResponse, work=work, timeout_ms=timeout_ms)
        answer = response.topics[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(code=ErrorCode(answer.error_code))
        found.append(answer.offset)
    return found[0], found[1]
