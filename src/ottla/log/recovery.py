"""Opens a partition's directory as it was left: trusting it after a clean stop, checking it after any other.

After a crash everything from the segment that contains the recovery point on is read batch by batch, checksums
included; the log ends at the first byte that does not hold, and indexes, epochs and producers are made anew from what
was read. Files that contradict the log are rebuilt in either case; the log itself is the only truth.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import CorruptBatchError, LogDirError
from ottla.base.types import TopicPartition, Uuid
from ottla.log.checkpoints import CheckpointError
from ottla.log.config import LogConfig
from ottla.log.durable_log import LogParts
from ottla.log.index_file import CorruptIndexError
from ottla.log.leader_epochs import FILE_NAME as EPOCH_FILE_NAME
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.old_formats import refuse_old_format
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_snapshot import SnapshotError, decode_snapshot, find_snapshots
from ottla.log.producer_state import ProducerStates
from ottla.log.replay import replay_into_index, replay_producers
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.log.segment_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offsets_of_files,
    segment_path,
)
from ottla.log.segment_set import SegmentSet
from ottla.log.segmented_log import NEVER_CLEANED
from ottla.log.swap import finish_swaps
from ottla.records.batch import HEADER_SIZE, MAGIC_V2, BatchHeader, crc_is_valid, read_header

_READ_BYTES = 4 << 20

_log = logging.getLogger(__name__)


class Recovery(NamedTuple):
    """What checking one partition after a crash came to."""

    segments: int
    checked_bytes: int
    dropped_bytes: int


def load_partition(
    directory: Path,
    topic_partition: TopicPartition,
    topic_id: Uuid,
    config: LogConfig,
    *,
    is_clean: bool,
    recovery_point: int,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    clean_offset: int = NEVER_CLEANED,
    on_recovered: Callable[[Recovery], None] = lambda recovery: None,
) -> PartitionLog:
    """The log in `directory`. The offsets are what the checkpoints say, 0 where they say nothing.

    `on_recovered` is told of what had to be checked, if anything had to.
    """
    try:
        loader = _Loader(directory, config, log_start_offset, now_ms)
        parts = loader.load(is_clean=is_clean, recovery_point=recovery_point)
        log = PartitionLog(directory, topic_partition, topic_id, config, parts)
    except OSError as e:
        raise LogDirError(f"cannot load {topic_partition} from {directory}: {e.strerror or e}") from e
    if loader.recovery is not None:
        on_recovered(loader.recovery)
    log.advance_high_watermark(high_watermark)
    log.clean_offset = min(clean_offset, log.log_end_offset)
    return log


def log_loaded(path: Path, partitions: int, recoveries: list[Recovery], took_ms: int) -> None:
    """The line about a log directory that was opened: what had to be checked, and what it cost."""
    if not recoveries:
        _log.info("%s: %d partitions were opened in %d ms", path, partitions, took_ms)
        return
    dropped_bytes = sum(recovery.dropped_bytes for recovery in recoveries)
    _log.log(
        logging.WARNING if dropped_bytes else logging.INFO,
        "%s: %d of %d partitions were recovered in %d ms: %d segments with %d bytes checked, %d bytes dropped",
        path,
        len(recoveries),
        partitions,
        took_ms,
        sum(recovery.segments for recovery in recoveries),
        sum(recovery.checked_bytes for recovery in recoveries),
        dropped_bytes,
    )


class _Loader:
    """Collects the parts of one log. Not used any more once they are handed over."""

    def __init__(self, directory: Path, config: LogConfig, log_start_offset: int, now_ms: int) -> None:
        self.directory = directory
        self.config = config
        self.now_ms = now_ms
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_start_offset
        self.producers = ProducerStates(directory)
        self.segments = SegmentSet([])
        self.epochs = LeaderEpochs(directory / EPOCH_FILE_NAME)
        self.recovery: Recovery | None = None
        self._epochs_are_known = False
        self._producers_are_known = False

    def load(self, *, is_clean: bool, recovery_point: int) -> LogParts:
        finish_swaps(self.directory)
        self._load_epochs()
        found = self._open_segments()
        suspect = len(found) if is_clean else _first_suspect(found, recovery_point)
        self._trust(found[:suspect])
        if is_clean and found and not _ends_with_whole_batch(found[-1]):
            suspect = len(found) - 1
        if suspect < len(found):
            found = self._recover_from(found, suspect)
        self._settle(found)
        self._complete_epochs()
        self._complete_producers()
        _remove_stray_snapshots(self.directory, [s.base_offset for s in self.segments.all()], self.log_end_offset)
        return LogParts(
            segments=self.segments,
            epochs=self.epochs,
            producers=self.producers,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            recovery_point=self.log_end_offset if is_clean else min(recovery_point, self.log_end_offset),
        )

    # -- segments ------------------------------------------------------------------------------------------------

    def _open_segments(self) -> list[Segment]:
        base_offsets = sorted(offsets_of_files(self.directory, LOG_SUFFIX))
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            for orphan in offsets_of_files(self.directory, suffix) - set(base_offsets):
                segment_path(self.directory, orphan, suffix).unlink()
        segments = [Segment.open(self.directory, base_offset, self.config) for base_offset in base_offsets]
        for segment in segments:
            refuse_old_format(segment.log, 0, segment.size)
        return segments

    def _trust(self, segments: list[Segment]) -> None:
        """Open segments whose data is known to be durable; an index that does not fit is made anew from the data."""
        for number, segment in enumerate(segments):
            try:
                segment.open_indexes()
                self._check_transaction_index(
                    segment, segments[number + 1].base_offset if number + 1 < len(segments) else None
                )
            except (CorruptIndexError, CorruptBatchError) as e:
                _log.warning("%s; making the indexes of the segment anew", e)
                self._rebuild_indexes(segment, segments[:number])

    def _check_transaction_index(self, segment: Segment, next_base_offset: int | None) -> None:
        """A missing file is a loss if the producers' snapshot at the end of the segment knows of transactions."""
        if segment.transaction_index.path.exists():
            return
        end_offset = segment.next_offset() if next_base_offset is None else next_base_offset
        try:
            snapshot = segment_path(self.directory, end_offset, SNAPSHOT_SUFFIX).read_bytes()
            producers = decode_snapshot(snapshot)
        except (FileNotFoundError, SnapshotError):
            return
        if any(producer.has_ended_transaction for producer in producers):
            raise CorruptIndexError(f"{segment.transaction_index.path} is missing")

    def _rebuild_indexes(self, segment: Segment, earlier: list[Segment]) -> None:
        segment.rebuild_indexes()
        producers = ProducerStates(self.directory)
        producers.load_newest_snapshot(self._oldest_offset([*earlier, segment]), segment.base_offset, keep_newer=True)
        replay_producers(producers, SegmentSet(earlier), segment.base_offset)
        segment.transaction_index.create()
        try:
            for position, header in segment.headers():
                if header.has_producer_id:
                    batch = segment.batch_at(position, header) if header.is_control else b""
                    replay_into_index(segment.transaction_index, producers, header, batch)
        except CorruptBatchError as e:
            _log.error("%s", e.message)
        segment.write_indexes()
        segment.transaction_index.ensure_file()

    def _recover_from(self, segments: list[Segment], number: int) -> list[Segment]:
        """Read segment `number` and all that cannot be trusted after it; whatever follows damage is dropped."""
        kept = segments[:number]
        start = segments[number].base_offset
        self.producers.load_newest_snapshot(self._oldest_offset(segments), start)
        replay_producers(self.producers, SegmentSet(kept), start)
        checked_bytes = dropped_bytes = 0
        for at, segment in enumerate(segments[number:], start=number):
            if at > number:
                # Compaction may have removed the last batches before it.
                self.producers.end_offset = max(self.producers.end_offset, segment.base_offset)
                self.producers.take_snapshot()
            later = segments[at + 1 :]
            dropped = recover_segment(segment, self.producers, self.epochs, later)
            self._producers_are_known = True
            kept.append(segment)
            checked_bytes += segment.size + dropped
            if dropped:
                dropped_bytes = dropped + sum(doomed.size for doomed in later)
                _log.warning(
                    "%s: %d damaged bytes dropped at the end, and %d later segments",
                    segment.log.path,
                    dropped,
                    len(later),
                )
                break
            if later and self._is_cut_off(segment, later[0]):
                dropped_bytes = sum(doomed.size for doomed in later)
                for doomed in reversed(later):
                    doomed.remove_files()
                break
        self.recovery = Recovery(len(kept) - number, checked_bytes, dropped_bytes)
        for segment in kept[number:-1]:
            segment.seal()
            if self.producers.has_seen_markers:
                segment.transaction_index.ensure_file()
        return kept

    def _is_cut_off(self, segment: Segment, following: Segment) -> bool:
        """Whether records between the two are lost: a power cut may take the end of a file and leave a later one.
        Only a compacted log has gaps by right."""
        end_offset = segment.next_offset()
        if self.config.is_compacted or end_offset == following.base_offset:
            return False
        _log.warning(
            "%s ends at %d, but the next segment begins at %d; the later segments are dropped",
            segment.log.path,
            end_offset,
            following.base_offset,
        )
        return True

    def _oldest_offset(self, segments: list[Segment]) -> int:
        return max(self.log_start_offset, segments[0].base_offset) if segments else self.log_start_offset

    def _settle(self, segments: list[Segment]) -> None:
        """Decide where the log begins and ends; there must be a segment to append to."""
        if segments:
            self.log_start_offset = self._oldest_offset(segments)
            self.log_end_offset = segments[-1].next_offset()
            if self.log_end_offset < self.log_start_offset:
                _log.warning(
                    "%s ends at %d, before its start %d; starting it anew",
                    self.directory,
                    self.log_end_offset,
                    self.log_start_offset,
                )
                for segment in segments:
                    segment.remove_files()
                segments = []
        if not segments:
            self.log_end_offset = self.log_start_offset
            segments = [Segment.create(self.directory, self.log_start_offset, self.config, now_ms=self.now_ms)]
            self.producers.clear(self.log_end_offset)
        self.segments = SegmentSet(segments)
        self.segments.active.become_active()

    # -- what is told about the segments -------------------------------------------------------------------------

    def _load_epochs(self) -> None:
        try:
            known = LeaderEpochs.load(self.directory)
        except CheckpointError as e:
            _log.warning("%s; finding the leader epochs in the log", e)
            known = None
        if known is not None:
            self.epochs = known
            self._epochs_are_known = True

    def _complete_epochs(self) -> None:
        if not self._epochs_are_known:
            self.epochs.clear()
            for segment in self.segments.all():
                for _, header in segment.headers():
                    if header.partition_leader_epoch >= 0:
                        self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)

    def _complete_producers(self) -> None:
        if not self._producers_are_known:
            self.producers.load_newest_snapshot(self.log_start_offset, self.log_end_offset)
            replay_producers(self.producers, self.segments)
        self.producers.end_offset = self.log_end_offset


