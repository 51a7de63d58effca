"""What the coordinator shows of its transactions (KIP-664). Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.machines.transactions.states import RESTING, STATES_BY_TEXT, State
from ottla.machines.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, NO_TIME, Transaction
from ottla.wire.apis.describe_transactions import TopicData
from ottla.wire.apis.describe_transactions import TransactionState as DescribedTransaction
from ottla.wire.apis.list_transactions import TransactionState as ListedTransaction


class ListedTransactions(NamedTuple):
    transactions: list[ListedTransaction]
    unknown_states: list[str]
    """Filters that name no state: the client is told, because they matched nothing."""


def describe(transactional_id: str, transaction: Transaction | None) -> DescribedTransaction:
    if transaction is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return DescribedTransaction(
            error_code=code,
            transactional_id=transactional_id,
            transaction_start_time_ms=NO_TIME,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_EPOCH,
        )
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.text,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer.producer_id,
        producer_epoch=transaction.producer.producer_epoch,
        topics=[TopicData(topic=topic, partitions=ids) for topic, ids in transaction.topics().items()],
    )


def select(
    transactions: Mapping[str, Transaction],
    states: Sequence[str],
    producer_ids: Sequence[int],
    duration_ms: int,
    now_ms: int,
) -> ListedTransactions:
    """Empty filters let everything pass; a duration of 0 or more leaves those that have been open for longer."""
    wanted_states = {STATES_BY_TEXT[text] for text in states if text in STATES_BY_TEXT} if states else set(State)
    listed = [
        ListedTransaction(
            transactional_id=transactional_id,
            producer_id=transaction.producer.producer_id,
            transaction_state=transaction.state.text,
        )
        for transactional_id, transaction in sorted(transactions.items())
        if transaction.state in wanted_states
        and (not producer_ids or transaction.producer.producer_id in producer_ids)
        and (duration_ms < 0 or _is_open_longer(transaction, duration_ms, now_ms))
    ]
    return ListedTransactions(listed, [text for text in states if text not in STATES_BY_TEXT])


def _is_open_longer(transaction: Transaction, duration_ms: int, now_ms: int) -> bool:
    return transaction.state not in RESTING and now_ms - transaction.started_ms > duration_ms
