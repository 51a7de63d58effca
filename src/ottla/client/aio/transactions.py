"""The requests of a producer's transactions: to the coordinator of the transactional id, and to those of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.client.aio.cluster_link import GROUP, TRANSACTION
from ottla.client.aio.producer_engine import ProducerEngine
from ottla.client.core.cursors import OffsetAndMetadata
from ottla.client.core.offset_requests import Membership, offsets_to_commit
from ottla.client.core.producer_transaction import (
    ALLOWED,
    PreparedTransaction,
    ProducerTransaction,
    TransactionState,
)
from ottla.client.core.settings import backoff_ms
from ottla.client.errors import ClientError, ProducerFencedError, client_error
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.wire.message import Request, Response

R = TypeVar("R", bound=Response)

# Newer versions bump the epoch with every transaction and add partitions unasked (KIP-890): only in clusters where that
# feature is switched on. The older ones work everywhere.
_MAX_ADD_PARTITIONS_VERSION = 3
_MAX_ADD_OFFSETS_VERSION = 3
_MAX_END_VERSION = 4
_MAX_OFFSET_COMMIT_VERSION = 4

_LOOK_AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]


class Transactions:
    """For a producer with a transactional id. Every method is for the thread of the event loop."""

    def __init__(self, engine: ProducerEngine, transaction: ProducerTransaction) -> None:
        transactional_id = engine.settings.transactional_id
        assert transactional_id is not None
        self._engine = engine
        self._transaction = transaction
        self._id = transactional_id
        self._coordinators: dict[tuple[str, int], int] = {}
        self._adding = False
        engine.on_pump = self.add_partitions_soon

    @property
    def is_initialized(self) -> bool:
        return self._transaction.state is not TransactionState.UNINITIALIZED

    @property
    def can_abort(self) -> bool:
        return TransactionState.ABORTING in ALLOWED[self._transaction.state]

    # The user's calls

    async def init(self) -> None:
        # Before the coordinator is asked: it would give a new epoch, and shut out what this producer has in flight.
        self._transaction.check_initializing()
        await self._init_producer(-1, -1)
        with self._engine.lock:
            self._transaction.initialized()

    def begin(self) -> None:
        with self._engine.lock:
            self._transaction.begin()

    async def prepare(self) -> PreparedTransaction:
        """Everything is stored, and nothing more will be: the transaction only has to be ended, by whomever."""
        self._transaction.check_sending("prepare_transaction")
        with self._engine.lock:
            self._engine.accumulator.close_open()
        await self._engine.flush()
        with self._engine.lock:
            self._transaction.prepare()
        sender = self._engine.sender
        return PreparedTransaction(self._id, sender.producer_id, sender.producer_epoch)

    async def commit(self) -> None:
        with self._engine.lock:
            self._transaction.start_commit()
            self._engine.accumulator.close_open()
        await self._engine.flush()
        self._raise_error()
        await self._end(committed=True)

    async def abort(self) -> None:
        with self._engine.lock:
            self._transaction.start_abort()
            self._engine.accumulator.close_open()
        self._engine.give_up_records()
        await self._engine.flush()
        await self._end(committed=False)

    async def send_offsets(self, offsets: Offsets, group: Membership | str) -> None:
        """Positions of a group become part of the transaction; stale generations are refused (KIP-447)."""
        self._transaction.check_sending("send_offsets")
        membership = Membership(group) if isinstance(group, str) else group
        commits = offsets_to_commit(offsets)
        if not commits:
            return
        sender = self._engine.sender
        add = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=sender.producer_id,
            producer_epoch=sender.producer_epoch,
            group_id=membership.group_id,
        )
        await self._ask(
            (self._id, TRANSACTION), add, AddOffsetsToTxnResponse, _error_code, max_version=_MAX_ADD_OFFSETS_VERSION
        )
        self._transaction.has_offsets = True
        commit = _offset_commit(self._id, sender.producer_id, sender.producer_epoch, membership, commits)
        await self._ask(
            (membership.group_id, GROUP),
            commit,
            TxnOffsetCommitResponse,
            _first_offset_error,
            max_version=_MAX_OFFSET_COMMIT_VERSION,
        )

    # Requests

    async def _init_producer(self, producer_id: int, producer_epoch: int) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._engine.settings.transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        response = await self._ask((self._id, TRANSACTION), request, InitProducerIdResponse, _error_code)
        with self._engine.lock:
            self._engine.sender.set_producer(response.producer_id, response.producer_epoch)

    async def _end(self, *, committed: bool) -> None:
        sender = self._engine.sender
        if self._transaction.has_begun_at_coordinator:
            request = EndTxnRequest(
                transactional_id=self._id,
                producer_id=sender.producer_id,
                producer_epoch=sender.producer_epoch,
                committed=committed,
            )
            await self._ask((self._id, TRANSACTION), request, EndTxnResponse, _error_code, max_version=_MAX_END_VERSION)
        if not committed and self._transaction.needs_new_epoch:
            await self._init_producer(sender.producer_id, sender.producer_epoch)
        with self._engine.lock:
            self._transaction.ended()
            sender.giving_up = None

    def add_partitions_soon(self) -> None:
        if self._transaction.pending and not self._adding:
            self._adding = True
            self._engine.spawn(self._add_partitions())

    async def _add_partitions(self) -> None:
        sender = self._engine.sender
        with self._engine.lock:
            wanted = set(self._transaction.pending)
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, partition in sorted(wanted):
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=sender.producer_id,
            v3_and_below_producer_epoch=sender.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )
        try:
            await self._ask(
                (self._id, TRANSACTION),
                request,
                AddPartitionsToTxnResponse,
                _first_partition_error,
                max_version=_MAX_ADD_PARTITIONS_VERSION,
            )
        except ClientError:
            return  # the transaction has failed, and says so to whoever uses it next
        finally:
            self._adding = False
        with self._engine.lock:
            self._transaction.added(wanted)
        self._engine.wake()

    async def _ask(
        self,
        coordinator: tuple[str, int],
        request: Request,
        response_class: type[R],
        error_of: Callable[[R], tuple[int, str]],
        *,
        max_version: int | None = None,
    ) -> R:
        """Asks a coordinator until it answers for good; an error that is not passing is the transaction's too."""

        async def attempt() -> R:
            node_id = self._coordinators.get(coordinator)
            if node_id is None:
                node_id = self._coordinators[coordinator] = await self._engine.link.find_coordinator(*coordinator)
            response = await self._engine.link.request(node_id, request, response_class, max_version=max_version)
            code, where = error_of(response)
            if code:
                raise _judged(code, where)
            return response

        try:
            return await self._retry(attempt, coordinator)
        except ClientError as e:
            with self._engine.lock:
                self._transaction.fail(e)
            self._engine.give_up_records()
            raise

    async def _retry(self, attempt: Callable[[], Awaitable[R]], coordinator: tuple[str, int]) -> R:
        client = self._engine.settings.client
        deadline_ms = self._engine.clock.monotonic_ms() + self._engine.settings.max_block_ms
        tries = 0
        while True:
            tries += 1
            try:
                return await attempt()
            except KafkaError as e:
                if e.code in _LOOK_AGAIN:
                    self._coordinators.pop(coordinator, None)
                    self._engine.metadata.request_update()
                    self._engine.wake()
                pause_ms = backoff_ms(tries, client.retry_backoff_ms, client.retry_backoff_max_ms)
                if not e.retriable or self._engine.clock.monotonic_ms() + pause_ms > deadline_ms:
                    raise e if isinstance(e, ClientError) else client_error(e.code, e.message) from e
            await asyncio.sleep(pause_ms / 1000)

    def _raise_error(self) -> None:
        if self._transaction.state in (TransactionState.ABORTABLE_ERROR, TransactionState.FATAL_ERROR):
            self._transaction.check_sending("commit_transaction")


