"""Every state against every event: what is answered, and what the transaction becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.base.errors import ErrorCode
from ottla.machines.transactions.states import (
    NEXT_STATES,
    STATES_BY_TEXT,
    IllegalTransitionError,
    State,
    check_transition,
)
from ottla.machines.transactions.transaction import Producer, Transaction
from tests.unit.machines.transactions.driver import NEW_END, OLD_END, P0, P1, START_MS, TIMEOUT_MS, Coordinator

NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
WRONG_STATE = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
NOT_IN_IT = ErrorCode.TRANSACTION_ABORTABLE

EMPTY = State.EMPTY
ONGOING = State.ONGOING
PREPARE_COMMIT = State.PREPARE_COMMIT
PREPARE_ABORT = State.PREPARE_ABORT
COMPLETE_COMMIT = State.COMPLETE_COMMIT
COMPLETE_ABORT = State.COMPLETE_ABORT
FENCING = State.PREPARE_EPOCH_FENCE

CURRENT = (900, 5)
STALE = (900, 4)

Event = Callable[[Coordinator], ErrorCode | None]


def _markers_written(c: Coordinator) -> None:
    c.run(c.shard.markers_written("t", *CURRENT, now_ms=c.now_ms))


def _older_markers_written(c: Coordinator) -> None:
    c.run(c.shard.markers_written("t", *STALE, now_ms=c.now_ms))


def _time_out(c: Coordinator) -> None:
    c.pass_time(TIMEOUT_MS + 1)
    c.run(c.shard.abort_timed_out(c.now_ms))


def _expire(c: Coordinator) -> None:
    c.pass_time(c.shard.config.transactional_id_expiration_ms)
    c.run(c.shard.expire_ids(c.now_ms))


EVENTS: dict[str, Event] = {
    "init": lambda c: c.init().error_code,
    "init as current": lambda c: c.init(producer=CURRENT).error_code,
    "init as stale": lambda c: c.init(producer=STALE).error_code,
    "add": lambda c: c.add(CURRENT, P1).error_code,
    "add as stale": lambda c: c.add(STALE, P1).error_code,
    "add offsets": lambda c: c.add_offsets(CURRENT).error_code,
    "verify": lambda c: c.verify(CURRENT, P0),
    "commit": lambda c: c.end(CURRENT, commit=True, version=OLD_END).error_code,
    "abort": lambda c: c.end(CURRENT, commit=False, version=OLD_END).error_code,
    "commit and bump": lambda c: c.end(CURRENT, commit=True, version=NEW_END).error_code,
    "abort and bump": lambda c: c.end(CURRENT, commit=False, version=NEW_END).error_code,
    "commit as stale": lambda c: c.end(STALE, commit=True, version=OLD_END).error_code,
    "abort and bump as stale": lambda c: c.end(STALE, commit=False, version=NEW_END).error_code,
    "markers written": _markers_written,
    "older markers written": _older_markers_written,
    "time out": _time_out,
    "expire": _expire,
}

# For each event: what is answered and which state follows; None answers nothing, GONE forgets the id.
GONE = State.DEAD
SAME = "same"
Outcome = tuple[ErrorCode | None, State | str]
OUTCOMES: dict[State, dict[str, Outcome]] = {
    EMPTY: {
        "init": (NONE, EMPTY),
        "init as current": (NONE, EMPTY),
        "add": (NONE, ONGOING),
        "add offsets": (NONE, ONGOING),
        "verify": (NOT_IN_IT, SAME),
        "commit": (WRONG_STATE, SAME),
        "abort": (WRONG_STATE, SAME),
        "commit and bump": (WRONG_STATE, SAME),
        "abort and bump": (NONE, COMPLETE_ABORT),
        "markers written": (None, SAME),
        "time out": (None, SAME),
        "expire": (None, GONE),
    },
    ONGOING: {
        "init": (BUSY, PREPARE_ABORT),
        "init as current": (BUSY, PREPARE_ABORT),
        "add": (NONE, ONGOING),
        "add offsets": (NONE, ONGOING),
        "verify": (NONE, SAME),
        "commit": (NONE, PREPARE_COMMIT),
        "abort": (NONE, PREPARE_ABORT),
        "commit and bump": (NONE, PREPARE_COMMIT),
        "abort and bump": (NONE, PREPARE_ABORT),
        "markers written": (None, SAME),
        "time out": (None, PREPARE_ABORT),
        "expire": (None, SAME),
    },
    PREPARE_COMMIT: {
        "init": (BUSY, SAME),
        "init as current": (BUSY, SAME),
        "add": (BUSY, SAME),
        "add offsets": (BUSY, SAME),
        "verify": (BUSY, SAME),
        "commit": (BUSY, SAME),
        "abort": (WRONG_STATE, SAME),
        "commit and bump": (BUSY, SAME),
        "abort and bump": (BUSY, SAME),
        "markers written": (None, COMPLETE_COMMIT),
        "time out": (None, SAME),
        "expire": (None, SAME),
    },
    PREPARE_ABORT: {
        "init": (BUSY, SAME),
        "init as current": (BUSY, SAME),
        "add": (BUSY, SAME),
        "add offsets": (BUSY, SAME),
        "verify": (BUSY, SAME),
        "commit": (WRONG_STATE, SAME),
        "abort": (BUSY, SAME),
        "commit and bump": (BUSY, SAME),
        "abort and bump": (BUSY, SAME),
        "markers written": (None, COMPLETE_ABORT),
        "time out": (None, SAME),
        "expire": (None, SAME),
    },
    COMPLETE_COMMIT: {
        "init": (NONE, EMPTY),
        "init as current": (NONE, EMPTY),
        "add": (NONE, ONGOING),
        "add offsets": (NONE, ONGOING),
        "verify": (NOT_IN_IT, SAME),
        "commit": (NONE, SAME),
        "abort": (WRONG_STATE, SAME),
        "commit and bump": (WRONG_STATE, SAME),
        "abort and bump": (NONE, COMPLETE_ABORT),
        "markers written": (None, SAME),
        "time out": (None, SAME),
        "expire": (None, GONE),
    },
    COMPLETE_ABORT: {
        "init": (NONE, EMPTY),
        "init as current": (NONE, EMPTY),
        "add": (NONE, ONGOING),
        "add offsets": (NONE, ONGOING),
        "verify": (NOT_IN_IT, SAME),
        "commit": (WRONG_STATE, SAME),
        "abort": (NONE, SAME),
        "commit and bump": (WRONG_STATE, SAME),
        "abort and bump": (NONE, COMPLETE_ABORT),
        "markers written": (None, SAME),
        "time out": (None, SAME),
        "expire": (None, GONE),
    },
    # Never stored by us, and turned into an abort as soon as the log is loaded.
    FENCING: {
        "init": (BUSY, SAME),
        "init as current": (BUSY, SAME),
        "add": (BUSY, SAME),
        "add offsets": (BUSY, SAME),
        "verify": (BUSY, SAME),
        "commit": (WRONG_STATE, SAME),
        "abort": (BUSY, SAME),
        "commit and bump": (BUSY, SAME),
        "abort and bump": (BUSY, SAME),
        "markers written": (None, SAME),
        "time out": (None, SAME),
        "expire": (None, SAME),
    },
}
for _outcomes in OUTCOMES.values():
    # A producer of an older epoch is shut out in every state, and an old report of markers changes nothing.
    for _event in ("init as stale", "add as stale", "commit as stale", "abort and bump as stale"):
        _outcomes[_event] = (FENCED, SAME)
    _outcomes["older markers written"] = (None, SAME)


def in_state(state: State) -> Coordinator:
    coordinator = Coordinator()
    has_partitions = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT, FENCING)
    coordinator.put(
        Transaction(
            "t",
            Producer(*CURRENT),
            TIMEOUT_MS,
            state,
            partitions=frozenset({P0}) if has_partitions else frozenset(),
            started_ms=-1 if state is EMPTY else START_MS,
            updated_ms=START_MS,
        )
    )
    return coordinator


def test_the_table_of_outcomes_is_complete() -> None:
    assert set(OUTCOMES) == set(State) - {State.DEAD}
    assert all(set(outcomes) == set(EVENTS) for outcomes in OUTCOMES.values())


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", OUTCOMES, ids=lambda state: state.text)
def test_each_state_meets_each_event(state: State, event: str) -> None:
    coordinator = in_state(state)
    before = coordinator.transaction()
    answered, following = OUTCOMES[state][event]

    assert EVENTS[event](coordinator) == answered

    if following is GONE:
        assert coordinator.shard.transactions == {}
    elif following == SAME:
        assert coordinator.transaction() == before
        assert coordinator.last_decision.records == []
        assert coordinator.orders == []
    else:
        assert coordinator.state() is following
        assert coordinator.last_decision.records
        assert bool(coordinator.orders) == (following in (PREPARE_COMMIT, PREPARE_ABORT))


@pytest.mark.parametrize("state", OUTCOMES, ids=lambda state: state.text)
def test_whatever_is_answered_with_an_error_says_what_to_do(state: State) -> None:
    for event in ("commit as stale", "add as stale", "init as stale"):
        coordinator = in_state(state)
        EVENTS[event](coordinator)
        (reply,) = coordinator.last_decision.effects
        assert "close this producer" in reply.response.message
        assert "'t'" in reply.response.message


@pytest.mark.parametrize("current", State, ids=lambda state: state.text)
@pytest.mark.parametrize("following", State, ids=lambda state: state.text)
def test_moves_outside_the_table_are_refused(current: State, following: State) -> None:
    if following in NEXT_STATES[current]:
        check_transition("t", current, following)
    else:
        with pytest.raises(IllegalTransitionError, match=f"from {current.text} to {following.text}"):
            check_transition("t", current, following)


def test_the_table_of_states_is_the_protocols() -> None:
    previous = {
        following.text: {current.text for current in State if following in NEXT_STATES[current]} for following in State
    }
    resting = {"Empty", "CompleteCommit", "CompleteAbort"}
    assert previous == {
        "Empty": resting,
        "Ongoing": resting | {"Ongoing"},
        "PrepareCommit": {"Ongoing"},
        "PrepareAbort": resting | {"Ongoing", "PrepareEpochFence"},
        "CompleteCommit": {"PrepareCommit"},
        "CompleteAbort": {"PrepareAbort"},
        "Dead": resting,
        "PrepareEpochFence": {"Ongoing"},
    }
    stored = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"]
    assert [STATES_BY_TEXT[text] for text in stored] == list(range(7))
    assert STATES_BY_TEXT["PrepareEpochFence"] == 7


def test_a_move_out_of_turn_is_a_fault() -> None:
    done = in_state(COMPLETE_COMMIT).transaction()
    with pytest.raises(IllegalTransitionError):
        done.completed(START_MS)
    with pytest.raises(IllegalTransitionError):
        replace(done, state=PREPARE_ABORT).prepared(commit=True, now_ms=START_MS)
