"""Which replica a consumer is sent to."""

from __future__ import annotations

import pytest

from ottla.machines.replication.closest_replica import closest_replica
from ottla.machines.replication.leader import PartitionLeader

RACKS = {1: "a", 2: "b", 3: "b", 4: "c", 5: None}


def leader(*, isr: tuple[int, ...] = (1, 2, 3, 5)) -> PartitionLeader:
    """Broker 1, with 100 records; 2 has all but the first ten, 3 has them up to the 90th, 4 is not in sync."""
    made = PartitionLeader(
        local_id=1,
        leader_epoch=0,
        partition_epoch=0,
        replicas=(1, 2, 3, 4, 5),
        isr=isr,
        log_end_offset=100,
        high_watermark=0,
        min_insync_replicas=1,
        now_ms=0,
    )
    for replica, start, end in ((2, 10, 100), (3, 0, 90), (4, 0, 20), (5, 0, 100)):
        made.follower_fetched(replica, end, start, now_ms=1, lag_ms_max=1000)
    return made


@pytest.mark.parametrize(
    ("rack", "offset", "expected"),
    [
        ("a", 50, None),  # The leader's own rack.
        ("b", 50, 2),  # Both have it, 2 has more.
        ("b", 5, 3),  # 2 has not got it any more.
        ("b", 10, 2),
        ("b", 9, 3),
        ("b", 95, 2),
        ("b", 100, 2),  # It has all there is.
        ("b", 101, None),
        ("c", 10, None),  # Its replica is not in sync.
        ("d", 50, None),
    ],
)
def test_the_replica_for_a_consumer(rack: str, offset: int, expected: int | None) -> None:
    assert closest_replica(leader(), offset, rack, RACKS) == expected


def test_brokers_that_cannot_be_reached_are_not_named() -> None:
    assert closest_replica(leader(), 50, "b", {1: "a", 3: "b"}) == 3
    assert closest_replica(leader(), 50, "b", {1: "a"}) is None


def test_of_two_that_have_the_same_the_one_that_was_heard_of_last_is_named() -> None:
    made = leader()
    for now_ms, replica in ((5, 2), (7, 3)):
        made.follower_fetched(replica, 100, 0, now_ms=now_ms, lag_ms_max=1000)
    assert closest_replica(made, 50, "b", RACKS) == 3
