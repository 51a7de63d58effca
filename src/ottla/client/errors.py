"""What the client library raises: every error says whether to try again, give up the transaction, or close the client.

`retriable`: the same call may succeed later. `requires_abort`: the transaction must be aborted, after which the
producer can go on. `fatal`: this client object is of no more use.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import ERRORS, ErrorCode, InvalidConfigError, KafkaError
from ottla.base.types import TopicPartition

__all__ = [
    "BufferExhaustedError",
    "ClientClosedError",
    "ClientError",
    "ClusterUnreachableError",
    "CommitFailedError",
    "ConcurrentUseError",
    "CorruptRecordError",
    "DeliveryTimeoutError",
    "DeserializationError",
    "ErrorCode",
    "FencedInstanceError",
    "ForkedError",
    "InvalidConfigError",
    "KafkaError",
    "ListenerError",
    "LogTruncationError",
    "MetadataTimeoutError",
    "NoOffsetError",
    "OffsetOutOfRangeError",
    "PartitionError",
    "ProcessingError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RecordTooLargeError",
    "SerializationError",
    "SubscriptionStateError",
    "TransactionAbortedError",
    "TransactionStateError",
    "UnassignedPartitionError",
    "client_error",
]

_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    }
)


class ClientError(KafkaError):
    """An error of the client library, or one that a broker has answered with."""

    fatal: bool = False
    requires_abort: bool = False
    broker_message: str | None = None
    """The broker's own words, where it used any."""

    def __init__(
        self,
        message: str | None = None,
        *,
        code: ErrorCode | None = None,
        fatal: bool | None = None,
        requires_abort: bool | None = None,
    ) -> None:
        super().__init__(message, code=code)
        if fatal is not None:
            self.fatal = fatal
        if requires_abort is not None:
            self.requires_abort = requires_abort

    @property
    def retriable(self) -> bool:
        return super().retriable and not (self.requires_abort or self.fatal)


class ClusterUnreachableError(ClientError):
    """None of the bootstrap servers could be reached; `failures` say of each why."""

    code = ErrorCode.NETWORK_EXCEPTION

    def __init__(self, failures: Sequence[str]) -> None:
        self.summary = f"cannot reach {'; '.join(failures)}"
        super().__init__(f"{self.summary}. Check bootstrap.servers and that a broker runs there")


class BufferExhaustedError(ClientError):
    """The producer's buffer stayed full for `max.block.ms`."""

    code = ErrorCode.REQUEST_TIMED_OUT


class RecordTooLargeError(ClientError):
    code = ErrorCode.MESSAGE_TOO_LARGE


class SerializationError(ClientError):
    """A key, value or header that could not be turned into bytes, or back."""

    code = ErrorCode.INVALID_RECORD


class DeliveryTimeoutError(ClientError):
    """A record was not acknowledged within `delivery.timeout.ms`. It may have been stored all the same."""

    code = ErrorCode.REQUEST_TIMED_OUT


class MetadataTimeoutError(ClientError):
    """Nothing could be learnt about a topic within the time allowed."""

    code = ErrorCode.REQUEST_TIMED_OUT


class ClientClosedError(ClientError):
    """The client has been closed, or was never started."""

    code = ErrorCode.INVALID_REQUEST
    fatal = True


class ForkedError(ClientError):
    """A client was used in a child process, where its connections and its thread do not exist."""

    code = ErrorCode.INVALID_REQUEST
    fatal = True


class TransactionStateError(ClientError):
    """A call that the state of the transaction does not allow."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionAbortedError(ClientError):
    """A record was dropped because its transaction was aborted before it was sent."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class ProducerFencedError(ClientError):
    """Another producer with the same transactional id has taken over."""

    code = ErrorCode.PRODUCER_FENCED
    fatal = True


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


class RebalanceInProgressError(CommitFailedError):
    """The offsets were not committed, for the group is rebalancing. After a poll, those of the partitions that this
    consumer still holds can be committed."""

    code = ErrorCode.REBALANCE_IN_PROGRESS

    @property
    def retriable(self) -> bool:
        return True


class ConcurrentUseError(ClientError):
    """Two threads, or two tasks, poll one consumer, or a callback waits for the client that calls it."""

    code = ErrorCode.INVALID_REQUEST


class FencedInstanceError(ClientError):
    """Another consumer uses the same `group.instance.id`."""

    code = ErrorCode.FENCED_INSTANCE_ID
    fatal = True


class ProcessingError(PartitionError):
    """A record could neither be processed nor be put aside, so that processing has stopped before it.

    It is not committed: whoever reads the partition next gets the record again.
    """

    code = ErrorCode.UNKNOWN_SERVER_ERROR

    @property
    def retriable(self) -> bool:
        return False


class ListenerError(ClientError):
    """A listener that cannot be: its parameters, its topics, or what it shares with another."""

    code = ErrorCode.INVALID_CONFIG
    fatal = True


class SubscriptionStateError(ClientError):
    """A call that does not go together with how partitions were chosen."""

    code = ErrorCode.INVALID_REQUEST


class UnassignedPartitionError(ClientError):
    """A call about a partition this consumer does not have."""

    code = ErrorCode.INVALID_REQUEST


def is_fatal(error: KafkaError) -> bool:
    """Whether the client that meets it is of no more use."""
    return error.fatal if isinstance(error, ClientError) else error.code in _FATAL


def client_error(
    code: int, message: str | None = None, *, where: str = "", requires_abort: bool = False
) -> ClientError:
    """The exception for a code read off the wire; `where` says what it was about."""
    try:
        known = ErrorCode(code)
    except ValueError:
        known = ErrorCode.UNKNOWN_SERVER_ERROR
        message = message or f"error code {code}, which this version does not know"
    text = message or ERRORS[known].message
    if where:
        text = f"{where}: {text}"
    if known is ErrorCode.PRODUCER_FENCED:
        return ProducerFencedError(f"{text}; close this producer: another one uses its transactional id")
    if known is ErrorCode.MESSAGE_TOO_LARGE:
        return RecordTooLargeError(text, requires_abort=requires_abort)
    return ClientError(text, code=known, fatal=known in _FATAL, requires_abort=requires_abort and known not in _FATAL)
