"""A transactional writer in a simulated cluster, and what must be true of its transactions: all of one, or nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.machines.cluster.topic_names import TRANSACTION_STATE_TOPIC
from ottla.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, read_header
from ottla.records.builder import build_batch
from ottla.records.control import ControlType, parse_control_key
from ottla.records.reader import read_records
from ottla.testing.sim.checks import Checks
from ottla.testing.sim.clients import SimClient, write
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_TRANSACTION = 1
_TIMEOUT_MS = 5_000
_ADD_PARTITIONS_VERSION = 3


@dataclass(slots=True)
class _Attempt:
    """One transaction, by its number."""

    written: set[TopicPartition] = field(default_factory=set)
    """Partitions that have acknowledged its record."""
    was_asked_to_commit: bool = False
    is_known_committed: bool = False


class _GivenUpError(Exception):
    """The transaction is over for this producer: another epoch begins."""


class SimTransactions(SimClient):
    """Writes one record to each of its partitions in a transaction, and commits or aborts it; at the first sign of
    trouble it takes a new epoch, which ends what is open."""

    def __init__(
        self, name: str, brokers: list[str], draw: Random, checks: Checks, partitions: Iterable[TopicPartition]
    ) -> None:
        super().__init__(name, brokers, draw)
        self._checks = checks
        self._partitions = list(partitions)
        self._coordinator: str | None = None
        self._producer: tuple[int, int] = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        self._sequences: dict[TopicPartition, int] = {}
        self._attempts: list[_Attempt] = []

    @property
    def is_excused(self) -> bool:
        return any(tp.topic == TRANSACTION_STATE_TOPIC or tp in self._partitions for tp in self._checks.excused)

    async def run(self) -> None:
        while True:
            try:
                await self._new_epoch()
                while True:
                    await self._one_transaction()
                    await self.pause()
            except (KafkaError, _GivenUpError):
                self._coordinator = None
                await self.pause()

    async def _find(self) -> str:
        if self._coordinator is None:
            self._coordinator = await self.find_coordinator(_TRANSACTION)
        return self._coordinator

    async def _new_epoch(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.party.name, transaction_timeout_ms=_TIMEOUT_MS)
        response = await self.ask(await self._find(), request, InitProducerIdResponse)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(code=ErrorCode(response.error_code))
        self._producer = response.producer_id, response.producer_epoch
        self._sequences = dict.fromkeys(self._partitions, 0)

    async def _one_transaction(self) -> None:
        attempt = _Attempt()
        self._attempts.append(attempt)
        number = len(self._attempts) - 1
        await self._until_done(self._add_partitions)
        for tp in self._partitions:
            await self._write(tp, number)
            attempt.written.add(tp)
        is_commit = self.draw.random() < 0.7
        attempt.was_asked_to_commit = is_commit
        await self._until_done(lambda: self._end(is_commit))
        attempt.is_known_committed = is_commit
        self.done_so_far += 1

    async def _until_done(self, ask: Callable[[], Awaitable[int]]) -> None:
        """Repeats what the coordinator is not ready for."""
        for _ in range(20):
            code = await ask()
            if code == ErrorCode.NONE:
                return
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                raise _GivenUpError
            await self.pause()
        raise _GivenUpError

    async def _add_partitions(self) -> int:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for tp in self._partitions:
            topics.setdefault(tp.topic, AddPartitionsToTxnTopic(name=tp.topic)).partitions.append(tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.party.name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=list(topics.values()),
        )
        response = await self.ask(
            await self._find(), request, AddPartitionsToTxnResponse, version=_ADD_PARTITIONS_VERSION
        )
        codes = [
            result.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]
        return next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)

    async def _write(self, tp: TopicPartition, number: int) -> None:
        producer_id, epoch = self._producer
        batch = build_batch(
            [(b"t", b"%d" % number, (), 1_700_000_000_000)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences[tp],
            transactional=True,
        )
        for _ in range(10):
            try:
                code, _ = await write(self, tp, batch, -1, transactional_id=self.party.name)
            except KafkaError as e:
                code = e.code
            if code == ErrorCode.NONE:
                self._sequences[tp] += 1
                return
            if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED):
                break
            self.forget_leader(tp)
            await self.pause()
        raise _GivenUpError

    async def _end(self, is_commit: bool) -> int:
        request = EndTxnRequest(
            transactional_id=self.party.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=is_commit,
        )
        return (await self.ask(await self._find(), request, EndTxnResponse, version=3)).error_code

    # The verdict

    def what_is_wrong(self) -> str | None:
        """Of all transactions so far; markers that are still on their way make them look wrong for a while."""
        if self.is_excused:
            return None
        committed = {tp: self._committed_in(tp) for tp in self._partitions}
        for number, attempt in enumerate(self._attempts):
            found = {tp for tp in self._partitions if number in committed[tp]}
            if attempt.is_known_committed and found != set(self._partitions):
                return f"transaction {number} was committed, and is in {sorted(found)} only"
            if found and not attempt.was_asked_to_commit:
                return f"transaction {number} was never committed, and is in {sorted(found)}"
            if found not in (set(), set(self._partitions)):
                return f"transaction {number} is in {sorted(found)} only"
        return None

    def _committed_in(self, tp: TopicPartition) -> set[int]:
        committed: set[int] = set()
        is_open: set[int] = set()
        for batch in self._checks.committed_batches(tp):
            header = read_header(batch)
            if header.producer_id != self._producer[0] or not header.is_transactional:
                continue
            records = read_records(batch)
            if not header.is_control:
                is_open |= {int(record.value or b"") for record in records}
                continue
            if parse_control_key(records[0].key) is ControlType.COMMIT:
                committed |= is_open
            is_open.clear()
        return committed
