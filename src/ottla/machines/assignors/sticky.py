"""The sticky assignor: balanced, and previous owners keep what they have unless balance needs it (KIP-54)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.machines.assignors.balance import balance
from ottla.machines.assignors.types import Assignment, AssignorMember


class StickyAssignor:
    name = "sticky"

    def assign(self, members: Sequence[AssignorMember], partition_counts: Mapping[str, int]) -> Assignment:
        return balance(members, partition_counts)
