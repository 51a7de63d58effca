"""Moves between log directories: which are begun, and what becomes of them when something fails on the way."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError, LogDirError
from ottla.base.types import NIL_UUID, FileSlice, TopicPartition, Uuid
from ottla.broker import replica_moves
from ottla.broker.partition import Partition
from ottla.broker.replica_moves import UNLIMITED, ReplicaMoves
from ottla.log.config import LogConfig
from ottla.log.future_log import FutureLog
from tests.unit.broker.replica_world import TOPIC_ID, ReplicaWorld, in_world


class Moves(ReplicaMoves):
    """With the partition that moves, and the way there and back."""

    def __init__(self, world: ReplicaWorld, partition: Partition) -> None:
        super().__init__(world.replicas, world.clock, parallel_moves=1, bytes_per_second=lambda: self.limit)
        self.limit = UNLIMITED
        self.world = world
        self.partition = partition
        self.home = partition.log.directory.parent
        (self.away,) = [path for path in world.paths if path != self.home]

    async def settled(self) -> None:
        """Returns once nothing is being moved."""
        while self._workers:
            await asyncio.gather(*self._workers.values())

    def names(self, path: Path) -> list[str]:
        return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.endswith("-delete"))


def moving(tmp_path: Path, scenario: Callable[[Moves], Awaitable[None]]) -> None:
    async def run(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        for _ in range(50):
            world.append(partition)
        moves = Moves(world, partition)
        await scenario(moves)
        await moves.stop()

    in_world(tmp_path, run, LogConfig(segment_bytes=500, segment_index_bytes=4096))


@pytest.mark.parametrize(
    ("topic_id", "leader_epoch", "stays"),
    [(TOPIC_ID, 1, False), (TOPIC_ID, 0, True), (NIL_UUID, 1, True), (Uuid(bytes(16 * [7])), 1, True)],
)
def test_who_was_replaced_meanwhile_deletes_its_copy(
    tmp_path: Path, topic_id: Uuid, leader_epoch: int, stays: bool
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        world.replicas.remove_moved_away(TopicPartition("none", 0), topic_id, leader_epoch)
        world.replicas.remove_moved_away(partition.tp, topic_id, leader_epoch)
        assert (world.log_dirs.get(partition.tp) is not None) == stays
        assert (world.replicas.find("t", 0) is not None) == stays

    in_world(tmp_path, scenario)


def test_there_and_back(tmp_path: Path) -> None:
    async def scenario(moves: Moves) -> None:
        for path in (moves.away, moves.home):
            moves.start("t", 0, path)
            await moves.settled()
            assert moves.partition.log.directory == path / "t-0"
            assert moves.world.log_dirs.get(moves.partition.tp) is moves.partition.log
            moves.world.append(moves.partition)
        assert (moves.partition.log.log_end_offset, moves.partition.log.high_watermark) == (52, 52)
        assert moves.names(moves.away) == []

    moving(tmp_path, scenario)


def test_who_waits_for_the_partition_is_told_that_its_log_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch that waits would otherwise wait for appends to the old one."""

    async def scenario(moves: Moves) -> None:
        seen: list[Path] = []
        monkeypatch.setattr(
            moves.world.replicas, "moved", lambda partition: seen.append(partition.log.directory.parent)
        )
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert seen == [moves.away]

    moving(tmp_path, scenario)


def test_the_old_copy_goes_when_the_new_one_would_outlive_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(moves: Moves) -> None:
        done: list[str] = []
        log_dirs = moves.world.log_dirs

        def noted(name: str, step: Callable[..., None], *arguments: Any) -> None:
            done.append(name)
            step(*arguments)

        for name in ("secure_promoted", "remove_replaced", "forget_move"):
            monkeypatch.setattr(log_dirs, name, partial(noted, name, getattr(log_dirs, name)))
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert done == ["secure_promoted", "remove_replaced", "forget_move"]

    moving(tmp_path, scenario)


