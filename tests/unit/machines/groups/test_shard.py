"""A shard as a whole: views of its groups, deletion, groups of both kinds, loading and unloading."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.machines.coordinator import Decision, Reply
from ottla.machines.groups.classic.states import GroupState
from ottla.machines.groups.consumer.group import ConsumerGroup
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.apis.sync_group import SyncGroupRequest
from tests.unit.machines.groups.runner import DELAY_MS, GROUP, SESSION_MS, Runner, subscription

A = ("orders", 0)


@pytest.fixture
def runner() -> Runner:
    return Runner()


def beat(runner: Runner, member_id: str = "m", epoch: int = 0, **fields: Any) -> Any:
    """A heartbeat of the new protocol; epoch 0 joins, -1 leaves."""
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": ["orders"], "topic_partitions": []} | fields
    token = runner.token()
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
    decision = runner.shard.consumer_heartbeat(
        request,
        token,
        version=1,
        client_id="c",
        client_host="/127.0.0.1",
        new_member_id="new",
        now_ms=runner.now_ms,
    )
    runner.perform(decision)
    return runner.reply(token)


def delete(runner: Runner, group: str = GROUP) -> ErrorCode:
    token = runner.token()
    runner.perform(runner.shard.delete_group(group, token, now_ms=runner.now_ms))
    return ErrorCode(runner.reply(token))


def kind_of(runner: Runner) -> list[str]:
    return [listed.group_type for listed in runner.shard.list([], [])]


# Views


def test_a_stable_group_is_described_with_its_assignments(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    described = runner.shard.describe(GROUP)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.member_id, member.client_id, member.client_host) == (leader, "a", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("orders"), leader.encode())


def test_a_rebalancing_group_is_described_without(runner: Runner) -> None:
    leader, _ = runner.stable_group("a", "b")
    runner.join(leader)
    described = runner.shard.describe(GROUP)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_assignment for member in described.members] == [b"", b""]


def test_an_unknown_group_is_dead(runner: Runner) -> None:
    described = runner.shard.describe("nobody")
    assert (described.group_state, described.error_code) == ("Dead", 0)
    described = runner.shard.describe("nobody", version=6)
    assert (described.group_state, described.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert described.error_message


def test_groups_are_listed_by_state_and_kind(runner: Runner) -> None:
    runner.stable_group("a")
    runner.commit({A: 1}, group="assigns-itself")
    every = runner.shard.list([], [])
    assert [(item.group_id, item.protocol_type, item.group_state, item.group_type) for item in every] == [
        ("assigns-itself", "", "Empty", "classic"),
        (GROUP, "consumer", "Stable", "classic"),
    ]
    assert [item.group_id for item in runner.shard.list(["stable"], [])] == [GROUP]
    assert [item.group_id for item in runner.shard.list(["Empty", "Dead"], ["Classic"])] == ["assigns-itself"]
    assert runner.shard.list([], ["consumer"]) == []
    assert runner.shard.list(["no such state"], []) == []


# Deletion


def test_only_empty_groups_can_be_deleted(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    runner.commit({A: 1}, leader, 1)
    runner.commit_in_transaction({("orders", 1): 2}, 7)
    assert delete(runner) is ErrorCode.NON_EMPTY_GROUP
    runner.leave(leader)
    assert delete(runner) is ErrorCode.NONE
    runner.marker(7, committed=True)
    for current in (runner, runner.reloaded()):
        assert not current.has_group()
        assert current.fetch() == {}
    assert delete(runner) is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_without_members_are_deleted_as_a_group(runner: Runner) -> None:
    runner.commit({A: 1}, group="")
    assert delete(runner, "") is ErrorCode.NONE
    assert not runner.has_group("")
    assert not runner.reloaded().has_group("")


def test_a_group_that_only_handed_out_an_id_can_be_deleted(runner: Runner) -> None:
    member_id = runner.reply(runner.join()).member_id
    assert delete(runner) is ErrorCode.NONE
    assert not runner.has_group()
    assert runner.log == []
    assert runner.reply(runner.join(member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    runner.advance(SESSION_MS)


def test_offsets_that_outlive_their_group_belong_to_one_without_members(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    runner.commit({A: 1}, leader, 1)
    runner.leave(leader)
    former = runner.group
    runner.perform(Decision(records=former.tombstones()))
    for current in (runner, runner.reloaded()):
        assert current.group is not former
        assert (current.group.state, current.group.protocol_type) == (GroupState.EMPTY, None)
        assert current.fetch() == {A: (1, 0)}
    assert former.state is GroupState.DEAD
    assert runner.shard.delete_group(GROUP, runner.token(), now_ms=runner.now_ms).effects[0].response is ErrorCode.NONE


# Two kinds of groups


def test_a_group_of_the_new_protocol_refuses_classic_members_that_are_no_consumers(runner: Runner) -> None:
    assert beat(runner).error_code == 0
    for protocol_type, metadata in (("connect", b""), ("consumer", b"?")):
        token = runner.join("n", protocol_type=protocol_type, protocols=(("range", metadata),))
        assert runner.reply(token).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert runner.reply(runner.join("n", protocols=())).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert runner.reply(runner.sync("m", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.heartbeat("m", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.leave("m").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert runner.shard.describe(GROUP).group_state == "Dead"
    assert runner.shard.consumer_describe(GROUP).error_code == 0
    assert kind_of(runner) == ["consumer"]


def test_a_classic_group_whose_members_are_not_understood_refuses_the_new_protocol(runner: Runner) -> None:
    runner.stable_group("a")
    assert beat(runner).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert runner.shard.consumer_describe(GROUP).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert kind_of(runner) == ["classic"]


def test_an_empty_classic_group_becomes_one_of_the_new_protocol_and_keeps_its_offsets(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    runner.commit({A: 5}, leader, 1)
    runner.leave(leader)
    assert beat(runner).error_code == 0
    for current in (runner, runner.reloaded()):
        assert kind_of(current) == ["consumer"]
        assert current.fetch(A) == {A: (5, 0)}
        assert isinstance(current.shard._groups.get(GROUP), ConsumerGroup)


def test_an_empty_group_of_the_new_protocol_becomes_classic_and_keeps_its_offsets(runner: Runner) -> None:
    joined = beat(runner)
    assert runner.commit({A: 5}, "m", joined.member_epoch, version=9) == {A: 0}
    beat(runner, epoch=-1)
    runner.stable_group("a")
    last = {entry[0]: entry[1] for entry in runner.log if len(entry) == 3}
    of_consumers = [value for key, value in last.items() if key[:2] >= b"\0\3"]
    assert of_consumers and set(of_consumers) == {None}, "nothing of the former group is left"
    for current in (runner, runner.reloaded()):
        assert kind_of(current) == ["classic"]
        assert current.group.state is GroupState.STABLE
        assert current.fetch(A) == {A: (5, 0)}


def test_a_refused_heartbeat_makes_no_group(runner: Runner) -> None:
    assert beat(runner, epoch=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not runner.has_group()
    runner.commit({A: 1})
    assert beat(runner, epoch=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert kind_of(runner) == ["classic"]


def test_timers_of_the_other_kind_are_ignored(runner: Runner) -> None:
    beat(runner)
    for key in (("session", GROUP, "m"), ("join", GROUP), ("sync", GROUP)):
        assert runner.shard.timer_fired(key, runner.now_ms).records == []
    assert kind_of(runner) == ["consumer"]
    beat(runner, epoch=-1)
    runner.stable_group("a")
    runner.perform(runner.shard.timer_fired(("consumer-session", GROUP, "m"), runner.now_ms))
    assert runner.group.state is GroupState.STABLE


def test_members_of_the_new_protocol_commit_with_their_epoch(runner: Runner) -> None:
    epoch = beat(runner).member_epoch
    assert runner.commit({A: 1}, "m", epoch, version=9) == {A: 0}
    assert runner.commit({A: 2}, "m", epoch - 1, version=9) == {A: ErrorCode.STALE_MEMBER_EPOCH}
    assert runner.commit({A: 2}, "other", epoch, version=9) == {A: ErrorCode.UNKNOWN_MEMBER_ID}
    assert runner.commit({A: 2}, "m", epoch, version=8) == {A: ErrorCode.UNSUPPORTED_VERSION}
    assert runner.commit_in_transaction({A: 2}, 7, "m", epoch - 1) == {A: ErrorCode.ILLEGAL_GENERATION}
    assert runner.commit_in_transaction({A: 2}, 7, "m", epoch) == {A: 0}
    assert runner.fetch(A) == {A: (1, 0)}


def test_offsets_of_a_group_of_the_new_protocol_expire_unless_it_reads_the_topic(runner: Runner) -> None:
    epoch = beat(runner).member_epoch
    runner.commit({A: 1, ("clicks", 0): 2}, "m", epoch, version=9)
    later_ms = runner.now_ms + runner.config.offsets_retention_ms
    runner.perform(runner.shard.expire_offsets(later_ms))
    assert runner.fetch() == {A: (1, 0)}
    beat(runner, epoch=-1)
    runner.perform(runner.shard.expire_offsets(later_ms))
    for current in (runner, runner.reloaded()):
        assert not current.has_group()


# Life of a shard


def test_members_of_a_loaded_group_get_a_full_session(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    new = runner.reloaded()
    assert {key: due - new.now_ms for key, due in new.timers.items()} == {
        ("session", GROUP, leader): SESSION_MS,
        ("session", GROUP, follower): SESSION_MS,
    }
    assert new.heartbeat(leader, 1) == 0
    assert new.reply(new.sync(follower, 1)).assignment == follower.encode()
    new.advance(SESSION_MS + DELAY_MS)
    new.advance(SESSION_MS)
    assert new.group.is_empty


def test_a_loaded_member_may_join_again(runner: Runner) -> None:
    (leader,) = runner.stable_group("a")
    new = runner.reloaded()
    assert new.reply(new.join(leader)).generation_id == 2


def test_unloading_hands_back_what_waits(runner: Runner) -> None:
    leader, follower = runner.stable_group("a", "b")
    runner.join(leader)
    runner.join(follower)
    waits_to_sync = runner.sync(follower, 2)
    joins = [runner.join(version=3, group="other"), runner.join(version=3, group="other")]
    assert runner.shard.unload() == [waits_to_sync, *joins]
    assert runner.heartbeat(leader, 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE, "a late call finds the group dead"


def test_a_timer_of_a_group_that_is_gone_does_nothing(runner: Runner) -> None:
    assert runner.shard.timer_fired(("join", "nobody"), runner.now_ms).effects == []


def test_replies_wait_for_the_record_they_rely_on(runner: Runner) -> None:
    """The leader's sync gives one decision: the record, and behind it the replies to all that waited."""
    leader, follower = runner.stable_group("a", "b")
    runner.join(leader)
    runner.join(follower)
    runner.sync(follower, 2)
    token = runner.token()
    request = SyncGroupRequest(group_id=GROUP, generation_id=2, member_id=leader)
    decision = runner.shard.sync(request, token, version=5, now_ms=runner.now_ms)
    assert len(decision.records) == 1
    assert [type(effect) for effect in decision.effects] == [Reply, Reply]
