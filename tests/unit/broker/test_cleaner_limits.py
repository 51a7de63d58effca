"""How much a broker compacts at once and with what; how long it leaves a log alone, and what is said of it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.cleaner import SHORTAGE_PAUSE_MS, LogCleaner
from ottla.broker.partition import Partition
from ottla.log.cleaning import process
from ottla.log.cleaning.candidates import Candidate, find_candidate
from ottla.log.cleaning.pass_plan import CleanerLimits
from tests.log_lines import messages_of
from tests.unit.broker.replica_world import ReplicaWorld, in_world
from tests.unit.broker.test_cleaner import COMPACTED, cleaner_of, fill
from tests.waiting import until

LOG = "ottla.broker.cleaner"


def candidate_of(world: ReplicaWorld, partition: Partition) -> Candidate:
    found = find_candidate(partition.log, world.clock.wall_ms())
    assert found is not None
    return found


class Recorded:
    """In the place of a process; it finds nothing to do."""

    made: list[tuple[CleanerLimits, float]]

    def __init__(self, plan: Any, limits: CleanerLimits, *, bytes_per_second: float, is_called_off: Any) -> None:
        self.made.append((limits, bytes_per_second))
        self.end_offset, self.keyless = 6, 0
        self.counts = process.Counts()

    def groups(self) -> Any:
        yield from ()


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[CleanerLimits, float]]:
    monkeypatch.setattr(Recorded, "made", [], raising=False)
    monkeypatch.setattr(process, "CleaningProcess", Recorded)
    return Recorded.made


@pytest.mark.parametrize(("threads", "parts"), [("1", 1), ("2", 2), ("0", 1)])
def test_passes_at_the_same_time_share_what_may_be_used(
    tmp_path: Path, processes: list[tuple[CleanerLimits, float]], threads: str, parts: int
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        cleaner = cleaner_of(
            world,
            in_process=True,
            log_cleaner_threads=threads,
            log_cleaner_dedupe_buffer_size="4000000",
            log_cleaner_io_buffer_size="600000",
            log_cleaner_io_buffer_load_factor="0.5",
            log_cleaner_io_max_bytes_per_second="1000",
        )
        await cleaner.clean(partition.log)
        assert processes == [(CleanerLimits(4_000_000 // parts, 0.5, 600_000 // parts), 1000 / parts)]

    in_world(tmp_path, scenario, COMPACTED)


@pytest.mark.parametrize(("beyond", "in_process"), [(0, True), (1, False)])
def test_so_many_bytes_are_worth_a_process(
    tmp_path: Path, processes: list[tuple[CleanerLimits, float]], beyond: int, in_process: bool
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        cleaner = cleaner_of(world)
        assert cleaner.process_from_bytes == 4 << 20
        await cleaner.clean(partition.log)
        fill(world, partition)
        processes.clear()
        found = candidate_of(world, partition)
        assert found.clean_bytes > 0 and found.dirty_bytes > 0
        cleaner.process_from_bytes = found.clean_bytes + found.dirty_bytes + beyond
        await cleaner.clean(partition.log)
        assert len(processes) == in_process

    in_world(tmp_path, scenario, COMPACTED)


@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_than_so_many_logs_at_once(tmp_path: Path, threads: int) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for topic in ("one", "two", "three"):
            fill(world, await world.lead(topic))
        cleaner = cleaner_of(world, log_cleaner_threads=str(threads), log_cleaner_backoff_ms="1")
        begun: list[Any] = []
        goes_on = asyncio.Event()

        async def clean(log: Any) -> None:
            begun.append(log)
            await goes_on.wait()
            log.clean_offset = log.log_end_offset

        cleaner.clean = clean  # type: ignore[method-assign]
        cleaner.start()
        await until(lambda: len(begun) >= threads)
        await asyncio.sleep(0.005)
        assert len(begun) == len(set(begun)) == threads
        goes_on.set()
        await until(lambda: len(begun) >= 3)
        assert len(set(begun)) == 3
        await until(lambda: cleaner.choose() is None)
        await cleaner.stop()
        assert len(begun) == 3

    in_world(tmp_path, scenario, COMPACTED)


# How long it is left alone


def shortage(*_: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


async def fail(cleaner: LogCleaner, partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        for name in ("pwrite", "pwritev"):
            patched.setattr(os, name, shortage)
        await cleaner.clean(partition.log)


def test_after_a_shortage_a_log_is_left_alone_for_five_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SHORTAGE_PAUSE_MS == 300_000

    async def scenario(world: ReplicaWorld) -> None:
        partition, other = await world.lead("t"), await world.lead("other")
        for each in (partition, other):
            fill(world, each)
        cleaner = cleaner_of(world)
        await fail(cleaner, partition, monkeypatch)
        await fail(cleaner, other, monkeypatch)
        world.clock.advance(SHORTAGE_PAUSE_MS - 1)
        assert cleaner.choose() is None
        world.clock.advance(1)
        assert cleaner.choose() is not None

    in_world(tmp_path, scenario, COMPACTED)


def test_a_process_that_was_ended_is_not_started_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(Recorded):
        def groups(self) -> Any:
            raise process.CleaningEndedError("the process has ended")
            yield

    monkeypatch.setattr(Recorded, "made", [], raising=False)
    monkeypatch.setattr(process, "CleaningProcess", Ended)

    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        cleaner = cleaner_of(world, in_process=True, log_cleaner_backoff_ms="1000")
        await cleaner.clean(partition.log)
        world.clock.advance(3999)
        assert cleaner.choose() is None
        world.clock.advance(1)
        assert cleaner.choose() is not None

    in_world(tmp_path, scenario, COMPACTED)


def test_trouble_is_told_once_until_a_pass_has_gone_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        cleaner = cleaner_of(world)
        for _ in range(2):
            await fail(cleaner, partition, monkeypatch)
        assert len(messages_of(caplog, LOG)) == 1
        await cleaner.clean(partition.log)
        fill(world, partition)
        assert cleaner.choose() is not None, "it is not set aside any more"
        await fail(cleaner, partition, monkeypatch)
        assert len(messages_of(caplog, LOG)) == 2

    in_world(tmp_path, scenario, COMPACTED)


def test_a_mistake_in_a_pass_is_the_matter_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Mistaken(Recorded):
        def groups(self) -> Any:
            raise ZeroDivisionError("oh")
            yield

    monkeypatch.setattr(Recorded, "made", [], raising=False)
    monkeypatch.setattr(process, "CleaningProcess", Mistaken)

    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        cleaner = cleaner_of(world, in_process=True)
        await cleaner.clean(partition.log)
        world.clock.advance(10**12)
        assert cleaner.choose() is None and not partition.is_offline
        assert messages_of(caplog, LOG) == [
            "t-0: an error that was not foreseen",
            f"t-0 in {partition.log.directory} cannot be compacted and is left as it is: ZeroDivisionError('oh')",
        ]

    in_world(tmp_path, scenario, COMPACTED)


# What is said


def test_what_a_pass_has_done_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        world.clock.advance(1000)
        before = partition.log.size_bytes
        await cleaner_of(world).clean(partition.log)
        (line,) = messages_of(caplog, LOG)
        assert line == (
            f"t-0 was compacted from offset 0 to 6 in 0 ms: 2 of 6 records are left, {before // 3} of {before} bytes"
        )
        await cleaner_of(world).clean(partition.log)
        assert len(messages_of(caplog, LOG)) == 1, "there is nothing to do"

    with caplog.at_level(logging.INFO):
        in_world(tmp_path, scenario, COMPACTED)
