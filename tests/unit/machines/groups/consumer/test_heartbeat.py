"""One heartbeat at a time: what is refused, who is fenced, and what the reply says (KIP-848)."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.machines.groups.config import ConsumerTimeouts, GroupConfig
from ottla.machines.groups.consumer.group import REBALANCE_TIMER, SESSION_TIMER
from ottla.machines.groups.consumer.member import MemberState
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest as Request
from tests.unit.machines.groups.consumer.world import GROUP, Cluster, Member, World, assigned, listed, settle_all


@pytest.fixture
def world() -> World:
    return World(Cluster(t=4, u=2), GroupConfig(consumer_max_size=3))


def join(**fields: object) -> Request:
    values: dict[str, object] = {
        "group_id": GROUP,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return Request(**(values | fields))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (join(group_id=""), 42),
        (join(group_id="  "), 42),
        (join(member_id=""), 42),
        (join(instance_id=""), 42),
        (join(rack_id=""), 42),
        (join(member_epoch=-3), 42),
        (join(rebalance_timeout_ms=-1), 42),
        (join(topic_partitions=None), 42),
        (join(topic_partitions=listed(Cluster(t=1).partitions("t"))), 42),
        (join(subscribed_topic_names=None), 42),
        (join(member_epoch=-2), 42),
        (join(server_assignor="clever"), 112),
        (join(subscribed_topic_regex="(("), 128),
        (join(member_epoch=1), 25),
        (join(member_epoch=-1), 25),
        (join(member_epoch=-2, instance_id="i"), 25),
        (join(member_epoch=1, instance_id="i"), 25),
    ],
    ids=lambda value: "" if isinstance(value, Request) else ErrorCode(value).name,
)
def test_a_first_heartbeat_that_is_refused(world: World, request_: Request, code: int) -> None:
    response = world.send(request_)
    assert response.error_code == code
    assert response.error_message
    assert world.log == [] and world.timers == {}
    assert not world.group.exists


class TestJoining:
    def test_the_first_member_gets_everything_at_once(self, world: World) -> None:
        response = world.send(join())
        assert (response.error_code, response.member_id, response.member_epoch) == (0, "m", 1)
        assert response.heartbeat_interval_ms == 5000
        assert assigned(response) == world.cluster.partitions("t")
        assert world.timers == {(SESSION_TIMER, GROUP, "m"): 45_000}

    def test_before_version_1_the_coordinator_makes_the_member_id(self, world: World) -> None:
        response = world.send(join(member_id=""), version=0)
        assert response.error_code == 0
        assert response.member_id == "made-1"
        assert set(world.group.durable.members) == {"made-1"}

    def test_a_member_may_join_without_a_topic(self, world: World) -> None:
        response = world.send(join(subscribed_topic_names=[]))
        assert (response.error_code, response.member_epoch, assigned(response)) == (0, 1, frozenset())

    def test_a_topic_that_does_not_exist_yet_is_not_an_error(self, world: World) -> None:
        assert assigned(world.send(join(subscribed_topic_names=["none", "u"]))) == world.cluster.partitions("u")

    def test_a_full_group_takes_nobody_else_in(self, world: World) -> None:
        for name in "abc":
            assert world.send(join(member_id=name)).error_code == 0
        assert world.send(join(member_id="d")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert world.send(join(member_id="a")).error_code == 0

    def test_a_join_whose_reply_was_lost_is_repeated(self, world: World) -> None:
        first = world.send(join())
        records = len(world.log)
        assert world.send(join()) == first
        assert len(world.log) == records

    def test_a_member_that_joins_again_in_its_epoch_changes_nothing(self, world: World) -> None:
        member = Member(world, "m", "t")
        member.settle()
        world.cluster.put("t", 5)
        world.topics_changed()
        member.settle()
        before, records = world.group.durable.members["m"].current, len(world.log)
        assert (before.epoch, before.previous_epoch) == (2, 1)
        assert world.send(join()).member_epoch == 2
        assert world.group.durable.members["m"].current == before
        assert len(world.log) == records

    def test_a_fenced_member_can_join_again_at_once(self, world: World) -> None:
        member, other = Member(world, "m", "t"), Member(world, "other", "t")
        settle_all([member, other])
        member.epoch += 5
        assert member.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
        settle_all([member, other])
        assert member.owned | other.owned == world.cluster.partitions("t")
        assert not member.owned & other.owned


class TestEpochs:
    def test_one_that_the_group_does_not_know_yet_is_fenced(self, world: World) -> None:
        world.send(join())
        assert world.send(Request(group_id=GROUP, member_id="m", member_epoch=2)).error_code == 110

    def test_the_previous_one_passes_if_the_member_holds_no_more_than_it_should(self, world: World) -> None:
        member = Member(world, "m", "t")
        member.settle()
        member.topics = ["t", "u"]
        assert member.beat(full=True, lose_reply=True).member_epoch == 2
        response = member.beat()
        assert (response.error_code, response.member_epoch) == (0, 2)
        assert assigned(response) == world.cluster.partitions("t", "u")

    @pytest.mark.parametrize("owned", [None, "u"])
    def test_the_previous_one_is_fenced_if_the_member_may_hold_more(self, world: World, owned: str | None) -> None:
        member = Member(world, "m", "t")
        member.settle()
        world.cluster.put("t", 5)
        world.topics_changed()
        member.beat(lose_reply=True)
        partitions = None if owned is None else listed(world.cluster.partitions(owned))
        request = Request(group_id=GROUP, member_id="m", member_epoch=1, topic_partitions=partitions)
        assert world.send(request).error_code == ErrorCode.FENCED_MEMBER_EPOCH

    def test_one_that_is_older_than_that_is_fenced(self, world: World) -> None:
        member = Member(world, "m", "t")
        member.settle()
        for topics in (["u"], ["t"], ["t", "u"]):
            member.topics = topics
            member.beat(full=True)
            settle_all([member])
        assert member.epoch == 4
        request = Request(group_id=GROUP, member_id="m", member_epoch=1, topic_partitions=[])
        assert world.send(request).error_code == ErrorCode.FENCED_MEMBER_EPOCH

    def test_a_member_that_was_removed_is_unknown(self, world: World) -> None:
        member = Member(world, "m", "t")
        member.settle()
        world.fire(SESSION_TIMER, "m")
        assert member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


class TestOwnSettings:
    def test_a_group_follows_its_own_timeouts_while_it_lives(self) -> None:
        own: dict[str, ConsumerTimeouts] = {}
        world = World(Cluster(t=1), GroupConfig(own_consumer_timeouts=own))
        member = Member(world, "m", "t")
        assert member.beat().heartbeat_interval_ms == 5_000
        own[GROUP] = ConsumerTimeouts(session_timeout_ms=9_000, heartbeat_interval_ms=700)
        own["another"] = ConsumerTimeouts(1, 1)
        assert member.beat().heartbeat_interval_ms == 700
        assert world.timers == {(SESSION_TIMER, GROUP, "m"): 9_000}
        del own[GROUP]
        assert member.beat().heartbeat_interval_ms == 5_000
        assert world.timers == {(SESSION_TIMER, GROUP, "m"): 45_000}


class TestReply:
    def test_an_assignment_that_did_not_change_is_not_sent_again(self, world: World) -> None:
        member = Member(world, "m", "t")
        member.settle()
        records = len(world.log)
        assert member.beat().assignment is None
        assert member.beat().assignment is None
        assert len(world.log) == records, "a quiet heartbeat writes nothing"

    def test_who_says_everything_is_told_everything(self, world: World) -> None:
        member = Member(world, "m", "t")
        member.settle()
        assert assigned(member.beat(full=True)) == world.cluster.partitions("t")


class TestRevocation:
    def test_a_partition_moves_only_when_its_owner_has_let_go(self, world: World) -> None:
        first, second = Member(world, "a", "t"), Member(world, "b", "t")
        first.settle()
        assert second.beat().assignment is not None
        assert second.told == frozenset(), "all is still held"
        assert world.group.durable.members["b"].current.state is MemberState.UNRELEASED

        first.beat()
        assert (first.epoch, len(first.told)) == (1, 2), "its epoch waits for what it has to give up"
        assert world.timers[REBALANCE_TIMER, GROUP, "a"] == 1000
        second.beat()
        first.beat()
        assert first.epoch == 1 and second.told == frozenset()

        first.apply()
        first.beat()
        assert first.epoch == 2
        assert (REBALANCE_TIMER, GROUP, "a") not in world.timers
        assert second.beat().member_epoch == 2
        assert second.told == world.cluster.partitions("t") - first.told

    def test_full_heartbeats_confirm_as_well_as_others(self, world: World) -> None:
        first, second = (Member(world, name, "t", always_full=True) for name in "ab")
        first.settle()
        second.settle()
        first.settle()
        assert (first.epoch, len(first.owned)) == (1, 2), "told to give up half, and it did"
        first.beat()
        assert first.epoch == 2
        assert (REBALANCE_TIMER, GROUP, "a") not in world.timers
        second.settle()
        assert second.owned == world.cluster.partitions("t") - first.owned

    def test_a_full_heartbeat_confirms_what_the_member_had_not_taken_up_yet(self, world: World) -> None:
        first, second = (Member(world, name, "t", always_full=True) for name in "ab")
        first.beat()
        second.beat()
        first.beat()
        assert first.owned == frozenset() and len(first.told) == 2
        assert first.beat().member_epoch == 2
        second.settle()
        assert second.owned == world.cluster.partitions("t") - first.told

    def test_who_missed_the_reply_that_took_a_partition_away_has_confirmed_nothing(self, world: World) -> None:
        first, second = Member(world, "a", "t"), Member(world, "b", "t")
        first.beat()
        second.beat()
        first.beat(lose_reply=True)
        assert first.held == world.cluster.partitions("t"), "it is taking up all of them this moment"
        lists_nothing = first.request()
        assert lists_nothing.topic_partitions == []
        assert first.beat().member_epoch == 1
        second.beat()
        assert second.told == frozenset()
        assert first.beat(full=True).member_epoch == 2, "over the connection that took the reply"
        second.settle()
        assert second.owned == world.cluster.partitions("t") - first.told

    def test_who_does_not_let_go_in_time_is_removed(self, world: World) -> None:
        first, second = Member(world, "a", "t"), Member(world, "b", "t")
        first.settle()
        second.settle()
        first.beat()
        assert set(world.group._confirmations._last) == {"a"}
        world.fire(REBALANCE_TIMER, "a")
        assert world.group._confirmations._last == {}, "nothing is kept of who was removed"
        assert (SESSION_TIMER, GROUP, "a") not in world.timers
        second.settle()
        assert second.owned == world.cluster.partitions("t")
        assert first.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_late_timer_does_no_harm(self, world: World) -> None:
        member = Member(world, "a", "t")
        member.settle()
        assert world.group.timer_fired((REBALANCE_TIMER, GROUP, "a"), 0).records == []
        assert world.group.timer_fired((SESSION_TIMER, GROUP, "nobody"), 0).records == []


class TestLeaving:
    def test_the_others_take_over(self, world: World) -> None:
        first, second = Member(world, "a", "t"), Member(world, "b", "t")
        settle_all([first, second])
        response = first.leave()
        assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", -1)
        assert [key for key in world.timers if key[2] == "a"] == []
        second.settle()
        assert second.owned == world.cluster.partitions("t")

    def test_the_last_one_leaves_an_empty_group(self, world: World) -> None:
        member = Member(world, "a", "t")
        member.settle()
        member.leave()
        state = world.group.durable
        assert world.group.is_empty and world.group.exists
        assert world.group.state.value == "Empty"
        assert (state.epoch, state.target_epoch) == (2, 1), "there is nobody to make a target for"
        assert state.targets == {} and state.topics == {}


class TestStaticMembers:
    def join_two(self, world: World) -> tuple[Member, Member]:
        static, other = Member(world, "s1", "t", instance_id="i"), Member(world, "o", "t")
        settle_all([static, other])
        return static, other

    def test_a_bounce_moves_nothing(self, world: World) -> None:
        static, other = self.join_two(world)
        held, epoch = static.owned, world.group.durable.epoch
        response = static.leave(-2)
        assert (response.error_code, response.member_epoch) == (0, -2)
        assert (SESSION_TIMER, GROUP, "s1") in world.timers
        assert other.settle().assignment is None

        back = Member(world, "s2", "t", instance_id="i")
        back.settle()
        assert (back.owned, back.epoch) == (held, epoch)
        assert world.group.durable.epoch == epoch
        assert set(world.group.durable.members) == {"s2", "o"}
        assert {key for key in world.timers if key[0] == SESSION_TIMER} == {
            (SESSION_TIMER, GROUP, "s2"),
            (SESSION_TIMER, GROUP, "o"),
        }

    def test_the_same_id_may_come_back_too(self, world: World) -> None:
        static, other = self.join_two(world)
        held = static.owned
        static.leave(-2)
        static.settle()
        assert static.owned == held
        current = world.group.durable.members["s1"].current
        assert (current.epoch, current.previous_epoch) == (static.epoch, 0), "its epochs have started over"
        settle_all([static, other])
        assert world.group.state.value == "Stable"

    def test_who_comes_back_with_other_topics_changes_the_target(self, world: World) -> None:
        static, other = self.join_two(world)
        static.leave(-2)
        back = Member(world, "s2", "u", instance_id="i")
        settle_all([back, other])
        assert back.owned == world.cluster.partitions("u")
        assert other.owned == world.cluster.partitions("t")

    def test_who_does_not_come_back_is_replaced(self, world: World) -> None:
        static, other = self.join_two(world)
        static.leave(-2)
        world.fire(SESSION_TIMER, "s1")
        other.settle()
        assert other.owned == world.cluster.partitions("t")

    def test_an_instance_that_is_in_use_cannot_be_taken(self, world: World) -> None:
        self.join_two(world)
        response = world.send(join(member_id="thief", instance_id="i"))
        assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID

    @pytest.mark.parametrize("epoch", [1, -1, -2])
    def test_the_id_that_was_replaced_is_fenced(self, world: World, epoch: int) -> None:
        static, _ = self.join_two(world)
        static.leave(-2)
        Member(world, "s2", "t", instance_id="i").settle()
        request = Request(group_id=GROUP, member_id="s1", member_epoch=epoch, instance_id="i")
        assert world.send(request).error_code == ErrorCode.FENCED_INSTANCE_ID

    def test_who_has_left_for_a_while_cannot_go_on_as_before(self, world: World) -> None:
        static, _ = self.join_two(world)
        request = static.request()
        static.leave(-2)
        assert world.send(request).error_code == ErrorCode.FENCED_MEMBER_EPOCH

    def test_it_can_leave_for_good(self, world: World) -> None:
        static, other = self.join_two(world)
        assert static.leave(-1).error_code == 0
        assert world.group.durable.static_member("i") is None
        other.settle()
        assert other.owned == world.cluster.partitions("t")

    def test_a_member_cannot_change_its_instance_id(self, world: World) -> None:
        self.join_two(world)
        assert world.send(join(member_id="o", instance_id="j")).error_code == ErrorCode.INVALID_REQUEST
        assert world.send(join(member_id="s1")).error_code == ErrorCode.INVALID_REQUEST
