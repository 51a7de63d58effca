"""What the checkpoint files of one log directory say of its logs.

A broker of thousands of partitions, most of them idle, writes them down every few seconds: a log that has not moved
costs one look, and a file that would say the same again is left alone.
"""

from __future__ import annotations

from pathlib import Path

from ottla.base.types import TopicPartition
from ottla.log.checkpoints import write_offsets
from ottla.log.dir_contents import CLEAN_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from ottla.log.partition_log import PartitionLog

_Positions = tuple[int, int, int, int, int, bool]


class DirCheckpoint:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._positions: dict[PartitionLog, _Positions] = {}
        self._log_start_offsets: dict[TopicPartition, int] = {}
        self._written: dict[str, dict[TopicPartition, int]] = {}

    def write(self, logs: list[PartitionLog], futures: list[PartitionLog]) -> None:
        """Raises OSError if the directory cannot be written to."""
        positions = {log: _positions(log) for log in logs}
        # What is known of a future log must be written down before it counts.
        positions |= {log: _positions(log) for log in futures}
        if positions != self._positions:
            for log in logs:
                if positions[log] != self._positions.get(log):
                    log.write_indexes()
                    log.checkpoint_is_behind = False
            self._write_offsets(RECOVERY_POINTS, {log.topic_partition: log.recovery_point for log in positions})
            self._write_offsets(HIGH_WATERMARKS, {log.topic_partition: log.high_watermark for log in positions})
            self._write_offsets(
                CLEAN_OFFSETS, {log.topic_partition: log.clean_offset for log in positions if log.clean_offset >= 0}
            )
            self._log_start_offsets = {
                log.topic_partition: log.log_start_offset
                for log in positions
                if log.log_start_offset > log.segments.first.base_offset
            }
            self._positions = positions
        # Nearly always empty, and written every time: a disk that has failed is noticed on an idle broker, too.
        write_offsets(self._path / LOG_START_OFFSETS, self._log_start_offsets)

    def _write_offsets(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        if self._written.get(name) != offsets:
            write_offsets(self._path / name, offsets)
            self._written[name] = offsets


def _positions(log: PartitionLog) -> _Positions:
    return (
        log.log_start_offset,
        log.recovery_point,
        log.high_watermark,
        log.log_end_offset,
        log.clean_offset,
        log.checkpoint_is_behind,
    )
