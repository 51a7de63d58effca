"""The cooperative sticky assignor: sticky, but a partition that changes hands is first only taken away (KIP-429).

Its old owner then rejoins without it, and the rebalance after that gives it to the new one. So members keep reading
what they keep, and no partition has two owners at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.types import TopicPartition
from ottla.machines.assignors.balance import balance
from ottla.machines.assignors.types import Assignment, AssignorMember


class CooperativeStickyAssignor:
    name = "cooperative-sticky"

    def assign(self, members: Sequence[AssignorMember], partition_counts: Mapping[str, int]) -> Assignment:
        holders: dict[TopicPartition, set[str]] = {}
        for member in members:
            for partition in member.owned:
                holders.setdefault(partition, set()).add(member.member_id)
        # Claims too old or too many to be believed still withhold: whoever made one may be reading.
        return {
            member_id: [p for p in partitions if p not in holders or member_id in holders[p]]
            for member_id, partitions in balance(members, partition_counts).items()
        }
