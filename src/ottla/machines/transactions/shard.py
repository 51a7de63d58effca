"""The transaction coordinator's share of one `__transaction_state` partition: decides, and replays what was decided.

It holds every transactional id of the partition. It never writes a marker itself: it orders them with `SendMarkers`
and learns by `markers_written` that they are all in place.

What only memory keeps: the order under way for each transaction that is being ended, and which producer was exchanged
for which, so that a client whose answer to InitProducerId was lost can ask again (KIP-360). After a reload such a
client is fenced; it cannot be told from one that was replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.base.types import TopicPartition
from ottla.machines.coordinator import Decision, ReplayContext, SetTimer, TimerKey, Token
from ottla.machines.transactions import listing, rules
from ottla.machines.transactions.answers import Answer, SendMarkers, granted, refused
from ottla.machines.transactions.states import PREPARED, State, check_transition
from ottla.machines.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    Producer,
    Transaction,
    from_record,
    tombstone,
)
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.apis.describe_transactions import TransactionState as DescribedTransaction
from ottla.wire.apis.end_txn import EndTxnRequest
from ottla.wire.apis.init_producer_id import InitProducerIdRequest
from ottla.wire.message import StoredRecord
from ottla.wire.stored.transaction_state import TransactionLogKey, TransactionLogValue

_BUMPING_END_TXN = 5
_BROKER_ADD_PARTITIONS = 4
"""From this version on brokers ask, on behalf of a client that leaves it to them (KIP-890, part 2)."""

_BATCH_BYTES_MAX = 256 * 1024
"""Well below any max.message.bytes, since a decision's records travel as one batch."""

ABORT_TIMER: TimerKey = ("abort-timed-out",)
EXPIRY_TIMER: TimerKey = ("expire-ids",)

Tokens = list[Token]


@dataclass(frozen=True)
class TransactionConfig:
    max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    expiry_interval_ms: int = 3_600_000


class _Exchange(NamedTuple):
    """The same client went on from one producer to another. Void as soon as the id has yet another one."""

    given_up: Producer
    received: Producer


