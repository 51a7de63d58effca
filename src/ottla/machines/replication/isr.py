"""A partition's in-sync set as its leader sees it: agreed with the controller, or on its way to be changed (KIP-497).

Until the controller has answered, both the old and the proposed set may be in force. So what is committed is counted
over the larger of the two, and whether a write has enough replicas over the set that is agreed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Committed(NamedTuple):
    isr: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        return self.isr


class PendingGrowth(NamedTuple):
    """The controller was asked to take `joining` in."""

    isr: frozenset[int]
    joining: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        return self.isr | self.joining


class PendingShrink(NamedTuple):
    """The controller was asked to take `leaving` out; until it agrees it may elect one of them."""

    isr: frozenset[int]
    leaving: frozenset[int]

    @property
    def maximal(self) -> frozenset[int]:
        return self.isr


IsrState = Committed | PendingGrowth | PendingShrink


class ProposeIsr(NamedTuple):
    """An effect: ask the controller for this set, by AlterPartition under these epochs."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    broker_epochs: Mapping[int, int]
    """Under which registration followers have last fetched: the controller refuses a member that was restarted since,
    and may have lost its tail (KIP-903)."""
