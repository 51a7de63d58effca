# Written by `make generate` from src/ottla/client/aio/consumer/calls.py: change that instead.

"""What a consumer can be asked besides records: positions, offsets, commits, and what there is in the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.aio.consumer.commits import CommitCallback, Offsets
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.consumer.offset_requests import OffsetAndTimestamp
from ottla.client.core.consumer.record import ConsumerRecord, K, V
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.sync.consumer.loop_calls import LoopCalls


class ConsumerCalls(LoopCalls[K, V]):
    # Positions

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int, leader_epoch: int | None = None) -> None:
        """Makes `offset` the next one to read. Nothing is committed by this."""
        self._do(lambda: self._inner.seek(partition, offset, leader_epoch))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """All assigned partitions, if none are named."""
        self._do(lambda: self._inner.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """With read_committed the end is where the first open transaction begins."""
        self._do(lambda: self._inner.seek_to_end(partitions))

    def position(self, partition: TopicPartition | tuple[str, int], timeout: float | None = None) -> int:
        """The offset of the next record `poll` would return."""
        return self._call(self._inner.position(partition, timeout))

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """`poll` returns nothing of these partitions until `resume`. They stay assigned."""
        self._do(lambda: self._inner.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self._do(lambda: self._inner.resume(partitions))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._inner.paused

    def lag(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Records between the position and the end, as of the last fetch; None before the first."""
        return self._inner.lag(partition)

    # Offsets in the log

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._call(self._inner.beginning_offsets(partitions, timeout))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets the next records will get; with read_committed, where the first open transaction begins."""
        return self._call(self._inner.end_offsets(partitions, timeout))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        return self._call(self._inner.offsets_for_times(timestamps, timeout))

    # Commits

    def commit(self, offsets: Offsets | ConsumerRecord[Any, Any] | None = None, timeout: float | None = None) -> None:
        """Commits the positions, given offsets (the next to read), or that a record and all before it are done."""
        self._call(self._inner.commit(offsets, timeout))

    def commit_async(
        self,
        offsets: Offsets | ConsumerRecord[Any, Any] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Starts a commit. It is not tried again if it fails, for a later one may have been made meanwhile.

        The callback is called during a later call, or else in the consumer's own thread. It must not wait, and
        cannot call the consumer.
        """
        self._do(lambda: self._inner.commit_async(offsets, callback))

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        return self._call(self._inner.committed(partitions, timeout))

    # The cluster

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        return self._call(self._inner.partitions_for(topic, timeout))

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics this client may see, internal ones too."""
        return self._call(self._inner.list_topics(timeout))
