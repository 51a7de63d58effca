"""A copy of a partition's log that grows in another directory until it can take the log's place (KIP-113).

The copy is made like a follower's, from batches as they lie in the current log. What looks at the current log runs on
the event loop's thread, where that log changes; what moves bytes may run in another one, as long as nothing else is
asked of the copy meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct

from ottla.base.errors import CorruptBatchError, KafkaError, LogDirError
from ottla.base.types import FileSlice
from ottla.log.log_dir import LogDirs
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import OFFSET_AND_LENGTH_SIZE, read_header

PIECE_BYTES = 1 << 20
_MAX_RESTARTS = 5
_offset_and_length = Struct(">qi")


class SourceFailedError(LogDirError):
    """The log that is being copied cannot be read; the copy is not to blame."""


class FutureLog:
    def __init__(self, dirs: LogDirs, current: PartitionLog, log: PartitionLog) -> None:
        self.current = current
        self.log = log
        self._dirs = dirs
        self._is_settled = False
        self._restarts = 0

    @classmethod
    def create(cls, dirs: LogDirs, current: PartitionLog, path: Path) -> FutureLog:
        return cls(dirs, current, dirs.create_future(current, path))

    # -- on the event loop's thread ------------------------------------------------------------------------------

    def next_piece(self) -> FileSlice | None:
        """What to copy next; None if the copy holds all there is."""
        current, log = self.current, self.log
        if log.config is not current.config:
            log.update_config(current.config)
        if self._has_diverged():
            self._restarts += 1
            if self._restarts > _MAX_RESTARTS:
                raise KafkaError(f"the history of {current.topic_partition} does not agree with its leader epochs")
            self._begin_again()
        log.advance_high_watermark(current.high_watermark)
        log.advance_log_start_offset(min(current.log_start_offset, log.high_watermark))
        if log.log_end_offset < current.log_start_offset:
            self._begin_again()
        limit = min(PIECE_BYTES, current.config.segment_bytes)
        return current.read(log.log_end_offset, limit, end_offset=current.log_end_offset).data

    @property
    def is_ready(self) -> bool:
        """Whether all that is durable in the current log is durable in the copy: what was safe must stay safe.

        What the current log has accepted but not written yet would be lost on the way.
        """
        current = self.current
        return self._is_settled and self.log.recovery_point >= current.recovery_point and not current.stage.has_batches

    @property
    def lag_bytes(self) -> int:
        return self.current.available_bytes(self.log.log_end_offset, self.current.log_end_offset)

    def take_place(self, now_ms: int) -> None:
        """The copy holds everything: from now on it is the partition's log."""
        current, log = self.current, self.log
        # Compaction may have emptied the end of the current log.
        log.skip_to(current.log_end_offset, now_ms=now_ms)
        log.epochs.take_over(current.epochs)
        log.advance_high_watermark(current.high_watermark)
        log.advance_log_start_offset(current.log_start_offset)
        log.producers.take_over(current.producers)
        if current.flush_due:
            log.ask_for_flush()
        self._dirs.promote(log)

    def _has_diverged(self) -> bool:
        """Whether the current log was cut below what was copied, and may have gone on differently (KIP-101)."""
        current, log = self.current, self.log
        if log.log_end_offset > current.log_end_offset:
            return True
        latest_epoch = log.epochs.latest_epoch
        if latest_epoch < 0:
            return False
        epoch, end_offset = current.epochs.end_offset_for(latest_epoch, current.log_end_offset)
        return epoch != latest_epoch or end_offset < log.log_end_offset

    def _begin_again(self) -> None:
        self._is_settled = False
        self.log.truncate_fully_and_start_at(self.current.log_start_offset)

    # -- on any thread -------------------------------------------------------------------------------------------

    def copy(self, piece: FileSlice, now_ms: int) -> None:
        """Append the whole batches of a piece."""
        try:
            data = memoryview(os.pread(piece.file.fd, piece.length, piece.position))
        except OSError as e:
            raise SourceFailedError(f"cannot read {self.current.directory}: {e.strerror or e}") from e
        batches = data[: _end_of_whole_batches(data)]
        if not batches:
            raise CorruptBatchError(f"{self.current.directory} holds no whole batch at {self.log.log_end_offset}")
        first_offset = read_header(batches).base_offset
        if first_offset < self.log.log_end_offset and self.log.size_bytes == 0:
            # The log begins inside its first batch, and a batch is copied whole.
            self.log.truncate_fully_and_start_at(first_offset)
        self.log.append_as_follower(batches, now_ms=now_ms)

    def settle(self, now_ms: int) -> None:
        """Make what was copied durable, and write down how far."""
        self.log.note_flush_time(now_ms)
        self.log.flush()
        self._dirs.checkpoint_dir(self.log.directory.parent)
        self._is_settled = True

    def discard(self) -> None:
        self._dirs.discard_future(self.log)


def _end_of_whole_batches(data: memoryview) -> int:
    end = 0
    while len(data) - end >= OFFSET_AND_LENGTH_SIZE:
        _, length = _offset_and_length.unpack_from(data, end)
        following = end + OFFSET_AND_LENGTH_SIZE + length
        if length <= 0 or following > len(data):
            break
        end = following
    return end
