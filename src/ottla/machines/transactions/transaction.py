"""One transactional id: what `__transaction_state` keeps of it, as an immutable value, and the moves it can make.

A move returns the value that follows and checks it against the table of states. Whether a client may ask for a move is
not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ottla.base.errors import DecodeError
from ottla.base.types import TopicPartition
from ottla.machines.coordinator import CoordinatorRecord
from ottla.machines.transactions.states import PREPARED, RESTING, State, check_transition
from ottla.wire.stored.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
MAX_EPOCH = 2**15 - 1
LAST_CLIENT_EPOCH = MAX_EPOCH - 1
"""The highest epoch a client is given. One more is left, so that even its transaction can be fenced."""

EPOCH_BUMP_VERSION = 2
"""The transaction version from which every end of a transaction raises the epoch (KIP-890, part 2)."""

_KEY_VERSION = 0


class Producer(NamedTuple):
    """A producer id and epoch: who may speak for a transactional id."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer_id} of epoch {self.producer_epoch}"


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    producer: Producer
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the current one, if its epochs ran out."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id to go on with after the markers, because the epochs of this one run out with them."""
    client_version: int = 0
    """The transaction version of the client that asked for the last change; 0 if the coordinator acted by itself."""

    @property
    def commits(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def next_client_producer(self) -> Producer:
        """Whom the client is to speak as from now on; differs from `producer` only while markers are owed."""
        return self.producer if self.next_producer_id == NO_PRODUCER_ID else Producer(self.next_producer_id, 0)

    def was_ended_by(self, producer: Producer) -> bool:
        """Did `producer` end this transaction in a way that raised the epoch? Then it may not know its new one yet.

        An epoch that the coordinator raised to fence somebody off never counts.
        """
        if self.client_version < EPOCH_BUMP_VERSION or self.state not in PREPARED | RESTING - {State.EMPTY}:
            return False
        producer_id, epoch = self.producer
        if epoch > 0:
            return producer == (producer_id, epoch - 1)
        return self.previous_producer_id != NO_PRODUCER_ID and producer == (
            self.previous_producer_id,
            LAST_CLIENT_EPOCH,
        )

    def has_timed_out(self, now_ms: int) -> bool:
        return self.state is State.ONGOING and self.started_ms + self.timeout_ms < now_ms

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state in RESTING and self.updated_ms + expiration_ms <= now_ms

    # -- moves ---------------------------------------------------------------------------------------------------

    def initialised(self, producer: Producer, timeout_ms: int, now_ms: int) -> Transaction:
        """A producer begins, or begins again, as `producer`."""
        is_new_id = producer.producer_id != self.producer.producer_id
        return self._moved(
            State.EMPTY,
            now_ms,
            producer=producer,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIME,
            previous_producer_id=self.producer.producer_id if is_new_id else self.previous_producer_id,
            client_version=0,
        )

    def extended(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        """Partitions join the transaction; the first ones begin it."""
        return self._moved(
            State.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            started_ms=self.started_ms if self.state is State.ONGOING else now_ms,
            client_version=client_version,
        )

    def prepared(self, *, commit: bool, now_ms: int) -> Transaction:
        """The outcome is decided; the client keeps its epoch."""
        return self._prepared(commit, now_ms, self.producer, NO_PRODUCER_ID, 0)

    def prepared_with_bump(self, *, commit: bool, now_ms: int, next_producer_id: int) -> Transaction:
        """The outcome is decided and the epoch raised, so that nothing late can reach the next transaction (KIP-890).

        `next_producer_id` takes over after the markers if the epochs have run out, and is not used otherwise.
        """
        following = next_producer_id if self.is_epoch_exhausted else NO_PRODUCER_ID
        return self._prepared(commit, now_ms, self._raised(), following, EPOCH_BUMP_VERSION)

    def fenced(self, now_ms: int) -> Transaction:
        """The coordinator aborts, and raises the epoch so that whoever held the transaction open is shut out."""
        return self._moved(State.PREPARE_EPOCH_FENCE, now_ms, producer=self._raised()).prepared(
            commit=False, now_ms=now_ms
        )

    def completed(self, now_ms: int) -> Transaction:
        """Every partition has its marker."""
        is_new_id = self.next_producer_id != NO_PRODUCER_ID
        return self._moved(
            State.COMPLETE_COMMIT if self.commits else State.COMPLETE_ABORT,
            now_ms,
            producer=self.next_client_producer,
            partitions=frozenset(),
            previous_producer_id=self.producer.producer_id if is_new_id else self.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    def _prepared(
        self, commit: bool, now_ms: int, producer: Producer, next_producer_id: int, client_version: int
    ) -> Transaction:
        return self._moved(
            State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            now_ms,
            producer=producer,
            next_producer_id=next_producer_id,
            started_ms=now_ms if self.state in RESTING else self.started_ms,
            client_version=client_version,
        )

    def _raised(self) -> Producer:
        return Producer(self.producer.producer_id, min(self.producer.producer_epoch + 1, MAX_EPOCH))

    def _moved(self, state: State, now_ms: int, **changes: Any) -> Transaction:
        check_transition(self.transactional_id, self.state, state)
        return replace(self, state=state, updated_ms=now_ms, **changes)

    # -- stored form ---------------------------------------------------------------------------------------------

    def record(self) -> CoordinatorRecord:
        value = TransactionLogValue(
            producer_id=self.producer.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state is State.EMPTY else self._stored_partitions(),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            client_transaction_version=self.client_version,
        )
        return CoordinatorRecord(
            TransactionLogKey(transactional_id=self.transactional_id), _KEY_VERSION, value, self._value_version
        )

    @property
    def _value_version(self) -> int:
        # Version 0 is what every reader of this topic knows; version 1 only where it has something to add.
        plain = (NO_PRODUCER_ID, NO_PRODUCER_ID, 0)
        return 0 if (self.previous_producer_id, self.next_producer_id, self.client_version) == plain else 1

    @property
    def stored_bytes_max(self) -> int:
        """At least as many bytes as the record needs, so that a batch of records can be kept within its limit."""
        return 128 + 4 * len(self.transactional_id) + sum(16 + 4 * len(topic) for topic, _ in self.partitions)

    def topics(self) -> dict[str, list[int]]:
        """The partitions by topic, both in order."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            topics.setdefault(topic, []).append(partition)
        return topics

    def _stored_partitions(self) -> list[PartitionsSchema]:
        return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in self.topics().items()]


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION, None)


def from_record(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """The inverse of `Transaction.record`; raises DecodeError on a status nobody knows."""
    try:
        state = State(value.transaction_status)
    except ValueError:
        raise DecodeError(
            f"no transaction has the status {value.transaction_status}", path="transaction_status"
        ) from None
    return Transaction(
        transactional_id=key.transactional_id,
        producer=Producer(value.producer_id, value.producer_epoch),
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(stored.topic, partition)
            for stored in value.transaction_partitions or ()
            for partition in stored.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
