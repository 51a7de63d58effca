"""What a consumer raises, beyond what every client does. Each says which partition it is about and what to do."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.errors import ClientError

__all__ = [
    "CommitFailedError",
    "ConcurrentUseError",
    "CorruptRecordError",
    "DeserializationError",
    "FencedInstanceError",
    "LogTruncationError",
    "NoOffsetError",
    "OffsetOutOfRangeError",
    "PartitionError",
    "SubscriptionStateError",
    "UnassignedPartitionError",
]


class PartitionError(ClientError):
    """Something is wrong with one partition; the others can be read on."""

    def __init__(
        self, message: str, *, topic_partition: TopicPartition, offset: int = -1, code: ErrorCode | None = None
    ) -> None:
        super().__init__(f"{topic_partition}: {message}", code=code)
        self.topic_partition = topic_partition
        self.offset = offset


class CorruptRecordError(PartitionError):
    """A batch that cannot be read. `seek(topic_partition, next_offset)` passes over it."""

    code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, reason: str, *, topic_partition: TopicPartition, offset: int, next_offset: int) -> None:
        super().__init__(
            f"the batch at offset {offset} cannot be read ({reason}); seek to {next_offset} to pass over it",
            topic_partition=topic_partition,
            offset=offset,
        )
        self.next_offset = next_offset

    @property
    def retriable(self) -> bool:
        return False


class DeserializationError(PartitionError):
    """A record whose key or value the deserializer refuses. `seek(topic_partition, offset + 1)` passes over it."""

    code = ErrorCode.INVALID_RECORD


class NoOffsetError(PartitionError):
    """Nothing is committed, and `auto.offset.reset` is none."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class OffsetOutOfRangeError(PartitionError):
    """The position is not in the log, and `auto.offset.reset` is none."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class LogTruncationError(PartitionError):
    """What was read has been taken out of the log by an unclean election (KIP-320), and `auto.offset.reset` is none.

    `offset` is where the log and what was read still agree.
    """

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CommitFailedError(ClientError):
    """The offsets were not committed, for the group has given the partitions to others. What was read since the last
    commit will be read again by somebody."""

    code = ErrorCode.ILLEGAL_GENERATION


class ConcurrentUseError(ClientError):
    """Two threads poll one consumer."""

    code = ErrorCode.INVALID_REQUEST


class FencedInstanceError(ClientError):
    """Another consumer uses the same `group.instance.id`."""

    code = ErrorCode.FENCED_INSTANCE_ID
    fatal = True


class SubscriptionStateError(ClientError):
    """A call that does not go together with how partitions were chosen."""

    code = ErrorCode.INVALID_REQUEST


class UnassignedPartitionError(ClientError):
    """A call about a partition this consumer does not have."""

    code = ErrorCode.INVALID_REQUEST
