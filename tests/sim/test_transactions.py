"""The transactional writer of a simulated cluster: what it writes, when it gives up, and its verdict."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.records.batch import read_header
from ottla.records.builder import build_batch
from ottla.records.control import end_transaction_marker
from ottla.records.reader import read_records
from ottla.testing.sim.transactions import SimTransactions
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.metadata import MetadataRequest
from ottla.wire.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.message import Request
from tests.sim.answering import AnsweringCluster, Told, coordinator, for_a_while, in_turn, metadata

ONE, TWO, OTHER = TopicPartition("safe", 0), TopicPartition("safe", 1), TopicPartition("lax", 0)
PARTITIONS = [ONE, TWO, OTHER]
NONE = ErrorCode.NONE
PRODUCER_ID = 40
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


class World:
    """A writer to three partitions, and a cluster whose answers are in order, unless the test has others in turn."""

    def __init__(self, **codes: list[ErrorCode | None]) -> None:
        """`codes` by "init", "add", "write" and "end"; None is no answer. Afterwards all is well."""
        self._codes = codes
        self.asked: list[str] = []
        self.epoch = 0
        self.logs: dict[TopicPartition, list[bytes]] = {tp: [] for tp in PARTITIONS}
        self.told = Told()
        self.told.checks.committed_batches = lambda tp: iter(self.logs[tp])
        self.cluster = AnsweringCluster(
            {
                MetadataRequest: metadata(Uuid(bytes(16)), lambda: [(1, 0), (1, 0)]),
                FindCoordinatorRequest: coordinator(in_turn((NONE, "broker-2"))),
                InitProducerIdRequest: self._init,
                AddPartitionsToTxnRequest: self._add,
                ProduceRequest: self._write,
                EndTxnRequest: self._end,
            }
        )
        self.writer = SimTransactions("t", self.cluster.names, Random(8), self.told.checks, PARTITIONS)

    def run(self, seconds: float = 10.0) -> None:
        self.cluster.run(self.writer.party, lambda: for_a_while(self.writer.run(), seconds))

    def count(self, request: type[Request]) -> int:
        return len(self.cluster.asked(request))

    def _next(self, what: str) -> ErrorCode | None:
        self.asked.append(what)
        left = self._codes.get(what, [])
        return left.pop(0) if left else NONE

    def _init(self, name: str, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
        assert (name, request.transactional_id, request.transaction_timeout_ms) == ("broker-2", "t", 5_000)
        code = self._next("init")
        self.epoch += 1
        self.logs_end(is_commit=False)
        return (
            code
            if code is None
            else InitProducerIdResponse(error_code=code, producer_id=PRODUCER_ID, producer_epoch=self.epoch)
        )

    def _add(self, name: str, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | None:
        assert (name, request.v3_and_below_transactional_id) == ("broker-2", "t")
        assert (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == (PRODUCER_ID, self.epoch)
        topics = {topic.name: topic.partitions for topic in request.v3_and_below_topics}
        assert topics == {"safe": [0, 1], "lax": [0]}
        code = self._next("add")
        if code is None:
            return None
        results = [
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    # Any of them may be the one that is refused.
                    AddPartitionsToTxnPartitionResult(
                        partition_index=n, partition_error_code=code if (name, n) == ("safe", 1) else NONE
                    )
                    for n in numbers
                ],
            )
            for name, numbers in topics.items()
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _write(self, name: str, request: ProduceRequest) -> ProduceResponse | None:
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        assert (name, request.transactional_id, request.acks) == ("broker-1", "t", -1)
        code = self._next("write")
        data = bytes(partition.records)
        if code == NONE:
            self.logs[TopicPartition(topic.name, partition.index)].append(data)
        if code is None:
            return None
        answer = PartitionProduceResponse(index=partition.index, error_code=code)
        return ProduceResponse(responses=[TopicProduceResponse(name=topic.name, partition_responses=[answer])])

    def _end(self, name: str, request: EndTxnRequest) -> EndTxnResponse | None:
        assert (name, request.transactional_id) == ("broker-2", "t")
        assert (request.producer_id, request.producer_epoch) == (PRODUCER_ID, self.epoch)
        code = self._next("end")
        if code == NONE:
            self.logs_end(is_commit=request.committed)
        return None if code is None else EndTxnResponse(error_code=code)

    def logs_end(self, *, is_commit: bool) -> None:
        for log in self.logs.values():
            log.append(marker(is_commit, epoch=self.epoch))


def marker(is_commit: bool, *, producer_id: int = PRODUCER_ID, epoch: int = 1) -> bytes:
    return end_transaction_marker(producer_id, epoch, is_commit, 0, 1)


def record(number: int, *, producer_id: int = PRODUCER_ID, transactional: bool = True) -> bytes:
    return build_batch(
        [(b"t", b"%d" % number, (), 1)],
        producer_id=producer_id,
        producer_epoch=1,
        base_sequence=0,
        transactional=transactional,
    )


def written(log: list[bytes]) -> Iterator[tuple[int, int, int, Any]]:
    for data in log:
        header = read_header(data)
        if not header.is_control:
            (found,) = read_records(data)
            assert header.is_transactional and header.producer_id == PRODUCER_ID
            assert (found.key, found.timestamp) == (b"t", 1_700_000_000_000)
            yield header.producer_epoch, header.base_sequence, int(found.value or b""), found


def test_transactions_follow_each_other_and_most_are_committed() -> None:
    world = World()
    world.run(30)
    done = world.writer.done_so_far
    assert 100 < done < 350 and world.asked[:6] == ["init", "add", "write", "write", "write", "end"]
    assert world.count(InitProducerIdRequest) == world.count(FindCoordinatorRequest) == 1
    assert {(r.key_type, *r.coordinator_keys) for _, r in world.cluster.asked(FindCoordinatorRequest)} == {(1, "t")}
    for log in world.logs.values():
        assert [each[:3] for each in written(log)][:done] == [(1, number, number) for number in range(done)]
    ends = [request.committed for _, request in world.cluster.asked(EndTxnRequest)]
    assert len(ends) - done in (0, 1) and 0.6 < sum(ends) / len(ends) < 0.8
    assert {
        version
        for request, version, _ in world.cluster.brokers["broker-2"].asked
        if isinstance(request, EndTxnRequest | AddPartitionsToTxnRequest)
    } == {3}
    assert world.writer.what_is_wrong() is None


@pytest.mark.parametrize("what", ["add", "end"])
def test_a_coordinator_that_is_not_ready_is_asked_again(what: str) -> None:
    world = World(**{what: [BUSY] * 19})
    world.run(3.5)
    assert world.asked[:20].count(what) >= 15 and world.count(InitProducerIdRequest) == 1
    assert world.writer.done_so_far > 3 and world.writer.what_is_wrong() is None


@pytest.mark.parametrize("what", ["add", "end"])
def test_a_coordinator_that_is_never_ready_is_given_up(what: str) -> None:
    world = World(**{what: [BUSY] * 20})
    world.run(6)
    second = world.asked.index("init", 1)
    assert world.asked[:second].count(what) == 20
    assert world.count(FindCoordinatorRequest) == world.count(InitProducerIdRequest) == 2
    assert world.writer.done_so_far > 3 and world.writer.what_is_wrong() is None


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.NOT_COORDINATOR, FENCED, None])
@pytest.mark.parametrize("what", ["init", "add", "end"])
def test_at_the_first_sign_of_trouble_there_is_a_new_epoch(what: str, code: ErrorCode | None) -> None:
    world = World(**{what: [code]})
    world.run(6)
    assert world.asked.index("init", 1) == world.asked.index(what) + 1
    assert world.count(InitProducerIdRequest) == 2
    assert world.count(FindCoordinatorRequest) == 2, "it may have moved"
    last = list(written(world.logs[TWO]))
    assert (last[-1][0], last[0][1]) == (2, 0)
    assert [each[1] for each in last if each[0] == 2] == list(range(sum(each[0] == 2 for each in last)))
    assert world.writer.done_so_far > 3 and world.writer.what_is_wrong() is None


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, None])
def test_a_record_is_written_in_up_to_ten_tries(code: ErrorCode | None) -> None:
    world = World(write=[NONE, *[code] * 9])
    world.run(25)
    assert world.asked[:14] == ["init", "add", *["write"] * 12]
    assert world.count(InitProducerIdRequest) == 1
    assert world.count(MetadataRequest) == 11, "each time it asks who leads"
    assert world.writer.done_so_far > 3


def test_after_ten_tries_it_gives_up() -> None:
    world = World(write=[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10)
    world.run(6)
    assert world.asked[:13] == ["init", "add", *["write"] * 10, "init"]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE, FENCED])
def test_a_writer_that_was_fenced_gives_up_at_once(code: ErrorCode) -> None:
    world = World(write=[NONE, code])
    world.run(6)
    assert world.asked[:5] == ["init", "add", "write", "write", "init"]
    assert [number for *_, number, _ in written(world.logs[ONE])][:2] == [0, 1]
    assert world.writer.what_is_wrong() is None


@pytest.mark.parametrize(
    "lost", [TopicPartition("__transaction_state", 0), ONE, TWO, OTHER], ids=lambda tp: f"{tp.topic}-{tp.partition}"
)
def test_where_records_may_be_lost_nothing_is_asked(lost: TopicPartition) -> None:
    world = World()
    world.told.checks.excused.add(TopicPartition("elsewhere", 0))
    assert not world.writer.is_excused
    world.run(1)
    world.logs[ONE].clear()
    assert world.writer.what_is_wrong() is not None
    world.told.checks.excused.add(lost)
    assert world.writer.is_excused and world.writer.what_is_wrong() is None


# The verdict


def first_committed(world: World) -> int:
    ends = [request.committed for _, request in world.cluster.asked(EndTxnRequest)]
    return ends.index(True)


def without(log: list[bytes], number: int) -> list[bytes]:
    gone = b"%d" % number
    return [
        data
        for data in log
        if read_header(data).is_control or [record.value for record in read_records(data)] != [gone]
    ]


def test_a_committed_transaction_is_in_all_its_partitions() -> None:
    world = World()
    world.run(2)
    number = first_committed(world)
    world.logs[TWO] = without(world.logs[TWO], number)
    assert world.writer.what_is_wrong() == f"transaction {number} was committed, and is in {sorted([ONE, OTHER])} only"
    for tp in PARTITIONS:
        world.logs[tp] = without(world.logs[tp], number)
    assert world.writer.what_is_wrong() == f"transaction {number} was committed, and is in [] only"


def test_a_transaction_that_was_aborted_is_nowhere() -> None:
    world = World()
    world.run(3)
    ends = [request.committed for _, request in world.cluster.asked(EndTxnRequest)]
    number = ends.index(False)
    world.logs[TWO] += [record(number), marker(True)]
    assert world.writer.what_is_wrong() == f"transaction {number} was never committed, and is in [{TWO!r}]"
    world.logs[ONE] += [record(number), marker(True)]
    world.logs[OTHER] += [record(number), marker(True)]
    told = world.writer.what_is_wrong()
    assert told == f"transaction {number} was never committed, and is in {sorted(PARTITIONS)}"


def one_end_unknown() -> tuple[World, int]:
    """A writer that has heard nothing of the end of a transaction it wanted committed."""
    world = World()
    ends = world.cluster.brokers["broker-2"].answers[EndTxnRequest.API_KEY][1]
    lost: list[int] = []

    def end(name: str, request: EndTxnRequest) -> EndTxnResponse | None:
        answer = ends(name, request)
        if request.committed and not lost:
            lost.append(len(world.cluster.asked(EndTxnRequest)) - 1)
            return None
        return answer  # type: ignore[return-value]

    world.cluster.answer(EndTxnRequest, end)
    world.run(6)
    return world, lost[0]


def test_a_transaction_whose_end_is_unknown_may_be_committed_but_not_in_part() -> None:
    world, number = one_end_unknown()
    assert world.writer.what_is_wrong() is None
    world.logs[TWO] = without(world.logs[TWO], number)
    assert world.writer.what_is_wrong() == f"transaction {number} is in {sorted([ONE, OTHER])} only"
    for tp in PARTITIONS:
        world.logs[tp] = without(world.logs[tp], number)
    assert world.writer.what_is_wrong() is None, "or not at all"


@pytest.mark.parametrize(
    ("log", "is_there"),
    [
        ([record(0), marker(True)], True),
        ([record(0), record(7), marker(True)], True),
        ([record(0), marker(False), record(1), marker(True)], False),
        ([record(0), marker(False), marker(True)], False),
        ([record(0)], False),
        ([record(0), marker(True, producer_id=41)], False),
        ([record(0, producer_id=41), marker(True)], False),
        ([record(0, transactional=False), marker(True)], False),
        ([record(1, producer_id=41), record(0), marker(False, producer_id=41), marker(True)], True),
        ([record(0), marker(True), record(1), marker(False)], True),
    ],
)
def test_a_record_counts_once_its_own_transaction_was_committed(log: list[bytes], is_there: bool) -> None:
    world = World()
    world.run(0.3)
    (committed, *_) = [request.committed for _, request in world.cluster.asked(EndTxnRequest)]
    assert committed, "as it was drawn"
    world.logs[ONE] = log
    told = world.writer.what_is_wrong() or ""
    assert ("transaction 0 was committed" not in told) is is_there
