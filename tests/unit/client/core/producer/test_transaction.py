from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.producer.transaction import ALLOWED, ProducerTransaction, TransactionState
from ottla.client.errors import ClientError, ProducerFencedError, TransactionAbortedError, TransactionStateError

S = TransactionState
PARTITION = TopicPartition("t", 0)
ABORTABLE = ClientError(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, requires_abort=True)
CALLS = ["initialized", "begin", "check_sending", "prepare", "start_commit", "start_abort", "ended"]
UNDER_WAY = ["asking_to_end", "broken_off"]
POSSIBLE = {
    S.UNINITIALIZED: {"initialized"},
    S.READY: {"begin"},
    S.IN_TRANSACTION: {"check_sending", "prepare", "start_commit", "start_abort"},
    S.PREPARED: {"start_commit", "start_abort"},
    S.COMMITTING: {"ended"},
    S.COMMIT_UNSURE: {"start_commit"},
    S.ABORTING: {"ended"},
    S.ABORT_UNFINISHED: {"start_abort"},
    S.ABORTABLE_ERROR: {"start_abort"},
    S.FATAL_ERROR: set(),
}
TARGETS = {
    "initialized": S.READY,
    "begin": S.IN_TRANSACTION,
    "prepare": S.PREPARED,
    "start_commit": S.COMMITTING,
    "start_abort": S.ABORTING,
    "ended": S.READY,
}


def in_state(state: TransactionState) -> ProducerTransaction:
    transaction = ProducerTransaction()
    transaction.state = state
    if state in (S.ABORTABLE_ERROR, S.FATAL_ERROR):
        transaction.error = ABORTABLE
    return transaction


@pytest.mark.parametrize(
    ("state", "call"), [pair for pair in itertools.product(S, CALLS) if pair != (S.UNINITIALIZED, "ended")]
)
def test_every_call_in_every_state(state: TransactionState, call: str) -> None:
    transaction = in_state(state)
    allowed = call in POSSIBLE[state]
    if allowed:
        getattr(transaction, call)()
        assert transaction.state is TARGETS.get(call, state)
    else:
        expected = ClientError if transaction.error else TransactionStateError
        with pytest.raises(expected) as raised:
            getattr(transaction, call)()
        assert raised.value is not transaction.error
        assert transaction.state is state


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        (S.UNINITIALIZED, "not initialized: call init_transactions() first"),
        (S.READY, "ready: call begin_transaction() first"),
        (S.IN_TRANSACTION, "in a transaction: commit or abort the open transaction first"),
        (
            S.PREPARED,
            "done with its transaction, which somebody else may end: commit or abort the prepared transaction first",
        ),
        (S.COMMITTING, "committing: wait for commit_transaction() to return"),
        (
            S.COMMIT_UNSURE,
            "not sure whether its transaction is committed: "
            "the last commit_transaction() was broken off and must be called again",
        ),
        (S.ABORTING, "aborting: wait for abort_transaction() to return"),
        (
            S.ABORT_UNFINISHED,
            "not done with aborting its transaction: "
            "the last abort_transaction() was broken off and must be called again",
        ),
    ],
)
def test_who_calls_at_the_wrong_time_is_told_what_to_do(state: TransactionState, advice: str) -> None:
    transaction = in_state(state)
    if state is S.READY:
        with pytest.raises(TransactionStateError) as raised:
            transaction.prepare()
        assert raised.value.message == f"prepare_transaction is not possible while the producer is {advice}"
    else:
        with pytest.raises(TransactionStateError) as raised:
            transaction.begin()
        assert raised.value.message == f"begin_transaction is not possible while the producer is {advice}"


@pytest.mark.parametrize("state", [state for state in S if state is not S.FATAL_ERROR])
def test_a_fatal_error_ends_any_state_and_another_does_not_replace_it(state: TransactionState) -> None:
    transaction = in_state(state)
    fatal = ProducerFencedError()
    transaction.fail(fatal)
    transaction.fail(ProducerFencedError("another one"))
    assert transaction.state is S.FATAL_ERROR and transaction.error is fatal and not transaction.needs_new_epoch
    assert transaction.gives_up_records is fatal


@pytest.mark.parametrize("state", [state for state in S if state is not S.FATAL_ERROR])
def test_an_error_that_can_be_mended_is_the_reason_if_the_transaction_could_have_been_committed(
    state: TransactionState,
) -> None:
    transaction = in_state(state)
    before = transaction.error
    error = ClientError("later")
    transaction.fail(error)
    is_reason = state in (S.IN_TRANSACTION, S.COMMITTING)
    assert transaction.state is (S.ABORTABLE_ERROR if is_reason else state)
    assert transaction.error is (error if is_reason else before) and transaction.needs_new_epoch


def test_offsets_alone_are_something_to_end() -> None:
    transaction = in_state(S.IN_TRANSACTION)
    assert not transaction.has_begun_at_coordinator
    transaction.has_offsets = True
    assert transaction.has_begun_at_coordinator
    transaction.added({PARTITION})
    transaction.ended_at_coordinator()
    assert not transaction.has_begun_at_coordinator and transaction.partitions == set()


def test_a_commit_that_is_under_way_is_not_taken_for_broken_off_by_who_begins_or_prepares() -> None:
    transaction = in_state(S.IN_TRANSACTION)
    transaction.start_commit()
    for call in (transaction.begin, transaction.prepare):
        with pytest.raises(TransactionStateError, match=r"wait for commit_transaction\(\) to return"):
            call()
    transaction.ended()
    transaction.broken_off()
    assert transaction.state is S.READY, "it has ended"


