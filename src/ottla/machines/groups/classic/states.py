"""The states of a classic group and the moves between them."""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The value is the text that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState

MOVES: dict[GroupState, frozenset[GroupState]] = {
    _EMPTY: frozenset({_PREPARING, _DEAD}),
    _PREPARING: frozenset({_COMPLETING, _EMPTY, _DEAD}),
    _COMPLETING: frozenset({_STABLE, _PREPARING, _DEAD}),
    _STABLE: frozenset({_PREPARING, _DEAD}),
    _DEAD: frozenset(),
}
"""From each state, the states a decision may move to. Replay may set Empty or Stable at any time: only groups at rest
are ever stored; and PreparingRebalance for a group that was one of KIP-848 before."""
