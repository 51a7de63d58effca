"""Ends transactions in partitions: appends commit and abort markers, and waits until they are committed."""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.clock import Clock
from ottla.base.types import TopicPartition
from ottla.broker.coordinators.commit_wait import wait_committed
from ottla.broker.coordinators.groups import GroupRuntime
from ottla.broker.parked import Parked
from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.log.partition_log import Origin
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC
from ottla.records.control import end_transaction_marker


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int


class Markers:
    def __init__(self, replicas: Replicas, parked: Parked, clock: Clock, groups: GroupRuntime) -> None:
        self._replicas = replicas
        self._parked = parked
        self._clock = clock
        self._groups = groups

    async def write(self, tp: TopicPartition, marker: Marker, *, wait_ms: int) -> None:
        """Raises KafkaError if this broker cannot write it: it does not lead the partition, or the marker is fenced."""
        partition = self._replicas.led(*tp)
        last_offset = self._append(partition, marker)
        await wait_committed(self._parked, partition, last_offset, wait_ms)
        self._tell_group(tp, marker)

    def write_at_once(self, tp: TopicPartition, marker: Marker) -> bool:
        """Writes the marker if it is committed by being appended; otherwise does nothing and returns False.

        Raises KafkaError as `write` does.
        """
        partition = self._replicas.led(*tp)
        if partition.leader is None or not partition.leader.commits_alone:
            return False
        self._append(partition, marker)
        self._tell_group(tp, marker)
        return True

    def _append(self, partition: Partition, marker: Marker) -> int:
        # A batch whose transaction was verified and is over now must not open another one.
        partition.verified_producers.pop(marker.producer_id, None)
        now_ms = self._clock.wall_ms()
        batch = end_transaction_marker(
            marker.producer_id, marker.producer_epoch, marker.commit, marker.coordinator_epoch, now_ms
        )
        info = self._replicas.append(
            partition,
            memoryview(bytearray(batch)),
            requires_all_replicas=True,
            now_ms=now_ms,
            origin=Origin.COORDINATOR,
        )
        return info.last_offset

    def _tell_group(self, tp: TopicPartition, marker: Marker) -> None:
        """Offsets that were committed in the transaction count from now on, or never."""
        if tp.topic == GROUP_METADATA_TOPIC:
            shard = self._groups.active_shard(tp.partition)
            if shard is not None:
                shard.machine.end_transaction(marker.producer_id, marker.commit)
