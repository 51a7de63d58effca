"""A partition's leader: how far the partition is committed."""

from __future__ import annotations

import pytest

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
    assert machine.isr_changed({1, 2}) == 10, "whatever the other one has"
    assert machine.appended(12) == 10


def test_below_min_isr_nothing_new_is_committed() -> None:
    machine = leader({1}, min_isr=2)
    assert not machine.has_enough_replicas
    assert machine.appended(20) == 4


@pytest.mark.parametrize(
    ("isr", "min_isr", "expected"), [({1}, 1, True), ({1}, 2, False), ({1, 2}, 1, False), ({2}, 1, False)]
)
def test_who_commits_alone_has_committed_with_the_append(isr: set[int], min_isr: int, expected: bool) -> None:
    machine = leader(isr, min_isr=min_isr)
    assert machine.commits_alone is expected
    if expected:
        assert machine.appended(99) == 99
