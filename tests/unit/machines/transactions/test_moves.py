"""What each move of a transaction keeps, and what it changes."""

from __future__ import annotations

import pytest

from ottla.machines.transactions.states import State
from ottla.machines.transactions.transaction import LAST_CLIENT_EPOCH, MAX_EPOCH, Producer, Transaction
from tests.unit.machines.transactions.driver import P0, P1


def transaction(state: State, *, epoch: int = 4, next_id: int = -1, client_version: int = 0) -> Transaction:
    return Transaction(
        "t",
        Producer(7, epoch),
        1_000,
        state,
        partitions=frozenset({P0}),
        started_ms=10,
        updated_ms=20,
        previous_producer_id=5,
        next_producer_id=next_id,
        client_version=client_version,
    )


@pytest.mark.parametrize(("producer", "previous_id"), [(Producer(7, 5), 5), (Producer(8, 0), 7)])
def test_a_new_producer_id_remembers_the_one_before(producer: Producer, previous_id: int) -> None:
    begun = transaction(State.COMPLETE_COMMIT, client_version=2).initialised(producer, 2_000, 30)
    assert (begun.state, begun.producer, begun.timeout_ms, begun.updated_ms) == (State.EMPTY, producer, 2_000, 30)
    assert (begun.previous_producer_id, begun.partitions, begun.started_ms) == (previous_id, frozenset(), -1)
    assert begun.client_version == 0


@pytest.mark.parametrize(("state", "started_ms"), [(State.EMPTY, 30), (State.COMPLETE_ABORT, 30), (State.ONGOING, 10)])
def test_a_transaction_starts_with_its_first_partition(state: State, started_ms: int) -> None:
    extended = transaction(state).extended([P1], 2, 30)
    assert (extended.state, extended.started_ms, extended.updated_ms) == (State.ONGOING, started_ms, 30)
    assert (extended.partitions, extended.client_version) == (frozenset({P0, P1}), 2)


@pytest.mark.parametrize(("commit", "state"), [(True, State.PREPARE_COMMIT), (False, State.PREPARE_ABORT)])
def test_an_older_client_keeps_its_epoch_when_it_ends_a_transaction(commit: bool, state: State) -> None:
    prepared = transaction(State.ONGOING, client_version=2).prepared(commit=commit, now_ms=30)
    assert (prepared.state, prepared.producer, prepared.updated_ms) == (state, Producer(7, 4), 30)
    assert (prepared.started_ms, prepared.next_producer_id, prepared.client_version) == (10, -1, 0)
    assert prepared.previous_producer_id == 5


@pytest.mark.parametrize(("state", "started_ms"), [(State.ONGOING, 10), (State.EMPTY, 30), (State.COMPLETE_COMMIT, 30)])
def test_an_abort_of_nothing_starts_when_it_ends(state: State, started_ms: int) -> None:
    prepared = transaction(state).prepared_with_bump(commit=False, now_ms=30, next_producer_id=9)
    assert (prepared.state, prepared.started_ms) == (State.PREPARE_ABORT, started_ms)
    assert (prepared.producer, prepared.client_version) == (Producer(7, 5), 2)


@pytest.mark.parametrize(
    ("epoch", "raised", "next_id"),
    [
        (LAST_CLIENT_EPOCH - 1, LAST_CLIENT_EPOCH, -1),
        (LAST_CLIENT_EPOCH, MAX_EPOCH, 9),
        (MAX_EPOCH, MAX_EPOCH, 9),
    ],
)
def test_another_producer_id_follows_when_the_epochs_run_out(epoch: int, raised: int, next_id: int) -> None:
    ended = transaction(State.ONGOING, epoch=epoch).prepared_with_bump(commit=True, now_ms=30, next_producer_id=9)
    assert (ended.producer, ended.next_producer_id) == (Producer(7, raised), next_id)
    assert ended.next_client_producer == (Producer(7, raised) if next_id == -1 else Producer(9, 0))


@pytest.mark.parametrize(("epoch", "raised"), [(4, 5), (LAST_CLIENT_EPOCH, MAX_EPOCH), (MAX_EPOCH, MAX_EPOCH)])
def test_a_fence_raises_the_epoch_and_aborts(epoch: int, raised: int) -> None:
    fenced = transaction(State.ONGOING, epoch=epoch, client_version=2).fenced(30)
    assert (fenced.state, fenced.producer, fenced.client_version) == (State.PREPARE_ABORT, Producer(7, raised), 0)
    assert (fenced.started_ms, fenced.next_producer_id) == (10, -1)


@pytest.mark.parametrize(
    ("state", "next_id", "following", "producer", "previous_id"),
    [
        (State.PREPARE_COMMIT, -1, State.COMPLETE_COMMIT, Producer(7, 4), 5),
        (State.PREPARE_ABORT, -1, State.COMPLETE_ABORT, Producer(7, 4), 5),
        (State.PREPARE_COMMIT, 9, State.COMPLETE_COMMIT, Producer(9, 0), 7),
        (State.PREPARE_ABORT, 0, State.COMPLETE_ABORT, Producer(0, 0), 7),
    ],
)
def test_with_all_its_markers_a_transaction_is_complete(
    state: State, next_id: int, following: State, producer: Producer, previous_id: int
) -> None:
    completed = transaction(state, next_id=next_id, client_version=2).completed(30)
    assert (completed.state, completed.producer, completed.updated_ms) == (following, producer, 30)
    assert (completed.partitions, completed.started_ms, completed.client_version) == (frozenset(), 10, 2)
    assert (completed.previous_producer_id, completed.next_producer_id) == (previous_id, -1)


def test_epochs_end_one_before_the_last_number() -> None:
    assert (LAST_CLIENT_EPOCH, MAX_EPOCH) == (32_766, 32_767)
    exhausted = [transaction(State.EMPTY, epoch=epoch).is_epoch_exhausted for epoch in (0, 32_765, 32_766, 32_767)]
    assert exhausted == [False, False, True, True]
