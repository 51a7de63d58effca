"""What a broker does beside answering, job by job."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import LogDirError
from ottla.base.types import NIL_UUID, TopicPartition
from ottla.broker import housekeeping as housekeeping_module
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.housekeeping import Housekeeping
from ottla.log.checkpoints import PARTITION_METADATA, read_offsets, read_partition_metadata
from ottla.log.config import LogConfig
from ottla.log.file import LogFile
from ottla.records.batch import NO_TIMESTAMP
from tests.log_lines import messages_of
from tests.unit.broker.replica_world import TOPIC_ID, ReplicaWorld, in_world
from tests.waiting import until


def housekeeping(world: ReplicaWorld) -> Housekeeping:
    return Housekeeping(world.replicas, world.clock, BrokerConfig({}))


def fails(*_: object) -> None:
    raise OSError(5, "Input/output error")


def test_an_idle_log_is_flushed_when_its_time_has_come(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition, jobs = await world.lead("t"), housekeeping(world)
        await jobs.flush_due()
        world.append(partition)
        await jobs.flush_due()
        assert partition.log.recovery_point == 1, "the first record came long after the last flush: never"
        world.append(partition)
        await jobs.flush_due()
        assert partition.log.recovery_point == 1
        world.clock.advance(4_999)
        await jobs.flush_due()
        assert partition.log.recovery_point == 1
        world.clock.advance(1)
        await jobs.flush_due()
        assert partition.log.recovery_point == 2
        world.clock.advance(60_000)
        assert not partition.log.is_flush_due(world.clock.wall_ms()), "nothing is left to be flushed"

    in_world(tmp_path, scenario, LogConfig(segment_index_bytes=4096, flush_ms=5_000))


def test_a_log_is_flushed_after_so_many_records(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition, jobs = await world.lead("t"), housekeeping(world)
        for expected in (0, 0, 3, 3, 3, 6):
            world.append(partition)
            await jobs.flush_due()
            assert partition.log.recovery_point == expected

    in_world(tmp_path, scenario, LogConfig(segment_index_bytes=4096, flush_messages=3))


def test_a_directory_that_cannot_be_synced_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        lost, kept = await world.lead("lost"), await world.lead("kept")
        assert lost.log.directory.parent != kept.log.directory.parent
        world.append(lost)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fails)
            await housekeeping(world).flush_due()
        assert (lost.is_offline, kept.is_offline) == (True, False)
        assert list(world.log_dirs.failed) == [lost.log.directory.parent]
        await housekeeping(world).flush_due()
        world.append(kept)

    in_world(tmp_path, scenario, LogConfig(segment_index_bytes=4096, flush_messages=1))


def test_a_directory_whose_checkpoints_cannot_be_written_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        first, second = await world.lead("first"), await world.lead("second")
        world.append(first)
        await housekeeping(world).checkpoint()
        written = read_offsets(first.log.directory.parent / "replication-offset-checkpoint")
        assert written == {TopicPartition("first", 0): 1}
        path = second.log.directory.parent
        (path / "replication-offset-checkpoint").unlink()
        (path / "replication-offset-checkpoint").mkdir()
        (path / "replication-offset-checkpoint" / "in the way").touch()
        world.append(second)
        await housekeeping(world).checkpoint()
        assert list(world.log_dirs.failed) == [path]
        assert (first.is_offline, second.is_offline, world.all_failed) == (False, True, False)

        def fails_to_open(*_: object, **__: object) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "open", fails_to_open)
            await housekeeping(world).checkpoint()
        assert (first.is_offline, world.all_failed) == (True, True)

    in_world(tmp_path, scenario)


def test_producers_that_are_silent_are_forgotten(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        partition.log.producers.apply_batch(7, 0, 0, 0, 0, 0, world.clock.wall_ms(), False)
        world.clock.advance(partition.log.config.producer_id_expiration_ms)
        await housekeeping(world).expire_producers()
        assert 7 in partition.log.producers.entries
        world.clock.advance(1)
        await housekeeping(world).expire_producers()
        assert 7 not in partition.log.producers.entries

    in_world(tmp_path, scenario)


def test_deleted_partitions_are_removed(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        await world.delete("t")
        renamed = partition.log.directory
        assert renamed.exists()
        world.clock.advance(partition.log.config.file_delete_delay_ms)
        await housekeeping(world).remove_deleted()
        assert not renamed.exists()

    in_world(tmp_path, scenario)


def test_a_log_without_a_topic_id_is_given_one(tmp_path: Path) -> None:
    async def before(world: ReplicaWorld) -> None:
        partition = await world.lead("old", NIL_UUID)
        assert not (partition.log.directory / PARTITION_METADATA).exists()

    async def after(world: ReplicaWorld) -> None:
        partition = await world.lead("old")
        assert partition.log.topic_id == read_partition_metadata(partition.log.directory) == TOPIC_ID

    in_world(tmp_path, before)
    in_world(tmp_path, after)


def test_old_segments_go_where_retention_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        caplog.set_level("INFO")
        old, kept = await world.lead("old"), await world.lead("kept")
        for partition in (old, kept):
            world.append(partition)
            world.append(partition)
        kept.log.update_config(LogConfig(segment_index_bytes=4096, retention_ms=-1))
        jobs = housekeeping(world)
        world.clock.advance(1_000)
        await jobs.drop_expired()
        assert (old.log.log_start_offset, kept.log.log_start_offset) == (0, 0)
        world.clock.advance(1)
        await jobs.drop_expired()
        assert (old.log.log_start_offset, kept.log.log_start_offset) == (2, 0)
        size = 2 * kept.log.segments.first.header_at(0).size
        (line,) = [record.message for record in caplog.records if record.name == "ottla.broker.housekeeping"]
        assert line == (
            f"old-0 begins at offset 2 now: 1 segments with {size} bytes go, "
            "because their newest record is older than retention.ms=1000"
        )

    in_world(tmp_path, scenario, LogConfig(segment_index_bytes=4096, retention_ms=1_000))


def test_a_log_that_retention_cannot_judge_is_named_once_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        broken, whole = await world.lead("broken"), await world.lead("whole")
        for partition in (broken, whole):
            world.append(partition)
        broken.log.segments.first.max_timestamp = NO_TIMESTAMP
        monkeypatch.setattr(LogFile, "modified_ms", fails)
        world.clock.advance(1_001)
        jobs = housekeeping(world)
        for _ in range(2):
            await jobs.drop_expired()
        assert (broken.log.log_start_offset, whole.log.log_start_offset) == (0, 1)
        assert not broken.is_offline
        (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert line.startswith(f"broken-0 in {broken.log.directory} keeps records that retention would delete: ")
        assert "Input/output error" in line

    in_world(tmp_path, scenario, LogConfig(segment_index_bytes=4096, retention_ms=1_000))


def test_files_that_somebody_has_removed_need_not_be_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever makes room by hand harms this log, and not all that are in the directory."""

    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        world.append(partition)
        partition.log.roll(now_ms=world.clock.wall_ms())
        world.append(partition)
        segment = partition.log.segments.first
        removed = [segment.log.path, segment.offset_index.path]
        for path in removed:
            path.unlink()
        world.clock.advance(1_001)
        await housekeeping(world).drop_expired()
        assert (partition.log.log_start_offset, partition.is_offline, world.log_dirs.failed) == (2, False, {})
        assert [f"{path} was to be deleted, but" in caplog.text for path in removed] == [True, True]

    in_world(tmp_path, scenario, LogConfig(segment_index_bytes=4096, retention_ms=1_000))


