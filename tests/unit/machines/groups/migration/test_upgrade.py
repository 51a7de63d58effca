"""A classic group becomes one of KIP-848 because a member of that protocol joins it."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.config import GroupConfig, MigrationPolicy
from ottla.machines.groups.consumer.group import SESSION_TIMER, ConsumerGroup
from ottla.machines.groups.consumer.member import ClassicMetadata
from ottla.machines.groups.record_types import parse
from tests.unit.machines.groups.migration.world import (
    COOPERATIVE,
    ClassicMember,
    ConsumerMember,
    settle,
    subscription,
)
from tests.unit.machines.groups.runner import GROUP, REBALANCE_MS, SESSION_MS, Runner

ALL = frozenset(TopicPartition("orders", index) for index in range(4))


def make_runner(**config: object) -> Runner:
    return Runner(GroupConfig(initial_rebalance_delay_ms=0, **config))  # type: ignore[arg-type]


@pytest.fixture
def runner() -> Runner:
    return make_runner()


def upgraded(runner: Runner) -> ConsumerGroup:
    group = runner.shard._groups.get(GROUP)
    assert isinstance(group, ConsumerGroup)
    return group


def records(runner: Runner, first: int = 0) -> list[tuple[str, str, bool]]:
    """(kind of the record, member, whether it holds something) of the log from `first` on."""
    found = []
    for entry in runner.log[first:]:
        parsed = parse(entry[0], entry[1])  # type: ignore[arg-type, misc]
        assert parsed is not None
        key, value = parsed
        kind = type(key).__name__.removesuffix("Key").removeprefix("ConsumerGroup")
        found.append((kind, getattr(key, "member_id", ""), value is not None))
    return found


@pytest.mark.parametrize("assignor", ["range", COOPERATIVE])
def test_members_of_both_kinds_share(runner: Runner, assignor: str) -> None:
    a, b = (ClassicMember(runner, name, assignor=assignor) for name in "ab")
    settle(a, b)
    assert a.owned | b.owned == ALL
    c = ConsumerMember(runner, "c")
    settle(a, b, c)
    assert sorted(len(member.owned) for member in (a, b, c)) == [1, 1, 2]
    assert a.owned | b.owned | c.owned == ALL
    members = upgraded(runner).durable.members
    assert {member.is_classic for member in members.values()} == {True, False}
    described = runner.shard.consumer_describe(GROUP)
    assert {member.client_id: member.member_type for member in described.members} == {"a": 0, "b": 0, "c": 1}


def test_the_records_are_those_of_kafka(runner: Runner) -> None:
    a = ClassicMember(runner, "a")
    settle(a)
    first, generation = len(runner.log), a.generation
    ConsumerMember(runner, "c").step()
    assert records(runner, first) == [
        ("GroupMetadata", "", False),
        ("MemberMetadata", a.member_id, True),
        ("Metadata", "", True),
        ("TargetAssignmentMember", a.member_id, True),
        ("TargetAssignmentMetadata", "", True),
        ("CurrentMemberAssignment", a.member_id, True),
        # and what any join writes
        ("MemberMetadata", "c", True),
        ("PartitionMetadata", "", True),
        ("Metadata", "", True),
        ("TargetAssignmentMember", a.member_id, True),
        ("TargetAssignmentMember", "c", True),
        ("TargetAssignmentMetadata", "", True),
        ("CurrentMemberAssignment", "c", True),
    ]
    state = upgraded(runner).durable
    member = state.members[a.member_id]
    assert (state.epoch, member.current.epoch, member.current.previous_epoch) == (
        generation + 1,
        generation,
        generation,
    )
    assert len(member.current.assigned) == 4 and len(state.target_of(a.member_id)) == 2
    assert member.subscription.classic == ClassicMetadata(SESSION_MS, (("range", subscription(["orders"])),))
    assert (member.subscription.client_id, member.subscription.rebalance_timeout_ms) == ("a", REBALANCE_MS)
    assert upgraded(runner.reloaded()).durable == state


def test_offsets_stay_and_members_go_on_committing(runner: Runner) -> None:
    a = ClassicMember(runner, "a")
    settle(a)
    place = ("orders", 0)
    assert runner.commit({place: 3}, a.member_id, a.generation) == {place: 0}
    ConsumerMember(runner, "c").step()
    assert runner.fetch(place) == {place: (3, 0)}
    assert runner.commit({place: 4}, a.member_id, a.generation) == {place: 0}, "also in an old version"
    wrong = runner.commit({place: 5}, a.member_id, a.generation + 1)
    assert wrong == {place: ErrorCode.ILLEGAL_GENERATION}
    assert runner.commit({place: 5}, "c", 2, version=8) == {place: ErrorCode.UNSUPPORTED_VERSION}
    assert runner.fetch(place) == {place: (4, 0)}


def test_who_waits_in_a_rebalance_is_told_to_join_again(runner: Runner) -> None:
    a, b = ClassicMember(runner, "a"), ClassicMember(runner, "b")
    settle(a)
    b.step(), b.step()  # gets its id
    b.step()
    waiting = b._joining
    assert runner.reply(waiting) is None
    ConsumerMember(runner, "c").step()
    assert runner.reply(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert {key[0] for key in runner.timers} == {SESSION_TIMER}
    assert runner.timers[SESSION_TIMER, GROUP, a.member_id] == runner.now_ms + SESSION_MS
    c = ConsumerMember(runner, "c2")
    settle(a, b, c)


def test_who_waits_for_its_assignment_is_told_to_join_again(runner: Runner) -> None:
    first = str(runner.reply(runner.join(version=3)).member_id)
    second = runner.join(version=3)
    runner.join(first, version=3)
    syncing = runner.sync(runner.reply(second).member_id, 2)
    assert runner.reply(syncing) is None
    ConsumerMember(runner, "c").step()
    assert runner.reply(syncing).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    leader = runner.sync(first, 2, {first: b""})
    assert runner.reply(leader).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_not_if_the_policy_forbids_it(policy: MigrationPolicy) -> None:
    runner = make_runner(migration_policy=policy)
    a = ClassicMember(runner, "a")
    settle(a)
    length = len(runner.log)
    for epoch in (0, 1, -1):
        member = ConsumerMember(runner, "c")
        member.epoch = epoch
        assert member.beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert len(runner.log) == length
    assert isinstance(runner.shard._groups.get(GROUP), ClassicGroup)
    settle(a)


@pytest.mark.parametrize(("metadata", "assigned"), [(b"x", b"x"), (subscription(["orders"]), b"")])
def test_not_if_the_members_are_no_consumers(runner: Runner, metadata: bytes, assigned: bytes) -> None:
    """Even if what they say of themselves reads as if they were."""
    token = runner.join(version=3, protocol_type="connect", protocols=(("default", metadata),))
    member_id = runner.reply(token).member_id
    runner.sync(member_id, 1, {member_id: assigned})
    assert ConsumerMember(runner, "c").beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert runner.heartbeat(member_id, 1) == ErrorCode.NONE


@pytest.mark.parametrize(("metadata", "assigned"), [(b"\x00", b""), (subscription(["orders"]), b"\x00\x01\x02")])
def test_not_if_the_members_cannot_be_understood(runner: Runner, metadata: bytes, assigned: bytes) -> None:
    member_id = runner.reply(runner.join(version=3, protocols=(("range", metadata),))).member_id
    runner.sync(member_id, 1, {member_id: assigned})
    assert ConsumerMember(runner, "c").beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert runner.heartbeat(member_id, 1) == ErrorCode.NONE


def test_not_if_the_group_is_too_large() -> None:
    runner = make_runner(consumer_max_size=1)
    a, b = ClassicMember(runner, "a"), ClassicMember(runner, "b")
    settle(a, b)
    assert ConsumerMember(runner, "c").beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_of_just_the_largest_size_has_no_room_for_who_would_upgrade_it() -> None:
    runner = make_runner(consumer_max_size=2)
    a, b = ClassicMember(runner, "a"), ClassicMember(runner, "b")
    settle(a, b)
    assert ConsumerMember(runner, "c").beat().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(runner.shard._groups.get(GROUP), ClassicGroup)


def test_not_by_a_join_that_is_refused(runner: Runner) -> None:
    a = ClassicMember(runner, "a")
    settle(a)
    nobody = ConsumerMember(runner, "")
    assert nobody.beat().error_code == ErrorCode.INVALID_REQUEST
    assert isinstance(runner.shard._groups.get(GROUP), ClassicGroup)
    assert runner.heartbeat(a.member_id, a.generation) == ErrorCode.NONE


def test_a_member_that_was_removed_may_come_back_with_its_old_epoch(runner: Runner) -> None:
    a = ClassicMember(runner, "a")
    settle(a)
    member = ConsumerMember(runner, "c")
    member.epoch = 7
    assert member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
