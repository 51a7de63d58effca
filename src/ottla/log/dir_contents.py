"""What lies in a log directory when a broker starts: partitions, checkpoints, and the remains of unfinished work.

Decides what is removed before anything is loaded; opens no log.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import NamedTuple, Self

from ottla.base.types import TopicPartition
from ottla.log.checkpoints import CheckpointError, read_offsets
from ottla.log.dir_names import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, KRAFT_METADATA, MOVED_MARK, partition_of_directory
from ottla.log.file import file_names

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEAN_OFFSETS = "cleaner-offset-checkpoint"

_log = logging.getLogger(__name__)


class Checkpoints(NamedTuple):
    recovery_points: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    log_start_offsets: dict[TopicPartition, int]
    clean_offsets: dict[TopicPartition, int]

    @classmethod
    def read(cls, path: Path) -> Self:
        names = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, CLEAN_OFFSETS)
        return cls(*(_read_offsets(path / name) for name in names))

    def names_others_than(self, partitions: set[TopicPartition]) -> bool:
        """Whether something is said of a partition that is not there: it must not be believed of a later one."""
        return any(not offsets.keys() <= partitions for offsets in self)


def find_partitions(path: Path) -> list[tuple[TopicPartition, Path]]:
    """The partitions' directories, in order. What was being deleted or moved here is removed."""
    found: list[tuple[TopicPartition, Path]] = []
    unfinished: list[Path] = []
    for entry in sorted(path.iterdir()):
        if not entry.is_dir():
            continue
        tp = partition_of_directory(entry.name)
        if tp is not None:
            found.append((tp, entry))
        elif entry.name.endswith(DELETE_DIR_SUFFIX):
            shutil.rmtree(entry)
        elif entry.name.endswith(FUTURE_DIR_SUFFIX):
            unfinished.append(entry)
        elif entry.name != KRAFT_METADATA:
            _log.warning("%s is not the directory of a partition and is left alone", entry)
    if unfinished:
        _log.warning("%s: %d partitions were being moved here; they stay where they were", path, len(unfinished))
        for entry in unfinished:
            shutil.rmtree(entry)
    return found


def remove_replaced(paths: list[Path]) -> None:
    """Remove logs that had been replaced when the broker ended before it could: the marked copy has everything."""
    holders: dict[str, list[Path]] = {}
    for path in paths:
        try:
            names = file_names(path)
        except OSError as e:
            _log.warning("%s cannot be looked into: %s", path, e)
            continue
        for name in names:
            if partition_of_directory(name) is not None:
                holders.setdefault(name, []).append(path / name)
    for copies in holders.values():
        if len(copies) == 2:
            unmarked = [copy for copy in copies if not (copy / MOVED_MARK).exists()]
            if len(unmarked) == 1:
                _log.info("%s is removed: the partition was moved to another directory", unmarked[0])
                shutil.rmtree(unmarked[0], ignore_errors=True)


def _read_offsets(path: Path) -> dict[TopicPartition, int]:
    try:
        # Kafka makes some of these files long before it writes to them.
        return {} if path.exists() and not path.stat().st_size else read_offsets(path)
    except CheckpointError as e:
        _log.warning("%s; going on without it", e)
        return {}
