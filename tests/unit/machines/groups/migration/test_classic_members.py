"""Members of the classic protocol in a group of KIP-848, request by request."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.machines.groups.consumer.group import JOIN_TIMER, SESSION_TIMER, SYNC_TIMER, ConsumerGroup
from ottla.machines.groups.consumer.member import MemberState
from ottla.wire.stored.consumer_protocol import ConsumerProtocolSubscription
from tests.unit.machines.groups.migration.test_upgrade import ALL, make_runner
from tests.unit.machines.groups.migration.world import (
    COOPERATIVE,
    NOTHING,
    ClassicMember,
    ConsumerMember,
    Owned,
    read_assignment,
    settle,
    subscription,
)
from tests.unit.machines.groups.runner import GROUP, REBALANCE_MS, SESSION_MS, Runner


@pytest.fixture
def runner() -> Runner:
    """With a group of one member of the new protocol, which holds everything."""
    runner = make_runner()
    settle(ConsumerMember(runner, "c"))
    return runner


def group(runner: Runner) -> ConsumerGroup:
    found = runner.shard._groups.get(GROUP)
    assert isinstance(found, ConsumerGroup)
    return found


def join(
    runner: Runner, member_id: str = "", owned: Owned = NOTHING, protocol: str = "range", version: int = 3
) -> object:
    return runner.join(member_id, version=version, protocols=((protocol, subscription(["orders"], owned)),))


def state_of(runner: Runner, member_id: str) -> MemberState:
    return group(runner).durable.members[member_id].current.state


class TestJoin:
    def test_is_answered_at_once_and_nobody_leads(self, runner: Runner) -> None:
        reply = runner.reply(join(runner))
        assert (reply.error_code, reply.generation_id, reply.leader, reply.members) == (0, 2, "", [])
        assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")
        assert reply.member_id.startswith("client-")
        assert runner.timers[SESSION_TIMER, GROUP, reply.member_id] == runner.now_ms + SESSION_MS
        assert runner.timers[SYNC_TIMER, GROUP, reply.member_id] == runner.now_ms + REBALANCE_MS

    def test_a_new_member_is_given_its_id_first(self, runner: Runner) -> None:
        length = len(runner.log)
        refused = runner.reply(join(runner, version=4))
        assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert len(runner.log) == length
        reply = runner.reply(join(runner, refused.member_id, version=4))
        assert (reply.error_code, reply.member_id) == (0, refused.member_id)

    def test_again_without_a_change_is_the_same_generation(self, runner: Runner) -> None:
        member_id = runner.reply(join(runner)).member_id
        length = len(runner.log)
        assert runner.reply(join(runner, member_id)).generation_id == 2
        assert len(runner.log) == length

    def test_the_members_must_have_a_protocol_in_common(self, runner: Runner) -> None:
        first = runner.reply(join(runner)).member_id
        assert runner.reply(join(runner, protocol="sticky")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert runner.reply(join(runner, first, protocol="sticky")).error_code == 0, "it has to agree with nobody"

    def test_an_empty_instance_id_is_refused(self, runner: Runner) -> None:
        length = len(runner.log)
        assert runner.reply(runner.join(instance_id="")).error_code == ErrorCode.INVALID_REQUEST
        assert len(runner.log) == length

    def test_a_rack_is_kept_until_another_is_named(self, runner: Runner) -> None:
        member_id = ""
        for named, expected in (("r1", "r1"), (None, "r1"), ("r2", "r2")):
            said = ConsumerProtocolSubscription(topics=["orders"], rack_id=named).encode_versioned(3)
            token = runner.join(member_id, version=3, protocols=(("range", said),))
            member_id = runner.reply(token).member_id
            assert group(runner).durable.members[member_id].subscription.rack_id == expected

    def test_a_full_group_takes_nobody_else(self) -> None:
        runner = make_runner(consumer_max_size=1)
        settle(ConsumerMember(runner, "c"))
        assert runner.reply(join(runner)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_an_instance_that_is_back_takes_over_at_once(self, runner: Runner) -> None:
        first = ClassicMember(runner, "s", instance_id="i")
        c = ConsumerMember(runner, "d")
        settle(first, c)
        epoch = group(runner).durable.epoch
        back = ClassicMember(runner, "s", instance_id="i")
        back.step()
        assert group(runner).durable.epoch == epoch, "nobody else notices"
        assert runner.heartbeat(first.member_id, epoch, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
        assert [key for key in runner.timers if key[-1] == first.member_id] == []
        stale = runner.join(first.member_id, instance_id="i")
        assert runner.reply(stale).error_code == ErrorCode.FENCED_INSTANCE_ID
        settle(back, c)
        assert back.owned == first.owned


class TestSync:
    def test_brings_what_the_coordinator_assigned(self, runner: Runner) -> None:
        member_id = runner.reply(join(runner)).member_id
        reply = runner.reply(runner.sync(member_id, 2, protocol_type="consumer", protocol_name="range"))
        assert (reply.error_code, reply.protocol_type, reply.protocol_name) == (0, "consumer", "range")
        assert read_assignment(reply.assignment) == NOTHING, "the other still holds all"
        assert (SYNC_TIMER, GROUP, member_id) not in runner.timers

    def test_is_refused_to_strangers_and_in_other_generations(self, runner: Runner) -> None:
        member_id = runner.reply(join(runner)).member_id
        assert runner.reply(runner.sync("nobody", 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert runner.reply(runner.sync("c", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert runner.reply(runner.sync(member_id, 1)).error_code == ErrorCode.ILLEGAL_GENERATION
        for wrong in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
            reply = runner.reply(runner.sync(member_id, 2, **wrong))  # type: ignore[arg-type]
            assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_after_another_change_it_has_to_join_again(self, runner: Runner) -> None:
        member_id = runner.reply(join(runner)).member_id
        ConsumerMember(runner, "d").step()
        assert runner.reply(runner.sync(member_id, 2)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert (JOIN_TIMER, GROUP, member_id) in runner.timers

    def test_who_does_not_sync_in_time_is_removed(self, runner: Runner) -> None:
        member_id = runner.reply(join(runner)).member_id
        runner.perform(runner.shard.timer_fired((SYNC_TIMER, GROUP, member_id), runner.now_ms))
        assert set(group(runner).durable.members) == {"c"}


class TestHeartbeat:
    def test_calls_a_member_when_all_it_waits_for_is_free(self, runner: Runner) -> None:
        member_id = runner.reply(join(runner)).member_id
        runner.sync(member_id, 2)
        assert state_of(runner, member_id) is MemberState.UNRELEASED
        assert runner.heartbeat(member_id, 2) == ErrorCode.NONE
        c = ConsumerMember(runner, "c")
        c.epoch, c.owned, c.told = 1, ALL, ALL
        for _ in range(4):
            c.step()
        assert c.epoch == 2
        assert runner.heartbeat(member_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS
        assert runner.reply(join(runner, member_id)).generation_id == 2
        assert read_assignment(runner.reply(runner.sync(member_id, 2)).assignment) == ALL - c.owned
        assert runner.heartbeat(member_id, 2) == ErrorCode.NONE

    def test_is_refused_to_strangers_and_in_other_generations(self, runner: Runner) -> None:
        member_id = runner.reply(join(runner)).member_id
        assert runner.heartbeat("nobody", 2) == ErrorCode.UNKNOWN_MEMBER_ID
        assert runner.heartbeat("c", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert runner.heartbeat(member_id, 1) == ErrorCode.ILLEGAL_GENERATION

    def test_the_time_to_join_again_starts_with_the_first_call(self, runner: Runner) -> None:
        member_id = runner.reply(join(runner)).member_id
        ConsumerMember(runner, "d").step()
        assert runner.heartbeat(member_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS
        due_ms = runner.timers[JOIN_TIMER, GROUP, member_id]
        assert due_ms == runner.now_ms + REBALANCE_MS
        runner.advance(SESSION_MS - 1)
        assert runner.heartbeat(member_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS
        assert runner.timers[JOIN_TIMER, GROUP, member_id] == due_ms
        assert runner.timers[SESSION_TIMER, GROUP, member_id] == runner.now_ms + SESSION_MS
        runner.perform(runner.shard.timer_fired((JOIN_TIMER, GROUP, member_id), runner.now_ms))
        assert member_id not in group(runner).durable.members

    def test_who_has_joined_again_is_given_the_whole_time_when_it_is_called_the_next_time(self, runner: Runner) -> None:
        member_id = runner.reply(join(runner)).member_id
        for name in ("d", "e"):
            ConsumerMember(runner, name).step()
            runner.advance(1)
            epoch = group(runner).durable.members[member_id].current.epoch
            assert runner.heartbeat(member_id, epoch) == ErrorCode.REBALANCE_IN_PROGRESS
            assert runner.timers[JOIN_TIMER, GROUP, member_id] == runner.now_ms + REBALANCE_MS
            assert runner.reply(join(runner, member_id)).error_code == 0
            assert (JOIN_TIMER, GROUP, member_id) not in runner.timers

    def test_a_silent_member_loses_its_place_after_its_own_session(self, runner: Runner) -> None:
        member_id = runner.reply(join(runner)).member_id
        runner.advance(SESSION_MS - 1)
        assert member_id in group(runner).durable.members
        runner.advance(1)
        assert set(group(runner).durable.members) == {"c"}
        assert [key for key in runner.timers if key[-1] == member_id] == []

    def test_a_loaded_member_has_its_own_session_too(self, runner: Runner) -> None:
        member_id = runner.reply(join(runner)).member_id
        again = runner.reloaded()
        assert again.timers[SESSION_TIMER, GROUP, member_id] == again.now_ms + SESSION_MS


def test_a_cooperative_member_confirms_with_its_next_join() -> None:
    runner = make_runner()
    a = ClassicMember(runner, "a", assignor=COOPERATIVE)
    settle(a)
    c = ConsumerMember(runner, "c")
    c.step()
    a.step(), a.step(), a.step()
    assert (a.generation, state_of(runner, a.member_id)) == (1, MemberState.UNREVOKED), "its epoch waits"
    assert a.owned == ALL, "not told yet"
    a.step()
    assert len(a.owned) == 2, "and so it goes on reading what it keeps"
    c.step()
    assert c.told == NOTHING
    a.step(), a.step()
    assert (a.generation, state_of(runner, a.member_id)) == (2, MemberState.STABLE)
    settle(a, c)
    assert c.owned == ALL - a.owned


class TestLeave:
    def test_takes_classic_members_out(self, runner: Runner) -> None:
        first, second = (runner.reply(join(runner)).member_id for _ in range(2))
        epoch = group(runner).durable.epoch
        response = runner.leave(first, "nobody", "c", second)
        assert [item.error_code for item in response.members] == [
            0,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            0,
        ]
        assert set(group(runner).durable.members) == {"c"}
        assert group(runner).durable.epoch == epoch + 1
        assert {key[-1] for key in runner.timers} == {"c"}

    def test_by_instance_id_alone(self, runner: Runner) -> None:
        static = runner.reply(runner.join(instance_id="i")).member_id
        response = runner.leave(("", "i"), ("", "none"))
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        told = [(item.member_id, item.group_instance_id, item.error_code) for item in response.members]
        assert told == [(static, "i", 0), ("", "none", unknown)]
        assert static not in group(runner).durable.members

    def test_of_nobody_changes_nothing(self, runner: Runner) -> None:
        length = len(runner.log)
        assert runner.leave("nobody").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert runner.leave("nobody", version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert len(runner.log) == length