def test_what_is_refused(tmp_path: Path) -> None:
    async def scenario(moves: Moves) -> None:
        def code(topic: str, path: Path) -> ErrorCode:
            with pytest.raises(KafkaError) as refused:
                moves.start(topic, 0, path)
            return refused.value.code

        assert code("t", tmp_path) == ErrorCode.LOG_DIR_NOT_FOUND
        assert code("unknown", moves.away) == ErrorCode.REPLICA_NOT_AVAILABLE
        moves.world.replicas.directory_failed(moves.away, LogDirError("gone"))
        assert code("t", moves.away) == ErrorCode.KAFKA_STORAGE_ERROR
        moves.world.replicas.directory_failed(moves.home, LogDirError("gone"))
        assert code("t", moves.home) == ErrorCode.KAFKA_STORAGE_ERROR

    moving(tmp_path, scenario)


def test_another_wish_replaces_the_first(tmp_path: Path) -> None:
    async def scenario(moves: Moves) -> None:
        moves.start("t", 0, moves.away)
        await asyncio.sleep(0)
        moves.start("t", 0, moves.home)
        await moves.settled()
        assert moves.partition.log.directory == moves.home / "t-0"
        assert moves.names(moves.away) == []
        moves.start("t", 0, moves.away)
        moves.start("t", 0, moves.home)
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert moves.partition.log.directory == moves.away / "t-0"

    moving(tmp_path, scenario)


