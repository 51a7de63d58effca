"""What the checks of a simulation call a broken promise, and what they excuse: on logs and states made up by hand."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import TopicPartition, Uuid
from ottla.metadata import paths
from ottla.metadata.store import Committed, Node
from ottla.records.batch import BatchHeader, iter_headers
from ottla.records.builder import NewRecord, build_batch
from ottla.testing.sim.checks import Checks, ViolationError

TP = TopicPartition("t", 0)
T_ID = Uuid(bytes(range(16)))


def batch(base: int, value: bytes = b"v", *, epoch: int = 0, count: int = 1, **fields: int) -> bytes:
    data = bytearray(build_batch([NewRecord(None, value, (), 1_700_000_000_000)] * count, **fields))  # type: ignore
    struct.pack_into(">q", data, 0, base)
    struct.pack_into(">i", data, 12, epoch)
    return bytes(data)


def header_of(data: bytes) -> BatchHeader:
    ((_, header),) = iter_headers(memoryview(data))
    return header


class Log:
    """Batches one after the other, in a file that has no name."""

    def __init__(self, *batches: bytes, high_watermark: int = 0) -> None:
        self.log_start_offset = 0
        self.high_watermark = high_watermark
        self._fd = os.memfd_create("log")
        self.batches = [*batches]

    @property
    def log_end_offset(self) -> int:
        return header_of(self.batches[-1]).next_offset if self.batches else 0

    def read(self, offset: int, max_bytes: int, *, end_offset: int) -> Any:
        wanted = [each for each in self.batches if offset < header_of(each).next_offset <= end_offset]
        data = b"".join(wanted[:2])
        os.pwrite(self._fd, data, 0)
        found = SimpleNamespace(file=SimpleNamespace(fd=self._fd), position=0, length=len(data))
        return SimpleNamespace(data=found if data else None)

    def __del__(self) -> None:
        os.close(self._fd)


class Broker:
    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.lives = 1
        self.log = Log()
        self.partition: Any = SimpleNamespace(tp=TP, leader=None, log=self.log)
        self.serving: Any = Replicas(self)

    def holds(self, *batches: bytes, high_watermark: int = 0) -> None:
        self.log = self.partition.log = Log(*batches, high_watermark=high_watermark)

    def lead(self, epoch: int | None) -> None:
        self.partition.leader = None if epoch is None else SimpleNamespace(leader_epoch=epoch)


class Replicas:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.replicas = self

    def __iter__(self) -> Any:
        return iter([self._broker.partition] if self._broker.partition is not None else [])

    def find(self, topic: str, index: int) -> Any:
        return self._broker.partition if (topic, index) == TP else None


class World:
    """Brokers 1, 2 and 3, of which 1 and 2 have the partition; 1 leads it in epoch 0."""

    def __init__(self) -> None:
        self.brokers = {number: Broker(number) for number in (1, 2, 3)}
        self.nodes: dict[str, bytes] = {f"{paths.BROKER_IDS}/{number}": b"" for number in self.brokers}
        self.ensemble: Any = SimpleNamespace(file=self, on_commit=None)
        self.checks = Checks(self.brokers.values(), self.ensemble)  # type: ignore[arg-type]
        self.brokers[3].partition = None
        self.store_topic(1, 2)
        self.store(1, 0, 1, 2)
        self.brokers[1].lead(0)

    def get(self, path: str) -> Node | None:
        return Node(self.nodes[path], 0, 0, 0) if path in self.nodes else None

    def put(self, path: str, data: bytes) -> None:
        self.nodes[path] = data
        self.ensemble.on_commit([Committed(path, 0)])

    def store_topic(self, *replicas: int, adding: tuple[int, ...] = (), removing: tuple[int, ...] = ()) -> None:
        node = paths.TopicNode(
            T_ID, {0: [*replicas]}, {0: [*adding]} if adding else {}, {0: [*removing]} if removing else {}
        )
        self.put(paths.topic("t"), node.encode())

    def store(self, leader: int, epoch: int, *isr: int) -> None:
        self.put(paths.partition_state("t", 0), paths.PartitionStateNode(leader, epoch, [*isr], 1).encode())

    def commit(self, *batches: bytes) -> None:
        """Both replicas have them, and so they count."""
        end = header_of(batches[-1]).next_offset
        for number in (1, 2):
            self.brokers[number].holds(*batches, high_watermark=end)
        self.look(1, 2)

    def look(self, *numbers: int) -> None:
        for number in numbers or self.brokers:
            self.checks.after_event(f"broker-{number}")

    def violated(self, words: str, *numbers: int) -> None:
        with pytest.raises(ViolationError, match=words):
            self.look(*numbers)


@pytest.fixture
def world() -> World:
    return World()


# What the store may say


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ((1, 0, [1, 3]), r"in sync are \[1, 3\], replicas are \[1, 2\]"),
        ((1, 0, []), "nobody is in sync"),
        ((2, 1, [1]), r"leader 2 is not in sync \(\[1\]\)"),
        ((0, 1, [1]), "leader 0 is not in sync"),
        ((2, 0, [1, 2]), "leaders 1 and 2 share epoch 0"),
        ((-1, 0, [1]), "leaders 1 and -1 share epoch 0"),
        ((1, -1, [1]), "leader epoch went back from 0 to -1"),
    ],
)
def test_states_that_cannot_be(world: World, state: tuple[int, int, list[int]], words: str) -> None:
    world.look()
    world.store(state[0], state[1], *state[2])
    world.violated(words)
    with pytest.raises(ViolationError):
        world.checks.after_event("client-1")


@pytest.mark.parametrize("state", [(1, 0, [1]), (2, 1, [1, 2]), (-1, 1, [1]), (1, 1, [1, 2])])
def test_states_that_may_be(world: World, state: tuple[int, int, list[int]]) -> None:
    world.store(state[0], state[1], *state[2])
    world.look()
    found = world.checks.state(TP)
    assert found is not None and (found.leader, found.leader_epoch, found.isr) == state
    assert world.checks.partitions() == [TP]


def test_other_nodes_are_no_matter_of_the_checks(world: World) -> None:
    for path in ("/brokers/topics", "/brokers/topics/t/partitions", "/brokers/seqid/state", "/controller"):
        world.put(path, b"whatever")
    world.ensemble.on_commit([Committed(paths.partition_state("gone", 0), -1), Committed(paths.topic("gone"), -1)])
    world.look()
    assert world.checks.partitions() == [TP]


# Leaders and logs


def test_an_epoch_has_one_leader(world: World) -> None:
    world.look()
    world.brokers[2].lead(0)
    world.violated("brokers 1 and 2 both lead in epoch 0", 2)


def test_a_leader_may_lead_again_in_a_later_epoch(world: World) -> None:
    world.look()
    world.brokers[1].lead(None)
    world.store(2, 1, 1, 2)
    world.brokers[2].lead(1)
    world.look()
    world.store(1, 2, 1, 2)
    world.brokers[2].lead(None)
    world.brokers[1].lead(2)
    world.look()


def test_a_leader_has_all_that_is_committed(world: World) -> None:
    world.commit(batch(0), batch(1))
    world.brokers[2].holds(batch(0), high_watermark=1)
    world.brokers[1].serving = None
    world.store(2, 1, 2)
    world.violated(r"2 is committed, broker-2 is in sync and ends at 1")
    world = World()
    world.commit(batch(0), batch(1))
    world.brokers[2].serving = None
    world.store(2, 1, 2)
    world.brokers[2].serving = Replicas(world.brokers[2])
    world.brokers[2].holds(batch(0), high_watermark=1)
    world.brokers[2].lead(1)
    world.violated("broker-2 leads in epoch 1 with a log that ends at 1; 2 was committed", 2)


def test_a_leader_that_was_replaced_need_not_know_it(world: World) -> None:
    world.commit(batch(0))
    world.store(2, 1, 2)
    world.brokers[1].holds()
    world.brokers[1].lives += 1
    world.look(1)


def test_a_leader_s_log_is_compared_from_its_first_offset(world: World) -> None:
    world.commit(batch(0), batch(1))
    world.brokers[2].holds(batch(0, b"other"), batch(1), high_watermark=2)
    world.brokers[2].lead(1)
    world.store(2, 1, 1, 2)
    world.violated("on broker-2: the batch at 0 is not the one that was committed", 2)


def test_a_log_does_not_end_below_its_high_watermark(world: World) -> None:
    world.brokers[1].holds(batch(0), high_watermark=2)
    world.violated("the log ends at 1, below its high watermark 2")


@pytest.mark.parametrize(
    "other",
    [batch(1, b"w"), batch(1, epoch=1), batch(1, producer_id=5, producer_epoch=0, base_sequence=0)],
    ids=["value", "epoch", "producer"],
)
def test_what_is_committed_is_the_same_everywhere(world: World, other: bytes) -> None:
    world.brokers[1].holds(batch(0), batch(1), high_watermark=2)
    world.brokers[2].holds(batch(0), other, high_watermark=1)
    world.look()
    world.brokers[2].log.high_watermark = 2
    world.violated("on broker-2: the batch at 1 is not the one that was committed", 2)


def test_what_is_committed_does_not_change(world: World) -> None:
    world.commit(batch(0), batch(1))
    world.brokers[2].holds(batch(0), batch(1, b"w"), high_watermark=2)
    world.look()
    with pytest.raises(ViolationError, match="on broker-2: the batch at 1"):
        world.checks.compare_all()
    world.brokers[2].lives += 1
    world.violated("on broker-2: the batch at 1", 2)


def test_everybody_in_sync_has_what_is_committed(world: World) -> None:
    world.brokers[1].holds(batch(0), batch(1), high_watermark=2)
    world.brokers[2].holds(batch(0))
    world.violated("2 is committed, broker-2 is in sync and ends at 1", 1)
    world = World()
    world.store(1, 0, 1)
    world.brokers[1].holds(batch(0), batch(1), high_watermark=2)
    world.brokers[2].holds(batch(0))
    world.look()
    world.store(1, 0, 1, 2)
    world.violated("2 is committed, broker-2 is in sync and ends at 1")


def test_there_are_no_gaps(world: World) -> None:
    for number in (1, 2):
        world.brokers[number].holds(batch(0), batch(2), high_watermark=3)
    world.violated("a batch at 2 after 1")


@pytest.mark.parametrize(
    ("sequences", "words"),
    [
        ([0, 2, 3], None),
        ([1], "has sequence 1 at 0, 0 was next"),
        ([0, 1], "has sequence 1 at 2, 2 was next"),
        ([0, 0], "has sequence 0 at 2, 2 was next"),
        ([0, 3], "has sequence 3 at 2, 2 was next"),
    ],
)
def test_the_batches_of_a_producer_come_once_each_and_in_order(
    world: World, sequences: list[int], words: str | None
) -> None:
    counts = [2, *[1] * (len(sequences) - 1)]
    starts = [sum(counts[:place]) for place in range(len(counts))]
    batches = [
        batch(base, count=count, producer_id=0, producer_epoch=1, base_sequence=sequence)
        for base, count, sequence in zip(starts, counts, sequences, strict=True)
    ]
    for number in (1, 2):
        world.brokers[number].holds(*batches, high_watermark=sum(counts))
    if words is None:
        world.look()
    else:
        world.violated(words)


def test_producers_are_told_apart_and_markers_have_no_sequence(world: World) -> None:
    world.commit(
        batch(0, producer_id=5, producer_epoch=0, base_sequence=0),
        batch(1, producer_id=6, producer_epoch=0, base_sequence=0),
        batch(2, producer_id=5, producer_epoch=0, base_sequence=-1),
        batch(3, producer_id=5, producer_epoch=0, base_sequence=1),
    )


def test_every_replica_is_looked_at_and_clients_hold_none(world: World) -> None:
    world.store_topic(1, 2, 3)
    for number in (2, 3):
        world.brokers[number].partition = SimpleNamespace(tp=TP, leader=None, log=None)
        world.brokers[number].holds(batch(0, b"v" if number == 2 else b"w"), high_watermark=1)
    world.brokers[1].holds(batch(0), high_watermark=1)
    world.look(1, 2)
    world.checks.after_event("client-1")
    world.violated("on broker-3: the batch at 0", 3)
    world.brokers[3].serving = None
    world.look()


def test_a_new_epoch_of_a_producer_counts_from_nothing(world: World) -> None:
    first = batch(0, producer_id=5, producer_epoch=0, base_sequence=0)
    world.commit(first, batch(1, producer_id=5, producer_epoch=1, base_sequence=0))


# What clients were told


def test_what_is_acknowledged_is_committed(world: World) -> None:
    world.commit(batch(0), batch(1, count=2, producer_id=5, producer_epoch=0, base_sequence=0))
    world.checks.acknowledged(TP, 1, 5, 0)
    for base_offset, producer_id, sequence in ((2, 5, 0), (1, 6, 0), (1, 5, 1), (0, 5, 0), (3, 5, 2), (-1, 5, 0)):
        with pytest.raises(ViolationError, match=rf"was acknowledged at {base_offset}, but"):
            world.checks.acknowledged(TP, base_offset, producer_id, sequence)
    world.checks.excused.add(TP)
    world.checks.acknowledged(TP, 3, 5, 2)


def test_what_is_read_is_committed(world: World) -> None:
    world.commit(batch(0), batch(1))
    world.checks.was_read(TP, header_of(batch(1)))
    for other in (batch(1, b"w"), batch(2), batch(1, epoch=1)):
        with pytest.raises(ViolationError, match="somebody read a batch at"):
            world.checks.was_read(TP, header_of(other))
    world.checks.excused.add(TP)
    world.checks.was_read(TP, header_of(batch(2)))


# Disks that lost records


def test_a_replica_that_has_lost_records_is_not_asked_for_them(world: World) -> None:
    world.commit(batch(0))
    world.checks.lost_power(2)
    world.brokers[2].holds()
    world.brokers[2].lives += 1
    world.look()
    assert world.checks.excused == set()
    world.brokers[1].holds(batch(0), batch(1), high_watermark=2)
    world.look()
    world.brokers[2].holds(batch(0), batch(1), high_watermark=1)
    world.look(2)
    world.brokers[2].holds(batch(0), high_watermark=1)
    world.brokers[1].holds(batch(0), batch(1), batch(2), high_watermark=3)
    world.violated("3 is committed, broker-2 is in sync and ends at 1", 1)


def test_where_all_in_sync_have_lost_records_nothing_more_is_asked(world: World) -> None:
    world.commit(batch(0))
    world.checks.lost_power(3)
    world.checks.lost_power(2)
    assert world.checks.excused == set()
    world.checks.lost_power(1)
    assert world.checks.excused == {TP}
    world.brokers[1].holds()
    world.look()


def test_who_is_left_alone_in_sync_with_a_weak_disk_is_excused(world: World) -> None:
    world.commit(batch(0))
    world.checks.lost_power(2)
    world.store(2, 1, 2)
    assert world.checks.excused == {TP}


@pytest.mark.parametrize("other", ["stays", "was restarted", "is away", "was not in sync"])
def test_a_weakened_leader_is_excused_unless_somebody_in_sync_has_stayed(world: World, other: str) -> None:
    world.commit(batch(0))
    if other == "was not in sync":
        world.store(2, 1, 2)
        assert world.checks.excused == set()
    world.checks.excused.clear()
    world.checks.lost_power(2)
    world.checks.excused.clear()
    if other == "was restarted":
        world.brokers[1].lives += 1
    elif other == "is away":
        del world.nodes[f"{paths.BROKER_IDS}/1"]
    world.brokers[2].holds(batch(0))
    world.store(2, 2, 1, 2)
    assert world.checks.excused == (set() if other == "stays" else {TP})


# The end


def test_a_cluster_that_is_whole(world: World) -> None:
    world.commit(batch(0))
    assert world.checks.unfinished() is None
    assert [bytes(found) for found in world.checks.committed_batches(TP)] == [batch(0)]
    world.checks.compare_all()


def _out_of_sync(world: World) -> None:
    world.store(1, 0, 1)


def _without_leader(world: World) -> None:
    world.store(-1, 1, 1, 2)


def _being_added(world: World) -> None:
    world.store_topic(1, 2, adding=(2,))


def _being_removed(world: World) -> None:
    world.store_topic(1, 2, removing=(2,))


def _with_a_stray(world: World) -> None:
    world.brokers[3].partition = world.brokers[2].partition


def _with_another_end(world: World) -> None:
    world.brokers[2].holds(batch(0), batch(1), high_watermark=1)


def _with_another_high_watermark(world: World) -> None:
    world.brokers[2].log.high_watermark = 0


def _with_nothing(world: World) -> None:
    world.brokers[1].partition = world.brokers[2].partition = None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_out_of_sync, "replicas [1, 2], state"),
        (_without_leader, "replicas [1, 2], state"),
        (_being_added, "is still being moved"),
        (_being_removed, "is still being moved"),
        (_with_a_stray, "['broker-3'] have copies that were moved away"),
        (_with_another_end, "log ends and high watermarks"),
        (_with_another_high_watermark, "log ends and high watermarks"),
        (_with_nothing, "log ends and high watermarks {None}"),
    ],
)
def test_a_cluster_that_is_not_whole(world: World, change: Callable[[World], None], words: str) -> None:
    world.commit(batch(0))
    change(world)
    assert words in str(world.checks.unfinished())
    if "moved" in words and "copies" not in words:
        world.store_topic(1, 2)
        assert world.checks.unfinished() is None


def test_a_topic_without_a_state_is_not_whole(world: World) -> None:
    world.commit(batch(0))
    world.put(paths.topic("new"), paths.TopicNode(T_ID, {0: [1]}, {}, {}).encode())
    assert "new-0: replicas [1], state None" in str(world.checks.unfinished())


def test_committed_batches_are_the_leader_s_up_to_the_end(world: World) -> None:
    world.commit(batch(0))
    world.brokers[1].log.batches.append(batch(1))
    assert [bytes(found) for found in world.checks.committed_batches(TP)] == [batch(0)]
    world.store(-1, 1, 1, 2)
    assert list(world.checks.committed_batches(TP)) == []
