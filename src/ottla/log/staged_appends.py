"""Batches that were accepted but not written yet: those that came with one read of a socket share one write.

Only a batch that can be judged by its header, and that the active segment takes without further ado, is staged; all
others go the long way, batch by batch. Nothing of the log changes before the write has succeeded: what is staged cannot
be read, is not counted in `log_end_offset`, and is forgotten without a trace if the write fails.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.log.config import LogConfig
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.log.segmented_log import SegmentedLog
from ottla.log.validation import needs_no_look_inside
from ottla.records.batch import (
    CRC_START,
    HEADER_SIZE,
    HEADER_STRUCT,
    MAGIC_V2,
    MAX_SEQUENCE,
    OFFSET_AND_LENGTH_SIZE,
)
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec

NOT_STAGED: Final = -1

_unpack_header = HEADER_STRUCT.unpack_from
_pack_offset_length_epoch = Struct(">qii").pack_into
_LAST_CODEC = int(max(Codec))
_STAGED_MAX = 512
"""Few enough for one vectored write, and for the index entries that are kept free for them."""

_ProducerBatch = tuple[int, int, int, int, int, int, int, bool]
"""The arguments of `ProducerStates.apply_batch`."""


class StagedAppends(SegmentedLog):
    """`stage` any number of batches, then `write_staged`; both on the thread that appends."""

    _staged: list[tuple[int, int, int]]
    """Position, last offset and largest timestamp of each batch."""
    _staged_data: list[memoryview]
    _staged_of_producers: list[_ProducerBatch]
    _staged_sequences: dict[int, tuple[int, int]]
    """Epoch and next sequence number of the producers that have something staged."""
    _staged_end_offset: int
    _staged_end_position: int
    _limits_of: Segment | None
    """The segment that the next three belong to: what it takes without being asked."""
    _end_position_max: int
    _offset_max: int
    _timestamp_max: int

    def update_config(self, config: LogConfig) -> None:
        super().update_config(config)
        # A topic whose batches have to be opened takes none of any size on their header alone.
        self._staged_batch_bytes_max = (
            min(config.max_message_bytes, config.segment_bytes) if needs_no_look_inside(config) else 0
        )
        self._timestamp_ahead_max_ms = config.message_timestamp_after_max_ms
        self._drop_staged()
        self._forget_limits()

    @property
    def has_staged(self) -> bool:
        return bool(self._staged)

    def stage(self, records: memoryview, leader_epoch: int, now_ms: int) -> int:
        """Accept a client's batch and give it its offsets, in place; `records` must stay until it is written.

        Returns the first offset, or NOT_STAGED, with nothing changed, if the batch must go the long way. That is no
        verdict: it may be valid nevertheless.
        """
        size = len(records)
        if size < HEADER_SIZE:
            return NOT_STAGED
        (base_offset, length, _, magic, crc, attributes, last_delta, _, max_timestamp, producer_id, producer_epoch,
         base_sequence, count) = _unpack_header(records)  # fmt: skip
        segment = self.segments.active
        if segment is not self._limits_of:
            self._find_limits(segment)
        staged = self._staged
        first_offset: int
        if staged:
            first_offset, position = self._staged_end_offset, self._staged_end_position
        else:
            first_offset, position = self.log_end_offset, segment.size
        last_offset = first_offset + last_delta
        end_position = position + size
        if not (
            base_offset == 0
            and length + OFFSET_AND_LENGTH_SIZE == size <= self._staged_batch_bytes_max
            and magic == MAGIC_V2
            and last_delta + 1 == count > 0
            and 0 <= attributes <= _LAST_CODEC
            and max_timestamp <= now_ms + self._timestamp_ahead_max_ms
            and max_timestamp <= self._timestamp_max
            and last_offset <= self._offset_max
            and position > 0
            and end_position <= self._end_position_max
            and leader_epoch == self.epochs.latest_epoch
            and len(staged) < _STAGED_MAX
            and crc32c(records[CRC_START:]) == crc
        ):
            return NOT_STAGED
        if producer_id >= 0:
            last_sequence = (base_sequence + last_delta) & MAX_SEQUENCE
            expected = self._staged_sequences.get(producer_id) or self.producers.next_sequence(producer_id)
            if expected != (producer_epoch, base_sequence):
                return NOT_STAGED
            self._staged_sequences[producer_id] = (producer_epoch, last_sequence + 1)
            self._staged_of_producers.append(
                (producer_id, producer_epoch, base_sequence, last_sequence, first_offset, last_offset, max_timestamp,
                 False)
            )  # fmt: skip
        _pack_offset_length_epoch(records, 0, first_offset, length, leader_epoch)
        self._staged_data.append(records)
        staged.append((position, last_offset, max_timestamp))
        self._staged_end_offset = last_offset + 1
        self._staged_end_position = end_position
        return first_offset

    def write_staged(self, now_ms: int) -> None:
        """Write what is staged and move the end of the log. On LogDirError it is forgotten instead."""
        if not self._staged:
            return
        try:
            self.segments.active.append_all(self._staged_data, self._staged, self._staged_end_position)
        except OSError as e:
            self._drop_staged()
            raise self._failed("append to", e) from e
        if self._staged_of_producers:
            for batch in self._staged_of_producers:
                self.producers.apply_batch(*batch)
            self._staged_of_producers.clear()
            self._staged_sequences.clear()
        self._staged.clear()
        # The data belongs to a receive buffer, and is replaced by what comes next.
        self._staged_data.clear()
        end_offset = self._staged_end_offset
        count = end_offset - self.log_end_offset
        self.log_end_offset = self.producers.end_offset = end_offset
        self._count_unflushed(count, now_ms)

    def _drop_staged(self) -> None:
        self._staged = []
        self._staged_data = []
        self._staged_of_producers = []
        self._staged_sequences = {}
        self._staged_end_offset = self._staged_end_position = 0

    def _forget_limits(self) -> None:
        """The active segment or what is allowed in it has changed."""
        self._limits_of = None

    def _find_limits(self, segment: Segment) -> None:
        """How far the segment can grow before `Segment.must_roll` would have to be asked."""
        self._limits_of = segment
        # Between two index entries lie at least so many bytes, so an index is never overrun below this position.
        spare_entries = segment.free_index_entries - _STAGED_MAX
        self._end_position_max = min(
            self.config.segment_bytes, segment.size + spare_entries * segment.index_interval_bytes
        )
        self._offset_max = segment.base_offset + MAX_RELATIVE_OFFSET
        first_timestamp = segment.first_timestamp
        if first_timestamp < 0:
            # Then the age of the segment is a matter of the clock.
            self._end_position_max = 0
        self._timestamp_max = first_timestamp + self.config.segment_ms - segment.roll_jitter_ms

    def _count_unflushed(self, count: int, now_ms: int) -> None:
        self._unflushed_records += count
        config = self.config
        if self._unflushed_records >= config.flush_messages or now_ms - self._last_flush_ms >= config.flush_ms:
            self.flush_due = True
