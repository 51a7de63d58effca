"""From which replica a consumer should read: one in its own rack, if there is one that is in sync (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.machines.replication.leader import PartitionLeader


def closest_replica(leader: PartitionLeader, offset: int, rack: str, racks: Mapping[int, str | None]) -> int | None:
    """The follower that holds `offset` and most of what comes after it, in the consumer's rack; None for the leader.

    `racks` has the brokers that the consumer can reach.
    """
    if racks.get(leader.local_id) == rack:
        return None
    in_rack = [
        (position.log_end_offset, position.caught_up_at_ms, replica)
        for replica, position in leader.followers.items()
        if racks.get(replica) == rack
        and replica in leader.isr
        and position.log_start_offset <= offset <= position.log_end_offset
    ]
    return max(in_rack)[2] if in_rack else None
