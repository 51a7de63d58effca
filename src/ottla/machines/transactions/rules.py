"""Who may do what to a transaction: pure rules that return what should follow, or raise the KafkaError to answer.

They know one transaction and one request. Records, replies and markers are the shard's business.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.base.types import TopicPartition
from ottla.machines.transactions.states import ENDING, RESTING, State
from ottla.machines.transactions.transaction import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Producer,
    Transaction,
)


class Initialised(NamedTuple):
    """InitProducerId is granted to `producer`, or refused for now because an older transaction has to be aborted."""

    following: Transaction | None
    """None if nothing changes."""
    producer: Producer | None
    """None if the client has to ask again."""


def expected_producer(producer_id: int, producer_epoch: int) -> Producer | None:
    """Whom the sender of InitProducerId takes itself for; None if it begins anew."""
    if producer_id == NO_PRODUCER_ID and producer_epoch == NO_EPOCH:
        return None
    if producer_id < 0 or producer_epoch < 0:
        raise InvalidRequestError(
            f"producer id {producer_id} and epoch {producer_epoch} do not belong together: send both, or -1 for both"
        )
    return Producer(producer_id, producer_epoch)


def check_timeout(timeout_ms: int, max_timeout_ms: int) -> None:
    if not 0 < timeout_ms <= max_timeout_ms:
        raise KafkaError(
            f"a transaction time-out of {timeout_ms} ms is not between 1 and the {max_timeout_ms} ms that "
            "transaction.max.timeout.ms allows; change the producer's transaction.timeout.ms",
            code=ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        )


def initialise(
    transaction: Transaction,
    expected: Producer | None,
    exchanged: Producer | None,
    *,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int,
) -> Initialised:
    """A producer asks for its epoch. `expected` is whom it takes itself for (KIP-360), if it has been one before.

    `exchanged` is whom the current producer was before, if it was the same client that asked to go on. A client whose
    answer was lost is recognised by it and is told again.
    """
    asks_again = expected is not None and (expected == exchanged or transaction.was_ended_by(expected))
    if expected is not None and expected != transaction.producer and not asks_again:
        raise _fenced(transaction, expected)
    state = transaction.state
    if state in ENDING:
        raise _still_ending(transaction)
    if state is State.ONGOING:
        # A request from before this transaction began is late, and must not abort what its sender has begun since.
        if expected is not None and expected != transaction.producer:
            raise _fenced(transaction, expected)
        return Initialised(transaction.fenced(now_ms), None)
    epoch = transaction.producer.producer_epoch
    if asks_again and epoch <= LAST_CLIENT_EPOCH:
        return Initialised(None, transaction.producer)
    if transaction.is_epoch_exhausted:
        producer = Producer(new_producer_id, 0)
    else:
        producer = Producer(transaction.producer.producer_id, epoch + 1)
    return Initialised(transaction.initialised(producer, timeout_ms, now_ms), producer)


def add(
    transaction: Transaction,
    producer: Producer,
    partitions: Collection[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> Transaction | None:
    """Partitions join the transaction, which begins if none is open. None if all of them are in it already."""
    check_producer(transaction, producer)
    if transaction.state in ENDING:
        raise _still_ending(transaction)
    if not partitions or transaction.partitions.issuperset(partitions):
        return None
    return transaction.extended(partitions, client_version, now_ms)


def verify(transaction: Transaction, producer: Producer) -> None:
    """May a partition of the open transaction take records of this producer?"""
    check_producer(transaction, producer)
    if transaction.state in ENDING:
        raise _still_ending(transaction)


def end(transaction: Transaction, producer: Producer, *, commit: bool, now_ms: int) -> Transaction | None:
    """The client ends its transaction and keeps its epoch. None if it was ended in this way before."""
    check_producer(transaction, producer)
    if transaction.state is State.ONGOING:
        return transaction.prepared(commit=commit, now_ms=now_ms)
    if transaction.state is State.EMPTY or transaction.commits is not commit:
        raise _cannot_end(transaction, commit)
    if transaction.state in ENDING:
        raise _still_ending(transaction)
    return None


def end_with_bump(
    transaction: Transaction, producer: Producer, *, commit: bool, now_ms: int, new_producer_id: int | None
) -> Transaction | None:
    """The client ends its transaction and takes a new epoch (KIP-890, part 2). None if it has done so before.

    The epoch tells a request that is sent again from the end of the next transaction: the first has the old one.
    """
    asks_again = transaction.was_ended_by(producer)
    if not asks_again:
        check_producer(transaction, producer)
    state = transaction.state
    if asks_again:
        if transaction.commits is not commit:
            raise _cannot_end(transaction, commit)
        if state in ENDING:
            raise _still_ending(transaction)
        return None
    if state in ENDING:
        # The client has its new epoch and is ahead of the markers.
        raise _still_ending(transaction)
    if commit and state in RESTING:
        raise _cannot_end(transaction, commit)
    if transaction.is_epoch_exhausted and new_producer_id is None:
        raise KafkaError(
            "the epochs of the producer id have run out and no new producer id is at hand; try again",
            code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )
    following = NO_PRODUCER_ID if new_producer_id is None else new_producer_id
    return transaction.prepared_with_bump(commit=commit, now_ms=now_ms, next_producer_id=following)


def check_producer(transaction: Transaction, producer: Producer) -> None:
    if producer.producer_id != transaction.producer.producer_id:
        raise KafkaError(
            f"transactional id {transaction.transactional_id!r} belongs to producer id "
            f"{transaction.producer.producer_id}, not to {producer.producer_id}; a producer that still uses the "
            "latter has been replaced and should be closed",
            code=ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        )
    if producer.producer_epoch != transaction.producer.producer_epoch:
        raise _fenced(transaction, producer)


def unknown_id(transactional_id: str, expiration_ms: int) -> KafkaError:
    return KafkaError(
        f"transactional id {transactional_id!r} is not known here: it was never initialised, or it expired after "
        f"{expiration_ms} ms without a transaction (transactional.id.expiration.ms); close this producer and begin "
        "again with a new one",
        code=ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    )


def _fenced(transaction: Transaction, producer: Producer) -> KafkaError:
    return KafkaError(
        f"producer {producer.producer_id} of epoch {producer.producer_epoch} may no longer use transactional id "
        f"{transaction.transactional_id!r}, whose epoch is {transaction.producer.producer_epoch}: a newer producer has "
        "taken over, or the transaction ran out of time and was aborted; close this producer",
        code=ErrorCode.PRODUCER_FENCED,
    )


def _still_ending(transaction: Transaction) -> KafkaError:
    return KafkaError(
        f"the last transaction of {transaction.transactional_id!r} is {transaction.state.text} and its markers are "
        "being written; try again",
        code=ErrorCode.CONCURRENT_TRANSACTIONS,
    )


def _cannot_end(transaction: Transaction, commit: bool) -> KafkaError:
    return KafkaError(
        f"the transaction of {transaction.transactional_id!r} is {transaction.state.text} and cannot be "
        f"{'committed' if commit else 'aborted'}",
        code=ErrorCode.INVALID_TXN_STATE,
    )
