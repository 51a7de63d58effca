"""What a consumer can be asked besides records: positions, offsets, commits, and what there is in the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.aio.consumer.commits import CommitCallback, Commits, Offsets
from ottla.client.aio.consumer.engine import ConsumerEngine
from ottla.client.aio.consumer.position_finder import ask_offsets
from ottla.client.aio.topic_lookup import find_topics
from ottla.client.core.consumer.arguments import epoch_of, offset_of, partition_of, partitions_of, timestamp_of
from ottla.client.core.consumer.cursors import Cursor, OffsetAndMetadata
from ottla.client.core.consumer.offset_requests import OffsetAndTimestamp
from ottla.client.core.consumer.options import EARLIEST, LATEST, ConsumerSettings
from ottla.client.core.consumer.record import ConsumerRecord
from ottla.client.core.timeouts import seconds
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.errors import ClientClosedError, ClientError


class ConsumerCalls:
    settings: ConsumerSettings
    _engine: ConsumerEngine
    _commits: Commits
    _is_started: bool

    # Positions

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int, leader_epoch: int | None = None) -> None:
        """Makes `offset` the next one to read. Nothing is committed by this."""
        chosen, place, epoch = partition_of(partition), offset_of(offset), epoch_of(leader_epoch)
        self._engine.check_open()
        self._engine.cursors.of(chosen).seek(place, epoch)
        self._engine.wake()

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """All assigned partitions, if none are named."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """With read_committed the end is where the first open transaction begins."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: Iterable[TopicPartition] | None, timestamp: int) -> None:
        self._engine.check_open()
        for cursor in self._chosen(partitions):
            cursor.request_reset(timestamp)
        self._engine.wake()

    def _chosen(self, partitions: Iterable[TopicPartition] | None) -> list[Cursor]:
        return self._engine.cursors.chosen(None if partitions is None else partitions_of(partitions))

    async def position(self, partition: TopicPartition | tuple[str, int], timeout: float | None = None) -> int:
        """The offset of the next record `poll` would return."""
        self._check_started()
        return await self._engine.find_position(partition_of(partition), self._timeout_ms(timeout))

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """`poll` returns nothing of these partitions until `resume`. They stay assigned."""
        for cursor in self._chosen(partitions):
            cursor.is_paused = True

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        for cursor in self._chosen(partitions):
            cursor.is_paused = False
        self._engine.wake()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(cursor.topic_partition for cursor in self._engine.cursors.all() if cursor.is_paused)

    def lag(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Records between the position and the end, as of the last fetch; None before the first."""
        return self._engine.cursors.of(partition_of(partition)).lag

    # Offsets in the log

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._offsets_at(partitions, EARLIEST, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets the next records will get; with read_committed, where the first open transaction begins."""
        return await self._offsets_at(partitions, LATEST, timeout)

    async def _offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        self._check_started()
        wanted = dict.fromkeys(partitions_of(partitions), timestamp)
        found = await self._find_offsets(wanted, timeout)
        return {partition: answer.offset for partition, answer in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        self._check_started()
        wanted = {partition_of(partition): timestamp_of(timestamp) for partition, timestamp in timestamps.items()}
        found = await self._find_offsets(wanted, timeout)
        return {partition: answer if answer.offset >= 0 else None for partition, answer in found.items()}

    async def _find_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first record at or after each time (or EARLIEST, LATEST); its offset is -1 if there is none."""
        found: dict[TopicPartition, OffsetAndTimestamp] = {}

        async def attempt() -> None:
            left = {partition: timestamp for partition, timestamp in timestamps.items() if partition not in found}
            for partition, answer in (await ask_offsets(self._engine, left)).items():
                if isinstance(answer, ClientError):
                    raise answer
                found[partition] = answer

        await self._engine.retry(attempt, self._timeout_ms(timeout))
        return found

    # Commits

    async def commit(
        self, offsets: Offsets | ConsumerRecord[Any, Any] | None = None, timeout: float | None = None
    ) -> None:
        """Commits the positions, given offsets (the next to read), or that a record and all before it are done."""
        self._check_started()
        await self._commits.commit(self._commits.chosen(offsets), self._timeout_ms(timeout))

    def commit_async(
        self,
        offsets: Offsets | ConsumerRecord[Any, Any] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Starts a commit. It is not tried again if it fails, for a later one may have been made meanwhile.

        The callback is called in the event loop: it must not wait.
        """
        self._check_started()
        self._commits.begin(self._commits.chosen(offsets), callback)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        self._check_started()
        wanted = partitions_of(partitions)
        return await self._engine.coordinator.find_committed(wanted, self._timeout_ms(timeout))

    # The cluster

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        self._check_started()
        found = await find_topics(self._engine, [topic], self._timeout_ms(timeout))
        return found.get(topic, [])

    async def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics this client may see, internal ones too."""
        self._check_started()
        return await find_topics(self._engine, None, self._timeout_ms(timeout))

    def _check_started(self) -> None:
        self._engine.check_open()
        if not self._is_started:
            raise ClientClosedError("this consumer is not started: use `async with`, or call start()")

    def _timeout_ms(self, timeout: float | None) -> int:
        return self.settings.api_timeout_ms if timeout is None else int(seconds(timeout) * 1000)
