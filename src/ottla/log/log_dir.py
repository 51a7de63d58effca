"""All log directories of one broker: whose they are, what they hold, which of them have failed.

`claim` locks them, `load` opens every partition in them, `close` leaves them so that the next start needs no recovery.
Used from the event loop and from threads at the same time, so the table of logs is guarded by a lock.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

from ottla.base.clock import Clock
from ottla.base.errors import KafkaError, LogDirError, StartError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.log.checkpoints import (
    CheckpointError,
    read_offsets,
    read_partition_metadata,
    replace_file,
    write_offsets,
)
from ottla.log.config import LogConfig
from ottla.log.dir_claim import DirOwner, lock_directory, read_owner, take_ownership
from ottla.log.file import sync_directory
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import load_partition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
DELETE_DIR_SUFFIX = "-delete"
_OTHER_DIR_SUFFIXES = ("-future", "-stray")
_MAX_NAME_LENGTH = 255
_CLOSING_THREADS = 8

ConfigFor = Callable[[str], LogConfig]

_log = logging.getLogger(__name__)


class _Checkpoints(NamedTuple):
    recovery_points: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    log_start_offsets: dict[TopicPartition, int]


class _Doomed(NamedTuple):
    path: Path
    remove_at_ms: int


def partition_of_directory(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None if it is no partition's."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isdigit() or name.endswith((DELETE_DIR_SUFFIX, *_OTHER_DIR_SUFFIXES)):
        return None
    return TopicPartition(topic, int(partition))


def deleted_directory_name(tp: TopicPartition) -> str:
    """A name that no topic can have, and that a start knows to remove."""
    suffix = f"-{tp.partition}.{uuid.uuid4().hex}{DELETE_DIR_SUFFIX}"
    return tp.topic[: _MAX_NAME_LENGTH - len(suffix)] + suffix


class LogDirs:
    def __init__(self, paths: list[Path], lock_fds: list[int]) -> None:
        self.paths = paths
        self.failed: dict[Path, str] = {}
        """Directories that cannot be used any more, with the reason."""
        self._lock_fds = lock_fds
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._logs_in: dict[Path, dict[TopicPartition, PartitionLog]] = {path: {} for path in paths}
        self._doomed: list[_Doomed] = []
        # The first guards the tables and is held for moments; the second orders what writes to the disk.
        self._lock = threading.RLock()
        self._disk_lock = threading.RLock()
        # Checkpoints that still name a deleted partition must not be taken for those of a new one of the same name.
        self._stale_checkpoints: set[Path] = set()
        self._is_loaded = False

    # -- start ---------------------------------------------------------------------------------------------------

    @classmethod
    def claim(cls, paths: Iterable[Path]) -> Self:
        """Lock the directories, making those that are missing. Nothing in them is read yet."""
        resolved = [Path(path).absolute() for path in paths]
        if len(set(resolved)) != len(resolved):
            raise StartError("log.dirs names a directory twice")
        lock_fds: list[int] = []
        try:
            for path in resolved:
                lock_fds.append(lock_directory(path))  # noqa: PERF401 - what is locked must be known if the next fails
        except StartError:
            for fd in lock_fds:
                os.close(fd)
            raise
        return cls(resolved, lock_fds)

    @classmethod
    def open(
        cls, paths: Iterable[Path], *, broker_id: int, cluster_id: str | None, clock: Clock, config_for: ConfigFor
    ) -> Self:
        """Claim and load."""
        dirs = cls.claim(paths)
        try:
            dirs.load(broker_id=broker_id, cluster_id=cluster_id, clock=clock, config_for=config_for)
        except BaseException:
            dirs.close(clean=False)
            raise
        return dirs

    def stored_broker_id(self) -> int | None:
        """The broker the directories were used by, if any."""
        return next((owner.broker_id for owner in self._owners() if owner.broker_id is not None), None)

    def stored_cluster_id(self) -> str | None:
        return next((owner.cluster_id for owner in self._owners() if owner.cluster_id is not None), None)

    def _owners(self) -> list[DirOwner]:
        return [read_owner(path) for path in self.paths]

    def load(
        self,
        *,
        broker_id: int,
        cluster_id: str | None,
        clock: Clock,
        config_for: ConfigFor,
        recovery_threads_per_dir: int = 2,
    ) -> None:
        """Open every partition; those of a directory that was not closed cleanly are recovered."""
        self._clock = clock
        for path in self.paths:
            take_ownership(path, broker_id, cluster_id)
        for path in self.paths:
            try:
                self._load_dir(path, config_for, recovery_threads_per_dir)
            except (OSError, LogDirError) as e:
                self.fail(path, e)
        if len(self.failed) == len(self.paths):
            raise StartError(f"no log directory can be used: {'; '.join(self.failed.values())}")
        self._is_loaded = True

    def _load_dir(self, path: Path, config_for: ConfigFor, threads: int) -> None:
        marker = path / CLEAN_SHUTDOWN
        is_clean = marker.exists()
        checkpoints = _Checkpoints(
            *(_read_offsets(path / name) for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS))
        )
        found: list[tuple[TopicPartition, Path]] = []
        for entry in sorted(path.iterdir()):
            if not entry.is_dir():
                continue
            tp = partition_of_directory(entry.name)
            if tp is not None:
                found.append((tp, entry))
            elif entry.name.endswith(DELETE_DIR_SUFFIX):
                shutil.rmtree(entry)
            else:
                _log.warning("%s is not the directory of a partition and is left alone", entry)
        if found and not is_clean:
            _log.info("%s was not closed cleanly; checking %d partitions", path, len(found))

        def load(job: tuple[TopicPartition, Path]) -> PartitionLog:
            return self._load_partition(*job, config_for, checkpoints, is_clean)

        # Threads help where checksums are computed; opening what is trusted is too little work for them.
        with ThreadPoolExecutor(1 if is_clean else threads, thread_name_prefix="log-recovery") as executor:
            for log in executor.map(load, found):
                self._add(log)
        # From here on a crash must lead to a check, whatever is written before the next clean stop.
        if is_clean:
            marker.unlink()
            sync_directory(path)

    def _load_partition(
        self, tp: TopicPartition, directory: Path, config_for: ConfigFor, checkpoints: _Checkpoints, is_clean: bool
    ) -> PartitionLog:
        try:
            topic_id = read_partition_metadata(directory)
        except CheckpointError as e:
            _log.warning("%s; the topic id will be taken from the cluster", e)
            topic_id = NIL_UUID
        return load_partition(
            directory,
            tp,
            topic_id,
            config_for(tp.topic),
            is_clean=is_clean,
            recovery_point=checkpoints.recovery_points.get(tp, 0),
            log_start_offset=checkpoints.log_start_offsets.get(tp, 0),
            high_watermark=checkpoints.high_watermarks.get(tp, 0),
            now_ms=self._clock.wall_ms(),
        )

    def _add(self, log: PartitionLog) -> None:
        with self._lock:
            other = self._logs.get(log.topic_partition)
            if other is not None:
                raise StartError(f"{log.topic_partition} is both in {other.directory} and in {log.directory}")
            directory = log.directory.parent
            self._logs[log.topic_partition] = log
            self._logs_in[directory][log.topic_partition] = log
        log.write_checkpoints = lambda: self.checkpoint_dir(directory)

    # -- partitions ----------------------------------------------------------------------------------------------

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        return self._logs.get(tp)

    def logs(self) -> list[PartitionLog]:
        with self._lock:
            return list(self._logs.values())

    def logs_in(self, path: Path) -> list[PartitionLog]:
        with self._lock:
            return list(self._logs_in[path].values())

    @property
    def usable_paths(self) -> list[Path]:
        return [path for path in self.paths if path not in self.failed]

    def create(
        self, tp: TopicPartition, topic_id: Uuid, config: LogConfig, *, in_dir: Path | None = None
    ) -> PartitionLog:
        """A new log, in the directory that holds the fewest partitions unless one is named."""
        with self._disk_lock:
            if tp in self._logs:
                raise LogDirError(f"{tp} exists already in {self._logs[tp].directory}")
            usable = self.usable_paths if in_dir is None else [in_dir]
            if not usable or usable[0] in self.failed:
                raise LogDirError("no log directory can take a new partition")
            path = min(usable, key=lambda candidate: len(self._logs_in[candidate]))
            if path in self._stale_checkpoints:
                self.checkpoint_dir(path)
            try:
                directory = path / str(tp)
                log = PartitionLog.create(directory, tp, topic_id, config, now_ms=self._clock.wall_ms())
                sync_directory(path)
            except OSError as e:
                error = LogDirError(f"cannot create {tp} in {path}: {e.strerror or e}")
                if not isinstance(e, FileExistsError):
                    self.fail(path, error)
                raise error from e
            self._add(log)
        return log

    def delete(self, tp: TopicPartition) -> None:
        """Take a partition away. Its files are removed later; readers that hold them can finish."""
        with self._lock:
            log = self._logs.pop(tp, None)
            if log is None:
                raise LogDirError(f"{tp} has no log here")
            del self._logs_in[log.directory.parent][tp]
            target = log.directory.with_name(deleted_directory_name(tp))
            self._stale_checkpoints.add(log.directory.parent)
            try:
                log.move_to_deleted(target)
            except OSError as e:
                error = LogDirError(f"cannot delete {tp}: {e.strerror or e}")
                self.fail(log.directory.parent, error)
                raise error from e
            self._doomed.append(_Doomed(target, self._clock.wall_ms() + log.config.file_delete_delay_ms))

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the files of partitions and segments whose time has come."""
        with self._lock:
            due = [doomed for doomed in self._doomed if doomed.remove_at_ms <= now_ms]
            self._doomed = [doomed for doomed in self._doomed if doomed.remove_at_ms > now_ms]
        for doomed in due:
            shutil.rmtree(doomed.path, ignore_errors=True)
        for log in self.logs():
            log.remove_deleted(now_ms)

    # -- failure and durability ----------------------------------------------------------------------------------

    def fail(self, path: Path, error: Exception) -> list[TopicPartition]:
        """Stop using a directory. Returns the partitions that are lost with it."""
        with self._lock:
            if path not in self.failed:
                reason = error.message if isinstance(error, KafkaError) else str(error)
                self.failed[path] = reason
                _log.error("the log directory %s has failed and is not used any more: %s", path, reason)
            lost = list(self._logs_in[path])
            self._logs_in[path].clear()
            for tp in lost:
                del self._logs[tp]
        return lost

    def checkpoint(self) -> None:
        """Write down how far the logs are durable, replicated and deleted."""
        for path in self.usable_paths:
            self.checkpoint_dir(path)

    def checkpoint_dir(self, path: Path) -> None:
        with self._disk_lock:
            with self._lock:
                logs = self.logs_in(path)
                self._stale_checkpoints.discard(path)
            try:
                for log in logs:
                    log.write_indexes()
                    log.checkpoint_is_behind = False
                write_offsets(path / RECOVERY_POINTS, {log.topic_partition: log.recovery_point for log in logs})
                write_offsets(path / HIGH_WATERMARKS, {log.topic_partition: log.high_watermark for log in logs})
                write_offsets(
                    path / LOG_START_OFFSETS,
                    {
                        log.topic_partition: log.log_start_offset
                        for log in logs
                        if log.log_start_offset > log.segments.first.base_offset
                    },
                )
            except OSError as e:
                raise LogDirError(f"cannot write the checkpoints of {path}: {e.strerror or e}") from e

    def close(self, *, clean: bool = True) -> None:
        """Leave the directories. After a clean close the next start trusts what it finds."""
        for path in self.usable_paths if self._is_loaded and clean else []:
            try:
                self._close_dir(path)
            except LogDirError as e:
                _log.error("%s will be checked at the next start: %s", path, e.message)
        with self._lock:
            self._logs.clear()
            self._logs_in.clear()
            for fd in self._lock_fds:
                os.close(fd)
            self._lock_fds = []

    def _close_dir(self, path: Path) -> None:
        logs = self.logs_in(path)
        with ThreadPoolExecutor(max_workers=_CLOSING_THREADS, thread_name_prefix="log-close") as executor:
            for _ in executor.map(PartitionLog.close, logs):
                pass
        self.checkpoint_dir(path)
        try:
            replace_file(path / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        except OSError as e:
            raise LogDirError(f"cannot mark {path} as closed: {e.strerror or e}") from e


def _read_offsets(path: Path) -> dict[TopicPartition, int]:
    try:
        return read_offsets(path)
    except CheckpointError as e:
        _log.warning("%s; going on without it", e)
        return {}