def test_an_error_nobody_has_foreseen_does_not_end_a_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        calls = 0

        async def job() -> None:
            nonlocal calls
            calls += 1
            raise RuntimeError("nobody thought of this")

        task = asyncio.get_running_loop().create_task(housekeeping(world)._every(1, job))
        await until(lambda: calls >= 2)
        task.cancel()
        assert "an error that was not foreseen" in caplog.text and "nobody thought of this" in caplog.text

    in_world(tmp_path, scenario)


def test_a_directory_whose_segments_cannot_be_dropped_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        lost, kept = await world.lead("lost"), await world.lead("kept")
        world.append(lost)
        world.clock.advance(1_001)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", fails)
            await housekeeping(world).drop_expired()
        assert (lost.is_offline, kept.is_offline) == (True, False)
        await housekeeping(world).drop_expired()

    in_world(tmp_path, scenario, LogConfig(segment_index_bytes=4096, retention_ms=1_000))


@pytest.mark.parametrize(("count", "turns"), [(255, 0), (256, 1), (511, 1), (512, 2)])
def test_others_have_a_turn_after_256_logs(monkeypatch: pytest.MonkeyPatch, count: int, turns: int) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(housekeeping_module, "asyncio", SimpleNamespace(sleep=sleep))
    partition = SimpleNamespace(log=None, is_offline=True)
    jobs = Housekeeping([partition] * count, ManualClock(), BrokerConfig({}))  # type: ignore[arg-type]
    asyncio.run(jobs.drop_expired())
    assert pauses == [0] * turns


@pytest.mark.parametrize("obstacle", ["is_offline", "is_deleted", "has_batches", None])
def test_a_log_that_is_not_to_be_touched_is_left_alone(tmp_path: Path, obstacle: str | None) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        world.append(partition)
        world.clock.advance(1_001)
        log = partition.log
        partition.is_offline = obstacle == "is_offline"
        log.is_deleted = obstacle == "is_deleted"
        with pytest.MonkeyPatch.context() as patched:
            if obstacle == "has_batches":
                patched.setattr(type(log.stage), "has_batches", True)
            await housekeeping(world).drop_expired()
        log.is_deleted = False
        assert log.log_start_offset == (1 if obstacle is None else 0)

    in_world(tmp_path, scenario, LogConfig(segment_index_bytes=4096, retention_ms=1_000))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LogDirError("the disk is gone"), "KAFKA_STORAGE_ERROR: the disk is gone"),
        (OSError("no files left"), "no files left"),
    ],
)
def test_a_job_that_fails_says_why_and_runs_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception, said: str
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        calls = 0

        async def job() -> None:
            nonlocal calls
            calls += 1
            raise error

        task = asyncio.get_running_loop().create_task(housekeeping(world)._every(1, job))
        await until(lambda: calls >= 2)
        task.cancel()
        assert set(messages_of(caplog, "ottla.broker.housekeeping")) == {said}

    in_world(tmp_path, scenario)
