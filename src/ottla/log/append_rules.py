"""The rules for a client's batch that its header can answer for, each of them once.

`AppendRules.judge` is asked for every batch, by whichever way it comes: the stage takes what is plain, and whoever has
to look closer begins with the same verdict. What the records themselves must be like is the business of `preparation`,
and whether the active segment has room for the batch that of `SegmentRoom`.
"""

from __future__ import annotations

from enum import Enum, auto

from ottla.base.errors import CorruptBatchError, ErrorCode, InvalidRecordError, KafkaError
from ottla.log.config import INT64_MAX, PRODUCER_CODEC, LogConfig
from ottla.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC_V2,
    OFFSET_AND_LENGTH_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from ottla.records.compression import Codec

_LAST_CODEC = int(max(Codec))
_FLAGS = ~CODEC_MASK


class Verdict(Enum):
    """What is to be done with a batch, or why it is refused."""

    PLAIN = auto()
    """Nothing speaks against it, and it is stored as it came."""
    SPECIAL = auto()
    """Its header is in order, but it belongs to a transaction, must be changed, or its records must be looked at."""
    FOREIGN_FORMAT = auto()
    CUT_SHORT = auto()
    NOT_ALONE = auto()
    HAS_OFFSET = auto()
    TOO_LARGE = auto()
    UNKNOWN_CODEC = auto()
    MISCOUNTED = auto()
    NO_SEQUENCE = auto()
    CONTROL = auto()
    NO_PRODUCER = auto()
    APPEND_TIME = auto()

    @property
    def precedes_checksum(self) -> bool:
        """Whether Kafka reports this even of a batch whose checksum is wrong as well."""
        return self in _REPORTED_FIRST


# The hot path finds names of its module faster than members of a class.
PLAIN = Verdict.PLAIN
_SPECIAL = Verdict.SPECIAL
_REPORTED_FIRST = frozenset(
    {Verdict.FOREIGN_FORMAT, Verdict.CUT_SHORT, Verdict.NOT_ALONE, Verdict.HAS_OFFSET, Verdict.TOO_LARGE}
)


class AppendRules:
    """What the settings of a topic ask of a batch, worked out once."""

    __slots__ = ("_looks_inside", "_timestamp_ahead_max_ms", "batch_bytes_max", "config")

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.batch_bytes_max = config.max_message_bytes
        self._timestamp_ahead_max_ms = config.message_timestamp_after_max_ms
        self._looks_inside = (
            config.is_compacted
            or config.compression_type != PRODUCER_CODEC
            or config.stamps_append_time
            or config.message_timestamp_before_max_ms < INT64_MAX
        )

    def judge(
        self,
        size: int,
        now_ms: int,
        base_offset: int,
        batch_length: int,
        magic: int,
        attributes: int,
        last_offset_delta: int,
        max_timestamp: int,
        producer_id: int,
        base_sequence: int,
        record_count: int,
    ) -> Verdict:
        """The verdict on a batch that came in `size` bytes, from its header; the first fault in Kafka's order."""
        if magic != MAGIC_V2:
            return Verdict.FOREIGN_FORMAT
        if batch_length + OFFSET_AND_LENGTH_SIZE != size:
            is_cut = not HEADER_SIZE <= batch_length + OFFSET_AND_LENGTH_SIZE < size
            return Verdict.CUT_SHORT if is_cut else Verdict.NOT_ALONE
        if base_offset:
            return Verdict.HAS_OFFSET
        if size > self.batch_bytes_max:
            return Verdict.TOO_LARGE
        if attributes & CODEC_MASK > _LAST_CODEC:
            return Verdict.UNKNOWN_CODEC
        if last_offset_delta + 1 != record_count or record_count <= 0:
            return Verdict.MISCOUNTED
        if base_sequence < 0 <= producer_id:
            return Verdict.NO_SEQUENCE
        if attributes & _FLAGS:
            if attributes & CONTROL_BIT:
                return Verdict.CONTROL
            if attributes & TRANSACTIONAL_BIT and producer_id < 0:
                return Verdict.NO_PRODUCER
            return Verdict.APPEND_TIME if attributes & LOG_APPEND_TIME_BIT else _SPECIAL
        if self._looks_inside or max_timestamp > now_ms + self._timestamp_ahead_max_ms:
            return _SPECIAL
        return PLAIN

    def judge_header(self, header: BatchHeader, size: int, now_ms: int) -> Verdict:
        return self.judge(
            size,
            now_ms,
            header.base_offset,
            header.batch_length,
            header.magic,
            header.attributes,
            header.last_offset_delta,
            header.max_timestamp,
            header.producer_id,
            header.base_sequence,
            header.record_count,
        )

    def refusal(self, verdict: Verdict, header: BatchHeader, size: int) -> KafkaError:
        """What a client is told whose batch has this fault."""
        match verdict:
            case Verdict.FOREIGN_FORMAT:
                return foreign_format(header.magic)
            case Verdict.CUT_SHORT:
                return CorruptBatchError(f"the batch claims {header.size} bytes, {size} came")
            case Verdict.NOT_ALONE:
                return InvalidRecordError("a produce request must hold exactly one batch per partition")
            case Verdict.HAS_OFFSET:
                return InvalidRecordError(f"the base offset of a produced batch must be 0, not {header.base_offset}")
            case Verdict.TOO_LARGE:
                return KafkaError(
                    f"the batch has {size} bytes, max.message.bytes is {self.batch_bytes_max}",
                    code=ErrorCode.MESSAGE_TOO_LARGE,
                )
            case Verdict.UNKNOWN_CODEC:
                return CorruptBatchError(f"the batch uses codec {header.attributes & CODEC_MASK}, which does not exist")
            case Verdict.MISCOUNTED:
                return InvalidRecordError(
                    f"the batch has {header.record_count} records but its last offset delta is "
                    f"{header.last_offset_delta}"
                )
            case Verdict.NO_SEQUENCE:
                return InvalidRecordError(
                    f"a batch of producer {header.producer_id} has the sequence number {header.base_sequence}"
                )
            case Verdict.CONTROL:
                return InvalidRecordError("clients must not write control batches")
            case Verdict.NO_PRODUCER:
                return InvalidRecordError("a transactional batch needs a producer id")
            case Verdict.APPEND_TIME:
                return InvalidRecordError(
                    "clients must not send batches with LogAppendTime", code=ErrorCode.INVALID_TIMESTAMP
                )
            case Verdict.PLAIN | Verdict.SPECIAL:
                raise ValueError(f"a batch is not refused for being {verdict.name}")


def foreign_format(magic: int) -> InvalidRecordError:
    return InvalidRecordError(f"the batch has magic {magic}, only {MAGIC_V2} is accepted")
