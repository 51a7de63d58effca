"""The states of a transactional id and the one table that says which may follow which. Decides nothing."""

from __future__ import annotations

from enum import IntEnum

from ottla.base.errors import OttlaError


class State(IntEnum):
    """The numbers are those of the status byte in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name that ListTransactions and DescribeTransactions use."""
        return _TEXTS[self]


_TEXTS = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in State}
STATES_BY_TEXT = {text: state for state, text in _TEXTS.items()}

RESTING = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""Nothing is open and nothing is owed: the next transaction may begin, or the id may expire."""
PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome is decided, and partitions still wait for their markers."""
ENDING = PREPARED | {State.PREPARE_EPOCH_FENCE}

NEXT_STATES: dict[State, frozenset[State]] = {
    # From a resting state only an abort can be prepared, by a producer that cannot know whether any of its writes
    # added a partition and needs its epoch raised all the same (KIP-890, part 2).
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset(
        {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE},
    ),
    State.PREPARE_EPOCH_FENCE: frozenset({State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.DEAD: frozenset(),
}


class IllegalTransitionError(OttlaError):
    """A decision that the table does not allow: a fault of the machine, never of a client."""


def check_transition(transactional_id: str, current: State, following: State) -> None:
    if following not in NEXT_STATES[current]:
        raise IllegalTransitionError(f"{transactional_id!r} cannot go from {current.text} to {following.text}")
