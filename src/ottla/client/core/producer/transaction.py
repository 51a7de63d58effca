"""Where a producer's transaction stands, and what that allows: one table of states, and the partitions that take part.

Talking to the coordinators is the shell's business. An error either can be mended by aborting, or is fatal.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, NoReturn

from ottla.base.types import TopicPartition
from ottla.client.core.producer.batch import copy_of
from ottla.client.errors import ClientError, TransactionAbortedError, TransactionStateError


class TransactionState(Enum):
    UNINITIALIZED = "not initialized"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "done with its transaction, which somebody else may end"
    COMMITTING = "committing"
    COMMIT_UNSURE = "not sure whether its transaction is committed"
    ABORTING = "aborting"
    ABORT_UNFINISHED = "not done with aborting its transaction"
    ABORTABLE_ERROR = "failed and to be aborted"
    FATAL_ERROR = "failed for good"


_S = TransactionState

ALLOWED: dict[TransactionState, frozenset[TransactionState]] = {
    _S.UNINITIALIZED: frozenset({_S.READY, _S.FATAL_ERROR}),
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.FATAL_ERROR}),
    _S.IN_TRANSACTION: frozenset({_S.PREPARED, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.PREPARED: frozenset({_S.COMMITTING, _S.ABORTING, _S.FATAL_ERROR}),
    _S.COMMITTING: frozenset(
        {_S.READY, _S.IN_TRANSACTION, _S.PREPARED, _S.COMMIT_UNSURE, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}
    ),
    _S.COMMIT_UNSURE: frozenset({_S.COMMITTING, _S.FATAL_ERROR}),
    _S.ABORTING: frozenset({_S.READY, _S.ABORT_UNFINISHED, _S.FATAL_ERROR}),
    _S.ABORT_UNFINISHED: frozenset({_S.ABORTING, _S.FATAL_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset(),
}
"""Which states may follow each. A fatal error is the end."""

_ADVICE = {
    _S.UNINITIALIZED: "call init_transactions() first",
    _S.READY: "call begin_transaction() first",
    _S.IN_TRANSACTION: "commit or abort the open transaction first",
    _S.PREPARED: "commit or abort the prepared transaction first",
    _S.COMMITTING: "wait for commit_transaction() to return",
    _S.COMMIT_UNSURE: "the last commit_transaction() was broken off and must be called again",
    _S.ABORTING: "wait for abort_transaction() to return",
    _S.ABORT_UNFINISHED: "the last abort_transaction() was broken off and must be called again",
}


class PreparedTransaction(NamedTuple):
    """An open transaction that has all its records: whoever holds this, in any process, can end it.

    It says which producer it belongs to. When another one takes over the transactional id, or time runs out, the
    transaction is aborted and this is of no more use.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int


class ProducerTransaction:
    def __init__(self) -> None:
        self.state = TransactionState.UNINITIALIZED
        self.error: ClientError | None = None
        self.partitions: set[TopicPartition] = set()
        """Those the coordinator knows to take part."""
        self.pending: set[TopicPartition] = set()
        """Those that have records waiting, and that the coordinator must be told of first."""
        self.has_offsets = False
        self.needs_new_epoch = False
        """Whether something was dropped whose sequence number was used: later numbers would not follow."""
        self._if_broken_off = TransactionState.IN_TRANSACTION
        """What a commit or an abort leaves behind that is given up before its outcome is known."""

    @property
    def has_begun_at_coordinator(self) -> bool:
        """Whether there is anything to end: a transaction without partitions never reached the coordinator."""
        return bool(self.partitions or self.has_offsets)

    # The user's calls

    # A commit or an abort that ends, or is broken off, leads to the same states as some calls, but not by these calls.

    def check_initializing(self) -> None:
        if self.state is not TransactionState.UNINITIALIZED:
            self._refuse("init_transactions")

    def initialized(self) -> None:
        self.check_initializing()
        self._move(TransactionState.READY, "init_transactions")

    def begin(self) -> None:
        if self.state is not TransactionState.READY:
            self._refuse("begin_transaction")
        self._move(TransactionState.IN_TRANSACTION, "begin_transaction")

    def check_sending(self, call: str = "send") -> None:
        if self.state is not TransactionState.IN_TRANSACTION:
            self._refuse(call)

    def prepare(self) -> None:
        self.check_sending("prepare_transaction")
        self._move(TransactionState.PREPARED, "prepare_transaction")

    def start_commit(self) -> None:
        before = self.state
        self._move(TransactionState.COMMITTING, "commit_transaction")
        self._if_broken_off = before

    def start_abort(self) -> None:
        self._move(TransactionState.ABORTING, "abort_transaction")
        self._if_broken_off = TransactionState.ABORT_UNFINISHED
        self.pending.clear()

    def asking_to_end(self) -> None:
        """The coordinator is asked now: a commit may take place, whether or not its reply arrives."""
        if self.state is TransactionState.COMMITTING:
            self._if_broken_off = TransactionState.COMMIT_UNSURE

    def broken_off(self) -> None:
        """A commit or an abort was given up: its time was up, or nobody waits for it. It can be called again."""
        if self.state in (TransactionState.COMMITTING, TransactionState.ABORTING):
            self._move(self._if_broken_off, "breaking off")

    def ended_at_coordinator(self) -> None:
        self.partitions.clear()
        self.has_offsets = False

    def ended(self) -> None:
        self._move(TransactionState.READY, "end of the transaction")
        self.ended_at_coordinator()
        self.pending.clear()
        self.needs_new_epoch = False
        self.error = None

    def _move(self, state: TransactionState, call: str) -> None:
        if state not in ALLOWED[self.state]:
            self._refuse(call)
        self.state = state

    def _refuse(self, call: str) -> NoReturn:
        if self.error is not None:
            raise copy_of(self.error)
        advice = _ADVICE.get(self.state, "close this producer")
        raise TransactionStateError(f"{call} is not possible while the producer is {self.state.value}: {advice}")

    # Partitions

    def may_write(self, topic_partition: TopicPartition) -> bool:
        """Whether records may go to a partition now; if not yet, it is put down to be added."""
        if topic_partition in self.partitions:
            return True
        if self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
            self.pending.add(topic_partition)
        return False

    def added(self, partitions: set[TopicPartition]) -> None:
        self.partitions |= partitions
        self.pending -= partitions

    # Errors

    def fail(self, error: ClientError) -> None:
        """Takes in an error of any request of the transaction. The first one is the reason that is given."""
        if self.state is TransactionState.FATAL_ERROR:
            return
        self.pending.clear()
        if error.fatal:
            self._move(TransactionState.FATAL_ERROR, "failing")
            self.error = error
        else:
            self.needs_new_epoch = True
            if self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
                self._move(TransactionState.ABORTABLE_ERROR, "failing")
                self.error = error

    @property
    def gives_up_records(self) -> ClientError | None:
        """The error for records that will not be sent any more, if that is so: what went wrong, if anything did."""
        if self.state in (TransactionState.FATAL_ERROR, TransactionState.ABORTABLE_ERROR):
            return self.error
        if self.state in (TransactionState.ABORTING, TransactionState.ABORT_UNFINISHED):
            return self.error or TransactionAbortedError(
                "the transaction of this record was aborted before the record was sent"
            )
        return None