class TransactionShard:
    """All times are wall-clock milliseconds, for they are stored and compared after a restart."""

    def __init__(self, config: TransactionConfig, coordinator_epoch: int) -> None:
        self.config = config
        self.coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, Transaction] = {}
        self._exchanges: dict[str, _Exchange] = {}
        self._orders: dict[str, SendMarkers] = {}
        self._order_count = 0

    # -- requests ------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, request: InitProducerIdRequest, token: Token, *, version: int, now_ms: int, new_producer_id: int
    ) -> Decision:
        """`new_producer_id` is a fresh one; it is lost if it turns out not to be needed."""
        try:
            return self._init_producer_id(request, token, now_ms, new_producer_id)
        except KafkaError as error:
            return Decision().reply(token, refused(error, ApiKey.INIT_PRODUCER_ID, version))

    def _init_producer_id(
        self, request: InitProducerIdRequest, token: Token, now_ms: int, new_producer_id: int
    ) -> Decision:
        fresh = Producer(new_producer_id, 0)
        transactional_id = request.transactional_id
        if transactional_id is None:
            return Decision().reply(token, granted(fresh))
        if not transactional_id:
            raise InvalidRequestError("a transactional id cannot be empty")
        expected = rules.expected_producer(request.producer_id, request.producer_epoch)
        timeout_ms = request.transaction_timeout_ms
        rules.check_timeout(timeout_ms, self.config.max_timeout_ms)
        current = self.transactions.get(transactional_id)
        if current is None:
            first = Transaction(transactional_id, fresh, timeout_ms, State.EMPTY, updated_ms=now_ms)
            return Decision([first.record()]).reply(token, granted(fresh))
        following, producer = rules.initialise(
            current,
            expected,
            self._exchanged(current),
            timeout_ms=timeout_ms,
            now_ms=now_ms,
            new_producer_id=new_producer_id,
        )
        if following is not None and expected is not None:
            self._exchanges[transactional_id] = _Exchange(expected, following.producer)
        decision = Decision() if following is None else self._change(following, now_ms)
        if following is not None and expected is None:
            what = "its open transaction is aborted" if producer is None else "producers before it are fenced"
            decision.notes.append(
                f"transactional id {transactional_id}: a new producer takes over from {current.producer}; {what}"
            )
        if producer is not None:
            return decision.reply(token, granted(producer))
        message = f"the open transaction of {transactional_id!r} is being aborted first; try again"
        return decision.reply(token, Answer(ErrorCode.CONCURRENT_TRANSACTIONS, message))

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        token: Token,
        *,
        version: int,
        now_ms: int,
    ) -> Decision:
        """All of the partitions join the transaction, or none: there is one answer."""
        client_version = EPOCH_BUMP_VERSION if version >= _BROKER_ADD_PARTITIONS else 0
        return self._answer(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            token,
            lambda: self._add(
                transactional_id, Producer(producer_id, producer_epoch), partitions, client_version, now_ms
            ),
        )

    def add_offsets(
        self,
        request: AddOffsetsToTxnRequest,
        offsets_partition: TopicPartition,
        token: Token,
        *,
        version: int,
        now_ms: int,
    ) -> Decision:
        """The partition that keeps the group's offsets joins the transaction."""
        producer = Producer(request.producer_id, request.producer_epoch)
        return self._answer(
            ApiKey.ADD_OFFSETS_TO_TXN,
            version,
            token,
            lambda: self._add(request.transactional_id, producer, (offsets_partition,), 0, now_ms),
        )

    def _add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> tuple[Decision, Answer]:
        current = self._find(transactional_id)
        following = rules.add(current, producer, partitions, client_version=client_version, now_ms=now_ms)
        return Decision() if following is None else self._change(following, now_ms), Answer()

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Which of the partitions are in the open transaction (KIP-890, part 1). Changes nothing.

        The codes are the newest; `answers.verification_code` has those of a client's version.
        """
        try:
            transaction = self._find(transactional_id)
            rules.verify(transaction, Producer(producer_id, producer_epoch))
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return {
            partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def end_transaction(
        self, request: EndTxnRequest, token: Token, *, version: int, now_ms: int, new_producer_id: int | None = None
    ) -> Decision:
        """Commit or abort. The client is answered when the outcome is in the log, before any marker is written.

        From version 5 on the answer names the producer to go on as. Its producer id is new, and `new_producer_id` must
        be given, when `needs_producer_id` says so.
        """
        return self._answer(
            ApiKey.END_TXN, version, token, lambda: self._end(request, version, now_ms, new_producer_id)
        )

    def _end(
        self, request: EndTxnRequest, version: int, now_ms: int, new_producer_id: int | None
    ) -> tuple[Decision, Answer]:
        current = self._find(request.transactional_id)
        producer = Producer(request.producer_id, request.producer_epoch)
        if version < _BUMPING_END_TXN:
            following = rules.end(current, producer, commit=request.committed, now_ms=now_ms)
            return Decision() if following is None else self._change(following, now_ms), Answer()
        following = rules.end_with_bump(
            current, producer, commit=request.committed, now_ms=now_ms, new_producer_id=new_producer_id
        )
        if following is None:
            return Decision(), granted(current.next_client_producer)
        return self._change(following, now_ms), granted(following.next_client_producer)

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Does the next end of a transaction of this id, at version 5 or later, need a new producer id?"""
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and transaction.is_epoch_exhausted and transaction.state not in PREPARED

    # -- markers -------------------------------------------------------------------------------------------------

    def markers_written(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        now_ms: int,
        order: int | None = None,
    ) -> Decision:
        """Every partition of an order has its marker. A report of anything but the current order changes nothing."""
        transaction = self.transactions.get(transactional_id)
        if (
            transaction is None
            or transaction.state not in PREPARED
            or transaction.producer != (producer_id, producer_epoch)
        ):
            return Decision()
        current = self._orders.get(transactional_id)
        if order is not None and current is not None and order != current.order:
            return Decision()
        return Decision([transaction.completed(now_ms).record()])

    # -- time ----------------------------------------------------------------------------------------------------

    def timer_fired(self, key: TimerKey, now_ms: int) -> Decision:
        """The two timers that `loaded` sets; each sets itself again, at once if there was more than fits a batch."""
        if key == ABORT_TIMER:
            decision, interval_ms = self.abort_timed_out(now_ms), self.config.abort_interval_ms
        elif key == EXPIRY_TIMER:
            decision, interval_ms = self.expire_ids(now_ms), self.config.expiry_interval_ms
        else:
            return Decision()
        decision.timers.append(SetTimer(key, 0 if decision.records else interval_ms))
        return decision

    def abort_timed_out(self, now_ms: int) -> Decision:
        """Fences and aborts transactions that ran out of time, as many as fit a batch."""
        decision = Decision()
        room = _BATCH_BYTES_MAX
        for transactional_id in sorted(self.transactions):
            transaction = self.transactions[transactional_id]
            if transaction.has_timed_out(now_ms):
                room -= transaction.stored_bytes_max
                if room < 0 and decision.records:
                    break
                decision.extend(self._change(transaction.fenced(now_ms), now_ms))
                decision.notes.append(
                    f"transactional id {transactional_id}: {transaction.producer} is fenced and its transaction "
                    f"aborted, which was open for more than {transaction.timeout_ms} ms"
                )
        return decision

    def expire_ids(self, now_ms: int) -> Decision:
        """Forgets ids that were idle for too long, as many as fit a batch."""
        decision = Decision()
        room = _BATCH_BYTES_MAX
        for transactional_id in sorted(self.transactions):
            transaction = self.transactions[transactional_id]
            if transaction.has_expired(now_ms, self.config.transactional_id_expiration_ms):
                room -= transaction.stored_bytes_max
                if room < 0 and decision.records:
                    break
                check_transition(transactional_id, transaction.state, State.DEAD)
                decision.records.append(tombstone(transactional_id))
        return decision

    # -- questions -----------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribedTransaction:
        return listing.describe(transactional_id, self.transactions.get(transactional_id))

    def list(
        self, states: Sequence[str], producer_ids: Sequence[int], duration_ms: int, now_ms: int
    ) -> listing.ListedTransactions:
        """Empty filters let everything pass, as does a duration below 0."""
        return listing.select(self.transactions, states, producer_ids, duration_ms, now_ms)

    # -- life ----------------------------------------------------------------------------------------------------

    def replay(self, key: StoredRecord, value: StoredRecord | None, context: ReplayContext) -> None:
        """Applies a record of the log: the only way in which a transaction changes."""
        if not isinstance(key, TransactionLogKey):
            raise TypeError(f"{type(key).__name__} does not belong into a transaction log")
        if value is not None and not isinstance(value, TransactionLogValue):
            raise TypeError(f"{type(value).__name__} does not belong into a transaction log")
        transactional_id = key.transactional_id
        transaction = None if value is None else from_record(key, value)
        if transaction is None or transaction.state is State.DEAD:
            self.transactions.pop(transactional_id, None)
            self._exchanges.pop(transactional_id, None)
            self._orders.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = transaction
        if transaction.state not in PREPARED:
            self._orders.pop(transactional_id, None)

    def loaded(self, now_ms: int) -> Decision:
        """The log has been read: whatever was being ended goes on, for the old coordinator may have sent no marker."""
        decision = Decision(
            timers=[
                SetTimer(ABORT_TIMER, self.config.abort_interval_ms),
                SetTimer(EXPIRY_TIMER, self.config.expiry_interval_ms),
            ]
        )
        for transactional_id in sorted(self.transactions):
            transaction = self.transactions[transactional_id]
            if transaction.state is State.PREPARE_EPOCH_FENCE:
                decision.extend(self._change(transaction.prepared(commit=False, now_ms=now_ms), now_ms))
            elif transaction.state in PREPARED:
                if transaction.partitions:
                    decision.effects.append(self._order(transaction))
                else:
                    decision.records.append(transaction.completed(now_ms).record())
        return decision

    def unload(self) -> Tokens:
        """No request ever waits here: those that cannot be served yet are told to come again."""
        self.transactions.clear()
        self._exchanges.clear()
        self._orders.clear()
        return []

    # -- parts ---------------------------------------------------------------------------------------------------

    def _answer(
        self, api: ApiKey, version: int, token: Token, decide: Callable[[], tuple[Decision, Answer]]
    ) -> Decision:
        try:
            decision, answer = decide()
        except KafkaError as error:
            return Decision().reply(token, refused(error, api, version))
        return decision.reply(token, answer)

    def _find(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            if not transactional_id:
                raise InvalidRequestError("a transactional id cannot be empty")
            raise rules.unknown_id(transactional_id, self.config.transactional_id_expiration_ms)
        return transaction

    def _exchanged(self, transaction: Transaction) -> Producer | None:
        exchange = self._exchanges.get(transaction.transactional_id)
        return exchange.given_up if exchange is not None and exchange.received == transaction.producer else None

    def _change(self, following: Transaction, now_ms: int) -> Decision:
        """What it takes for a transaction to become `following`."""
        decision = Decision([following.record()])
        if following.state in PREPARED:
            if following.partitions:
                decision.effects.append(self._order(following))
            else:
                decision.records.append(following.completed(now_ms).record())
        return decision

    def _order(self, transaction: Transaction) -> SendMarkers:
        self._order_count += 1
        order = self._orders[transaction.transactional_id] = SendMarkers(
            transaction.transactional_id,
            *transaction.producer,
            transaction.commits,
            self.coordinator_epoch,
            tuple(sorted(transaction.partitions)),
            self._order_count,
        )
        return order
