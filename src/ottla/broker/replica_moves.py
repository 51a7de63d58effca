"""Moves replicas between the log directories of this broker while they are in use (KIP-113).

Owns what was asked for and one worker for each partition that is being moved; the copying itself is the log's business.
A copy catches up in threads, and in one turn of the event loop it gets the last records and takes the log's place.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ottla.base.clock import Clock
from ottla.base.errors import ErrorCode, KafkaError, LogDirError
from ottla.base.types import TopicPartition
from ottla.broker.partition import Partition
from ottla.broker.replicas import Replicas
from ottla.log.future_log import PIECE_BYTES, FutureLog, SourceFailedError
from ottla.log.partition_log import PartitionLog
from ottla.machines.replication.throttle import CopyRate

log = logging.getLogger(__name__)

LAST_BYTES = PIECE_BYTES
"""So much may be copied on the event loop's time, when a copy takes its place."""
UNLIMITED = 2**63 - 1
_BURST_MS = 500
_THROTTLED_SLEEP_S_MAX = 1.0
# The directory is sound, it just cannot take this copy.
_NO_FAULT_OF_THE_DIRECTORY = (errno.ENOSPC, errno.EDQUOT, errno.ENOTEMPTY, errno.EEXIST)


class _Wish(NamedTuple):
    partition: Partition
    target: Path


class ReplicaMoves:
    def __init__(
        self, replicas: Replicas, clock: Clock, *, parallel_moves: int, bytes_per_second: Callable[[], int]
    ) -> None:
        """`bytes_per_second` limits all moves together."""
        self._replicas = replicas
        self._log_dirs = replicas.log_dirs
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._slots = asyncio.Semaphore(parallel_moves)
        self._wishes: dict[TopicPartition, _Wish] = {}
        self._workers: dict[TopicPartition, asyncio.Task[None]] = {}
        self._rate = CopyRate(_BURST_MS)
        self._is_stopping = False

    def start(self, topic: str, index: int, path: Path) -> None:
        """Begins to move a partition to the directory `path`; the reply does not wait for the end of it.

        A move to the directory the partition is in ends a move that is under way. A partition that is not here yet is
        created in `path` if it ever comes.
        """
        tp = TopicPartition(topic, index)
        if path not in self._log_dirs.paths:
            raise KafkaError(f"{path} is no log directory of this broker", code=ErrorCode.LOG_DIR_NOT_FOUND)
        if path in self._log_dirs.failed:
            raise LogDirError(f"{path} has failed")
        partition = self._replicas.find(topic, index)
        if partition is None:
            self._log_dirs.prefer(tp, path)
            raise KafkaError(code=ErrorCode.REPLICA_NOT_AVAILABLE)
        if partition.is_offline:
            raise LogDirError(f"{tp} is in a directory that has failed")
        if partition.log.directory.parent == path:
            self._wishes.pop(tp, None)
            return
        wish = _Wish(partition, path)
        # Asked for once more, with another throttle perhaps: what is copied already stays copied.
        if self._wishes.get(tp) != wish:
            self._wishes[tp] = wish
        if tp not in self._workers:
            self._workers[tp] = asyncio.get_running_loop().create_task(self._work(tp))

    def not_begun(self, path: Path) -> list[PartitionLog]:
        """Logs that are to be copied to `path`, of which nothing is there yet: others are copied first."""
        begun = {future.topic_partition for future in self._log_dirs.futures_in(path)}
        return [
            wish.partition.log
            for tp, wish in self._wishes.items()
            if wish.target == path != wish.partition.log.directory.parent and tp not in begun and self._is_wanted(wish)
        ]

    async def stop(self) -> None:
        """Ends all moves at their next step. What was copied is left, and removed by the next start."""
        self._is_stopping = True
        await asyncio.gather(*self._workers.values(), return_exceptions=True)

    async def _work(self, tp: TopicPartition) -> None:
        try:
            async with self._slots:
                while (wish := self._wishes.get(tp)) is not None and not self._is_stopping:
                    await self._fulfil(wish)
                    if self._wishes.get(tp) is wish:
                        del self._wishes[tp]
        except Exception:
            log.exception("%s: the move to another log directory has failed", tp)
            self._wishes.pop(tp, None)
        finally:
            del self._workers[tp]

    def _is_wanted(self, wish: _Wish) -> bool:
        partition, target = wish
        return (
            self._wishes.get(partition.tp) is wish
            and self._replicas.find(*partition.tp) is partition
            and not partition.is_offline
            and target not in self._log_dirs.failed
            and not self._is_stopping
        )

    async def _fulfil(self, wish: _Wish) -> None:
        if not self._is_wanted(wish):
            return
        partition, target = wish
        future: FutureLog | None = None
        try:
            future = await self._replicas.threads.run(FutureLog.create, self._log_dirs, partition.log, target)
            while self._is_wanted(wish):
                if await self._step(future):
                    await self._replace(partition, future)
                    return
        except SourceFailedError as e:
            self._replicas.directory_failed(partition.log.directory.parent, e)
        except LogDirError as e:
            if isinstance(e.__cause__, OSError) and e.__cause__.errno in _NO_FAULT_OF_THE_DIRECTORY:
                log.error("%s stays where it is: %s", partition.tp, e.message)
            else:
                self._replicas.directory_failed(target, e)
        except KafkaError as e:
            log.error("%s stays where it is: %s", partition.tp, e.message)
        if future is not None and not self._is_stopping:
            await self._replicas.threads.run(future.discard)

    async def _step(self, future: FutureLog) -> bool:
        """Brings the copy nearer to the log; says whether it may take its place, in this turn of the loop."""
        now_ms = self._clock.wall_ms()
        piece = future.next_piece()
        if piece is None:
            if future.is_ready:
                return True
            await self._replicas.threads.run(future.settle, now_ms)
        elif future.is_ready and future.lag_bytes <= LAST_BYTES:
            future.copy(piece, now_ms)
        elif (wait_s := self._throttled_s()) > 0:
            # A long wait is made in short parts: the limit may be raised meanwhile, or the move called off.
            await asyncio.sleep(min(wait_s, _THROTTLED_SLEEP_S_MAX))
        else:
            await self._replicas.threads.run(future.copy, piece, now_ms)
            self._note_copied(piece.length)
        return False

    async def _replace(self, partition: Partition, future: FutureLog) -> None:
        old_path, new_path = partition.log.directory.parent, future.log.directory.parent
        future.take_place(self._clock.wall_ms())
        partition.log = future.log
        self._replicas.moved(partition)
        log.info("%s was moved from %s to %s", partition.tp, old_path, new_path)
        try:
            await self._replicas.threads.run(self._log_dirs.secure_promoted, future.log)
        except LogDirError as e:
            self._replicas.directory_failed(new_path, e)
            return
        try:
            await self._replicas.threads.run(self._log_dirs.remove_replaced, partition.tp)
        except LogDirError as e:
            self._replicas.directory_failed(old_path, e)
            return
        await self._replicas.threads.run(self._log_dirs.forget_move, future.log, old_path)

    def _note_copied(self, count: int) -> None:
        self._rate.record(count, self._bytes_per_second(), self._clock.monotonic_ms())

    def _throttled_s(self) -> float:
        """How long the limit, as it is now, holds the next piece up."""
        limit, now_ms = self._bytes_per_second(), self._clock.monotonic_ms()
        if limit >= UNLIMITED or self._rate.room(limit, now_ms):
            return 0
        return self._rate.wait_ms(limit, now_ms) / 1000