def _judged(code: int, where: str) -> ClientError:
    if code in _FENCED:
        return ProducerFencedError(
            "another producer uses this transactional id, or the transaction took longer than "
            "transaction.timeout.ms; close this producer"
        )
    if code == ErrorCode.INVALID_TXN_STATE:
        return ClientError(code=ErrorCode.INVALID_TXN_STATE, fatal=True)
    return client_error(code, where=where, requires_abort=True)


def _error_code(response: InitProducerIdResponse | EndTxnResponse | AddOffsetsToTxnResponse) -> tuple[int, str]:
    return response.error_code, ""


def _first_partition_error(response: AddPartitionsToTxnResponse) -> tuple[int, str]:
    found = (0, "")
    for topic in response.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            code = partition.partition_error_code
            # Partitions that were fine are answered as "not attempted" when another one was not.
            if code and (not found[0] or found[0] == ErrorCode.OPERATION_NOT_ATTEMPTED):
                found = (code, f"{topic.name}-{partition.partition_index}")
    return found


def _first_offset_error(response: TxnOffsetCommitResponse) -> tuple[int, str]:
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                return partition.error_code, f"offset of {topic.name}-{partition.partition_index}"
    return 0, ""


def _offset_commit(
    transactional_id: str, producer_id: int, producer_epoch: int, membership: Membership, offsets: Offsets
) -> TxnOffsetCommitRequest:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (topic, partition), given in sorted(offsets.items()):
        position = OffsetAndMetadata(given) if isinstance(given, int) else given
        topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic)).partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=position.offset,
                committed_leader_epoch=-1 if position.leader_epoch is None else position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=membership.group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        generation_id=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        topics=list(topics.values()),
    )
