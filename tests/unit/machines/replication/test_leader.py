"""A partition's leader: who is in sync, and how far the partition is committed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.machines.fetch_session import SessionWatch
from ottla.machines.replication.isr import ProposeIsr
from ottla.machines.replication.leader import PartitionLeader

LAG_MS = 100
EPOCH, PARTITION_EPOCH = 3, 7


def leader(
    isr: set[int],
    *,
    replicas: set[int] | None = None,
    adding: frozenset[int] = frozenset(),
    end: int = 10,
    high_watermark: int = 4,
    min_isr: int = 1,
) -> PartitionLeader:
    return PartitionLeader(
        local_id=1,
        leader_epoch=EPOCH,
        partition_epoch=PARTITION_EPOCH,
        replicas=replicas or isr,
        adding=adding,
        isr=isr,
        log_end_offset=end,
        high_watermark=high_watermark,
        min_insync_replicas=min_isr,
        now_ms=0,
    )


def fetch(machine: PartitionLeader, replica: int, offset: int, now_ms: int = 0) -> ProposeIsr | None:
    return machine.follower_fetched(replica, offset, 0, now_ms=now_ms, lag_ms_max=LAG_MS)


def test_alone_the_leader_commits_what_it_has() -> None:
    machine = leader({1})
    assert machine.high_watermark == 10
    assert machine.appended(12) == 12


def test_followers_hold_the_high_watermark_back_until_they_are_heard_of() -> None:
    machine = leader({1, 2, 3})
    assert machine.high_watermark == 4
    assert machine.appended(12) == 4
    assert fetch(machine, 2, 12) is None
    assert machine.high_watermark == 4, "3 may have less"
    fetch(machine, 3, 11)
    assert machine.high_watermark == 11


def test_replicas_that_a_move_brings_are_not_counted_on() -> None:
    assert leader({1}, replicas={1, 2, 3}, adding=frozenset({2, 3}), min_isr=2).has_enough_replicas
    assert not leader({1}, replicas={1, 2, 3}, adding=frozenset({3}), min_isr=2).has_enough_replicas


def test_the_high_watermark_never_goes_back() -> None:
    machine = leader({1}, replicas={1, 2})
    assert machine.isr_confirmed({1, 2}, PARTITION_EPOCH + 1) == 10, "whatever the other one has"
    assert machine.appended(12) == 10
    fetch(machine, 2, 3)
    assert machine.high_watermark == 10


def test_below_min_isr_nothing_new_is_committed() -> None:
    machine = leader({1}, replicas={1, 2}, min_isr=2)
    assert not machine.has_enough_replicas
    assert machine.appended(20) == 4
    assert machine.set_min_insync_replicas(1) == 20
    assert machine.has_enough_replicas


@pytest.mark.parametrize(
    ("isr", "min_isr", "expected"), [({1}, 1, True), ({1}, 2, False), ({1, 2}, 1, False), ({2}, 1, False)]
)
def test_who_commits_alone_has_committed_with_the_append(isr: set[int], min_isr: int, expected: bool) -> None:
    machine = leader(isr, replicas={1, 2}, min_isr=min_isr)
    assert machine.commits_alone is expected
    if expected:
        assert machine.appended(99) == 99


# Shrinking


def test_a_follower_that_falls_behind_is_taken_out() -> None:
    machine = leader({1, 2, 3})
    fetch(machine, 2, 10)
    fetch(machine, 3, 10)
    machine.appended(20)
    fetch(machine, 2, 20, now_ms=60)
    assert machine.check_lag(100, LAG_MS) is None, "3 had everything 100 ms ago, which is not too long"
    assert machine.check_lag(101, LAG_MS) == ProposeIsr((1, 2), EPOCH, PARTITION_EPOCH, {2: -1})
    assert machine.check_lag(300, LAG_MS) is None, "one proposal at a time"


def test_until_the_controller_agrees_the_slow_follower_counts() -> None:
    machine = leader({1, 2})
    fetch(machine, 2, 10)
    machine.appended(20)
    assert machine.check_lag(101, LAG_MS) is not None
    assert (machine.high_watermark, machine.isr) == (10, {1, 2}), "it may still be elected"
    assert machine.isr_confirmed({1}, PARTITION_EPOCH + 1) == 20
    assert machine.commits_alone


def test_a_follower_that_has_everything_may_be_silent() -> None:
    machine = leader({1, 2})
    assert not machine.is_level, "nobody knows yet what it has"
    fetch(machine, 2, 10)
    assert machine.is_level
    assert machine.check_lag(10_000, LAG_MS) is None
    machine.appended(11)
    assert not machine.is_level


def test_a_follower_nobody_has_heard_of_gets_its_time_and_no_more() -> None:
    machine = leader({1, 2})
    assert machine.check_lag(LAG_MS, LAG_MS) is None
    assert machine.check_lag(LAG_MS + 1, LAG_MS) == ProposeIsr((1,), EPOCH, PARTITION_EPOCH, {})


def test_under_a_steady_load_having_what_was_there_at_the_last_fetch_is_enough() -> None:
    machine = leader({1, 2})
    end = 10
    for now_ms in range(0, 1000, 50):
        fetch(machine, 2, end, now_ms)
        end += 5
        machine.appended(end)
        fetch(machine, 2, end - 5, now_ms + 1)
        assert machine.check_lag(now_ms + 40, LAG_MS) is None


def test_a_refused_change_leaves_the_set_as_it_was() -> None:
    machine = leader({1, 2})
    machine.check_lag(1000, LAG_MS)
    machine.isr_refused()
    assert machine.isr == {1, 2}
    assert machine.check_lag(1000, LAG_MS) is not None, "it is asked for again"


def test_an_older_word_of_the_controller_is_ignored() -> None:
    machine = leader({1, 2})
    machine.check_lag(1000, LAG_MS)
    machine.isr_confirmed({1, 2}, PARTITION_EPOCH)
    assert machine.is_changing_isr
    machine.isr_confirmed({1}, PARTITION_EPOCH + 2)
    machine.isr_confirmed({1, 2}, PARTITION_EPOCH + 1)
    assert machine.isr == {1}


# Growing


def test_a_follower_that_has_all_that_is_committed_joins() -> None:
    machine = leader({1}, replicas={1, 2, 3}, end=10, high_watermark=10)
    assert fetch(machine, 2, 9) is None
    assert fetch(machine, 2, 10) == ProposeIsr((1, 2), EPOCH, PARTITION_EPOCH, {2: -1})
    assert fetch(machine, 3, 10) is None, "one proposal at a time"
    machine.isr_confirmed({1, 2}, PARTITION_EPOCH + 1)
    assert fetch(machine, 3, 10) == ProposeIsr((1, 2, 3), EPOCH, PARTITION_EPOCH + 1, {2: -1, 3: -1})


def test_what_joins_is_waited_for_before_the_controller_agrees() -> None:
    machine = leader({1}, replicas={1, 2})
    fetch(machine, 2, 10)
    assert machine.appended(20) == 10, "the controller may have agreed already, and may elect it"
    machine.isr_refused()
    assert machine.high_watermark == 20


def test_who_has_caught_up_is_waited_for_until_it_falls_behind() -> None:
    machine = leader({1}, replicas={1, 2, 3}, end=10, high_watermark=10)
    fetch(machine, 2, 10)
    fetch(machine, 3, 10)
    assert not machine.commits_alone
    machine.isr_confirmed({1, 2}, PARTITION_EPOCH + 1)
    machine.appended(20)
    fetch(machine, 2, 20, now_ms=10)
    assert machine.high_watermark == 10, "3 would have joined if it had been asked for first"
    assert machine.check_lag(LAG_MS + 1, LAG_MS) is None
    assert machine.high_watermark == 20


def test_a_follower_joins_only_with_all_that_was_there_before_this_leader() -> None:
    """With less, its tail may be of an epoch that this leader does not have (KIP-320)."""
    machine = leader({1, 3}, replicas={1, 2, 3}, end=10, high_watermark=4)
    assert fetch(machine, 2, 6) is None
    assert fetch(machine, 2, 10) is not None


def test_a_follower_under_load_that_keeps_up_can_join() -> None:
    machine = leader({1}, replicas={1, 2}, end=10, high_watermark=10)
    end = 10
    for now_ms in range(0, 1000, 10):
        asked = end
        end += 7
        machine.appended(end)
        if fetch(machine, 2, asked, now_ms):
            return
    raise AssertionError("the high watermark was always ahead of it")


# Earlier lives of followers


def test_a_follower_is_proposed_with_the_registration_it_has_fetched_under() -> None:
    """The controller refuses it if it was restarted since (KIP-903)."""
    machine = leader({1}, replicas={1, 2, 3}, high_watermark=10)
    proposal = machine.follower_fetched(2, 10, 0, broker_epoch=55, now_ms=0, lag_ms_max=LAG_MS)
    assert proposal == ProposeIsr((1, 2), EPOCH, PARTITION_EPOCH, {2: 55})
    machine.isr_confirmed({1, 2}, PARTITION_EPOCH + 1)
    assert fetch(machine, 3, 10) == ProposeIsr((1, 2, 3), EPOCH, PARTITION_EPOCH + 1, {2: 55, 3: -1})


@pytest.mark.parametrize(("asks", "is_outdated"), [(54, True), (55, False), (56, False), (-1, False)])
def test_a_fetch_of_an_earlier_life_is_outdated(asks: int, is_outdated: bool) -> None:
    machine = leader({1, 2})
    assert not machine.is_outdated(2, asks), "nothing was heard of it before"
    machine.follower_fetched(2, 10, 0, broker_epoch=55, now_ms=0, lag_ms_max=LAG_MS)
    assert machine.is_outdated(2, asks) == is_outdated


@pytest.mark.parametrize(("replicas", "min_isr", "isr", "is_enough"), [
    ({1}, 2, {1}, True),
    ({1, 2}, 3, {1, 2}, True),
    ({1, 2}, 3, {1}, False),
    ({1, 2, 3}, 2, {1, 2}, True),
    ({1, 2, 3}, 2, {1}, False),
])  # fmt: skip
def test_more_copies_than_replicas_are_not_asked_for(
    replicas: set[int], min_isr: int, isr: set[int], is_enough: bool
) -> None:
    machine = leader(isr, replicas=replicas, min_isr=min_isr)
    assert machine.has_enough_replicas == is_enough
    assert (machine.appended(20) == 20) == (machine.commits_alone), "the others have not been heard of"


@given(st.lists(st.tuples(st.sampled_from("afcnly"), st.integers(1, 3), st.integers(0, 30)), max_size=60))
def test_nothing_is_committed_that_a_member_of_the_in_sync_set_may_lack(steps: list[tuple[str, int, int]]) -> None:
    """Whatever the order of appends, fetches, agreements, refusals and lag checks."""
    machine = leader({1, 2, 3}, end=0, high_watermark=0)
    has = {1: 0, 2: 0, 3: 0}
    agreed, proposed, partition_epoch, now_ms = frozenset({1, 2, 3}), None, PARTITION_EPOCH, 0
    for kind, replica, amount in steps:
        now_ms += amount
        before = machine.high_watermark
        proposal = None
        if kind == "a":
            has[1] += amount
            machine.appended(has[1])
        elif kind == "f" and replica != 1:
            has[replica] = min(has[1], has[replica] + amount)
            proposal = fetch(machine, replica, has[replica], now_ms)
        elif kind == "l":
            proposal = machine.check_lag(now_ms, LAG_MS)
        elif kind == "c" and proposed is not None:
            agreed, proposed, partition_epoch = proposed, None, partition_epoch + 1
            machine.isr_confirmed(agreed, partition_epoch)
        elif kind == "n" and proposed is not None:
            proposed = None
            machine.isr_refused()
        if proposal is not None:
            assert proposed is None, "one proposal at a time"
            assert proposal.partition_epoch == partition_epoch
            proposed = frozenset(proposal.isr)
        assert machine.high_watermark >= before
        may_lead = agreed | (proposed or frozenset())
        assert all(has[member] >= machine.high_watermark for member in may_lead)


def test_a_session_speaks_for_partitions_that_it_does_not_name() -> None:
    """An idle partition is fetched once; the follower goes on fetching others."""
    machine = leader({1, 2})
    fetch(machine, 2, 10)
    watch = SessionWatch(now_ms=0)
    machine.followers[2].watch = watch
    watch.heard_at_ms = 10 * LAG_MS
    machine.appended(11)
    assert machine.check_lag(11 * LAG_MS, LAG_MS) is None, "it had everything when it was last heard of"
    watch.heard_at_ms = 20 * LAG_MS
    machine.appended(12)
    assert machine.check_lag(11 * LAG_MS + 1, LAG_MS) is not None, "it has been asking for others ever since"


def test_below_the_low_watermark_no_live_replica_holds_records() -> None:
    machine = leader({1, 2, 3})
    assert machine.low_watermark(5, live=()) == 5
    assert machine.low_watermark(5, live={2, 3}) == -1, "nobody knows yet"
    machine.follower_fetched(2, 10, 4, now_ms=0, lag_ms_max=LAG_MS)
    assert machine.low_watermark(5, live={2}) == 4
    assert machine.low_watermark(3, live={2}) == 3
    assert machine.low_watermark(5, live={2, 3}) == -1
    machine.follower_fetched(3, 10, 6, now_ms=0, lag_ms_max=LAG_MS)
    assert machine.low_watermark(9, live={2, 3}) == 4
    assert machine.low_watermark(9, live={3}) == 6


def test_followers_that_wait_are_woken_or_only_noted_by_the_key_they_know() -> None:
    machine = leader({1, 2, 3})
    watch, woken = SessionWatch(now_ms=0), []
    watch.on_moved = lambda: woken.append(True)
    machine.followers[2].watch, machine.followers[2].key = watch, ("t", 7)
    machine.note_for_followers()
    assert (list(watch.open), woken) == ([("t", 7)], [])
    watch.open.clear()
    machine.wake_followers()
    assert (list(watch.open), woken) == ([("t", 7)], [True])
