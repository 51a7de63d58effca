"""Records of transactions whose coordinator is another broker, or whose beginning may still be forgotten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.handlers.transactional_produce import (
    add_partitions,
    check_in_transaction,
    must_wait_for_coordinator,
    unverified_partitions,
    verify_partitions,
)
from ottla.log.producer_snapshot import ProducerEntry
from ottla.machines.transactions.answers import Answer
from ottla.records.batch import HEADER_SIZE
from ottla.records.builder import NewRecord, build_batch
from tests.waiting import run_async

E = ErrorCode
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
PRODUCER_ID, EPOCH = 7, 2
OTHER = (8, 0)
MINE = (PRODUCER_ID, EPOCH)
OLD, NEW = 11, 12


class World:
    """The transactions of this broker and its partitions; the test says who coordinates and what is answered."""

    def __init__(self, *, is_elsewhere: bool = True, version: int = OLD, verifies: bool = True) -> None:
        self.is_elsewhere = is_elsewhere
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.asked: list[tuple[object, ...]] = []
        self.committed = True
        self.answer = Answer(E.NONE)
        self.forbidden: set[str] = set()
        self.partitions: dict[TopicPartition, Any] = {
            tp: SimpleNamespace(
                tp=tp, verified_producers={}, log=SimpleNamespace(producers=SimpleNamespace(entries={}))
            )
            for tp in (T0, T1, U0)
        }
        self.runtime = SimpleNamespace(shard_for=lambda _: SimpleNamespace(machine=self), run=self._run)
        self.clock = SimpleNamespace(wall_ms=lambda: 1234)
        flags = {"transaction.partition.verification.enable": verifies}
        self.context: Any = SimpleNamespace(
            version=version,
            may=lambda kind, name: name not in self.forbidden,
            broker=SimpleNamespace(
                transactions=self,
                replicas=SimpleNamespace(find=lambda *tp: self.partitions.get(TopicPartition(*tp))),
                config=SimpleNamespace(flag=flags.__getitem__),
            ),
        )

    def is_coordinated_elsewhere(self, transactional_id: str) -> bool:
        assert transactional_id == "tx"
        return self.is_elsewhere

    def is_committed(self, transactional_id: str) -> bool:
        return self.committed

    def verify(self, *asked: Any) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(("look", *asked))
        return {tp: self.codes.get(tp, E.NONE) for tp in asked[-1]}

    async def verify_committed(self, *asked: Any) -> dict[TopicPartition, ErrorCode]:
        return self._told("verify", *asked)

    async def add_elsewhere(self, *asked: Any) -> dict[TopicPartition, ErrorCode]:
        return self._told("add", *asked)

    def _told(self, *asked: Any) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(asked)
        producer_id, epoch, partitions = asked[2:]
        for tp in partitions:
            if tp in self.partitions:
                assert self.partitions[tp].verified_producers[producer_id] == epoch, "noted before anybody is asked"
        return {tp: self.codes.get(tp, E.NONE) for tp in partitions}

    # The machine of the id, if this broker coordinates it

    def add_partitions(self, *asked: Any, version: int, now_ms: int) -> Any:
        *asked_for, token = asked
        self.asked.append(("here", *asked_for, version, now_ms))
        return token

    def _run(self, shard: Any, token: Any) -> None:
        token.complete(self.answer)


def batch(producer: tuple[int, int] = MINE, *, transactional: bool = True) -> memoryview:
    fields: dict[str, Any] = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": 0}
    return memoryview(build_batch([NewRecord(None, b"v", (), 0)], transactional=transactional, **fields))


def entry(epoch: int, transaction_first_offset: int) -> ProducerEntry:
    found = ProducerEntry(PRODUCER_ID)
    found.producer_epoch, found.transaction_first_offset = epoch, transaction_first_offset
    return found


# Which partitions are to be asked for


def test_partitions_that_the_transaction_has_not_written_to_are_asked_for_by_producer() -> None:
    world = World()
    plain, short = batch(transactional=False), batch()[: HEADER_SIZE - 1]
    topics = [
        ("t", [(0, batch()), (1, batch(OTHER)), (9, batch())]),
        ("u", [(0, batch())]),
        ("t", [(0, None), (0, plain), (0, short), (0, memoryview(b""))]),
    ]
    plan: Any = SimpleNamespace(topics=topics)
    assert unverified_partitions(world.context, plan) == {MINE: [T0, U0], OTHER: [T1]}
    world.forbidden.add("t")
    assert unverified_partitions(world.context, plan) == {MINE: [U0]}


@pytest.mark.parametrize(
    ("epoch", "first_offset", "asks"),
    [(EPOCH, 0, False), (EPOCH, 5, False), (EPOCH, -1, True), (EPOCH - 1, 5, True), (EPOCH + 1, 5, True)],
)
def test_a_transaction_that_has_written_is_not_asked_about_again(epoch: int, first_offset: int, asks: bool) -> None:
    world = World()
    world.partitions[T0].log.producers.entries[PRODUCER_ID] = entry(epoch, first_offset)
    plan: Any = SimpleNamespace(topics=[("t", [(0, batch())])])
    assert unverified_partitions(world.context, plan) == ({MINE: [T0]} if asks else {})


def test_a_header_that_is_just_whole_is_looked_at() -> None:
    plan: Any = SimpleNamespace(topics=[("t", [(0, batch()[:HEADER_SIZE])])])
    assert unverified_partitions(World().context, plan) == {MINE: [T0]}


@pytest.mark.parametrize(
    ("committed", "verifies", "waits"), [(True, True, False), (False, True, True), (False, False, False)]
)
def test_what_may_still_be_forgotten_is_waited_for(committed: bool, verifies: bool, waits: bool) -> None:
    world = World(verifies=verifies)
    world.committed = committed
    assert must_wait_for_coordinator(world.context, "tx") is waits


# Whether a batch may be appended


@pytest.mark.parametrize(
    ("noted", "may"), [({PRODUCER_ID: EPOCH}, True), ({}, False), ({PRODUCER_ID: EPOCH + 1}, False), ({8: 2}, False)]
)
def test_a_batch_is_appended_once_for_each_word_of_another_coordinator(noted: dict[int, int], may: bool) -> None:
    world = World()
    partition = world.partitions[T0]
    partition.verified_producers.update(noted)
    if may:
        check_in_transaction(world.context, "tx", partition, batch())
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            check_in_transaction(world.context, "tx", partition, batch())
        assert refused.value.code is E.INVALID_TXN_STATE
    assert PRODUCER_ID not in partition.verified_producers and world.asked == []


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (OLD, E.NONE, None),
        (OLD, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (OLD - 1, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
    ],
)
def test_the_coordinator_beside_it_is_asked_each_time(version: int, code: ErrorCode, told: ErrorCode | None) -> None:
    world = World(is_elsewhere=False, version=version)
    world.codes[T0] = code
    if told is None:
        check_in_transaction(world.context, "tx", world.partitions[T0], batch())
    else:
        with pytest.raises(KafkaError) as refused:
            check_in_transaction(world.context, "tx", world.partitions[T0], batch())
        assert refused.value.code is told
    assert world.asked == [("look", "tx", *MINE, [T0])]


def test_who_has_written_before_or_where_nothing_is_checked_nobody_is_asked() -> None:
    for world in (World(is_elsewhere=False, verifies=False), World(is_elsewhere=False)):
        world.codes[T0] = E.INVALID_TXN_STATE
        if world.context.broker.config.flag("transaction.partition.verification.enable"):
            world.partitions[T0].log.producers.entries[PRODUCER_ID] = entry(EPOCH, 0)
        check_in_transaction(world.context, "tx", world.partitions[T0], batch())
        assert world.asked == []


# What the coordinator is asked


@pytest.mark.parametrize(
    ("version", "told"),
    [(OLD, E.TRANSACTION_ABORTABLE), (OLD - 1, E.INVALID_TXN_STATE), (NEW, E.TRANSACTION_ABORTABLE)],
)
def test_each_partition_is_refused_by_itself(version: int, told: ErrorCode) -> None:
    world = World(version=version)
    world.codes[T1] = E.TRANSACTION_ABORTABLE
    gone = TopicPartition("gone", 0)
    refused = run_async(verify_partitions(world.context, "tx", {MINE: [T0, T1, gone], OTHER: [U0]}))
    assert refused == {T1: told}
    assert world.asked == [("verify", "tx", *MINE, [T0, T1, gone]), ("verify", "tx", *OTHER, [U0])]
    assert world.partitions[T0].verified_producers == {PRODUCER_ID: EPOCH}


def test_partitions_are_added_for_every_producer_of_the_request() -> None:
    elsewhere, here = World(version=NEW), World(version=NEW, is_elsewhere=False)
    for world in (elsewhere, here):
        assert run_async(add_partitions(world.context, "tx", {MINE: [T0, T1], OTHER: [U0]})) == {}
        assert world.partitions[U0].verified_producers == {OTHER[0]: OTHER[1]}
    assert elsewhere.asked == [("add", "tx", *MINE, [T0, T1]), ("add", "tx", *OTHER, [U0])]
    version_of_brokers = 5
    assert here.asked == [
        ("here", "tx", *MINE, [T0, T1], version_of_brokers, 1234),
        ("here", "tx", *OTHER, [U0], version_of_brokers, 1234),
    ]


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_one_partition_that_cannot_be_added_keeps_the_others_out(is_elsewhere: bool) -> None:
    world = World(version=NEW, is_elsewhere=is_elsewhere)
    world.codes[T1] = E.CONCURRENT_TRANSACTIONS
    world.answer = Answer(E.CONCURRENT_TRANSACTIONS, "wait")
    with pytest.raises(KafkaError) as refused:
        run_async(add_partitions(world.context, "tx", {MINE: [T0, T1]}))
    assert refused.value.code is E.CONCURRENT_TRANSACTIONS
    assert is_elsewhere or refused.value.message == "wait"
