"""Partition assignors by name: those a client runs for a classic group, and those the coordinator runs (KIP-848)."""

from __future__ import annotations

from ottla.machines.assignors.cooperative_sticky import CooperativeStickyAssignor
from ottla.machines.assignors.range import RangeAssignor
from ottla.machines.assignors.round_robin import RoundRobinAssignor
from ottla.machines.assignors.sticky import StickyAssignor
from ottla.machines.assignors.types import Assignor
from ottla.machines.assignors.uniform import UniformAssignor

CLIENT_ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
SERVER_ASSIGNORS: dict[str, Assignor] = {assignor.name: assignor for assignor in (UniformAssignor(), RangeAssignor())}
