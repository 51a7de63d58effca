"""Who leads: rules of election."""

from __future__ import annotations

from ottla.machines.cluster.election import elect, first_leader


def test_the_first_live_in_sync_replica_leads() -> None:
    assert elect([3, 1, 2], {1, 2}, {1, 2}, unclean_allowed=False) == (1, [1, 2], False)
    assert elect([3, 1, 2], {3, 1}, {1, 2}, unclean_allowed=False) == (1, [1], False)


def test_nobody_in_sync_means_no_leader_unless_unclean_is_allowed() -> None:
    assert elect([3, 1], {3}, {1}, unclean_allowed=False) is None
    assert elect([3, 1], {3}, {1}, unclean_allowed=True) == (1, [1], True)
    assert elect([3, 1], {3}, set(), unclean_allowed=True) is None


def test_new_partitions_start_with_all_live_replicas_in_sync() -> None:
    assert first_leader([2, 1, 3], {1, 3}) == (1, [1, 3], False)
    assert first_leader([2], set()) == (-1, [], False)
