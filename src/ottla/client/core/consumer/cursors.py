"""The cursor of each partition a consumer reads: how far the application and fetching have come, what is in the way.

A cursor has two offsets. `position` is the application's: the next record it gets, and what is committed; while
`fetch_offset` runs ahead of it by what has been fetched and not yet been asked for. Nothing here sends a request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from enum import Enum
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.fetched_data import FetchedData, RecordClasses
from ottla.client.errors import ClientError, LogTruncationError, NoOffsetError, UnassignedPartitionError

NO_EPOCH = -1
NOBODY = -1


class Stage(Enum):
    """What a cursor needs before it can be fetched from."""

    AWAITS_COMMITTED = "the group's committed offset is being asked for"
    AWAITS_RESET = "the offset of a time is being asked for"
    AWAITS_VALIDATION = "a new leader is being asked whether it agrees with what was read"
    READY = "can be fetched"
    HALTED = "an error waits for the application, which may seek"


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class Cursor:
    __slots__ = (
        "chunks",
        "classes",
        "end_offset",
        "error",
        "error_is_told",
        "fetch_epoch",
        "fetch_offset",
        "in_flight_to",
        "is_held_up",
        "is_paused",
        "leader_epoch",
        "log_start_offset",
        "not_before_ms",
        "position",
        "position_epoch",
        "preferred_replica",
        "preferred_until_ms",
        "reset_timestamp",
        "stage",
        "topic_partition",
        "turn",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.stage = Stage.AWAITS_COMMITTED
        self.position = -1
        self.position_epoch = NO_EPOCH
        """The leader epoch of the last record the application got."""
        self.fetch_offset = -1
        self.fetch_epoch = NO_EPOCH
        """The leader epoch of the last batch that was fetched."""
        self.leader_epoch = NO_EPOCH
        """Of the leader that `fetch_offset` is known to be right for."""
        self.reset_timestamp = 0
        self.error: ClientError | None = None
        self.error_is_told = False
        self.is_paused = False
        self.is_held_up = False
        """The next record cannot be converted for now: what was fetched may have to wait for long."""
        self.in_flight_to = NOBODY
        """The broker whose answer to a fetch is waited for."""
        self.not_before_ms = 0
        self.end_offset = -1
        """Where the log ended for this reader when it was fetched from last: before any transaction that is open, if it
        only reads what is committed."""
        self.log_start_offset = -1
        self.preferred_replica = -1
        self.preferred_until_ms = 0
        self.chunks: deque[FetchedData] = deque()
        self.classes = RecordClasses(topic_partition)
        self.turn = 0
        """Goes up whenever the cursor is moved by other means than reading; answers to earlier questions are void."""

    @property
    def has_position(self) -> bool:
        return self.position >= 0 and self.stage in (Stage.READY, Stage.AWAITS_VALIDATION, Stage.HALTED)

    # Moves

    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        self._move()
        self.position = self.fetch_offset = offset
        self.position_epoch = self.fetch_epoch = NO_EPOCH if leader_epoch is None else leader_epoch
        self.stage = Stage.READY
        # An epoch that came with the offset lets the leader be asked whether it still holds that record (KIP-320).
        self.leader_epoch = NO_EPOCH

    def request_reset(self, timestamp: int) -> None:
        self._move()
        self.stage = Stage.AWAITS_RESET
        self.reset_timestamp = timestamp

    def halt(self, error: ClientError) -> None:
        self.stage = Stage.HALTED
        self.error = error
        self.error_is_told = False

    def complain(self, error: ClientError) -> None:
        """The application is told, once as long as nothing else happens, but asking goes on: the error may pass."""
        if self.error is None or self.error.code != error.code:
            self.error = error
            self.error_is_told = False

    @property
    def ends_a_poll(self) -> bool:
        """Whether a poll that finds the error waits no longer; later ones wait, if it may have passed until then."""
        return self.stage is Stage.HALTED or not self.error_is_told

    def _move(self) -> None:
        self.turn += 1
        self.chunks.clear()
        self.error = None
        self.is_held_up = False
        self.not_before_ms = 0
        self.preferred_replica = -1

    # Answers

    def take_committed(self, found: OffsetAndMetadata | None, *, reset: int | None) -> None:
        """The committed offset, if any; without one the reset policy decides."""
        if found is not None:
            self.seek(found.offset, found.leader_epoch)
        elif reset is not None:
            self.request_reset(reset)
        else:
            self.halt(
                NoOffsetError(
                    "nothing is committed and auto.offset.reset is none; seek to where reading shall start",
                    topic_partition=self.topic_partition,
                )
            )

    def take_leader_epoch(self, leader_epoch: int) -> None:
        """Metadata tells of a leader. Another one may hold less than the last one did, so it is asked (KIP-320).

        A lower epoch is that of a topic that was deleted and made anew.
        """
        if leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if self.stage not in (Stage.READY, Stage.AWAITS_VALIDATION):
            return
        if self.fetch_epoch >= 0 and (leader_epoch > self.fetch_epoch or leader_epoch < self.leader_epoch):
            self.stage = Stage.AWAITS_VALIDATION
        self.leader_epoch = leader_epoch
        self.preferred_replica = -1

    def take_validation(self, epoch: int, end_offset: int, *, reset: int | None) -> None:
        """The leader's word on where the epoch of the last fetched batch ends in its log."""
        if self.stage is not Stage.AWAITS_VALIDATION:
            return
        if epoch >= 0 and end_offset >= self.fetch_offset:
            self.stage = Stage.READY
            self.error = None
            return
        leader_epoch = self.leader_epoch
        agreed = min(end_offset, self.position) if epoch >= 0 and end_offset >= 0 else -1
        if reset is None:
            self.halt(
                LogTruncationError(
                    f"the log was cut below offset {self.fetch_offset}"
                    + (f"; what was read agrees with it up to {agreed}" if agreed >= 0 else ""),
                    topic_partition=self.topic_partition,
                    offset=agreed,
                )
            )
        elif agreed >= 0:
            self.seek(agreed, epoch)
            self.leader_epoch = leader_epoch
        else:
            self.request_reset(reset)

    # Reading

    @property
    def lag(self) -> int | None:
        if self.end_offset < 0 or self.position < 0:
            return None
        return max(0, self.end_offset - self.position)

    def can_fetch(self, now_ms: int, *, chunks_max: int) -> bool:
        return (
            self.stage is Stage.READY
            and not self.is_paused
            and self.in_flight_to == NOBODY
            and self.not_before_ms <= now_ms
            and len(self.chunks) < chunks_max
        )

    def committable(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.position, "", self.position_epoch if self.position_epoch >= 0 else None)


