"""Whether a producer that asks again has ended the transaction itself, and only does not know its new epoch yet."""

from __future__ import annotations

import pytest

from ottla.machines.transactions.states import State
from ottla.machines.transactions.transaction import LAST_CLIENT_EPOCH, Producer, Transaction

ENDED = [State.PREPARE_COMMIT, State.PREPARE_ABORT, State.COMPLETE_COMMIT, State.COMPLETE_ABORT]


def transaction(epoch: int, state: State, *, version: int = 2, previous_id: int = -1) -> Transaction:
    return Transaction("x", Producer(7, epoch), 1000, state, previous_producer_id=previous_id, client_version=version)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_only_an_end_that_raises_the_epoch_counts(state: State, version: int) -> None:
    ended = transaction(5, state, version=version)
    assert ended.was_ended_by(Producer(7, 4)) is (version >= 2 and state in ENDED)


@pytest.mark.parametrize("producer", [Producer(7, 5), Producer(7, 3), Producer(8, 4), Producer(7, 6)])
def test_it_was_the_epoch_before_of_the_same_producer(producer: Producer) -> None:
    assert not transaction(5, State.COMPLETE_COMMIT).was_ended_by(producer)


@pytest.mark.parametrize(
    ("previous_id", "producer", "expected"),
    [
        (3, Producer(3, LAST_CLIENT_EPOCH), True),
        (3, Producer(3, LAST_CLIENT_EPOCH - 1), False),
        (3, Producer(4, LAST_CLIENT_EPOCH), False),
        (3, Producer(7, -1), False),
        (-1, Producer(-1, LAST_CLIENT_EPOCH), False),
    ],
)
def test_the_first_epoch_of_an_id_follows_the_last_of_another(
    previous_id: int, producer: Producer, expected: bool
) -> None:
    assert transaction(0, State.COMPLETE_ABORT, previous_id=previous_id).was_ended_by(producer) is expected


@pytest.mark.parametrize(
    ("state", "now_ms", "expected"),
    [(State.ONGOING, 1100, False), (State.ONGOING, 1101, True), (State.PREPARE_COMMIT, 9999, False)],
)
def test_only_what_is_open_times_out(state: State, now_ms: int, expected: bool) -> None:
    open_ = Transaction("x", Producer(7, 0), 1000, state, started_ms=100)
    assert open_.has_timed_out(now_ms) is expected


@pytest.mark.parametrize(
    ("state", "now_ms", "expected"),
    [
        (State.EMPTY, 149, False),
        (State.EMPTY, 150, True),
        (State.COMPLETE_ABORT, 150, True),
        (State.ONGOING, 999, False),
    ],
)
def test_only_what_rests_expires(state: State, now_ms: int, expected: bool) -> None:
    resting = Transaction("x", Producer(7, 0), 1000, state, updated_ms=100)
    assert resting.has_expired(now_ms, 50) is expected
