"""Ends transactions in partitions: appends commit and abort markers, and waits until they are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.base.types import TopicPartition
from ottla.broker.commit_wait import wait_committed
from ottla.broker.replicas import Partition
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
    last_offset = _append(broker, partition, marker)
    await wait_committed(broker.parked, partition, last_offset, wait_ms)
    _tell_group(broker, tp, marker)


def write_marker_at_once(broker: Broker, tp: TopicPartition, marker: Marker) -> bool:
    """Writes the marker if it is committed by being appended; otherwise does nothing and returns False.

    Raises KafkaError as `write_marker` does.
    """
    partition = broker.replicas.led(*tp)
    if partition.leader is None or not partition.leader.commits_alone:
        return False
    _append(broker, partition, marker)
    _tell_group(broker, tp, marker)
    return True


def _append(broker: Broker, partition: Partition, marker: Marker) -> int:
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
    return info.last_offset


def _tell_group(broker: Broker, tp: TopicPartition, marker: Marker) -> None:
    """Offsets that were committed in the transaction count from now on, or never."""
    if tp.topic == GROUP_METADATA_TOPIC:
        shard = broker.groups.runtime.active_shard(tp.partition)
        if shard is not None:
            shard.machine.end_transaction(marker.producer_id, marker.commit)