def _first_suspect(segments: list[Segment], recovery_point: int) -> int:
    """After a crash: the number of the segment that contains the recovery point, the last one at the latest."""
    begun_below = sum(1 for segment in segments if segment.base_offset <= recovery_point)
    return max(0, min(begun_below, len(segments)) - 1)


def _ends_with_whole_batch(segment: Segment) -> bool:
    try:
        segment.next_offset()
    except CorruptBatchError as e:
        _log.warning("%s", e.message)
        return False
    return True


# -- one segment -------------------------------------------------------------------------------------------------


class _Scanned(NamedTuple):
    position: int
    header: BatchHeader
    batch: memoryview


def recover_segment(
    segment: Segment, producers: ProducerStates, epochs: LeaderEpochs, later: Sequence[Segment] = ()
) -> int:
    """Check every batch of the segment and make its indexes anew; returns how many bytes were cut off its end.

    `producers` must stand at the segment's base offset; it and `epochs` learn what the batches say. If anything is cut
    off, the `later` segments go first, the last one before all: whenever a kill comes, no gap is left behind.
    """
    file_size = segment.log.size()
    segment.size = 0
    segment.create_indexes()
    end = 0
    for position, header, batch in _valid_batches(segment, file_size):
        if header.partition_leader_epoch > epochs.latest_epoch:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
        replay_into_index(segment.transaction_index, producers, header, batch)
        segment.note_batches(((position, header.last_offset, header.max_timestamp),))
        end = position + header.size
    segment.size = end
    if end < file_size:
        for doomed in reversed(later):
            doomed.remove_files()
        segment.log.truncate(end)
    segment.time_index.maybe_append(segment.max_timestamp, segment.offset_of_max_timestamp)
    segment.write_indexes()
    return file_size - end


