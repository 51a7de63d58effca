"""The high watermark and the choice of leaders, as pure rules."""

from __future__ import annotations

import pytest

from ottla.machines.cluster.election import elect, first_leader
from ottla.machines.cluster.topic_names import colliding_name, why_illegal
from ottla.machines.replication.leader import PartitionLeader


def leader(isr: set[int], *, end: int = 10, high_watermark: int = 4, min_isr: int = 1) -> PartitionLeader:
    return PartitionLeader(
        local_id=1,
        leader_epoch=3,
        isr=isr,
        log_end_offset=end,
        high_watermark=high_watermark,
        min_insync_replicas=min_isr,
    )


def test_alone_the_leader_commits_what_it_has() -> None:
    machine = leader({1})
    assert machine.high_watermark == 10
    assert machine.appended(12) == 12


def test_followers_hold_the_high_watermark_back_until_they_are_heard_of() -> None:
    machine = leader({1, 2})
    assert machine.high_watermark == 4
    assert machine.appended(12) == 4
    assert machine.isr_changed({1}) == 12


def test_the_high_watermark_never_goes_back() -> None:
    machine = leader({1})
    machine.truncated(2)
    assert machine.isr_changed({1, 2}) == 10


def test_below_min_isr_nothing_new_is_committed() -> None:
    machine = leader({1}, min_isr=2)
    assert not machine.has_enough_replicas
    assert machine.appended(20) == 4


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


def test_topic_names() -> None:
    assert why_illegal("a.B_c-9") is None
    assert why_illegal("x" * 249) is None
    for bad in ("", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\0", "../../x", "a\n"):
        assert why_illegal(bad) is not None, bad
    assert colliding_name("a.b", ["x", "a_b"]) == "a_b"
    assert colliding_name("a.b", ["a.b", "ab"]) is None
    assert colliding_name("ab", ["a.b"]) is None


@pytest.mark.parametrize(
    ("isr", "min_isr", "expected"), [({1}, 1, True), ({1}, 2, False), ({1, 2}, 1, False), ({2}, 1, False)]
)
def test_who_commits_alone_has_committed_with_the_append(isr: set[int], min_isr: int, expected: bool) -> None:
    machine = leader(isr, min_isr=min_isr)
    assert machine.commits_alone is expected
    if expected:
        assert machine.appended(99) == 99
