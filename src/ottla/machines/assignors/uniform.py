"""The coordinator's default assignor (KIP-848): an even spread that changes the previous target as little as it must.

It balances as the sticky assignor does; that a partition is never held twice is the coordinator's business, which
gives it to the new owner only when the old one has let go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.machines.assignors.balance import balance
from ottla.machines.assignors.types import Assignment, AssignorMember


class UniformAssignor:
    name = "uniform"

    def assign(self, members: Sequence[AssignorMember], partition_counts: Mapping[str, int]) -> Assignment:
        return balance(members, partition_counts)
