"""Batches that were accepted but not written yet: those that came with one read of a socket share one write.

Only a batch that can be judged by its header, and that the active segment has room for, is staged; all others go the
long way, batch by batch. Nothing of the log changes before the write has succeeded: what is staged cannot be read, is
not counted in `log_end_offset`, and is forgotten without a trace if the write fails.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.log.append_rules import PLAIN, AppendRules
from ottla.log.segment import WrittenBatch
from ottla.log.segmented_log import SegmentedLog
from ottla.records.batch import CRC_START, HEADER_SIZE, HEADER_STRUCT, MAX_SEQUENCE
from ottla.records.checksum import crc32c

NOT_STAGED: Final = -1

_unpack_header = HEADER_STRUCT.unpack_from
_pack_offset_length_epoch = Struct(">qii").pack_into

_ProducerBatch = tuple[int, int, int, int, int, int, int, bool]
"""The arguments of `ProducerStates.apply_batch`."""


class Stage:
    """`add` any number of batches, then `write`; both on the thread that appends to the log."""

    __slots__ = ("_batches", "_data", "_end_offset", "_end_position", "_log", "_of_producers", "_sequences", "rules")

    def __init__(self, log: SegmentedLog, rules: AppendRules) -> None:
        self._log = log
        self.rules = rules
        self._batches: list[WrittenBatch] = []
        self._data: list[memoryview] = []
        self._of_producers: list[_ProducerBatch] = []
        self._sequences: dict[int, tuple[int, int]] = {}
        """Epoch and next sequence number of the producers that have something staged."""
        self._end_offset = 0
        self._end_position = 0

    @property
    def has_batches(self) -> bool:
        return bool(self._batches)

    @property
    def newest(self) -> WrittenBatch:
        """The batch that was added last."""
        return self._batches[-1]

    def add(self, records: memoryview, leader_epoch: int, now_ms: int) -> int:
        """Accept a client's batch and give it its offsets, in place; `records` must stay until it is written.

        Returns the first offset, or NOT_STAGED, with nothing changed, if the batch must go the long way. That is no
        refusal: it may be valid nevertheless.
        """
        size = len(records)
        if size < HEADER_SIZE:
            return NOT_STAGED
        (base_offset, length, _, magic, crc, attributes, last_delta, _, max_timestamp, producer_id, producer_epoch,
         base_sequence, count) = _unpack_header(records)  # fmt: skip
        verdict = self.rules.judge(
            size, now_ms, base_offset, length, magic, attributes, last_delta, max_timestamp, producer_id, base_sequence,
            count,
        )  # fmt: skip
        if verdict is not PLAIN:
            return NOT_STAGED
        log = self._log
        batches = self._batches
        first_offset: int
        if batches:
            first_offset, position = self._end_offset, self._end_position
        else:
            first_offset, position = log.log_end_offset, log.segments.active.size
        last_offset = first_offset + last_delta
        end_position = position + size
        if not log.room.takes(position, end_position, last_offset, max_timestamp) and (
            batches or not log.room_now(now_ms).takes(position, end_position, last_offset, max_timestamp)
        ):
            return NOT_STAGED
        if leader_epoch != log.epochs.latest_epoch or crc32c(records[CRC_START:]) != crc:
            return NOT_STAGED
        if producer_id >= 0:
            last_sequence = (base_sequence + last_delta) & MAX_SEQUENCE
            expected = self._sequences.get(producer_id) or log.producers.next_sequence(producer_id)
            if expected != (producer_epoch, base_sequence):
                return NOT_STAGED
            self._sequences[producer_id] = (producer_epoch, last_sequence + 1)
            self._of_producers.append(
                (producer_id, producer_epoch, base_sequence, last_sequence, first_offset, last_offset, max_timestamp,
                 False)
            )  # fmt: skip
        _pack_offset_length_epoch(records, 0, first_offset, length, leader_epoch)
        self._data.append(records)
        batches.append((position, last_offset, max_timestamp))
        self._end_offset = last_offset + 1
        self._end_position = end_position
        return first_offset

    def write(self, now_ms: int) -> None:
        """Write what is staged and move the end of the log. On LogDirError it is forgotten instead."""
        batches = self._batches
        if not batches:
            return
        log = self._log
        try:
            log.segments.active.append_all(self._data, batches, self._end_position)
        except OSError as e:
            self.drop()
            raise log.failed_to("append to", e) from e
        if self._of_producers:
            apply_batch = log.producers.apply_batch
            for batch in self._of_producers:
                apply_batch(*batch)
            self._of_producers.clear()
            self._sequences.clear()
        batches.clear()
        # The data belongs to a receive buffer, and is replaced by what comes next.
        self._data.clear()
        log.move_end(self._end_offset, now_ms)

    def drop(self) -> None:
        """Forget what is staged."""
        self._batches.clear()
        self._data.clear()
        self._of_producers.clear()
        self._sequences.clear()
