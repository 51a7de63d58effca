"""One partition's log: what may be appended, and what is read. The broker's handlers and replicas talk to this.

Appends and reads run on the event loop's thread and only touch the page cache; `flush` may run in another thread at
the same time. Nothing here knows who leads: the caller says under which leader epoch it appends and how far a reader
may see.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import CorruptBatchError, InvalidRecordError, OffsetOutOfRangeError
from ottla.base.types import FileSlice, TopicPartition, Uuid
from ottla.log import lookup
from ottla.log.append_rules import AppendRules
from ottla.log.config import LogConfig
from ottla.log.durable_log import LogParts
from ottla.log.fetched_batches import read_fetched
from ottla.log.preparation import prepare_client_batch, prepare_coordinator_batches, split_batches
from ottla.log.producer_snapshot import ProducerEntry
from ottla.log.replay import note_completed, read_end_marker, recall_batches
from ottla.log.segment import Segment
from ottla.log.segmented_log import SegmentedLog
from ottla.log.stage import NOT_STAGED, Stage
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import (
    HEADER_SIZE,
    HEADER_STRUCT,
    LOG_APPEND_TIME_BIT,
    MAGIC_V2,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assign_offsets,
    pack_batch,
    pack_plain_batch,
)
from ottla.records.compression import Codec, compress
from ottla.records.control import EndMarker

_NO_APPEND_TIME = -1

_log = logging.getLogger(__name__)


class Origin(Enum):
    """Who made the records. Coordinators may append control batches and are trusted with sequence numbers."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class AppendInfo(NamedTuple):
    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    """-1 where the topic keeps the producer's timestamps."""
    log_start_offset: int
    is_duplicate: bool


