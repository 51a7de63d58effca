"""The round-robin assignor: all partitions in order, dealt to the members in a circle, skipping non-subscribers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.types import TopicPartition
from ottla.machines.assignors.types import Assignment, AssignorMember, in_order, subscribers_by_topic


class RoundRobinAssignor:
    name = "roundrobin"

    def assign(self, members: Sequence[AssignorMember], partition_counts: Mapping[str, int]) -> Assignment:
        ordered = in_order(members)
        assignment: Assignment = {member.member_id: [] for member in ordered}
        turn = 0
        for topic in subscribers_by_topic(ordered, partition_counts):
            for index in range(partition_counts[topic]):
                while topic not in ordered[turn % len(ordered)].topics:
                    turn += 1
                assignment[ordered[turn % len(ordered)].member_id].append(TopicPartition(topic, index))
                turn += 1
        return assignment
