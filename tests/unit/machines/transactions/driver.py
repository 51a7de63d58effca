"""Runs a TransactionShard as a broker would: records go through their bytes, replies and orders are collected."""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.machines.coordinator import CoordinatorRecord, Decision, ReplayContext, Reply, SetTimer
from ottla.machines.transactions.answers import Answer, SendMarkers
from ottla.machines.transactions.record_types import parse_record
from ottla.machines.transactions.shard import TransactionConfig, TransactionShard
from ottla.machines.transactions.states import State
from ottla.machines.transactions.transaction import Transaction
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.apis.end_txn import EndTxnRequest
from ottla.wire.apis.init_producer_id import InitProducerIdRequest

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
COORDINATOR_EPOCH = 7

P0, P1, P2 = (TopicPartition("orders", index) for index in range(3))
OFFSETS = TopicPartition("__consumer_offsets", 12)

OLD_END = 4
"""The newest version of EndTxn that leaves the epoch alone."""
NEW_END = 5


def replay(shard: TransactionShard, record: CoordinatorRecord, offset: int = 0) -> None:
    key, value = record.encode()
    parsed = parse_record(key, value)
    assert parsed is not None
    shard.replay(*parsed, ReplayContext(offset, -1, -1, 0))


class Coordinator:
    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.shard = TransactionShard(config or TransactionConfig(), COORDINATOR_EPOCH)
        self.now_ms = START_MS
        self.log: list[CoordinatorRecord] = []
        self.orders: list[SendMarkers] = []
        self.timers: dict[tuple[str, ...], int] = {}
        self.last_decision = Decision()
        self._next_producer_id = 1000

    # -- requests, each answered at once -------------------------------------------------------------------------

    def init(
        self, name: str = "t", producer: tuple[int, int] = (-1, -1), *, version: int = 5, timeout_ms: int = TIMEOUT_MS
    ) -> Answer:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        self._next_producer_id += 1
        return self._ask(
            lambda token: self.shard.init_producer_id(
                request, token, version=version, now_ms=self.now_ms, new_producer_id=self._next_producer_id
            )
        )

    def add(self, producer: tuple[int, int], *partitions: TopicPartition, name: str = "t", version: int = 3) -> Answer:
        return self._ask(
            lambda token: self.shard.add_partitions(
                name, *producer, partitions, token, version=version, now_ms=self.now_ms
            )
        )

    def add_offsets(self, producer: tuple[int, int], *, name: str = "t", version: int = 3) -> Answer:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id="g"
        )
        return self._ask(
            lambda token: self.shard.add_offsets(request, OFFSETS, token, version=version, now_ms=self.now_ms)
        )

    def end(
        self,
        producer: tuple[int, int],
        *,
        commit: bool,
        name: str = "t",
        version: int = OLD_END,
        offer_producer_id: bool = True,
    ) -> Answer:
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        self._next_producer_id += 1
        return self._ask(
            lambda token: self.shard.end_transaction(
                request,
                token,
                version=version,
                now_ms=self.now_ms,
                new_producer_id=self._next_producer_id if offer_producer_id else None,
            )
        )

    def verify(self, producer: tuple[int, int], partition: TopicPartition = P0, name: str = "t") -> ErrorCode:
        return self.shard.verify_partitions(name, *producer, [partition])[partition]

    def _ask(self, decide: Callable[[object], Decision]) -> Answer:
        token = object()
        replies = self.run(decide(token))
        assert [reply.token for reply in replies] == [token], "every request is answered exactly once"
        answer = replies[0].response
        assert isinstance(answer, Answer)
        return answer

    # -- the broker's part ---------------------------------------------------------------------------------------

    def run(self, decision: Decision) -> list[Reply]:
        """Appends, replays and performs; returns the replies."""
        self.last_decision = decision
        for record in decision.records:
            self.log.append(record)
            replay(self.shard, record, len(self.log))
        self.orders += [effect for effect in decision.effects if isinstance(effect, SendMarkers)]
        self.timers |= {timer.key: timer.delay_ms for timer in decision.timers if isinstance(timer, SetTimer)}
        return [effect for effect in decision.effects if isinstance(effect, Reply)]

    def write_markers(self) -> SendMarkers:
        """Carries out the oldest order."""
        order = self.orders.pop(0)
        self.report(order)
        return order

    def report(self, order: SendMarkers) -> None:
        self.run(
            self.shard.markers_written(
                order.transactional_id,
                order.producer_id,
                order.producer_epoch,
                now_ms=self.now_ms,
                order=order.order,
            )
        )

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    # -- looks ---------------------------------------------------------------------------------------------------

    def transaction(self, name: str = "t") -> Transaction:
        return self.shard.transactions[name]

    def state(self, name: str = "t") -> State:
        return self.transaction(name).state

    def producer(self, name: str = "t") -> tuple[int, int]:
        return self.transaction(name).producer

    # -- ways to get somewhere -----------------------------------------------------------------------------------

    def begin(self, *partitions: TopicPartition, name: str = "t") -> tuple[int, int]:
        """A new producer with an open transaction."""
        producer = granted_to(self.init(name))
        assert self.add(producer, *(partitions or (P0, P1)), name=name).error_code is ErrorCode.NONE
        return producer

    def put(self, transaction: Transaction) -> None:
        """As if the log had said so."""
        self.log.append(transaction.record())
        replay(self.shard, transaction.record())


def granted_to(answer: Answer) -> tuple[int, int]:
    assert answer.error_code is ErrorCode.NONE, answer
    return answer.producer_id, answer.producer_epoch


def reloaded(log: list[CoordinatorRecord], config: TransactionConfig | None = None) -> TransactionShard:
    shard = TransactionShard(config or TransactionConfig(), COORDINATOR_EPOCH + 1)
    for record in log:
        replay(shard, record)
    return shard