class LogRead(NamedTuple):
    data: FileSlice | None
    """Whole batches from the one that contains the offset; the last may be cut. None: nothing to read yet."""
    start_offset: int
    segment_base_offset: int
    is_last_segment: bool


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class PartitionLog(SegmentedLog):
    def __init__(
        self, directory: Path, topic_partition: TopicPartition, topic_id: Uuid, config: LogConfig, parts: LogParts
    ) -> None:
        super().__init__(directory, topic_partition, topic_id, config, parts)
        self.stage = Stage(self, AppendRules(config))
        """The short way in, for those who have several batches to append before anybody looks."""

    def update_config(self, config: LogConfig) -> None:
        super().update_config(config)
        self.stage.drop()
        self.stage.rules = AppendRules(config)

    # -- appending -----------------------------------------------------------------------------------------------

    def append_as_leader(
        self, records: memoryview, *, leader_epoch: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Give the batches their offsets and store them. From a client exactly one batch is taken.

        `records` is patched in place. Whatever is raised, the log is as it was before.
        """
        stage = self.stage
        stage.write(now_ms)
        if origin is not Origin.CLIENT:
            return self._append_from_coordinator(records, leader_epoch, now_ms)
        first_offset = stage.add(records, leader_epoch, now_ms)
        if first_offset == NOT_STAGED:
            return self._append_with_a_look(records, leader_epoch, now_ms)
        _, last_offset, max_timestamp = stage.newest
        stage.write(now_ms)
        return AppendInfo(first_offset, last_offset, max_timestamp, _NO_APPEND_TIME, self.log_start_offset, False)

    def _append_with_a_look(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        """The long way: every rule by itself, so that a batch that breaks one is told which."""
        records = prepare_client_batch(records, self.stage.rules, now_ms)
        (_, _, _, _, _, attributes, last_delta, _, max_timestamp, producer_id, producer_epoch, base_sequence,
         _) = HEADER_STRUCT.unpack_from(records)  # fmt: skip
        first_offset = self.log_end_offset
        last_offset = first_offset + last_delta
        if producer_id >= 0:
            is_transactional = attributes & TRANSACTIONAL_BIT != 0
            last_sequence = (base_sequence + last_delta) & MAX_SEQUENCE
            incomplete = self.producers.entry_to_complete(producer_id, producer_epoch, base_sequence)
            if incomplete is not None:
                self._recall_batches(incomplete)
            stored = self.producers.check_batch(
                producer_id, producer_epoch, base_sequence, last_sequence, is_transactional
            )
            if stored is not None:
                return AppendInfo(
                    stored.first_offset,
                    stored.last_offset,
                    stored.timestamp,
                    stored.timestamp,
                    self.log_start_offset,
                    True,
                )
            self._store(records, last_offset, max_timestamp, leader_epoch, now_ms)
            self.producers.apply_batch(
                producer_id,
                producer_epoch,
                base_sequence,
                last_sequence,
                first_offset,
                last_offset,
                max_timestamp,
                is_transactional,
            )
        else:
            self._store(records, last_offset, max_timestamp, leader_epoch, now_ms)
        self.move_end(last_offset + 1, now_ms)
        log_append_time_ms = max_timestamp if attributes & LOG_APPEND_TIME_BIT else _NO_APPEND_TIME
        return AppendInfo(first_offset, last_offset, max_timestamp, log_append_time_ms, self.log_start_offset, False)

    def _recall_batches(self, entry: ProducerEntry) -> None:
        try:
            recall_batches(entry, self.segments)
        except CorruptBatchError as e:
            # The producer is then told what it would have been told without a search.
            _log.error("%s", e.message)
            entry.lacks_earlier = False
        except OSError as e:
            raise self.failed_to("read", e) from e

    def _store(self, records: memoryview, last_offset: int, max_timestamp: int, leader_epoch: int, now_ms: int) -> None:
        """Write one batch at the end of the log. The end itself is moved by the caller."""
        first_offset = self.log_end_offset
        try:
            segment = self.segment_for(len(records), first_offset, last_offset, max_timestamp, now_ms)
            if leader_epoch > self.epochs.latest_epoch:
                self.epochs.assign(leader_epoch, first_offset)
            assign_offsets(records, 0, first_offset, leader_epoch)
            segment.append(records, last_offset, max_timestamp)
        except OSError as e:
            raise self.failed_to("append to", e) from e

    def _append_from_coordinator(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        batches = []
        next_offset = self.log_end_offset
        for position, header in prepare_coordinator_batches(records, self.stage.rules, now_ms):
            assign_offsets(records, position, next_offset, leader_epoch)
            header = header._replace(base_offset=next_offset, partition_leader_epoch=leader_epoch)
            marker = None
            if header.is_control:
                marker = read_end_marker(records[position:], header)
                if marker is not None:
                    self.producers.check_marker(header.producer_id, header.producer_epoch, marker)
            elif header.has_producer_id and not header.is_transactional:
                self.producers.check_not_in_transaction(header.producer_id)
            batches.append((position, header, marker))
            next_offset = header.next_offset
        info = self._append_set(records, batches, now_ms)
        if self.config.stamps_append_time:
            info = info._replace(log_append_time_ms=now_ms)
        return info

    def append_own(
        self,
        records: Sequence[bytes],
        *,
        leader_epoch: int,
        now_ms: int,
        transaction_of: tuple[int, int] | None = None,
        codec: Codec = Codec.NONE,
    ) -> int:
        """Store records that this broker made as one batch, and return the offset of the first.

        They are encoded with offset deltas from 0 on, have keys, and their time is `now_ms`.
        """
        stage = self.stage
        stage.write(now_ms)
        payload = b"".join(records)
        count = len(records)
        segment = self.segments.active
        first_offset = self.log_end_offset
        last_offset = first_offset + count - 1
        size = HEADER_SIZE + len(payload)
        if (
            transaction_of is not None
            or codec is not Codec.NONE
            or size > stage.rules.batch_bytes_max
            or leader_epoch != self.epochs.latest_epoch
            or not self.room.takes(segment.size, segment.size + size, last_offset, now_ms)
            or self.config.stamps_append_time
        ):
            attributes = codec | (0 if transaction_of is None else TRANSACTIONAL_BIT)
            producer = transaction_of or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
            header = BatchHeader(
                0, 0, leader_epoch, MAGIC_V2, 0, attributes, count - 1, now_ms, now_ms, *producer, NO_SEQUENCE, count
            )
            whole = memoryview(bytearray(pack_batch(header, compress(codec, payload))))
            return self._append_from_coordinator(whole, leader_epoch, now_ms).first_offset
        batch = pack_plain_batch(payload, count, now_ms, first_offset, leader_epoch)
        try:
            segment.append(batch, last_offset, now_ms)
        except OSError as e:
            raise self.failed_to("append to", e) from e
        self.move_end(last_offset + 1, now_ms)
        return first_offset

    def append_fetched(self, records: memoryview, *, now_ms: int = 0) -> None:
        """Store what a leader has sent: whole batches, and perhaps a part of another, which is left out."""
        fetched = read_fetched(records, self.log_end_offset, self.epochs.latest_epoch)
        if not fetched.written:
            return
        if fetched.has_control:
            self.append_as_follower(records[: fetched.size], now_ms=now_ms)
            return
        last_offset = fetched.written[-1][1]
        try:
            segment = self.segment_for(fetched.size, fetched.first_offset, last_offset, fetched.max_timestamp, now_ms)
            for epoch, start_offset in fetched.new_epochs:
                self.epochs.assign(epoch, start_offset)
            start = segment.write(records[: fetched.size])
        except OSError as e:
            raise self.failed_to("append to", e) from e
        segment.note_batches([(start + position, last, newest) for position, last, newest in fetched.written])
        for batch in fetched.of_producers:
            self.producers.apply_batch(*batch)
        segment.size = start + fetched.size
        self.move_end(last_offset + 1, now_ms)

    def append_as_follower(self, records: memoryview, *, now_ms: int = 0) -> AppendInfo:
        """Store batches as the leader has them. Offsets must go on from the end of this log, gaps are allowed."""
        self.stage.write(now_ms)
        batches = []
        next_offset = self.log_end_offset
        for position, header in split_batches(records):
            if header.base_offset < next_offset:
                raise InvalidRecordError(
                    f"a batch of offset {header.base_offset} cannot follow, the log of {self.topic_partition} "
                    f"goes on at {next_offset}"
                )
            marker = None
            # Compaction may have left a control batch without its record.
            if header.is_control and header.record_count:
                marker = read_end_marker(records[position:], header)
            batches.append((position, header, marker))
            next_offset = header.next_offset
        return self._append_set(records, batches, now_ms)

    def _append_set(
        self, records: memoryview, batches: list[tuple[int, BatchHeader, EndMarker | None]], now_ms: int
    ) -> AppendInfo:
        """Store batches that have their offsets, with one write."""
        first_offset, last_offset = batches[0][1].base_offset, batches[-1][1].last_offset
        max_timestamp = max(header.max_timestamp for _, header, _ in batches)
        try:
            segment = self.segment_for(len(records), first_offset, last_offset, max_timestamp, now_ms)
            for _, header, _ in batches:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            start = segment.write(records)
        except OSError as e:
            raise self.failed_to("append to", e) from e
        segment.note_batches(
            (start + position, header.last_offset, header.max_timestamp) for position, header, _ in batches
        )
        for _, header, marker in batches:
            note_completed(segment.transaction_index, self.producers, self.producers.replay(header, marker))
        segment.size = start + len(records)
        self.move_end(last_offset + 1, now_ms)
        return AppendInfo(first_offset, last_offset, max_timestamp, _NO_APPEND_TIME, self.log_start_offset, False)

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, end_offset: int, min_one_batch: bool = True) -> LogRead:
        """Batches from the one that contains `offset`, below `end_offset` (exclusive), from one segment.

        What is given has at least one whole batch, and may end within another. If the first is larger than `max_bytes`
        it is given anyway with `min_one_batch`, and nothing without: there are readers that give up over a part.
        """
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic_partition} is outside [{self.log_start_offset}, {log_end_offset}]"
            )
        if end_offset > log_end_offset:
            end_offset = log_end_offset
        segments = self.segments
        if offset >= end_offset:
            return LogRead(None, offset, segments.active.base_offset, True)
        number = segments.number_of(offset)
        try:
            # A segment may hold nothing at or above the offset, when compaction has removed its end.
            for segment in segments.all()[number:]:
                segment_end = segments.end_of(number, log_end_offset)
                number += 1
                position = segment.position_of(offset)
                if position >= segment.size:
                    continue
                limit = segment.size if segment_end <= end_offset else segment.position_of(end_offset)
                if limit <= position:
                    break
                length = limit - position
                if length > max_bytes:
                    first = _size_of_batch(segment, position, limit)
                    if first > max_bytes and not min_one_batch:
                        break
                    length = max(max_bytes, first)
                data = FileSlice(segment.log, position, length)
                return LogRead(data, offset, segment.base_offset, number == len(segments))
        except OSError as e:
            raise self.failed_to("read", e) from e
        return LogRead(None, offset, segments.active.base_offset, True)

    def available_bytes(self, offset: int, end_offset: int) -> int:
        """How many bytes `read` could give up to `end_offset` if it did not stop at the end of a segment."""
        end_offset = min(end_offset, self.log_end_offset)
        if not self.log_start_offset <= offset < end_offset:
            return 0
        segments = self.segments
        start, end = segments.number_of(offset), segments.number_of(end_offset)
        found = segments.all()[start : end + 1]
        first, last = found[0], found[-1]
        limit = last.size if end_offset == self.log_end_offset else last.position_of(end_offset)
        if start == end:
            return max(0, limit - first.position_of(offset))
        between = sum(segment.size for segment in found[1:-1])
        return first.size - first.position_of(offset) + between + limit

    def find_by_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record that is at least as young as `timestamp_ms`."""
        try:
            found = lookup.find_by_timestamp(self.segments, timestamp_ms, self.log_start_offset, self.log_end_offset)
        except OSError as e:
            raise self.failed_to("search", e) from e
        return TimestampOffset(*found) if found else None

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp."""
        try:
            found = lookup.find_max_timestamp(self.segments, self.log_start_offset, self.log_end_offset)
        except OSError as e:
            raise self.failed_to("search", e) from e
        return TimestampOffset(*found) if found else None

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return lookup.aborted_transactions(self.segments, start_offset, end_offset)

    def aborted_in(self, read: LogRead, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that touch what was read, which ends at `end_offset`, and perhaps a few after it."""
        data = read.data
        if data is None:
            return []
        segments = self.segments

        def end_of_read() -> int:
            number = segments.number_of(read.segment_base_offset)
            segment_end_offset = segments.end_of(number, self.log_end_offset)
            return lookup.end_of_bytes(segments.all()[number], data.position + data.length, segment_end_offset)

        return lookup.aborted_transactions(segments, read.start_offset, end_offset, end_of_read)


def _size_of_batch(segment: Segment, position: int, limit: int) -> int:
    """A reply must not promise bytes that are not there, whatever a damaged header says."""
    size = segment.size_of_batch(position)
    if size > limit - position:
        raise CorruptBatchError(f"{segment.log.path} holds no whole batch at position {position}")
    return size