@example(["initialized", "begin", "start_commit", "write", "initialized"])
@example(["initialized", "begin", "prepare", "start_commit", "asking_to_end", "broken_off", "start_abort"])
@given(st.lists(st.sampled_from([*CALLS, *UNDER_WAY, "abortable", "fatal", "write"])))
def test_random_walks_never_leave_the_table(calls: list[str]) -> None:
    transaction = ProducerTransaction()
    for call in calls:
        before = transaction.state
        try:
            match call:
                case "abortable":
                    transaction.fail(ABORTABLE)
                case "fatal":
                    transaction.fail(ProducerFencedError())
                case "write":
                    transaction.may_write(PARTITION)
                case _:
                    getattr(transaction, call)()
        except ClientError:
            assert transaction.state is before
        assert transaction.state is before or transaction.state in ALLOWED[before]
        if transaction.state in (S.ABORTABLE_ERROR, S.FATAL_ERROR):
            assert transaction.error is not None and transaction.gives_up_records is not None
        if transaction.state is S.READY:
            assert not (transaction.partitions or transaction.pending or transaction.error)


def test_partitions_join_before_they_are_written_to() -> None:
    transaction = ProducerTransaction()
    assert not transaction.may_write(PARTITION) and not transaction.pending
    transaction.initialized()
    transaction.begin()
    assert not transaction.has_begun_at_coordinator
    assert not transaction.may_write(PARTITION)
    assert transaction.pending == {PARTITION}
    transaction.added({PARTITION})
    assert transaction.may_write(PARTITION) and not transaction.pending
    assert transaction.has_begun_at_coordinator


def test_after_an_abort_the_producer_goes_on_with_a_new_epoch() -> None:
    transaction = ProducerTransaction()
    transaction.initialized()
    transaction.begin()
    transaction.fail(ABORTABLE)
    transaction.fail(ClientError("a later one"))
    with pytest.raises(ClientError, match="not authorised"):
        transaction.start_commit()
    assert transaction.gives_up_records is ABORTABLE
    transaction.start_abort()
    assert transaction.gives_up_records is ABORTABLE
    assert transaction.needs_new_epoch
    transaction.ended()
    assert not transaction.needs_new_epoch and transaction.gives_up_records is None
    transaction.begin()


def test_records_of_a_transaction_that_nothing_is_wrong_with_are_dropped_by_its_abort() -> None:
    transaction = ProducerTransaction()
    transaction.initialized()
    transaction.begin()
    assert transaction.gives_up_records is None
    transaction.start_abort()
    assert isinstance(transaction.gives_up_records, TransactionAbortedError)
    transaction.broken_off()
    assert isinstance(transaction.gives_up_records, TransactionAbortedError)


@pytest.mark.parametrize("before", ["begin", "prepare"])
def test_a_commit_that_is_broken_off_before_it_is_asked_for_has_changed_nothing(before: str) -> None:
    transaction = ProducerTransaction()
    transaction.initialized()
    transaction.begin()
    if before == "prepare":
        transaction.prepare()
    state = transaction.state
    transaction.start_commit()
    transaction.broken_off()
    assert transaction.state is state
    transaction.start_abort()


def test_a_commit_that_may_have_taken_place_can_only_be_repeated() -> None:
    transaction = ProducerTransaction()
    transaction.initialized()
    transaction.begin()
    transaction.start_commit()
    transaction.asking_to_end()
    transaction.broken_off()
    for call in (transaction.start_abort, transaction.begin, transaction.check_sending, transaction.prepare):
        with pytest.raises(
            TransactionStateError, match=r"commit_transaction\(\) was broken off and must be called again"
        ):
            call()
    transaction.start_commit()
    transaction.broken_off()
    with pytest.raises(TransactionStateError):
        transaction.start_abort()
    transaction.start_commit()
    transaction.ended()


def test_an_abort_that_is_broken_off_can_only_be_repeated() -> None:
    transaction = ProducerTransaction()
    transaction.initialized()
    transaction.begin()
    transaction.start_abort()
    with pytest.raises(TransactionStateError, match="wait for abort_transaction"):
        transaction.start_abort()
    transaction.broken_off()
    for call in (transaction.start_commit, transaction.begin):
        with pytest.raises(
            TransactionStateError, match=r"abort_transaction\(\) was broken off and must be called again"
        ):
            call()
    transaction.start_abort()
    transaction.ended()


def test_a_transaction_that_has_failed_adds_no_more_partitions() -> None:
    transaction = ProducerTransaction()
    transaction.initialized()
    transaction.begin()
    transaction.may_write(PARTITION)
    transaction.fail(ABORTABLE)
    assert not transaction.pending


def test_what_is_aborted_adds_no_more_partitions_and_the_next_one_begins_with_none() -> None:
    transaction = ProducerTransaction()
    transaction.initialized()
    transaction.begin()
    assert not transaction.may_write(PARTITION) and transaction.pending == {PARTITION}
    transaction.start_abort()
    assert not transaction.pending and not transaction.may_write(PARTITION)
    assert not transaction.pending, "nothing is put down any more"
    transaction.ended()
    transaction.begin()
    assert not transaction.may_write(PARTITION)
    transaction.added({PARTITION})
    assert transaction.may_write(PARTITION) and not transaction.pending
    transaction.start_commit()
    assert not transaction.may_write(PARTITION._replace(partition=9)) and transaction.pending
    transaction.ended()
    assert not transaction.partitions and not transaction.has_begun_at_coordinator and not transaction.pending
