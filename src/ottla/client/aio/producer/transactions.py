"""The requests of a producer's transactions: to the coordinator of the transactional id, and to those of groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.aio.cluster_link import GROUP, TRANSACTION
from ottla.client.aio.producer.engine import ProducerEngine
from ottla.client.core.consumer.offset_requests import Membership, offsets_to_commit
from ottla.client.core.producer.transaction import (
    ALLOWED,
    PreparedTransaction,
    ProducerTransaction,
    TransactionState,
)
from ottla.client.core.producer.transaction_messages import (
    Offsets,
    first_offset_error,
    first_partition_error,
    judged,
    offset_commit,
    overall_error,
)
from ottla.client.core.settings import backoff_ms
from ottla.client.errors import ClientError, client_error
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.apis.txn_offset_commit import TxnOffsetCommitResponse
from ottla.wire.message import Request, Response

R = TypeVar("R", bound=Response)

log = logging.getLogger(__name__)

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
    }
)
_ABORTABLE_COMMIT = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID})
"""Answers to a commit that say that it has not taken place."""


class Transactions:
    """For a producer with a transactional id. Every method is for the thread of the event loop.

    A call of the user's takes up to `max.block.ms`. One that is broken off, then or because nobody waits for it any
    more, leaves a state from which the same call leads on.
    """

    def __init__(self, engine: ProducerEngine, transaction: ProducerTransaction) -> None:
        transactional_id = engine.settings.transactional_id
        assert transactional_id is not None
        self._engine = engine
        self._transaction = transaction
        self._id = transactional_id
        self._coordinators: dict[tuple[str, int], int] = {}
        self._ending = asyncio.Lock()
        """Held while a commit or an abort is at work."""
        self._added = asyncio.Event()
        """Unset while the coordinator is told of partitions."""
        self._added.set()
        self._unsure_group: str | None = None
        """A group of which the coordinator may or may not know that its offsets take part."""
        self._trouble: KafkaError | None = None
        """The last error that was worth another try."""
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
        try:
            async with self._engine.limit(self._engine.settings.max_block_ms):
                await self._init_producer(-1, -1)
        except TimeoutError:
            raise self._too_late("init_transactions", "call it again") from None
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
        try:
            async with self._ending, self._engine.limit(self._engine.settings.max_block_ms):
                await self._engine.flush()
                self._raise_error()
                await self._end(committed=True)
        except TimeoutError:
            self._broken_off()
            if self.can_abort:
                raise self._too_late("commit_transaction", "nothing was committed") from None
            raise self._too_late(
                "commit_transaction",
                "the transaction may be committed or not: commit_transaction() has to be called again to find out, "
                "and what was sent must not be sent anew",
            ) from None
        except BaseException:
            self._broken_off()
            raise

    async def abort(self) -> None:
        with self._engine.lock:
            self._transaction.start_abort()
            self._engine.accumulator.close_open()
        self._engine.give_up_records()
        try:
            async with self._ending, self._engine.limit(self._engine.settings.max_block_ms):
                await self._engine.flush()
                await self._end(committed=False)
        except TimeoutError:
            self._broken_off()
            raise self._too_late("abort_transaction", "call it again") from None
        except BaseException:
            self._broken_off()
            raise

    async def close(self) -> None:
        """Ends what is open, for readers would wait for it until it times out. One that is prepared is left alone."""
        async with self._ending:
            pass
        try:
            if self._transaction.state is TransactionState.COMMIT_UNSURE:
                await self.commit()
            elif self.can_abort and self._transaction.state is not TransactionState.PREPARED:
                await self.abort()
        except ClientError as e:
            log.warning("the open transaction of %s could not be ended: %s", self._id, e)

    async def send_offsets(self, offsets: Offsets, group: Membership | str) -> None:
        """Positions of a group become part of the transaction; stale generations are refused (KIP-447)."""
        self._transaction.check_sending("send_offsets")
        membership = Membership(group) if isinstance(group, str) else group
        commits = offsets_to_commit(offsets)
        if not commits:
            return
        sender = self._engine.sender
        commit = offset_commit(self._id, sender.producer_id, sender.producer_epoch, membership, commits)
        try:
            async with self._engine.limit(self._engine.settings.max_block_ms):
                await self._add_group(membership.group_id)
                await self._ask(
                    (membership.group_id, GROUP),
                    commit,
                    TxnOffsetCommitResponse,
                    first_offset_error,
                    max_version=_MAX_OFFSET_COMMIT_VERSION,
                )
        except ClientError as e:
            self._fail(e)
            raise
        except TimeoutError:
            error = self._too_late("send_offsets", "abort the transaction")
            self._fail(error)
            raise error from None
        except BaseException:
            self._fail(
                ClientError(
                    "send_offsets() was broken off, and the offsets may be part of the transaction or not: abort it",
                    code=ErrorCode.TRANSACTION_ABORTABLE,
                )
            )
            raise

    # What becomes of the transaction

    def _broken_off(self) -> None:
        with self._engine.lock:
            self._transaction.broken_off()

    def _fail(self, error: ClientError) -> None:
        error.requires_abort = not error.fatal
        with self._engine.lock:
            self._transaction.fail(error)
        self._engine.give_up_records()

    def _fail_for_good(self, error: ClientError) -> None:
        error.fatal = True
        self._fail(error)

    def _too_late(self, call: str, advice: str) -> ClientError:
        trouble = self._engine.why_waiting() if self._trouble is None else str(self._trouble)
        reason = f" ({trouble})" if trouble else ""
        return ClientError(
            f"{call}() was not done within max.block.ms, {self._engine.settings.max_block_ms} ms{reason}; {advice}",
            code=ErrorCode.REQUEST_TIMED_OUT,
        )

    def _raise_error(self) -> None:
        if self._transaction.state in (TransactionState.ABORTABLE_ERROR, TransactionState.FATAL_ERROR):
            self._transaction.check_sending("commit_transaction")

    # Requests

    async def _init_producer(self, producer_id: int, producer_epoch: int) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._engine.settings.transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        try:
            response = await self._ask((self._id, TRANSACTION), request, InitProducerIdResponse, overall_error)
        except ClientError as e:
            self._fail_for_good(e)
            raise
        with self._engine.lock:
            self._engine.sender.set_producer(response.producer_id, response.producer_epoch)

    async def _end(self, *, committed: bool) -> None:
        sender = self._engine.sender
        await self._added.wait()
        if self._unsure_group is not None and not committed:
            # To end a transaction that was never begun is an error, and so is to leave one open.
            with suppress(ClientError):
                await self._add_group(self._unsure_group)
        if self._transaction.has_begun_at_coordinator:
            request = EndTxnRequest(
                transactional_id=self._id,
                producer_id=sender.producer_id,
                producer_epoch=sender.producer_epoch,
                committed=committed,
            )
            with self._engine.lock:
                self._transaction.asking_to_end()
            try:
                await self._ask(
                    (self._id, TRANSACTION), request, EndTxnResponse, overall_error, max_version=_MAX_END_VERSION
                )
            except ClientError as e:
                if committed and e.code in _ABORTABLE_COMMIT:
                    self._fail(e)
                else:
                    self._fail_for_good(e)
                raise
            with self._engine.lock:
                self._transaction.ended_at_coordinator()
        if not committed and self._transaction.needs_new_epoch:
            await self._init_producer(sender.producer_id, sender.producer_epoch)
        with self._engine.lock:
            self._transaction.ended()
            sender.giving_up = None
        self._unsure_group = None

    async def _add_group(self, group_id: str) -> None:
        sender = self._engine.sender
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=sender.producer_id,
            producer_epoch=sender.producer_epoch,
            group_id=group_id,
        )
        self._unsure_group = group_id
        try:
            await self._ask(
                (self._id, TRANSACTION),
                request,
                AddOffsetsToTxnResponse,
                overall_error,
                max_version=_MAX_ADD_OFFSETS_VERSION,
            )
        except ClientError:
            self._unsure_group = None
            raise
        self._unsure_group = None
        self._transaction.has_offsets = True

    def add_partitions_soon(self) -> None:
        if self._transaction.pending and self._added.is_set():
            self._added.clear()
            # Also if it is cancelled before it has begun: whoever ends the transaction waits for it.
            self._engine.spawn(self._add_partitions(), on_cancel=self._added.set)

    async def _add_partitions(self) -> None:
        """Until the coordinator has answered: to end the transaction one must know whether it has begun."""
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
                first_partition_error,
                max_version=_MAX_ADD_PARTITIONS_VERSION,
            )
            with self._engine.lock:
                self._transaction.added(wanted)
        except ClientError as e:
            self._fail(e)  # whoever uses the transaction next is told
        finally:
            self._added.set()
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
        """Asks a coordinator until it answers for good; how long that may take is the caller's to limit."""

        async def attempt() -> R:
            node_id = self._coordinators.get(coordinator)
            if node_id is None:
                node_id = self._coordinators[coordinator] = await self._engine.link.find_coordinator(*coordinator)
            response = await self._engine.link.request(node_id, request, response_class, max_version=max_version)
            code, where = error_of(response)
            if code:
                raise judged(code, where)
            return response

        client = self._engine.settings.client
        self._trouble = None
        tries = 0
        while True:
            tries += 1
            try:
                return await attempt()
            except KafkaError as e:
                if not e.retriable:
                    if isinstance(e, ClientError):
                        raise
                    raise client_error(e.code, e.message) from e
                self._trouble = e
                if e.code in _LOOK_AGAIN:
                    self._coordinators.pop(coordinator, None)
                    self._engine.metadata.request_update()
                    self._engine.wake()
            await asyncio.sleep(backoff_ms(tries, client.retry_backoff_ms, client.retry_backoff_max_ms) / 1000)
