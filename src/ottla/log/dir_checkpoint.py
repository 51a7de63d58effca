"""What the checkpoint files of one log directory say of its logs.

A broker of thousands of partitions, most of them idle, writes them down every few seconds: a log that has not moved
costs one look, and a file that would say the same again is left alone.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from pathlib import Path

from ottla.base.types import TopicPartition
from ottla.log.checkpoints import write_offsets
from ottla.log.dir_contents import CLEAN_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from ottla.log.partition_log import PartitionLog

_Positions = tuple[int, ...]


class Part(Enum):
    """What is written at intervals of its own."""

    HIGH_WATERMARKS = "how far readers may read"
    RECOVERY_POINTS = "how far logs are on disk, and how far they are cleaned"
    LOG_START_OFFSETS = "where logs begin"


EVERYTHING = frozenset(Part)


class DirCheckpoint:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._positions: dict[Part, dict[PartitionLog, _Positions]] = {part: {} for part in Part}
        self._log_start_offsets: dict[TopicPartition, int] = {}
        self._written: dict[str, dict[TopicPartition, int]] = {}

    def write(
        self, logs: list[PartitionLog], futures: list[PartitionLog], parts: Collection[Part] = EVERYTHING
    ) -> None:
        """Raises OSError if the directory cannot be written to."""
        # What is known of a future log must be written down before it counts.
        known = [*logs, *futures]
        if Part.HIGH_WATERMARKS in parts:
            self._write_high_watermarks(logs, known)
        if Part.RECOVERY_POINTS in parts:
            self._write_recovery_points(known)
        if Part.LOG_START_OFFSETS in parts:
            self._log_start_offsets = {
                log.topic_partition: log.log_start_offset
                for log in known
                if log.log_start_offset > log.segments.first.base_offset
            }
        # Nearly always empty, and written every time: a disk that has failed is noticed on an idle broker, too.
        write_offsets(self._path / LOG_START_OFFSETS, self._log_start_offsets)

    def _write_high_watermarks(self, logs: list[PartitionLog], known: list[PartitionLog]) -> None:
        before, positions = self._positions[Part.HIGH_WATERMARKS], {log: _ends(log) for log in known}
        if positions != before:
            for log in logs:
                if positions[log] != before.get(log):
                    log.write_indexes()
            self._write_offsets(HIGH_WATERMARKS, {log.topic_partition: log.high_watermark for log in known})
            self._positions[Part.HIGH_WATERMARKS] = positions

    def _write_recovery_points(self, known: list[PartitionLog]) -> None:
        positions = {log: _safe_ends(log) for log in known}
        if positions != self._positions[Part.RECOVERY_POINTS]:
            for log in known:
                log.checkpoint_is_behind = False
            self._write_offsets(RECOVERY_POINTS, {log.topic_partition: log.recovery_point for log in known})
            self._write_offsets(
                CLEAN_OFFSETS, {log.topic_partition: log.clean_offset for log in known if log.clean_offset >= 0}
            )
            self._positions[Part.RECOVERY_POINTS] = positions

    def _write_offsets(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        if self._written.get(name) != offsets:
            write_offsets(self._path / name, offsets)
            self._written[name] = offsets


def _ends(log: PartitionLog) -> _Positions:
    return log.high_watermark, log.log_end_offset


def _safe_ends(log: PartitionLog) -> _Positions:
    return log.recovery_point, log.clean_offset, log.checkpoint_is_behind