class Steps:
    """Lets a test act when so many pieces have been copied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int, act: Callable[[], object]) -> None:
        self.count = 0
        real = FutureLog.next_piece

        def next_piece(future: FutureLog) -> FileSlice | None:
            self.count += 1
            if self.count == after:
                act()
            return real(future)

        monkeypatch.setattr(FutureLog, "next_piece", next_piece)


def test_the_same_wish_again_lets_the_copy_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(moves: Moves) -> None:
        made: list[FutureLog] = []
        real = FutureLog.create

        def create(*arguments: Any) -> FutureLog:
            made.append(real(*arguments))
            return made[-1]

        monkeypatch.setattr(FutureLog, "create", create)
        steps = Steps(monkeypatch, 3, lambda: moves.start("t", 0, moves.away))
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert steps.count > 3
        assert [future.log for future in made] == [moves.partition.log]

    moving(tmp_path, scenario)


def test_a_limit_that_is_raised_ends_a_long_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(moves: Moves) -> None:
        monkeypatch.setattr(replica_moves, "_THROTTLED_SLEEP_S_MAX", 0.0)
        monkeypatch.setattr(replica_moves, "LAST_BYTES", -1)
        moves.limit = 1
        steps = Steps(monkeypatch, -1, lambda: None)
        moves.start("t", 0, moves.away)
        while steps.count < 100:
            await asyncio.sleep(0.001)
        assert moves.names(moves.home) == ["t-0"], "a byte a second, and no second has passed"
        moves.limit = 1_000_000
        moves.world.clock.advance(1000)
        await moves.settled()
        assert moves.partition.log.directory == moves.away / "t-0"

    moving(tmp_path, scenario)


def test_records_that_come_meanwhile_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(moves: Moves) -> None:
        for after in range(1, 12):
            Steps(monkeypatch, after, lambda: moves.world.append(moves.partition))
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert moves.partition.log.directory.parent == moves.away
        assert moves.partition.log.log_end_offset == 61

    moving(tmp_path, scenario)


def test_the_topic_is_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(moves: Moves) -> None:
        Steps(monkeypatch, 3, lambda: tasks.append(asyncio.ensure_future(moves.world.delete("t"))))
        tasks: list[asyncio.Future[None]] = []
        moves.start("t", 0, moves.away)
        await moves.settled()
        await asyncio.gather(*tasks)
        assert moves.names(moves.home) == moves.names(moves.away) == []
        assert moves.world.log_dirs.future(moves.partition.tp) is None

    moving(tmp_path, scenario)


def test_the_target_fails_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(moves: Moves) -> None:
        Steps(monkeypatch, 3, lambda: moves.world.replicas.directory_failed(moves.away, LogDirError("gone")))
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert moves.partition.log.directory == moves.home / "t-0" and not moves.partition.is_offline
        moves.world.append(moves.partition)

    moving(tmp_path, scenario)


def test_the_partition_goes_offline_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(moves: Moves) -> None:
        Steps(monkeypatch, 3, lambda: moves.world.replicas.directory_failed(moves.home, LogDirError("gone")))
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert moves.partition.is_offline
        assert moves.names(moves.away) == []

    moving(tmp_path, scenario)


@pytest.mark.parametrize(
    ("error", "fails_directory"), [(OSError(28, "No space left on device"), False), (OSError(5, "I/O error"), True)]
)
def test_a_copy_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, fails_directory: bool
) -> None:
    """A full disk is no reason to take the other partitions of the directory offline."""

    def write_fails(future: FutureLog, piece: FileSlice, now_ms: int) -> None:
        raise LogDirError("cannot append") from error

    async def scenario(moves: Moves) -> None:
        monkeypatch.setattr(FutureLog, "copy", write_fails)
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert (moves.away in moves.world.log_dirs.failed) == fails_directory
        assert moves.partition.log.directory == moves.home / "t-0" and not moves.partition.is_offline
        assert moves.names(moves.away) == []

    moving(tmp_path, scenario)


def test_a_source_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_fails(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    async def scenario(moves: Moves) -> None:
        real = FutureLog.copy

        def copy(future: FutureLog, piece: FileSlice, now_ms: int) -> None:
            with monkeypatch.context() as patched:
                patched.setattr(os, "pread", read_fails)
                real(future, piece, now_ms)

        monkeypatch.setattr(FutureLog, "copy", copy)
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert list(moves.world.log_dirs.failed) == [moves.home]
        assert moves.partition.is_offline

    moving(tmp_path, scenario)


def test_damage_in_the_source_stays_where_it_is(tmp_path: Path) -> None:
    async def scenario(moves: Moves) -> None:
        segment = moves.partition.log.segments.first
        os.pwrite(segment.log.fd, b"\xff", segment.size - 3)
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert moves.partition.log.directory == moves.home / "t-0"
        assert moves.world.log_dirs.failed == {}
        assert moves.names(moves.away) == []

    moving(tmp_path, scenario)


def test_a_stop_does_not_wait_for_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(moves: Moves) -> None:
        Steps(monkeypatch, 3, lambda: stops.append(asyncio.ensure_future(moves.stop())))
        stops: list[asyncio.Future[None]] = []
        moves.start("t", 0, moves.away)
        await moves.settled()
        await asyncio.gather(*stops)
        assert moves.partition.log.directory == moves.home / "t-0"
        assert [name[-7:] for name in moves.names(moves.away)] == ["-future"]

    moving(tmp_path, scenario)


def test_what_was_asked_for_is_known_before_it_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks how far it is, right after the reply, must not hear that nothing is moved."""

    async def scenario(moves: Moves) -> None:
        moves.start("t", 0, moves.away)
        assert (moves.not_begun(moves.away), moves.not_begun(moves.home)) == ([moves.partition.log], [])
        with monkeypatch.context() as patched:
            patched.setattr(moves, "_step", never)
            while not moves.world.log_dirs.futures_in(moves.away):
                await asyncio.sleep(0.001)
            assert moves.not_begun(moves.away) == []
            moves.start("t", 0, moves.home)
            assert moves.not_begun(moves.away) == moves.not_begun(moves.home) == []
        await moves.settled()
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert moves.not_begun(moves.away) == []

    async def never(_: FutureLog) -> bool:
        await asyncio.sleep(0.001)
        return False

    moving(tmp_path, scenario)


def test_several_partitions_one_after_the_other(tmp_path: Path) -> None:
    async def scenario(moves: Moves) -> None:
        others = [await moves.world.lead(f"other{number}") for number in range(3)]
        for partition in others:
            moves.world.append(partition)
            moves.start(partition.tp.topic, 0, moves.away)
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert {partition.log.directory.parent for partition in (*others, moves.partition)} == {moves.away}

    moving(tmp_path, scenario)


# What fails at the end, and what was called off before it was begun