class Cursors:
    """All cursors of a consumer, by partition."""

    def __init__(self) -> None:
        self._cursors: dict[TopicPartition, Cursor] = {}

    def __len__(self) -> int:
        return len(self._cursors)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._cursors

    def all(self) -> list[Cursor]:
        # A copy: partitions come and go in the event loop while another thread may be reading records.
        return list(self._cursors.values())

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._cursors)

    @property
    def topics(self) -> set[str]:
        return {topic_partition.topic for topic_partition in list(self._cursors)}

    def find(self, topic_partition: TopicPartition) -> Cursor | None:
        return self._cursors.get(topic_partition)

    def of(self, topic_partition: TopicPartition) -> Cursor:
        found = self._cursors.get(topic_partition)
        if found is None:
            raise UnassignedPartitionError(f"{topic_partition} is not assigned to this consumer")
        return found

    def chosen(self, partitions: Iterable[TopicPartition] | None) -> list[Cursor]:
        return self.all() if partitions is None else [self.of(partition) for partition in partitions]

    def replace(self, partitions: Collection[TopicPartition]) -> None:
        """Keeps the cursors of partitions that stay."""
        wanted = dict.fromkeys(partitions)
        self._cursors = {
            topic_partition: self._cursors.get(topic_partition) or Cursor(topic_partition) for topic_partition in wanted
        }

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        self.replace([*self._cursors, *partitions])

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        gone = set(partitions)
        self.replace([topic_partition for topic_partition in self._cursors if topic_partition not in gone])

    def committable(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            cursor.topic_partition: cursor.committable()
            for cursor in (
                self.all()
                if partitions is None
                else [cursor for cursor in map(self._cursors.get, partitions) if cursor is not None]
            )
            if cursor.has_position
        }
