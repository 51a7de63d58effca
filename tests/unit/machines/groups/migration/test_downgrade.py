"""A group of KIP-848 becomes a classic one when its last member of that protocol is gone and others are left."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.classic.states import GroupState
from ottla.machines.groups.config import MigrationPolicy
from ottla.machines.groups.consumer.group import SESSION_TIMER, TIMERS, ConsumerGroup
from tests.unit.machines.groups.migration.test_upgrade import ALL, make_runner, records
from tests.unit.machines.groups.migration.world import (
    COOPERATIVE,
    ClassicMember,
    ConsumerMember,
    read_assignment,
    settle,
)
from tests.unit.machines.groups.runner import GROUP, REBALANCE_MS, SESSION_MS, Runner


@pytest.fixture
def runner() -> Runner:
    return make_runner()


def mixed_group(runner: Runner, assignor: str = "range") -> tuple[ClassicMember, ClassicMember, ConsumerMember]:
    a, b = (ClassicMember(runner, name, assignor=assignor) for name in "ab")
    c = ConsumerMember(runner, "c")
    settle(a, b, c)
    return a, b, c


@pytest.mark.parametrize("assignor", ["range", COOPERATIVE])
@pytest.mark.parametrize("how", ["leaves", "falls silent"])
def test_the_classic_members_go_on_by_themselves(runner: Runner, assignor: str, how: str) -> None:
    a, b, c = mixed_group(runner, assignor)
    place = ("orders", 0)
    assert runner.commit({place: 9}, a.member_id, a.generation) == {place: 0}
    if how == "leaves":
        c.leave()
    else:
        key = (SESSION_TIMER, GROUP, "c")
        del runner.timers[key]
        runner.perform(runner.shard.timer_fired(key, runner.now_ms))
    group = runner.group
    assert group.state is GroupState.PREPARING_REBALANCE
    for member in (a, b):
        assert runner.timers["session", GROUP, member.member_id] == runner.now_ms + SESSION_MS
    assert runner.heartbeat(a.member_id, a.generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert runner.timers["join", GROUP] == runner.now_ms + REBALANCE_MS
    assert not any(key[0] in TIMERS for key in runner.timers)
    settle(a, b)
    assert group.state is GroupState.STABLE
    assert a.owned | b.owned == ALL and not a.owned & b.owned
    assert runner.fetch(place) == {place: (9, 0)}


def test_a_decision_replaces_the_group_before_its_records_are_replayed(runner: Runner) -> None:
    mixed_group(runner)
    decision = runner.shard.timer_fired((SESSION_TIMER, GROUP, "c"), runner.now_ms)
    group = runner.group
    runner.perform(decision)
    assert runner.group is group
    assert (group.state, len(group.members)) == (GroupState.PREPARING_REBALANCE, 2)


def test_the_records_are_those_of_kafka(runner: Runner) -> None:
    a, b, c = mixed_group(runner)
    epoch = a.generation
    owned = {member.member_id: member.owned for member in (a, b)}
    first = len(runner.log)
    c.leave()
    ids = sorted([a.member_id, b.member_id, "c"])
    assert records(runner, first) == [
        *[("CurrentMemberAssignment", member_id, False) for member_id in ids],
        *[("TargetAssignmentMember", member_id, False) for member_id in ids],
        ("TargetAssignmentMetadata", "", False),
        *[("MemberMetadata", member_id, False) for member_id in ids],
        ("PartitionMetadata", "", False),
        ("Metadata", "", False),
        ("GroupMetadata", "", True),
    ]
    group = runner.group
    assert (group.generation, group.protocol_type, group.protocol, group.leader) == (epoch, "consumer", "range", None)
    assert {member.member_id: read_assignment(member.assignment) for member in group.members} == owned


def test_a_coordinator_that_loads_it_owes_the_rebalance_too(runner: Runner) -> None:
    a, b, c = mixed_group(runner)
    c.leave()
    again = runner.reloaded()
    assert again.group.state is GroupState.PREPARING_REBALANCE
    assert ("join", GROUP) in again.timers
    a.moved(again), b.moved(again)
    settle(a, b)
    assert a.owned | b.owned == ALL


def test_who_does_not_join_again_is_dropped(runner: Runner) -> None:
    a, b, c = mixed_group(runner)
    c.leave()
    a.step(), a.step()
    runner.perform(runner.shard.timer_fired(("join", GROUP), runner.now_ms))
    settle(a)
    assert a.owned == ALL
    assert runner.heartbeat(b.member_id, b.generation) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
def test_without_the_policy_it_stays_what_it_is(policy: MigrationPolicy) -> None:
    runner = make_runner(migration_policy=policy)
    c = ConsumerMember(runner, "c")
    settle(c)
    a = ClassicMember(runner, "a")
    settle(a, c)
    c.leave()
    settle(a)
    assert isinstance(runner.shard._groups.get(GROUP), ConsumerGroup)
    assert a.owned == ALL
    a.leave()
    assert runner.shard.consumer_describe(GROUP).group_state == "Empty"


def test_not_if_too_many_are_left() -> None:
    runner = make_runner(max_size=1)
    c = ConsumerMember(runner, "c")
    settle(c)
    a, b = ClassicMember(runner, "a"), ClassicMember(runner, "b")
    settle(a, b, c)
    c.leave()
    settle(a, b)
    assert isinstance(runner.shard._groups.get(GROUP), ConsumerGroup)


def test_only_the_last_one_counts(runner: Runner) -> None:
    a, _, c = mixed_group(runner)
    d = ConsumerMember(runner, "d")
    d.step()
    c.leave()
    assert isinstance(runner.shard._groups.get(GROUP), ConsumerGroup)
    a.leave()
    assert isinstance(runner.shard._groups.get(GROUP), ConsumerGroup)
    d.leave()
    assert isinstance(runner.shard._groups.get(GROUP), ClassicGroup)


def test_there_and_back_again(runner: Runner) -> None:
    a, b, c = mixed_group(runner)
    for _ in range(3):
        c.leave()
        settle(a, b)
        assert isinstance(runner.shard._groups.get(GROUP), ClassicGroup)
        c = ConsumerMember(runner, "c")
        settle(a, b, c)
        assert isinstance(runner.shard._groups.get(GROUP), ConsumerGroup)
    assert a.owned | b.owned | c.owned == ALL


def test_an_instance_that_comes_back_in_the_classic_protocol(runner: Runner) -> None:
    a = ClassicMember(runner, "a")
    settle(a)
    static = ConsumerMember(runner, "s", instance_id="i")
    settle(a, static)
    back = ClassicMember(runner, "s", instance_id="i")
    back.step()
    assert isinstance(runner.shard._groups.get(GROUP), ClassicGroup)
    assert isinstance(runner.reloaded().shard._groups.get(GROUP), ClassicGroup)
    settle(a, back)
    assert a.owned | back.owned == ALL and not a.owned & back.owned
    assert static.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_that_moves_to_the_new_protocol(runner: Runner) -> None:
    static, other = ClassicMember(runner, "s", instance_id="i"), ClassicMember(runner, "o")
    settle(static, other)
    former = static.member_id
    moved = ConsumerMember(runner, "s2", instance_id="i")
    settle(moved, other)
    assert moved.owned | other.owned == ALL
    assert runner.heartbeat(former, static.generation, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert set(runner.shard._groups.get(GROUP).durable.members) == {"s2", other.member_id}  # type: ignore[union-attr]
