"""All log directories of one broker: whose they are, what they hold, which of them have failed.

`claim` locks them, `load` opens every partition in them, `close` leaves them so that the next start needs no recovery.
Used from the event loop and from threads at the same time, so the table of logs is guarded by a lock.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

from ottla.base.clock import Clock
from ottla.base.errors import KafkaError, LogDirError, StartError
from ottla.base.ids import Ids
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.log.checkpoints import (
    CheckpointError,
    read_partition_metadata,
    replace_file,
)
from ottla.log.chores import LogChores
from ottla.log.config import LogConfig
from ottla.log.dir_checkpoint import EVERYTHING, DirCheckpoint, Part
from ottla.log.dir_claim import DirOwner, lock_directory, read_owner, take_ownership
from ottla.log.dir_contents import Checkpoints, find_partitions, remove_replaced
from ottla.log.dir_names import MOVED_MARK, deleted_directory_name, future_directory_name
from ottla.log.file import sync_directory
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import Recovery, load_partition, log_loaded
from ottla.log.segmented_log import NEVER_CLEANED, SegmentedLog

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_CLOSING_THREADS = 8

ConfigFor = Callable[[str], LogConfig]

_log = logging.getLogger(__name__)


class _Doomed(NamedTuple):
    path: Path
    remove_at_ms: int


class LogDirs:
    def __init__(self, paths: list[Path], lock_fds: list[int], ids: Ids) -> None:
        self.paths = paths
        self._ids = ids
        self.failed: dict[Path, str] = {}
        """Directories that cannot be used any more, with the reason."""
        self._lock_fds = lock_fds
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._logs_in: dict[Path, dict[TopicPartition, PartitionLog]] = {path: {} for path in paths}
        self._futures: dict[TopicPartition, PartitionLog] = {}
        # Logs whose place was taken by a future one and whose files still have the partition's name.
        self._replaced: dict[TopicPartition, PartitionLog] = {}
        self._preferred: dict[TopicPartition, Path] = {}
        self._doomed: list[_Doomed] = []
        # The first guards the tables and is held for moments; the second orders what writes to the disk.
        self._lock = threading.RLock()
        self._disk_lock = threading.RLock()
        # Checkpoints that still name a deleted partition must not be taken for those of a new one of the same name.
        self._stale_checkpoints: set[Path] = set()
        self._chores = LogChores()
        self._checkpoints = {path: DirCheckpoint(path) for path in paths}
        self._is_loaded = False
        self.were_closed_cleanly = False
        """All of them, before this start. If not, the last records may be lost, or a whole directory was wiped."""

    # -- start ---------------------------------------------------------------------------------------------------

    @classmethod
    def claim(cls, paths: Iterable[Path], ids: Ids) -> Self:
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
        return cls(resolved, lock_fds, ids)

    @classmethod
    def open(
        cls,
        paths: Iterable[Path],
        *,
        broker_id: int,
        cluster_id: str | None,
        clock: Clock,
        ids: Ids,
        config_for: ConfigFor,
    ) -> Self:
        """Claim and load."""
        dirs = cls.claim(paths, ids)
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
        if len(self.paths) > 1:
            remove_replaced(self.paths)
        self.were_closed_cleanly = all((path / CLEAN_SHUTDOWN).exists() for path in self.paths)
        for path in self.paths:
            try:
                self._load_dir(path, config_for, recovery_threads_per_dir)
            except (OSError, LogDirError) as e:
                self.fail(path, e)
        if len(self.failed) == len(self.paths):
            raise StartError(f"no log directory can be used: {'; '.join(self.failed.values())}")
        if len(self.paths) > 1 and not self.failed:
            # All copies were seen: what a mark says is done. A directory that has failed may yet bring an old one.
            for log in self._logs.values():
                (log.directory / MOVED_MARK).unlink(missing_ok=True)
        self._is_loaded = True

    def _load_dir(self, path: Path, config_for: ConfigFor, threads: int) -> None:
        marker = path / CLEAN_SHUTDOWN
        is_clean = marker.exists()
        checkpoints = Checkpoints.read(path)
        found = find_partitions(path)
        if checkpoints.names_others_than({tp for tp, _ in found}):
            self._stale_checkpoints.add(path)
        if found and not is_clean:
            _log.info("%s was not closed cleanly; checking %d partitions", path, len(found))
        began_ms = self._clock.monotonic_ms()
        recoveries: list[Recovery] = []

        def load(job: tuple[TopicPartition, Path]) -> PartitionLog:
            return self._load_partition(*job, config_for, checkpoints, is_clean, recoveries.append)

        # Threads help where checksums are computed; opening what is trusted is too little work for them.
        with ThreadPoolExecutor(1 if is_clean else threads, thread_name_prefix="log-recovery") as executor:
            for log in executor.map(load, found):
                self._add(log)
        log_loaded(path, len(found), recoveries, self._clock.monotonic_ms() - began_ms)
        # From here on a crash must lead to a check, whatever is written before the next clean stop.
        if is_clean:
            marker.unlink()
            sync_directory(path)

    def _load_partition(
        self,
        tp: TopicPartition,
        directory: Path,
        config_for: ConfigFor,
        checkpoints: Checkpoints,
        is_clean: bool,
        on_recovered: Callable[[Recovery], None],
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
            clean_offset=checkpoints.clean_offsets.get(tp, NEVER_CLEANED),
            now_ms=self._clock.wall_ms(),
            on_recovered=on_recovered,
        )

    def _add(self, log: PartitionLog) -> None:
        with self._lock:
            other = self._logs.get(log.topic_partition)
            if other is not None:
                raise StartError(f"{log.topic_partition} is both in {other.directory} and in {log.directory}")
            self._enter(log)

    def _enter(self, log: PartitionLog) -> None:
        directory = log.directory.parent
        self._logs[log.topic_partition] = log
        self._logs_in[directory][log.topic_partition] = log
        log.join(self._chores)
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
        """A new log: in the directory that is named, else the one it was wished for, else the least used."""
        with self._disk_lock:
            if tp in self._logs:
                raise LogDirError(f"{tp} exists already in {self._logs[tp].directory}")
            self.remove_replaced(tp)
            wished = in_dir or self._preferred.pop(tp, None)
            usable = self.usable_paths if wished is None or (wished in self.failed and not in_dir) else [wished]
            if not usable or usable[0] in self.failed:
                raise LogDirError("no log directory can take a new partition")
            path = min(usable, key=lambda candidate: len(self._logs_in[candidate]))
            log = self._create_in(path, str(tp), tp, topic_id, config)
            self._add(log)
        return log

    def _create_in(
        self, path: Path, name: str, tp: TopicPartition, topic_id: Uuid, config: LogConfig, start_offset: int = 0
    ) -> PartitionLog:
        if path in self._stale_checkpoints:
            self.checkpoint_dir(path)
        try:
            now_ms = self._clock.wall_ms()
            log = PartitionLog.create(path / name, tp, topic_id, config, now_ms=now_ms, start_offset=start_offset)
            sync_directory(path)
        except OSError as e:
            error = LogDirError(f"cannot create {tp} in {path}: {e.strerror or e}")
            if not isinstance(e, FileExistsError):
                self.fail(path, error)
            raise error from e
        return log

    def prefer(self, tp: TopicPartition, path: Path) -> None:
        """Where to create the partition if it ever comes to this broker."""
        self._preferred[tp] = path

    def delete(self, tp: TopicPartition) -> None:
        """Take a partition away. Its files are removed later; readers that hold them can finish."""
        with self._lock:
            log = self._logs.pop(tp, None)
            if log is None:
                raise LogDirError(f"{tp} has no log here")
            del self._logs_in[log.directory.parent][tp]
            try:
                self.remove_replaced(tp)
            finally:
                self._doom(log)

    def _doom(self, log: PartitionLog) -> None:
        """Give a log's directory a name that leads to its removal."""
        tp = log.topic_partition
        target = log.directory.with_name(deleted_directory_name(tp, self._ids))
        self._stale_checkpoints.add(log.directory.parent)
        try:
            log.move_to_deleted(target)
        except OSError as e:
            error = LogDirError(f"cannot delete {tp}: {e.strerror or e}")
            self.fail(log.directory.parent, error)
            raise error from e
        with self._lock:
            self._doomed.append(_Doomed(target, self._clock.wall_ms() + log.config.file_delete_delay_ms))

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the files of partitions and segments whose time has come."""
        with self._lock:
            due = [doomed for doomed in self._doomed if doomed.remove_at_ms <= now_ms]
            self._doomed = [doomed for doomed in self._doomed if doomed.remove_at_ms > now_ms]
        for doomed in due:
            shutil.rmtree(doomed.path, ignore_errors=True)
        self._chores.remove_files(now_ms, self.failed)

    def take_due_flushes(self, now_ms: int) -> list[SegmentedLog]:
        """Logs that a setting wants flushed now. Called where logs are appended to."""
        return self._chores.take_due_flushes(now_ms, self.failed)

    # -- moves between directories (KIP-113) ---------------------------------------------------------------------

    def future(self, tp: TopicPartition) -> PartitionLog | None:
        """The copy that will take the partition's place."""
        return self._futures.get(tp)

    def futures_in(self, path: Path) -> list[PartitionLog]:
        with self._lock:
            return [log for log in self._futures.values() if log.directory.parent == path]

    def create_future(self, current: PartitionLog, path: Path) -> PartitionLog:
        """An empty log in `path` that begins where `current` does. It counts for nothing until it is promoted."""
        tp = current.topic_partition
        with self._disk_lock:
            if path in self.failed:
                raise LogDirError(f"{path} has failed")
            # If both were marked, a start could not tell which of the two is the newer one.
            (current.directory / MOVED_MARK).unlink(missing_ok=True)
            sync_directory(current.directory)
            name = future_directory_name(tp, self._ids)
            log = self._create_in(path, name, tp, current.topic_id, current.config, current.log_start_offset)
            try:
                replace_file(log.directory / MOVED_MARK, f"{current.directory}\n".encode())
            except OSError as e:
                raise LogDirError(f"cannot write to {log.directory}: {e.strerror or e}") from e
            # What is copied from now on was cleaned at least as far.
            log.clean_offset = current.clean_offset
            with self._lock:
                self._futures[tp] = log
        return log

    def promote(self, future: PartitionLog) -> None:
        """Let a future log take the partition's place. The one it replaces stays until `remove_replaced`."""
        tp = future.topic_partition
        with self._lock:
            current = self._logs[tp]
            try:
                future.move_to(future.directory.with_name(str(tp)))
            except OSError as e:
                raise LogDirError(f"cannot rename {future.directory}: {e.strerror or e}") from e
            del self._futures[tp]
            del self._logs_in[current.directory.parent][tp]
            self._replaced[tp] = current
            self._enter(future)

    def secure_promoted(self, log: PartitionLog) -> None:
        """Make a promotion durable. Only then may the log it replaced go."""
        path = log.directory.parent
        try:
            sync_directory(path)
        except OSError as e:
            raise LogDirError(f"cannot sync {path}: {e.strerror or e}") from e
        self.checkpoint_dir(path)

    def remove_replaced(self, tp: TopicPartition) -> None:
        """Take away the log that a future one has replaced."""
        with self._lock:
            replaced = self._replaced.pop(tp, None)
        if replaced is not None:
            self._doom(replaced)

    def forget_move(self, log: PartitionLog, replaced_in: Path) -> None:
        """The log that was replaced is gone for good, so the mark on its successor has no meaning any more."""
        try:
            sync_directory(replaced_in)
            (log.directory / MOVED_MARK).unlink(missing_ok=True)
        except OSError as e:
            # Harmless: the next move takes the mark off, and a start asks for it only if there are two copies.
            _log.warning("%s keeps its mark of a move: %s", log.directory, e)

    def discard_future(self, log: PartitionLog) -> None:
        """Remove a future log that is not wanted any more."""
        with self._lock:
            if self._futures.get(log.topic_partition) is log:
                del self._futures[log.topic_partition]
        log.is_deleted = True
        shutil.rmtree(log.directory, ignore_errors=True)

    # -- failure and durability ----------------------------------------------------------------------------------

    def fail(self, path: Path, error: Exception) -> list[TopicPartition]:
        """Stop using a directory. Returns the partitions that are lost with it."""
        with self._lock:
            if path not in self.failed:
                reason = error.message if isinstance(error, KafkaError) else str(error)
                self.failed[path] = reason
                _log.error("the log directory %s has failed and is not used any more: %s", path, reason)
            self._futures = {tp: log for tp, log in self._futures.items() if log.directory.parent != path}
            lost = list(self._logs_in[path])
            self._logs_in[path].clear()
            for tp in lost:
                del self._logs[tp]
        return lost

    def checkpoint(self) -> None:
        """Write down how far the logs are durable, replicated and deleted."""
        for path in self.usable_paths:
            self.checkpoint_dir(path)

    def checkpoint_dir(self, path: Path, parts: Collection[Part] = EVERYTHING) -> None:
        with self._disk_lock:
            with self._lock:
                logs, futures = self.logs_in(path), self.futures_in(path)
                if parts is EVERYTHING:
                    self._stale_checkpoints.discard(path)
            try:
                self._checkpoints[path].write(logs, futures, parts)
            except OSError as e:
                raise LogDirError(f"cannot write the checkpoints of {path}: {e.strerror or e}") from e

    def close(self, *, clean: bool = True) -> None:
        """Leave the directories, once. After a clean close the next start trusts what it finds."""
        for path in self.usable_paths if self._is_loaded and clean else []:
            try:
                self._close_dir(path)
            except LogDirError as e:
                _log.error("%s will be checked at the next start: %s", path, e.message)
        self._is_loaded = False
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
