"""A coordinator's machine is filled from its log: record by record, each with where it stands and whose it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.loading import replay_log
from ottla.broker.partition import Partition
from ottla.log.partition_log import Origin
from ottla.machines.coordinator import ReplayContext
from ottla.records.builder import NewRecord, build_batch
from ottla.records.control import end_transaction_marker
from tests.unit.broker.replica_world import ReplicaWorld, in_world

PRODUCER, EPOCH, NOW_MS = 7, 3, 1_700_000_000_000


class Machine:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.replayed: list[Any] = []
        self.ended: list[tuple[int, bool]] = []

    def replay(self, key: Any, value: Any, context: ReplayContext) -> None:
        self.replayed.append((key, value, context))


def parse(key: bytes, value: bytes | None) -> Any:
    """What begins with a question mark nobody understands."""
    return None if key.startswith(b"?") else (key, value)


def replay(log: Any, start: int = 0, end: int = 99, buffer_bytes: int = 1_000_000) -> Machine:
    machine: Any = Machine()
    replay_log(machine, parse, lambda *ended: machine.ended.append(ended), log, start, end, buffer_bytes=buffer_bytes)
    return machine  # type: ignore[no-any-return]


def append(world: ReplicaWorld, partition: Partition, data: bytes, origin: Origin = Origin.CLIENT) -> None:
    world.replicas.append(
        partition, memoryview(bytearray(data)), requires_all_replicas=True, now_ms=NOW_MS, origin=origin
    )


def filled(tmp_path: Path, scenario: Callable[[Partition], Awaitable[None]]) -> None:
    """Offsets 0 to 2 are plain, 3 is of a transaction that is committed in 4, 5 of another that is aborted in 6."""

    async def run(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        records = [NewRecord(b"a", b"1", (), NOW_MS), NewRecord(b"b", None, (), NOW_MS + 5)]
        append(world, partition, build_batch([*records, NewRecord(b"?", b"2", (), NOW_MS)]))
        sequences = {"producer_id": PRODUCER, "producer_epoch": EPOCH, "transactional": True}
        for number, commits in enumerate((True, False)):
            record = NewRecord(b"%d" % number, b"in", (), NOW_MS)
            append(world, partition, build_batch([record], base_sequence=number, **sequences))  # type: ignore[arg-type]
            marker = end_transaction_marker(PRODUCER, EPOCH, commits, 0, NOW_MS)
            append(world, partition, marker, Origin.COORDINATOR)
        unkeyed = [NewRecord(None, b"nobody's", (), NOW_MS), NewRecord(b"z", b"9", (), NOW_MS)]
        append(world, partition, build_batch(unkeyed))
        await scenario(partition)

    in_world(tmp_path, run)


def at(offset: int, *, in_transaction: bool = False, timestamp_ms: int = NOW_MS) -> ReplayContext:
    return ReplayContext(offset, PRODUCER if in_transaction else -1, EPOCH if in_transaction else -1, timestamp_ms)


EVERYTHING = [
    (b"a", b"1", at(0)),
    (b"b", None, at(1, timestamp_ms=NOW_MS + 5)),
    (b"0", b"in", at(3, in_transaction=True)),
    (b"1", b"in", at(5, in_transaction=True)),
    (b"z", b"9", at(8)),
]


@pytest.mark.parametrize("buffer_bytes", [1, 100, 1_000_000])
def test_all_is_replayed_whatever_the_size_of_the_buffer(tmp_path: Path, buffer_bytes: int) -> None:
    async def scenario(partition: Partition) -> None:
        machine = replay(partition.log, 0, 9, buffer_bytes)
        assert machine.replayed == EVERYTHING
        assert machine.ended == [(PRODUCER, True), (PRODUCER, False)]

    filled(tmp_path, scenario)


@pytest.mark.parametrize(
    ("start", "end", "records", "ends"),
    [(0, 3, EVERYTHING[:2], 0), (3, 5, EVERYTHING[2:3], 1), (4, 7, EVERYTHING[3:4], 2), (7, 9, EVERYTHING[4:], 0)],
)
def test_a_part_is_replayed(tmp_path: Path, start: int, end: int, records: list[Any], ends: int) -> None:
    async def scenario(partition: Partition) -> None:
        machine = replay(partition.log, start, end)
        assert (machine.replayed, len(machine.ended)) == (records, ends)

    filled(tmp_path, scenario)


def test_where_there_is_nothing_nothing_is_read(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        for start, end in ((9, 9), (5, 5), (5, 4)):
            assert replay(partition.log, start, end).replayed == []

    filled(tmp_path, scenario)
    empty = SimpleNamespace(read=lambda *_, **__: SimpleNamespace(data=None))
    assert replay(empty).replayed == []


def test_a_log_that_holds_no_whole_batch_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(build_batch([NewRecord(b"a", b"1", (), NOW_MS)])[:-1])
    with file.open("rb") as opened:
        data = SimpleNamespace(file=SimpleNamespace(fd=opened.fileno()), length=file.stat().st_size, position=0)
        log = SimpleNamespace(read=lambda *_, **__: SimpleNamespace(data=data), topic_partition="t-0")
        with pytest.raises(OSError, match="t-0 holds no whole batch at offset 4"):
            replay(log, 4)
