"""The markers of a transaction that has ended: written at once where that is possible, and until there is no need."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.coordinators import transactions
from ottla.broker.coordinators.groups import GroupCoordinator, _no_other_effects
from ottla.broker.coordinators.markers import Marker
from ottla.broker.coordinators.runtime import _in_batches
from ottla.broker.coordinators.transactions import AT_ONCE_MAX, TransactionCoordinator
from ottla.broker.tasks import Tasks
from ottla.machines.cluster.image import ClusterImage, PartitionImage
from ottla.machines.coordinator import CoordinatorRecord, Decision
from ottla.machines.transactions.answers import SendMarkers
from ottla.records.batch import HEADER_SIZE
from ottla.records.builder import encode_record
from ottla.wire.stored.transaction_state import TransactionLogKey
from tests.waiting import run_async, until

E = ErrorCode
A, B, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)
NOW_MS = ManualClock().wall_ms()
T_ID = Uuid(bytes(range(16)))
MARKER = Marker(producer_id=7, producer_epoch=2, commit=True, coordinator_epoch=5)


def image_of(**topics: int) -> ClusterImage:
    image = ClusterImage("cluster")
    for name, count in topics.items():
        for index in range(count):
            image.set_partition(TopicPartition(name, index), T_ID, PartitionImage(1, 0, 0, (1,), (1,), ()))
    return image


class World:
    """A coordinator; the logs, the other brokers and the machine are played by the test."""

    def __init__(self, image: ClusterImage | None = None) -> None:
        self.at_once: dict[TopicPartition, bool | ErrorCode] = {}
        self.answers: dict[TopicPartition, list[ErrorCode]] = {}
        """What comes of each further attempt, until one is free of error."""
        self.elsewhere: set[TopicPartition] = set()
        self.written: list[tuple[str, TopicPartition]] = []
        self.done: list[tuple[object, ...]] = []
        self.added: list[tuple[object, ...]] = []
        self.tasks = Tasks()
        replicas: Any = SimpleNamespace(watch_topic=lambda topic, runtime: None, threads=None)
        self.coordinator = TransactionCoordinator(
            BrokerConfig({}),
            image or image_of(t=2),
            replicas,
            SimpleNamespace(),  # type: ignore[arg-type]
            ManualClock(),
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.tasks,
        )
        self.shard: Any = SimpleNamespace(is_dropped=False, machine=self)
        self.coordinator.runtime.run = lambda shard, decision: self.done.append((decision,))  # type: ignore

    def perform(self, *partitions: TopicPartition, order: int = 3) -> None:
        self.coordinator._perform(self.shard, SendMarkers("tx", *MARKER, partitions, order))

    # The parts

    def leads_elsewhere(self, tp: TopicPartition) -> bool:
        return tp in self.elsewhere

    def write_at_once(self, tp: TopicPartition, marker: Marker) -> bool:
        assert marker == MARKER
        outcome = self.at_once.get(tp, True)
        if isinstance(outcome, ErrorCode):
            raise KafkaError(code=outcome)
        if outcome:
            self.written.append(("at once", tp))
        return outcome

    async def write(self, tp: TopicPartition, marker: Marker, *, wait_ms: int) -> None:
        assert (marker, wait_ms) == (MARKER, 30_000)
        self._attempt("here", tp)

    async def write_marker(self, tp: TopicPartition, marker: Marker) -> None:
        assert marker == MARKER
        self._attempt("elsewhere", tp)

    def _attempt(self, where: str, tp: TopicPartition) -> None:
        answers = self.answers.get(tp)
        self.written.append((where, tp))
        if answers:
            raise KafkaError(code=answers.pop(0))

    def markers_written(self, *arguments: object, now_ms: int, order: int) -> object:
        return (*arguments, order)

    async def add_partitions(self, *arguments: object, verify_only: bool) -> object:
        self.added.append((*arguments, verify_only))
        return {A: E.NONE}


WRITTEN = [(("tx", 7, 2, 3),)]


def test_markers_that_need_nobody_are_written_before_anybody_is_answered() -> None:
    async def scenario() -> None:
        world = World()
        world.perform(A, B)
        assert world.written == [("at once", A), ("at once", B)]
        assert world.done == WRITTEN

    run_async(scenario())


@pytest.mark.parametrize("where", ["elsewhere", "not yet committed", "refused"])
def test_the_others_are_written_afterwards(where: str) -> None:
    async def scenario() -> None:
        world = World()
        if where == "elsewhere":
            world.elsewhere.add(B)
        else:
            world.at_once[B] = False if where == "not yet committed" else E.NOT_ENOUGH_REPLICAS
        world.perform(A, B)
        assert (world.written, world.done) == ([("at once", A)], [])
        await until(lambda: bool(world.done))
        assert world.written[1:] == [("elsewhere" if where == "elsewhere" else "here", B)]
        assert world.done == WRITTEN

    run_async(scenario())


@pytest.mark.parametrize(("count", "at_once"), [(AT_ONCE_MAX, True), (AT_ONCE_MAX + 1, False)])
def test_very_many_markers_hold_up_nobody(count: int, at_once: bool) -> None:
    async def scenario() -> None:
        world = World()
        world.perform(*(TopicPartition("t", index) for index in range(count)))
        assert bool(world.done) is at_once
        await until(lambda: bool(world.done))
        assert {how for how, _ in world.written} == {"at once" if at_once else "here"}
        assert len(world.written) == count

    run_async(scenario())


@pytest.mark.parametrize(
    ("tp", "code", "attempts"),
    [
        (A, E.NOT_LEADER_OR_FOLLOWER, 3),
        (A, E.NOT_ENOUGH_REPLICAS, 3),
        (A, E.UNKNOWN_TOPIC_OR_PARTITION, 3),
        (GONE, E.NOT_LEADER_OR_FOLLOWER, 3),
        (GONE, E.UNKNOWN_TOPIC_OR_PARTITION, 1),
        (A, E.INVALID_PRODUCER_EPOCH, 1),
        (A, E.TRANSACTION_COORDINATOR_FENCED, 1),
    ],
)
@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_a_marker_is_tried_again_unless_it_is_pointless(
    monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool, tp: TopicPartition, code: ErrorCode, attempts: int
) -> None:
    monkeypatch.setattr(transactions, "RETRY_MS", 1)

    async def scenario() -> None:
        world = World()
        world.at_once[tp] = False
        world.answers[tp] = [code, code]
        world.elsewhere |= {tp} if is_elsewhere else set()
        world.perform(tp)
        await until(lambda: bool(world.done))
        assert world.written == [("elsewhere" if is_elsewhere else "here", tp)] * attempts
        assert world.done == WRITTEN

    run_async(scenario())


def test_who_coordinates_no_more_writes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "RETRY_MS", 1)

    async def scenario() -> None:
        world = World()
        world.at_once[A] = False
        world.answers[A] = [E.NOT_LEADER_OR_FOLLOWER] * 1000
        world.perform(A)
        await until(lambda: len(world.written) > 2)
        world.shard.is_dropped = True
        await until(lambda: not world.tasks._running)
        assert world.done == []
        world.perform(B)
        assert world.done == []

    run_async(scenario())


def test_a_transaction_asks_for_markers_and_nothing_else() -> None:
    world = World()
    with pytest.raises(TypeError, match="a transaction cannot ask for 'coffee'"):
        world.coordinator._perform(world.shard, "coffee")
    with pytest.raises(TypeError, match="a group cannot ask for 'coffee'"):
        _no_other_effects(world.shard, "coffee")


@pytest.mark.parametrize(("existing", "expected"), [(0, 50), (3, 3)])
def test_the_number_of_state_partitions_is_that_of_the_topic_or_of_the_setting(existing: int, expected: int) -> None:
    image = image_of(__transaction_state=existing, __consumer_offsets=existing)
    assert World(image).coordinator._partition_count() == expected
    replicas: Any = SimpleNamespace(watch_topic=lambda topic, runtime: None)
    nothing: Any = SimpleNamespace()
    groups = GroupCoordinator(BrokerConfig({}), {}, image, replicas, nothing, ManualClock(), Tasks())
    assert groups._partition_count() == expected


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_partitions_are_added_where_the_transaction_is_coordinated(is_elsewhere: bool) -> None:
    world = World(image_of(__transaction_state=1))
    state = TopicPartition("__transaction_state", 0)
    world.elsewhere |= {state} if is_elsewhere else set()
    assert world.coordinator.is_coordinated_elsewhere("tx") is is_elsewhere
    assert world.coordinator.is_committed("tx") is not is_elsewhere
    assert run_async(world.coordinator.add_elsewhere("tx", 7, 2, [A])) == {A: E.NONE}
    found = run_async(world.coordinator.verify_committed("tx", 7, 2, [A, B]))
    asked = [(state, "tx", 7, 2, [A], False)]
    if is_elsewhere:
        assert found == {A: E.NONE}
        assert world.added == [*asked, (state, "tx", 7, 2, [A, B], True)]
    else:
        assert found == {A: E.NOT_COORDINATOR, B: E.NOT_COORDINATOR} and world.added == asked
    assert world.coordinator.verify("tx", 7, 2, [A]) == {A: E.NOT_COORDINATOR}


# Groups


class GroupMachine:
    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def topic_deleted(self, topics: set[str], now_ms: int) -> str:
        self.heard.append(("deleted", topics, now_ms))
        return "forget"

    def topics_changed(self, now_ms: int) -> str:
        self.heard.append(("changed", now_ms))
        return "learn"

    def expire_offsets(self, now_ms: int) -> str:
        self.heard.append(("expire", now_ms))
        return "expire"


def group_world(**settings: str) -> tuple[GroupCoordinator, GroupMachine, list[str], Tasks]:
    replicas: Any = SimpleNamespace(watch_topic=lambda topic, runtime: None)
    nothing: Any = SimpleNamespace()
    tasks = Tasks()
    clock = ManualClock()
    config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
    groups = GroupCoordinator(config, {}, image_of(t=1), replicas, nothing, clock, tasks)
    machine = GroupMachine()
    ran: list[str] = []
    groups.runtime.active_shards = lambda: [SimpleNamespace(machine=machine)]  # type: ignore
    groups.runtime.run = lambda shard, decision: ran.append(str(decision))  # type: ignore
    return groups, machine, ran, tasks


@pytest.mark.parametrize(("deleted", "ran"), [(set(), ["learn"]), ({"t"}, ["forget", "learn"])])
def test_groups_hear_of_topics_that_have_come_or_gone(deleted: set[str], ran: list[str]) -> None:
    groups, machine, found, _ = group_world()
    groups.cluster_changed(deleted)
    assert found == ran
    assert machine.heard == [("deleted", {"t"}, NOW_MS)] * bool(deleted) + [("changed", NOW_MS)]


def test_offsets_expire_again_and_again() -> None:
    async def scenario() -> None:
        groups, machine, ran, tasks = group_world(offsets_retention_check_interval_ms="1")
        groups.start()
        await until(lambda: len(ran) >= 3)
        assert set(machine.heard) == {("expire", NOW_MS)} and set(ran) == {"expire"}
        await tasks.cancel_all()

    run_async(scenario())


@pytest.mark.parametrize(
    ("protocols", "serves"), [("classic,consumer", True), ("classic", False), ("consumer,classic", True)]
)
def test_groups_of_the_new_kind_are_served_where_the_setting_names_them(protocols: str, serves: bool) -> None:
    groups, *_ = group_world(group_coordinator_rebalance_protocols=protocols)
    assert groups.serves_consumer_protocol is serves


# Batches of a decision


def records_of(*sizes: int) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(TransactionLogKey(transactional_id="x" * size), 0, None) for size in sizes]


def stored_size(record: CoordinatorRecord, place: int = 0) -> int:
    return len(encode_record(place, 0, *record.encode()))


def split(records: Sequence[CoordinatorRecord], room: int) -> list[int]:
    """How many records each batch has."""
    found = list(_in_batches(records, HEADER_SIZE + room))
    assert [record for batch, _ in found for record in batch] == list(records)
    for batch, encoded in found:
        assert encoded == [encode_record(place, 0, *record.encode()) for place, record in enumerate(batch)]
    return [len(batch) for batch, _ in found]


def test_a_batch_takes_what_fits() -> None:
    records = records_of(50, 50, 50, 50)
    size = stored_size(records[0])
    assert split(records, 4 * size) == [4]
    assert split(records, 4 * size - 1) == [3, 1]
    assert split(records, 2 * size) == [2, 2]
    assert split(records, 2 * size - 1) == [1, 1, 1, 1]
    assert split(records, 1) == [1, 1, 1, 1], "what is too large for any batch is for the log to refuse"
    assert split(records_of(10, 60, 10), stored_size(records_of(60)[0])) == [1, 1, 1]
    assert Decision().records == []
