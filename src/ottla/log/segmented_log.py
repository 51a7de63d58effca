"""The structure under a partition's log: segments, leader epochs, producers and offsets that always fit together.

It rolls, truncates and drops. What is appended and read, and by which rules, is the business of `PartitionLog`,
which adds that on top.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Self

from ottla.base.errors import OffsetOutOfRangeError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.log.checkpoints import write_partition_metadata
from ottla.log.chores import LogChores
from ottla.log.config import INT64_MAX, LogConfig
from ottla.log.durable_log import DurableLog, LogParts
from ottla.log.leader_epochs import FILE_NAME as EPOCH_FILE_NAME
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.producer_snapshot import find_snapshots
from ottla.log.producer_state import ProducerStates
from ottla.log.replay import replay_producers
from ottla.log.retired_segments import RetiredSegments
from ottla.log.segment import Segment
from ottla.log.segment_files import SNAPSHOT_SUFFIX, SWAP_SUFFIX, segment_path
from ottla.log.segment_room import NO_ROOM, SegmentRoom, measure_room
from ottla.log.segment_set import SegmentSet

NEVER_CLEANED = -1


class SegmentedLog(DurableLog):
    def __init__(
        self, directory: Path, topic_partition: TopicPartition, topic_id: Uuid, config: LogConfig, parts: LogParts
    ) -> None:
        super().__init__(directory, topic_partition, config, parts)
        self.topic_id = topic_id
        self.room = NO_ROOM
        """What is known to go into the active segment. Not all that does: see `room_now`."""
        self.producers = parts.producers
        self.log_start_offset = parts.log_start_offset
        self.high_watermark = parts.log_start_offset
        self.clean_offset = NEVER_CLEANED
        """Below it compaction has left one record of each key (exclusive)."""
        self.chores = LogChores()
        self._retired = RetiredSegments(self._enter_for_removal)
        self.write_checkpoints: Callable[[], None] | None = None
        """Writes the checkpoints of the log directory; set by whoever keeps them."""
        self.checkpoint_is_behind = False
        """Set when the recovery point went back: the checkpoint on disk then trusts too much."""

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
        parts = LogParts(
            segments=SegmentSet([Segment.create(directory, start_offset, config, now_ms=now_ms)]),
            epochs=LeaderEpochs(directory / EPOCH_FILE_NAME),
            producers=producers,
            log_start_offset=start_offset,
            log_end_offset=start_offset,
            recovery_point=start_offset,
        )
        return cls(directory, topic_partition, topic_id, config, parts)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self.room = NO_ROOM
        for segment in self.segments.all():
            segment.index_interval_bytes = config.index_interval_bytes
        self.join(self.chores)

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Give an id to a log that has none yet."""
        try:
            write_partition_metadata(self.directory, topic_id)
        except OSError as e:
            raise self.failed_to("give its topic id to", e) from e
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
                raise self.failed_to("begin a leader epoch of", e) from e

    # -- segments ------------------------------------------------------------------------------------------------

    def roll(self, *, now_ms: int) -> None:
        """Start a new segment at the end of the log, unless the active one is empty."""
        try:
            self._roll(self.log_end_offset, now_ms)
        except OSError as e:
            raise self.failed_to("start a segment of", e) from e

    def skip_to(self, offset: int, *, now_ms: int) -> None:
        """Go on at `offset`: there is nothing between the end of this log and it in the log this one copies."""
        if offset <= self.log_end_offset:
            return
        try:
            self._roll(offset, now_ms)
        except OSError as e:
            raise self.failed_to("start a segment of", e) from e
        self.log_end_offset = self.producers.end_offset = offset

    def segment_for(self, size: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """Where batches of `size` bytes are to be appended: a new segment, if the active one has no room for them."""
        segment = self.segments.active
        position, end_position = segment.size, segment.size + size
        if not (
            self.room.takes(position, end_position, last_offset, max_timestamp)
            or self.room_now(now_ms).takes(position, end_position, last_offset, max_timestamp)
        ):
            segment = self._roll(first_offset, now_ms)
        return segment

    def room_now(self, now_ms: int) -> SegmentRoom:
        """What the active segment takes at this moment."""
        room = measure_room(self.segments.active, self.config, now_ms)
        self.room = room if room.lasts else NO_ROOM
        return room

    def move_end(self, log_end_offset: int, now_ms: int) -> None:
        """Records were appended up to `log_end_offset`."""
        self._unflushed_records += log_end_offset - self.log_end_offset
        self.log_end_offset = self.producers.end_offset = log_end_offset
        config = self.config
        if self._unflushed_records >= config.flush_messages or now_ms - self._last_flush_ms >= config.flush_ms:
            self.ask_for_flush()
        elif config.flush_ms < INT64_MAX:
            self.chores.flush[self] = None

    def ask_for_flush(self) -> None:
        self.flush_due = True
        self.chores.flush[self] = None

    def _enter_for_removal(self) -> None:
        self.chores.removal[self] = None

    def join(self, chores: LogChores) -> None:
        """Enters what there is to do from now on, and what there is already, into these."""
        self.chores = chores
        if self.flush_due or self._unflushed_records:
            chores.flush[self] = None
        if self._retired:
            chores.removal[self] = None

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        segments = self.segments
        old = segments.active
        if old.size == 0 and old.base_offset == base_offset:
            return old
        if self.checkpoint_is_behind and self.write_checkpoints is not None:
            # Once the segment is sealed, a crash would take it for durable up to the old recovery point.
            self.write_checkpoints()
        self.producers.take_snapshot()
        new = Segment.create(self.directory, base_offset, self.config, now_ms=now_ms)
        if old.size == 0:
            self.segments = SegmentSet((*segments.all()[:-1], new))
            self._retired.add([old])
        else:
            try:
                self._seal(old)
            except OSError:
                old.become_active()
                new.remove_files()
                raise
            self.segments = segments.add(new)
        self.room = NO_ROOM
        self._file_changes += 1
        self.ask_for_flush()
        return new

    def _seal(self, segment: Segment) -> None:
        segment.seal()
        if self.producers.has_seen_markers:
            segment.transaction_index.ensure_file()

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
        segments = self.segments
        doomed = [old for old, following in pairwise(segments.all()) if following.base_offset <= offset]
        try:
            if doomed:
                self.segments = segments.replace(doomed, [])
                self._retired.add(doomed)
            self.epochs.truncate_from_start(offset)
        except OSError as e:
            raise self.failed_to("drop old segments of", e) from e
        self.producers.log_start_moved(offset)
        first_offset = self.segments.first.base_offset
        self._remove_snapshots(lambda end_offset: end_offset < first_offset)

    @property
    def history(self) -> int:
        """Another number after every truncation."""
        return self._truncations

    def exchange(self, old: Sequence[Segment], new: Segment) -> None:
        """Let `new`, which holds what is left of `old` and is complete and durable, take their place.

        Whenever the process is killed, a start finds one or the other (`swap`).
        """
        following = self.segments.replace(old, [new])
        try:
            new.rename_files(SWAP_SUFFIX)
            self._retired.add(old)
            new.rename_files("")
        except OSError as e:
            raise self.failed_to("compact", e) from e
        self.segments = following
        self._file_changes += 1
        for segment in old[1:]:
            segment_path(self.directory, segment.base_offset, SNAPSHOT_SUFFIX).unlink(missing_ok=True)

    def secure_exchange(self) -> None:
        """Make exchanges durable. May run in another thread."""
        try:
            self._sync_directory()
        except OSError as e:
            raise self.failed_to("compact", e) from e

    def remove_deleted(self, now_ms: int, *, at_once: bool = False) -> None:
        """Remove files of segments that were dropped at least file.delete.delay.ms ago, counted from the first call."""
        self.chores.removal.pop(self, None)
        self._retired.remove_files(now_ms, self.config.file_delete_delay_ms, at_once=at_once)
        if self._retired:
            self._enter_for_removal()

    def _remove_snapshots(self, is_doomed: Callable[[int], bool]) -> None:
        """Those of which this is true, by the offset they end at."""
        for end_offset, path in find_snapshots(self.directory).items():
            if is_doomed(end_offset):
                path.unlink(missing_ok=True)

    # -- truncation ----------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from the batch that contains `offset` on. Returns whether there was anything to drop.

        The new end is `offset`, or the start of that batch: then the whole batch can be fetched again.
        """
        if offset >= self.log_end_offset:
            # A leader notes its epoch before it writes. If it has written nothing and follows another leader now, that
            # one does not know of the epoch, and would send it here for ever.
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        segments = self.segments
        if offset <= segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            number = segments.number_of(offset)
            if segments.all()[number].base_offset == offset:
                number -= 1
            self._begin_truncation(offset)
            self.segments = segments.up_to(number)
            self._retired.add(segments.all()[number + 1 :])
            target = self.segments.active
            position = target.position_of(offset)
            if position < target.size:
                offset = min(offset, target.header_at(position).base_offset)
                target.truncate_to(offset)
            else:
                target.become_active()
            self._end_truncation(offset)
            self._reload_producers()
        except OSError as e:
            raise self.failed_to("truncate", e) from e
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`."""
        try:
            self._begin_truncation(offset)
            # Under another name first: a new segment may need the name of an old one.
            self._retired.add(self.segments.all())
            created_ms = self.segments.active.created_ms
            new = Segment.create(self.directory, offset, self.config, now_ms=created_ms)
            # A checkpoint that is written meanwhile must not give the new segments the old start.
            self.log_start_offset = offset
            self.segments = SegmentSet([new])
            self.epochs.clear()
            self._remove_snapshots(lambda end_offset: True)
        except OSError as e:
            raise self.failed_to("truncate", e) from e
        self.producers.clear(offset)
        self._end_truncation(offset)

    def _begin_truncation(self, offset: int) -> None:
        """From here on no flush that is under way may raise the recovery point."""
        self.room = NO_ROOM
        with self._state_lock:
            self._truncations += 1
            self.checkpoint_is_behind |= self.recovery_point > offset
            self.recovery_point = min(self.recovery_point, offset)

    def _end_truncation(self, offset: int) -> None:
        self.log_end_offset = offset
        # Only now: a flush that has seen the old end must not raise the recovery point to it.
        with self._state_lock:
            self._truncations += 1
            self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.clean_offset = min(self.clean_offset, offset)
        self.high_watermark = max(min(self.high_watermark, offset), self.log_start_offset)
        self.epochs.truncate_from_end(offset)
        self._file_changes += 1
        self._remove_snapshots(lambda end_offset: end_offset > offset)

    def _reload_producers(self) -> None:
        """Bring the producers' state back to what it was at the new end of the log."""
        self.producers.load_newest_snapshot(self.log_start_offset, self.log_end_offset)
        replay_producers(self.producers, self.segments)

    # -- files ---------------------------------------------------------------------------------------------------

    def write_indexes(self) -> None:
        """Bring the index files of the active segment up to date, for those who look at them from outside."""
        segment = self.segments.active
        try:
            segment.write_indexes()
        except OSError as e:
            if not (segment.is_deleted or self.is_deleted):
                raise self.failed_to("write indexes of", e) from e

    def take_snapshot(self) -> None:
        try:
            self.producers.take_snapshot()
        except OSError as e:
            raise self.failed_to("write the producers of", e) from e

    def close(self, *, clean: bool = True) -> None:
        """Stop using the log. A clean close leaves files that need no recovery; otherwise they stay as they are.

        Only the records are synced: whatever else a power cut may take, the next start notices and makes anew.
        """
        if not clean:
            return
        self.flush()
        active = self.segments.active
        try:
            self._seal(active)
            active.transaction_index.sync()
            self.producers.take_snapshot()
        except OSError as e:
            raise self.failed_to("close", e) from e
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
