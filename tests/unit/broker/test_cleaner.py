"""Which logs a broker compacts, and what becomes of those that cannot be."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import LogDirError
from ottla.base.types import TopicPartition
from ottla.broker import cleaner as cleaner_module
from ottla.broker.cleaner import SHORTAGE_PAUSE_MS, LogCleaner
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.partition import Partition
from ottla.log.checkpoints import read_offsets
from ottla.log.cleaning import process
from ottla.log.cleaning.candidates import find_candidate
from ottla.log.config import LogConfig
from ottla.records.builder import build_batch
from tests.unit.broker.replica_world import ReplicaWorld, in_world
from tests.waiting import until

COMPACTED = LogConfig(segment_index_bytes=4096, cleanup_policy=frozenset({"compact"}))


BOTH_WAYS = pytest.mark.parametrize("in_process", [False, True], ids=["thread", "process"])


def cleaner_of(world: ReplicaWorld, *, in_process: bool = False, **settings: str) -> LogCleaner:
    config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
    cleaner = LogCleaner(world.replicas, world.clock, lambda: config)
    if in_process:
        cleaner.process_from_bytes = 0
    return cleaner


def fill(world: ReplicaWorld, partition: Partition, versions: int = 3) -> None:
    """A segment for each version of two keys, and an empty one behind them."""
    for version in range(versions):
        records = [(key, b"%d" % version, (), world.clock.wall_ms()) for key in (b"a", b"b")]
        batch = memoryview(bytearray(build_batch(records)))
        world.replicas.append(partition, batch, requires_all_replicas=True, now_ms=world.clock.wall_ms())
        partition.log.roll(now_ms=world.clock.wall_ms())


def counts(partition: Partition) -> list[int]:
    return [header.record_count for segment in partition.log.segments.all() for _, header in segment.headers()]


@BOTH_WAYS
def test_logs_are_compacted_until_none_is_due(tmp_path: Path, in_process: bool) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partitions = [await world.lead(topic) for topic in ("one", "two", "three")]
        for partition in partitions:
            fill(world, partition)
        cleaner = cleaner_of(world, in_process=in_process, log_cleaner_backoff_ms="5", log_cleaner_threads="2")
        cleaner.start()
        await until(lambda: all(partition.log.clean_offset == 6 for partition in partitions))
        await cleaner.stop()
        assert [counts(partition) for partition in partitions] == [[2], [2], [2]]
        for partition in partitions:
            written = read_offsets(partition.log.directory.parent / "cleaner-offset-checkpoint")
            assert written[partition.tp] == 6

    in_world(tmp_path, scenario, COMPACTED)


def test_no_cleaner_where_none_is_wanted(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        fill(world, await world.lead("t"))
        cleaner = cleaner_of(world, log_cleaner_enable="false")
        cleaner.start()
        assert cleaner._scheduler is None
        await cleaner.stop()

    in_world(tmp_path, scenario, COMPACTED)


@BOTH_WAYS
def test_a_log_that_cannot_be_compacted_is_set_aside_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, in_process: bool
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        broken, whole = await world.lead("broken"), await world.lead("whole")
        for partition in (broken, whole):
            fill(world, partition)
        segment = broken.log.segments.first
        os.pwrite(segment.log.fd, b"\xff", segment.size - 1)
        cleaner = cleaner_of(world, in_process=in_process, log_cleaner_backoff_ms="5")
        cleaner.start()
        await until(lambda: whole.log.clean_offset == 6)
        await until(lambda: cleaner.choose() is None)
        await cleaner.stop()
        assert broken.log.clean_offset == -1 and len(broken.log.segments) == 4
        (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert line == (
            f"broken-0 in {broken.log.directory} cannot be compacted and is left as it is: "
            f"{segment.log.path}: the batch of offset 0 has a wrong checksum"
        )

    in_world(tmp_path, scenario, COMPACTED)


def test_a_log_that_cannot_be_looked_at_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partitions = [await world.lead(topic) for topic in ("one", "two", "three")]
        for partition in partitions:
            fill(world, partition)
        good = find_candidate(partitions[1].log, world.clock.wall_ms())

        def finds(log: Any, now_ms: int) -> Any:
            if log is not partitions[1].log:
                raise LogDirError("no such file")
            return good

        monkeypatch.setattr(cleaner_module, "find_candidate", finds)
        cleaner = cleaner_of(world)
        assert cleaner.choose() is good
        assert list(cleaner._candidates(world.clock.wall_ms())) == [good], "the others are set aside"

    in_world(tmp_path, scenario, COMPACTED)


def test_a_damaged_index_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        path = partition.log.segments.first.offset_index.path
        path.write_bytes(b"odd")
        cleaner = cleaner_of(world, in_process=True)
        await cleaner.clean(partition.log)
        assert cleaner.choose() is None and partition.log.clean_offset == -1
        assert f"is left as it is: {path} has 3 bytes" in caplog.text

    in_world(tmp_path, scenario, COMPACTED)


@BOTH_WAYS
@pytest.mark.parametrize("kind", ["log", "offset_index", "time_index"])
def test_a_file_that_somebody_has_removed_is_the_matter_of_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, in_process: bool, kind: str
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        path = getattr(partition.log.segments.first, kind).path
        path.unlink()
        cleaner = cleaner_of(world, in_process=in_process)
        await cleaner.clean(partition.log)
        assert not partition.is_offline and world.log_dirs.failed == {}
        # The broker has the file open still; a process of its own does not find it.
        assert (partition.log.clean_offset == -1) is in_process
        assert (f"is left as it is: {path} is missing" in caplog.text) is in_process

    in_world(tmp_path, scenario, COMPACTED)


def test_a_process_that_somebody_ends_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        cleaner = cleaner_of(world, in_process=True, log_cleaner_backoff_ms="1000")
        with monkeypatch.context() as patched:
            patched.setattr(process, "_COMMAND", ("-c", "import os; os.kill(os.getpid(), 9)"))
            await cleaner.clean(partition.log)
        assert cleaner.choose() is None
        assert "the process that compacts it has ended; trying again later" in caplog.text
        world.clock.advance(4000)
        found = cleaner.choose()
        assert found is not None
        await cleaner.clean(found.log)
        assert counts(partition) == [2]

    in_world(tmp_path, scenario, COMPACTED)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "No space left on device"),
        (errno.EDQUOT, "Disk quota exceeded"),
        (errno.EMFILE, "Too many open files"),
        (errno.ENFILE, "Too many open files in system"),
        (errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_after_a_shortage_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int, reason: str
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        cleaner = cleaner_of(world)

        def fails(*_: Any) -> int:
            raise OSError(number, reason)

        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", fails)
            patched.setattr(os, "pwritev", fails)
            await cleaner.clean(partition.log)
        assert cleaner.choose() is None
        assert "t-0 in" in caplog.text and f"{reason}; trying again later" in caplog.text
        assert not partition.is_offline
        world.clock.advance(SHORTAGE_PAUSE_MS)
        found = cleaner.choose()
        assert found is not None
        await cleaner.clean(found.log)
        assert counts(partition) == [2]

    in_world(tmp_path, scenario, COMPACTED)


def test_a_disk_that_fails_takes_its_directory_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        lost, kept = await world.lead("lost"), await world.lead("kept")
        fill(world, lost)

        def fails(*_: Any) -> int:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(os, "preadv", fails)
            await cleaner_of(world).clean(lost.log)
        assert (lost.is_offline, kept.is_offline) == (True, False)

    in_world(tmp_path, scenario, COMPACTED)


@BOTH_WAYS
@pytest.mark.parametrize("what", ["cut", "deleted", "stopped"])
def test_a_cleaning_under_way_is_given_up(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch, in_process: bool
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        cleaner = cleaner_of(world, in_process=in_process)
        reached, goes_on = asyncio.Event(), asyncio.Event()
        run = world.replicas.threads.run

        async def pausing(function: Any, *arguments: Any) -> Any:
            result = await run(function, *arguments)
            if function is next:
                reached.set()
                await goes_on.wait()
            return result

        monkeypatch.setattr(world.replicas.threads, "run", pausing)
        task = asyncio.create_task(cleaner.clean(partition.log))
        await reached.wait()
        directory, sizes = partition.log.directory, [segment.size for segment in partition.log.segments.all()]
        if what == "cut":
            partition.log.truncate_to(4)
        elif what == "deleted":
            await world.delete("t")
        else:
            await cleaner.stop()
        goes_on.set()
        await task
        assert partition.log.clean_offset == -1 and not world.log_dirs.failed
        if what == "stopped":
            assert [segment.size for segment in partition.log.segments.all()] == sizes
        elif what == "cut":
            assert partition.log.log_end_offset == 4
        else:
            assert world.log_dirs.get(TopicPartition("t", 0)) is None
        assert not list(directory.glob("*.cleaned")) and not list(directory.glob("*.swap"))

    in_world(tmp_path, scenario, COMPACTED)


@pytest.mark.parametrize(("segment_bytes", "clean_offset"), [(100, 6), (200, -1)])
def test_retention_may_be_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int, clean_offset: int
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        config = LogConfig(segment_bytes=segment_bytes, cleanup_policy=COMPACTED.cleanup_policy)
        world.replicas.set_topic_config("t", config)
        run, dropped = world.replicas.threads.run, False

        async def dropping(function: Any, *arguments: Any) -> Any:
            nonlocal dropped
            result = await run(function, *arguments)
            if function is next and not dropped:
                dropped = True
                partition.log.advance_log_start_offset(2)
            return result

        monkeypatch.setattr(world.replicas.threads, "run", dropping)
        await cleaner_of(world).clean(partition.log)
        assert partition.log.clean_offset == clean_offset, "a group of which a part is gone was not cleaned"
        await cleaner_of(world).clean(partition.log)
        assert partition.log.clean_offset == 6
        assert counts(partition) == [2]
        assert not list(partition.log.directory.glob("*.cleaned"))

    in_world(tmp_path, scenario, COMPACTED)


def test_a_process_that_works_on_is_ended_with_its_pass(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        # Slow enough to be at work for ever.
        cleaner = cleaner_of(world, in_process=True, log_cleaner_io_max_bytes_per_second="0.1")
        task = asyncio.create_task(cleaner.clean(partition.log))
        await until(lambda: bool(_cleaning_processes()))
        partition.log.truncate_to(2)
        await task
        assert not _cleaning_processes()
        assert partition.log.clean_offset == -1
        assert not [record for record in caplog.records if record.levelname == "ERROR"]

    in_world(tmp_path, scenario, COMPACTED)


def _cleaning_processes() -> list[str]:
    """Other tests may have left processes for those that follow."""
    found = []
    for thread in Path("/proc/self/task").iterdir():
        # Threads and processes may end while they are looked at.
        with suppress(FileNotFoundError, ProcessLookupError):
            children = (thread / "children").read_text().split()
            found += [each for each in children if b"ottla.log.cleaning" in Path(f"/proc/{each}/cmdline").read_bytes()]
    return found


def test_compaction_can_be_slowed_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        slept: list[float] = []
        now_s = 0.0

        def sleep(seconds: float) -> None:
            nonlocal now_s
            slept.append(seconds)
            now_s += seconds

        # In that module alone: other threads sleep, too.
        monkeypatch.setattr("ottla.log.cleaning.throttle.time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
        size = partition.log.size_bytes
        await cleaner_of(world, log_cleaner_io_max_bytes_per_second="100").clean(partition.log)
        # All is read twice, and a third of it is written.
        assert sum(slept) == pytest.approx((2 * size + size / 3) / 100)
        assert max(slept) <= 0.5, "so that a stop does not have to wait for it"

    in_world(tmp_path, scenario, COMPACTED)
