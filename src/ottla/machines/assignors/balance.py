"""The balancing that sticky, cooperative-sticky and uniform share: as even as it can be, moving as little as it must.

The result is balanced in this sense: wherever one member has two or more partitions more than another, the other
subscribes to none of the topics the first could give away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.types import TopicPartition
from ottla.machines.assignors.types import Assignment, AssignorMember, subscribers_by_topic

Owners = dict[TopicPartition, str]


def claimed_owners(members: Sequence[AssignorMember], partition_counts: Mapping[str, int]) -> Owners:
    """Who may keep what: claims on partitions that exist, by a member that still wants them.

    The claim of the newest generation wins. Two claims of one generation cannot both be true, and the assignor cannot
    know which is, so neither counts.
    """
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        for partition in member.owned:
            if not 0 <= partition.partition < partition_counts.get(partition.topic, 0):
                continue
            rival = best.get(partition)
            if rival is None or member.generation > rival[0]:
                best[partition] = (member.generation, member.member_id)
            elif member.generation == rival[0]:
                best[partition] = (member.generation, None)
    topics = {member.member_id: member.topics for member in members}
    return {
        partition: owner
        for partition, (_, owner) in best.items()
        if owner is not None and partition.topic in topics[owner]
    }


def balance(members: Sequence[AssignorMember], partition_counts: Mapping[str, int]) -> Assignment:
    ordered = sorted(members, key=lambda m: m.member_id)
    claims = claimed_owners(ordered, partition_counts)
    subscribers = {
        topic: [member.member_id for member in subscribed]
        for topic, subscribed in subscribers_by_topic(ordered, partition_counts).items()
    }
    partitions = [TopicPartition(topic, index) for topic in subscribers for index in range(partition_counts[topic])]
    member_ids = [member.member_id for member in ordered]
    if all(len(subscribed) == len(ordered) for subscribed in subscribers.values()):
        owners = _balance_equal_members(member_ids, partitions, claims)
    else:
        owners = _balance_unequal_members(member_ids, partitions, subscribers, claims)
    assignment: Assignment = {member_id: [] for member_id in member_ids}
    for partition in partitions:
        assignment[owners[partition]].append(partition)
    return assignment


def _balance_equal_members(members: list[str], partitions: list[TopicPartition], claims: Owners) -> Owners:
    """All subscribe to the same topics, so everybody's share is known beforehand and claims beyond it are cut."""
    if not members:
        return {}
    kept: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for partition in partitions:
        owner = claims.get(partition)
        if owner is not None:
            kept[owner].append(partition)
    share, remainder = divmod(len(partitions), len(members))
    # Those who already hold most get the odd partitions: nobody then gives one up that somebody else must take.
    by_holdings = sorted(members, key=lambda member: -len(kept[member]))
    quota = {member: share + (rank < remainder) for rank, member in enumerate(by_holdings)}

    owners = {partition: member for member in members for partition in kept[member][: quota[member]]}
    counts = {member: min(len(kept[member]), quota[member]) for member in members}
    _deal([partition for partition in partitions if partition not in owners], owners, counts, quota)
    return owners


def _deal(unassigned: list[TopicPartition], owners: Owners, counts: dict[str, int], quota: Mapping[str, int]) -> None:
    """Lifts the poorest first, level by level, which spreads neighbouring partitions over different members."""
    # The quotas add up to all partitions, so that none is left over and none is missing.
    pending = iter(unassigned)
    for level in range(min(counts.values()), max(quota.values())):
        for member in [member for member in counts if counts[member] == level and level < quota[member]]:
            owners[next(pending)] = member
            counts[member] += 1


def _balance_unequal_members(
    members: list[str], partitions: list[TopicPartition], subscribers: Mapping[str, list[str]], claims: Owners
) -> Owners:
    owners = dict(claims)
    counts = dict.fromkeys(members, 0)
    for owner in owners.values():
        counts[owner] += 1
    # Topics few can read go first: later ones can still even out what those readers had to take.
    for partition in sorted(partitions, key=lambda partition: len(subscribers[partition.topic])):
        if partition not in owners:
            poorest = min(subscribers[partition.topic], key=lambda member: (counts[member], member))
            owners[partition] = poorest
            counts[poorest] += 1
    _level_out(owners, counts, subscribers, claims)
    return owners


def _level_out(owners: Owners, counts: dict[str, int], subscribers: Mapping[str, list[str]], claims: Owners) -> None:
    """Moves partitions from richer to poorer subscribers of their topic until no move would make it more even.

    Each move takes from a member with at least two more than the receiver, so the sum of squares falls and this ends.
    """
    held: dict[str, dict[str, list[TopicPartition]]] = {topic: {} for topic in subscribers}
    # What a member did not hold before is at the end of its list, and goes first.
    for partition in sorted(owners, key=lambda p: (claims.get(p) != owners[p], p)):
        held[partition.topic].setdefault(owners[partition], []).append(partition)
    moved = True
    while moved:
        moved = False
        for topic, readers in subscribers.items():
            holders = held[topic]
            while holders:
                richest = max(holders, key=lambda member: (counts[member], member))
                poorest = min(readers, key=lambda member: (counts[member], member))
                if counts[richest] - counts[poorest] < 2:
                    break
                partition = holders[richest].pop()
                if not holders[richest]:
                    del holders[richest]
                holders.setdefault(poorest, []).append(partition)
                owners[partition] = poorest
                counts[richest] -= 1
                counts[poorest] += 1
                moved = True