def _valid_batches(segment: Segment, file_size: int) -> Iterator[_Scanned]:
    """Every batch up to the first one that is torn, damaged or out of order. Reads in large pieces."""
    buffer = bytearray(min(_READ_BYTES, max(file_size, HEADER_SIZE)))
    view = memoryview(buffer)
    position = filled = at = 0
    next_offset = segment.base_offset
    while position + at + HEADER_SIZE <= file_size:
        if at + HEADER_SIZE > filled:
            position, at = position + at, 0
            filled = segment.log.read_into(position, view)
            if filled < HEADER_SIZE:
                return
        header = read_header(view, at)
        size = header.size
        if header.magic < MAGIC_V2:
            refuse_old_format(segment.log, position + at, file_size)
        if (
            header.magic != MAGIC_V2
            or size < HEADER_SIZE
            or position + at + size > file_size
            or header.base_offset < next_offset
            or header.last_offset_delta < 0
            or header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            return
        if at + size > filled:
            position, at = position + at, 0
            if size > len(view):
                view = memoryview(bytearray(size))
            filled = segment.log.read_into(position, view)
            if filled < size:
                return
        batch = view[at : at + size]
        if not crc_is_valid(batch, header):
            return
        yield _Scanned(position + at, header, batch)
        next_offset = header.next_offset
        at += size


def _remove_stray_snapshots(directory: Path, base_offsets: list[int], log_end_offset: int) -> None:
    """Keep the snapshots that belong to a segment, and the newest one."""
    snapshots = find_snapshots(directory)
    newest = max((offset for offset in snapshots if offset <= log_end_offset), default=-1)
    for offset, path in snapshots.items():
        if offset != newest and offset not in base_offsets:
            path.unlink(missing_ok=True)