@pytest.mark.parametrize(("step", "is_new_lost"), [("secure_promoted", True), ("remove_replaced", False)])
def test_a_directory_that_fails_when_the_copy_has_taken_the_place_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, is_new_lost: bool
) -> None:
    def fails(*_: object) -> None:
        raise LogDirError("gone")

    async def scenario(moves: Moves) -> None:
        forgotten: list[object] = []
        monkeypatch.setattr(moves.world.log_dirs, step, fails)
        monkeypatch.setattr(moves.world.log_dirs, "forget_move", lambda *_: forgotten.append(1))
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert moves.partition.log.directory == moves.away / "t-0"
        assert moves.partition.is_offline is is_new_lost
        assert list(moves.world.log_dirs.failed) == [moves.away if is_new_lost else moves.home]
        assert forgotten == [], "the next start has to look"

    moving(tmp_path, scenario)


def test_a_mistake_of_ours_ends_the_move_and_another_one_can_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> FutureLog:
        raise ValueError("nobody thought of this")

    async def scenario(moves: Moves) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(FutureLog, "create", fails)
            moves.start("t", 0, moves.away)
            await moves.settled()
        assert moves.not_begun(moves.away) == [] and moves._wishes == {}
        assert moves.partition.log.directory == moves.home / "t-0"
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert moves.partition.log.directory == moves.away / "t-0"

    moving(tmp_path, scenario)
    assert [m for m in caplog.messages if m == "t-0: the move to another log directory has failed"]


@pytest.mark.parametrize("change", ["nothing", "it is deleted", "the target fails", "it goes offline"])
def test_a_move_whose_reason_is_gone_before_its_turn_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    made: list[TopicPartition] = []
    real = FutureLog.create

    def create(dirs: Any, log: Any, path: Path) -> FutureLog:
        made.append(log.topic_partition)
        return real(dirs, log, path)

    async def scenario(moves: Moves) -> None:
        monkeypatch.setattr(FutureLog, "create", create)
        tp = moves.partition.tp
        async with moves._slots:
            moves.start("t", 0, moves.away)
            await asyncio.sleep(0)
            if change == "it is deleted":
                await moves.world.delete("t")
            elif change == "the target fails":
                moves.world.replicas.directory_failed(moves.away, LogDirError("gone"))
            elif change == "it goes offline":
                moves.partition.is_offline = True
            assert moves.not_begun(moves.away) == ([moves.partition.log] if change == "nothing" else [])
        await moves.settled()
        assert made == ([tp] if change == "nothing" else [])
        moves.partition.is_offline = False

    moving(tmp_path, scenario)


def test_a_partition_that_is_offline_is_not_moved(tmp_path: Path) -> None:
    async def scenario(moves: Moves) -> None:
        moves.partition.is_offline = True
        with pytest.raises(LogDirError, match="t-0 is in a directory that has failed"):
            moves.start("t", 0, moves.away)
        assert moves._wishes == {}

    moving(tmp_path, scenario)


@pytest.mark.parametrize(("limit_bytes", "is_on_loop"), [(-1, False), (10**6, True)])
def test_the_last_pieces_are_copied_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_bytes: int, is_on_loop: bool
) -> None:
    """Only on the loop is nothing appended between the last piece and the exchange."""
    where: list[tuple[bool, bool]] = []
    real = FutureLog.copy

    def copy(future: FutureLog, piece: FileSlice, now_ms: int) -> None:
        where.append((future.is_ready, threading.current_thread() is threading.main_thread()))
        real(future, piece, now_ms)

    async def scenario(moves: Moves) -> None:
        monkeypatch.setattr(replica_moves, "LAST_BYTES", limit_bytes)
        monkeypatch.setattr(FutureLog, "copy", copy)
        real_settle = FutureLog.settle

        def settle(future: FutureLog, now_ms: int) -> None:
            real_settle(future, now_ms)
            if not appended:
                appended.append(moves.world.append(moves.partition))

        appended: list[int] = []
        monkeypatch.setattr(FutureLog, "settle", settle)
        moves.start("t", 0, moves.away)
        await moves.settled()
        assert (moves.partition.log.log_end_offset, appended) == (51, [50])
        assert {on_loop for is_ready, on_loop in where if is_ready} == {is_on_loop}
        assert {on_loop for is_ready, on_loop in where if not is_ready} == {False}

    moving(tmp_path, scenario)
