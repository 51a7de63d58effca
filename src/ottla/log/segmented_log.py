"""The structure under a partition's log: segments, leader epochs, producers and offsets that always fit together.

It rolls, truncates, drops and syncs. What is appended and read, and by which rules, is the business of `PartitionLog`,
which adds that on top.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Self

from ottla.base.errors import LogDirError, OffsetOutOfRangeError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.log.checkpoints import write_partition_metadata
from ottla.log.config import LogConfig
from ottla.log.file import sync_directory
from ottla.log.leader_epochs import FILE_NAME as EPOCH_FILE_NAME
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.producer_snapshot import find_snapshots
from ottla.log.producer_state import ProducerStates
from ottla.log.replay import replay_producers
from ottla.log.segment import Segment
from ottla.log.segment_set import SegmentSet


class SegmentedLog:
    def __init__(
        self,
        directory: Path,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        *,
        segments: SegmentSet,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        """Takes over parts that fit together, as `create` and recovery make them."""
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        self.recovery_point = recovery_point
        self.flush_due = False
        """Set when flush.messages or flush.ms is reached or a segment was sealed; the broker then calls `flush`."""
        self._unflushed_records = 0
        self._last_flush_ms = 0
        self._flush_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._truncations = 0
        self._new_files = True
        self._sync_has_failed = False
        self._deleted_segments: list[tuple[Segment, int | None]] = []
        self.is_deleted = False
        self.write_checkpoints: Callable[[], None] | None = None
        """Writes the checkpoints of the log directory; set by whoever keeps them."""
        self.checkpoint_is_behind = False
        """Set when the recovery point went back: the checkpoint on disk then trusts too much."""
        self.update_config(config)

    @classmethod
    def create(
        cls,
        directory: Path,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        *,
        now_ms: int,
        start_offset: int = 0,
    ) -> Self:
        """A new, empty log in `directory`, which is made."""
        directory.mkdir(parents=True)
        if topic_id != NIL_UUID:
            write_partition_metadata(directory, topic_id)
        producers = ProducerStates(directory)
        producers.clear(start_offset)
        return cls(
            directory,
            topic_partition,
            topic_id,
            config,
            segments=SegmentSet([Segment.create(directory, start_offset, config, now_ms=now_ms)]),
            epochs=LeaderEpochs(directory / EPOCH_FILE_NAME),
            producers=producers,
            log_start_offset=start_offset,
            log_end_offset=start_offset,
            recovery_point=start_offset,
        )

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        for segment in self.segments.all():
            segment.index_interval_bytes = config.index_interval_bytes

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Give an id to a log that has none yet."""
        try:
            write_partition_metadata(self.directory, topic_id)
        except OSError as e:
            raise self._failed("give its topic id to", e) from e
        self.topic_id = topic_id

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def last_stable_offset(self) -> int:
        """How far read_committed consumers see: to the first transaction that is open or not replicated."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Never goes back, never beyond the end of the log."""
        high_watermark = min(high_watermark, self.log_end_offset)
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.producers.high_watermark_moved(high_watermark)

    def begin_leader_epoch(self, epoch: int) -> None:
        """From the end of the log on, this broker writes as the leader of `epoch`. Must precede the first append."""
        if epoch > self.epochs.latest_epoch:
            try:
                self.epochs.assign(epoch, self.log_end_offset)
            except OSError as e:
                raise self._failed("begin a leader epoch of", e) from e

    def _failed(self, what: str, error: OSError) -> LogDirError:
        return LogDirError(f"cannot {what} {self.topic_partition} in {self.directory}: {error.strerror or error}")

    # -- segments ------------------------------------------------------------------------------------------------

    def roll(self, *, now_ms: int) -> None:
        """Start a new segment at the end of the log, unless the active one is empty."""
        try:
            self._roll(self.log_end_offset, now_ms)
        except OSError as e:
            raise self._failed("start a segment of", e) from e

    def skip_to(self, offset: int, *, now_ms: int) -> None:
        """Go on at `offset`: there is nothing between the end of this log and it in the log this one copies."""
        if offset <= self.log_end_offset:
            return
        try:
            self._roll(offset, now_ms)
        except OSError as e:
            raise self._failed("start a segment of", e) from e
        self.log_end_offset = self.producers.end_offset = offset

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        old = self.segments.active
        if old.size == 0 and old.base_offset == base_offset:
            return old
        if self.checkpoint_is_behind and self.write_checkpoints is not None:
            # Once the segment is sealed, a crash would take it for durable up to the old recovery point.
            self.write_checkpoints()
        self.producers.take_snapshot()
        new = Segment.create(self.directory, base_offset, self.config, now_ms=now_ms)
        if old.size == 0:
            self._discard([old])
        else:
            try:
                self._seal(old)
            except OSError:
                old.become_active()
                new.remove_files()
                raise
        self.segments.add(new)
        self._new_files = True
        self.flush_due = True
        return new

    def _seal(self, segment: Segment) -> None:
        segment.seal()
        if self.producers.has_seen_markers:
            segment.txn_index.ensure_file()

    def advance_log_start_offset(self, offset: int) -> None:
        """Forget what lies below `offset`; segments that lie below it as a whole are dropped."""
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"the log of {self.topic_partition} cannot begin at {offset}: "
                f"the high watermark is {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        segments = self.segments.all()
        doomed = [old for old, following in pairwise(segments) if following.base_offset <= offset]
        try:
            self._discard(doomed)
            self.epochs.truncate_from_start(offset)
        except OSError as e:
            raise self._failed("drop old segments of", e) from e
        self.producers.log_start_moved(offset)
        self._remove_snapshots(below=self.segments.first.base_offset)

    def _discard(self, doomed: list[Segment]) -> None:
        """Take segments out of the log. Their files stay readable for those who hold them, under another name."""
        if doomed:
            self.segments.remove(doomed)
            for segment in doomed:
                segment.mark_deleted()
                with self._state_lock:
                    self._deleted_segments.append((segment, None))

    def remove_deleted(self, now_ms: int, *, at_once: bool = False) -> None:
        """Remove files of segments that were dropped at least file.delete.delay.ms ago, counted from the first call."""
        with self._state_lock:
            found, self._deleted_segments = self._deleted_segments, []
        for segment, noticed_ms in found:
            if at_once or (noticed_ms is not None and now_ms - noticed_ms >= self.config.file_delete_delay_ms):
                segment.remove_files()
            else:
                with self._state_lock:
                    self._deleted_segments.append((segment, now_ms if noticed_ms is None else noticed_ms))

    def _remove_snapshots(self, *, below: int = 0, above: int = 2**63) -> None:
        for offset, path in find_snapshots(self.directory).items():
            if offset < below or offset > above:
                path.unlink(missing_ok=True)

    # -- truncation ----------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from the batch that contains `offset` on. Returns whether there was anything to drop.

        The new end is `offset`, or the start of that batch: then the whole batch can be fetched again.
        """
        if offset >= self.log_end_offset:
            return False
        if offset <= self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            segments = self.segments.all()
            number = self.segments.number_of(offset)
            if segments[number].base_offset == offset:
                number -= 1
            target = segments[number]
            self._begin_truncation(offset)
            self._discard(segments[number + 1 :])
            position = target.position_of(offset)
            if position < target.size:
                offset = min(offset, target.header_at(position).base_offset)
                target.truncate_to(offset)
            else:
                target.become_active()
            self._end_truncation(offset)
            self._reload_producers()
        except OSError as e:
            raise self._failed("truncate", e) from e
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`."""
        try:
            self._begin_truncation(offset)
            doomed = self.segments.all()
            created_ms = self.segments.active.created_ms
            # Under another name first: a new segment may need the name of an old one.
            self._discard(doomed)
            self.segments.add(Segment.create(self.directory, offset, self.config, now_ms=created_ms))
            self.epochs.clear()
            self._remove_snapshots(above=-1)
        except OSError as e:
            raise self._failed("truncate", e) from e
        self.producers.clear(offset)
        self.log_start_offset = offset
        self._end_truncation(offset)

    def _begin_truncation(self, offset: int) -> None:
        """From here on no flush that is under way may raise the recovery point."""
        with self._state_lock:
            self._truncations += 1
            self.checkpoint_is_behind |= self.recovery_point > offset
            self.recovery_point = min(self.recovery_point, offset)

    def _end_truncation(self, offset: int) -> None:
        with self._state_lock:
            self._truncations += 1
            self.recovery_point = min(self.recovery_point, offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = max(min(self.high_watermark, offset), self.log_start_offset)
        self.epochs.truncate_from_end(offset)
        self._new_files = True
        self._remove_snapshots(above=offset)

    def _reload_producers(self) -> None:
        """Bring the producers' state back to what it was at the new end of the log."""
        self.producers.load_newest_snapshot(self.log_start_offset, self.log_end_offset)
        replay_producers(self.producers, self.segments)

    # -- durability ----------------------------------------------------------------------------------------------

    def flush(self, up_to: int | None = None) -> int:
        """Make everything below `up_to` (default: the end) durable; returns the new recovery point.

        Safe to call from another thread while appends go on. A failed sync is never tried again: the kernel may
        have dropped the pages it could not write, and a second attempt would report them as safe.
        """
        with self._flush_lock:
            if self._sync_has_failed:
                raise LogDirError(f"an earlier sync of {self.topic_partition} in {self.directory} has failed")
            target = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
            truncations = self._truncations
            self.flush_due = False
            self._unflushed_records = 0
            if target > self.recovery_point:
                try:
                    self._sync(target)
                except OSError as e:
                    self._sync_has_failed = True
                    raise self._failed("sync", e) from e
            with self._state_lock:
                if self._truncations == truncations:
                    self.recovery_point = max(self.recovery_point, target)
                return self.recovery_point

    def _sync(self, target: int) -> None:
        active = self.segments.active
        for segment in self.segments.from_offset(self.recovery_point):
            if segment.base_offset >= target or segment.is_synced:
                continue
            try:
                if segment is active:
                    # Its indexes are rebuilt after a crash in any case, because the recovery point lies inside it.
                    segment.log.sync()
                else:
                    segment.sync()
                    segment.is_synced = segment is not self.segments.active
            except FileNotFoundError:
                if not (segment.is_deleted or self.is_deleted):
                    raise
        self.epochs.sync()
        if self._new_files:
            self._new_files = False
            try:
                sync_directory(self.directory)
            except FileNotFoundError:
                if not self.is_deleted:
                    raise

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether a setting asks for a flush. Appends notice it by themselves; a log that is idle has to be asked."""
        return self.flush_due or (self._unflushed_records > 0 and now_ms - self._last_flush_ms >= self.config.flush_ms)

    def note_flush_time(self, now_ms: int) -> None:
        """flush.ms counts from here. The caller of `flush` knows the time; the flush itself may run in a thread."""
        self._last_flush_ms = now_ms

    def write_indexes(self) -> None:
        """Bring the index files of the active segment up to date, for those who look at them from outside."""
        segment = self.segments.active
        try:
            segment.write_indexes()
        except OSError as e:
            if not (segment.is_deleted or self.is_deleted):
                raise self._failed("write indexes of", e) from e

    def take_snapshot(self) -> None:
        try:
            self.producers.take_snapshot()
        except OSError as e:
            raise self._failed("write the producers of", e) from e

    def close(self, *, clean: bool = True) -> None:
        """Stop using the log. A clean close leaves files that need no recovery; otherwise they stay as they are.

        Only the records are synced: whatever else a power cut may take, the next start notices and makes anew.
        """
        if not clean:
            return
        self.flush()
        try:
            self._seal(self.segments.active)
            self.segments.active.txn_index.sync()
            self.producers.take_snapshot()
        except OSError as e:
            raise self._failed("close", e) from e
        self.remove_deleted(0, at_once=True)

    def move_to_deleted(self, directory: Path) -> None:
        """Rename the directory because the partition is deleted. Open files do not mind."""
        self.is_deleted = True
        self.move_to(directory)

    def move_to(self, directory: Path) -> None:
        """Rename the directory; nothing else may write to it at the same time, unless it is deleted."""
        self.directory.rename(directory)
        self.directory = directory
        self.producers.directory = directory
        self.epochs.path = directory / self.epochs.path.name
        for segment in self.segments.all():
            segment.moved_to(directory)
