"""The range assignor: each topic's partitions in contiguous runs, in the order of the members.

Topics with the same number of partitions and the same subscribers are cut alike, so partition n of each lands on the
same member; the price is that the first members get the remainder of every topic. Client side and server side are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.types import TopicPartition
from ottla.machines.assignors.types import Assignment, AssignorMember, in_order, subscribers_by_topic


class RangeAssignor:
    name = "range"

    def assign(self, members: Sequence[AssignorMember], partition_counts: Mapping[str, int]) -> Assignment:
        ordered = in_order(members)
        assignment: Assignment = {member.member_id: [] for member in ordered}
        for topic, subscribers in subscribers_by_topic(ordered, partition_counts).items():
            share, remainder = divmod(partition_counts[topic], len(subscribers))
            start = 0
            for rank, member in enumerate(subscribers):
                end = start + share + (rank < remainder)
                assignment[member.member_id] += [TopicPartition(topic, index) for index in range(start, end)]
                start = end
        return assignment
