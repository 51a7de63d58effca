"""Ends transactions in partitions: appends commit and abort markers, and waits until they are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.base.types import TopicPartition
from ottla.broker.commit_wait import wait_committed
from ottla.log.partition_log import Origin
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC
from ottla.records.control import end_transaction_marker

if TYPE_CHECKING:
    from ottla.broker.node import Broker


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int


async def write_marker(broker: Broker, tp: TopicPartition, marker: Marker, *, wait_ms: int) -> None:
    """Raises KafkaError if this broker cannot write it: it does not lead the partition, or the marker is fenced."""
    partition = broker.replicas.led(*tp)
    now_ms = broker.clock.wall_ms()
    batch = end_transaction_marker(
        marker.producer_id, marker.producer_epoch, marker.commit, marker.coordinator_epoch, now_ms
    )
    info = broker.replicas.append(
        partition,
        memoryview(bytearray(batch)),
        requires_all_replicas=True,
        now_ms=now_ms,
        origin=Origin.COORDINATOR,
    )
    await wait_committed(broker.parked, partition, info.last_offset, wait_ms)
    if tp.topic == GROUP_METADATA_TOPIC:
        # Offsets that were committed in the transaction count from now on, or never.
        shard = broker.groups.runtime.active_shard(tp.partition)
        if shard is not None:
            shard.machine.end_transaction(marker.producer_id, marker.commit)
