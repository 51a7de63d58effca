"""Random walks of KIP-848 groups: whatever members, timers and topics do, nothing is held twice, and it settles."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.machines.groups.config import GroupConfig
from ottla.machines.groups.consumer.group import REBALANCE_TIMER, SESSION_TIMER, ConsumerGroup
from ottla.machines.groups.consumer.state import ConsumerGroupPhase, ConsumerGroupState
from ottla.machines.groups.consumer.target import is_subscribed
from ottla.machines.groups.record_types import parse
from tests.unit.machines.groups.consumer.world import GROUP, Cluster, Member, World, settle_all

TOPICS = ["t0", "t1", "u0"]
subscriptions = st.sampled_from(["t0", "t1", "t0 t1", "t0 u0", "t0 t1 u0", "missing", ""])
regexes = st.sampled_from([None, None, None, "t.*", ".*0", ""])
assignors = st.sampled_from([None, "uniform", "range"])


class ConsumerGroupMachine(RuleBasedStateMachine):
    members = Bundle("members")

    @initialize()
    def start(self) -> None:
        self.world = World(Cluster(t0=4, t1=3, u0=2), GroupConfig(consumer_max_size=6))
        self.all_members: dict[str, Member] = {}
        self.snapshots: list[tuple[int, ConsumerGroupState]] = []
        self.made = 0
        self.epoch_seen = 0

    @property
    def live(self) -> dict[str, Member]:
        return {name: member for name, member in self.all_members.items() if not member.gave_up}

    def _new_id(self) -> str:
        self.made += 1
        return f"m{self.made}"

    @precondition(lambda self: len(self.live) < 5)
    @rule(target=members, topics=subscriptions, regex=regexes, assignor=assignors, always_full=st.booleans())
    def join(self, topics: str, regex: str | None, assignor: str | None, always_full: bool) -> Member:
        member = Member(self.world, self._new_id(), topics, regex=regex, assignor=assignor, always_full=always_full)
        self.all_members[member.member_id] = member
        member.beat()
        return member

    @precondition(lambda self: len(self.live) < 5)
    @rule(target=members, topics=subscriptions, instance=st.sampled_from(["i1", "i2"]))
    def join_static(self, topics: str, instance: str) -> Member:
        member = Member(self.world, self._new_id(), topics, instance_id=instance)
        self.all_members[member.member_id] = member
        member.beat()
        return member

    @rule(member=members, full=st.booleans(), lose_reply=st.booleans())
    def beat(self, member: Member, full: bool, lose_reply: bool) -> None:
        if member.member_id in self.live:
            member.beat(full=full, lose_reply=lose_reply)

    @rule(member=members)
    def connect_again(self, member: Member) -> None:
        """Nothing is lost: no heartbeat was in flight."""
        member.connection = object()

    @rule(member=members)
    def apply(self, member: Member) -> None:
        if member.member_id in self.live:
            member.apply()

    @rule(member=members)
    def settle(self, member: Member) -> None:
        if member.member_id in self.live:
            member.settle()

    @rule(member=members, topics=subscriptions)
    def change_subscription(self, member: Member, topics: str) -> None:
        if member.member_id in self.live:
            member.topics = topics.split()
            member.beat(full=True)

    @rule(member=members)
    def leave(self, member: Member) -> None:
        if member.member_id in self.live:
            del self.all_members[member.member_id]
            member.leave()

    @rule(member=members)
    def bounce(self, member: Member) -> None:
        if member.instance_id is not None and member.member_id in self.live:
            del self.all_members[member.member_id]
            is_known = member.member_id in self.world.group.durable.members
            assert (member.leave(-2).error_code == 0) == is_known

    @rule(member=members)
    def lose_all_and_rejoin(self, member: Member) -> None:
        if member.member_id in self.live:
            member.restart()
            member.beat()

    @rule(data=st.data())
    def fire_a_timer(self, data: st.DataObject) -> None:
        if self.world.timers:
            kind, _, member_id = data.draw(st.sampled_from(sorted(self.world.timers)))
            self.world.fire(kind, member_id)
            if member_id in self.live:
                # It finds out by itself that its time is over, before anybody else is given what it held.
                self.live[member_id].owned = self.live[member_id].told = frozenset()

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 6))
    def grow_topic(self, name: str, count: int) -> None:
        self.world.cluster.put(name, max(count, self.world.cluster.partition_count(name) or 0))
        self.world.topics_changed()

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        self.world.cluster.delete(name)
        self.world.topics_changed()

    @rule()
    def coordinator_moves(self) -> None:
        group = ConsumerGroup(GROUP, self.world.config, self.world.cluster)
        group.durable = self.world.reloaded(compacted=True)
        assert group.durable == self.world.group.durable
        self.world.group = group
        self.world.timers.clear()
        assert not self.world.perform(group.loaded(0))

    @invariant()
    def nothing_is_held_twice(self) -> None:
        held: dict[object, str] = {}
        for member in self.live.values():
            for partition in member.held:
                assert held.setdefault(partition, member.member_id) == member.member_id

    @invariant()
    def epochs_only_grow_and_stay_in_order(self) -> None:
        state = self.world.group.durable
        assert state.epoch >= self.epoch_seen
        self.epoch_seen = state.epoch
        assert state.target_epoch <= state.epoch
        assert all(member.current.epoch <= state.target_epoch for member in state.members.values())

    @invariant()
    def nobody_is_without_a_session(self) -> None:
        expected = {(SESSION_TIMER, GROUP, member_id) for member_id in self.world.group.durable.members}
        assert expected == {key for key in self.world.timers if key[0] == SESSION_TIMER}
        for kind, _, member_id in self.world.timers:
            assert kind == SESSION_TIMER or self.world.group.durable.members[member_id].current.pending_revocation

    @invariant()
    def remember(self) -> None:
        self.snapshots.append((len(self.world.log), self.world.group.durable.copy()))

    def check_that_a_reload_of_any_prefix_gives_the_group_of_that_time(self) -> None:
        reloaded, position = ConsumerGroupState(), 0
        for log_end_offset, state in self.snapshots:
            for key, value in self.world.log[position:log_end_offset]:
                record = parse(key, value)
                assert record is not None
                reloaded.replay(*record)
            position = log_end_offset
            assert reloaded == state

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.check_that_a_reload_of_any_prefix_gives_the_group_of_that_time()
        assert self.world.reloaded(compacted=True) == self.world.group.durable
        # Static members that went away for a while do not come back.
        for kind, _, member_id in sorted(self.world.timers):
            if kind == SESSION_TIMER and member_id not in self.live:
                self.world.fire(kind, member_id)
        settle_all(self.live.values(), rounds=6)
        state = self.world.group.durable
        if not self.live:
            assert state.phase in (ConsumerGroupPhase.EMPTY, ConsumerGroupPhase.DEAD)
            return
        assert state.phase is ConsumerGroupPhase.STABLE
        assert not any(key[0] == REBALANCE_TIMER for key in self.world.timers)
        for member in self.live.values():
            assert member.owned == member.told == state.target_of(member.member_id)
        wanted = {
            name
            for name in self.world.cluster.names()
            if any(is_subscribed(member.subscription, name) for member in state.members.values())
        }
        owned = [partition for member in self.live.values() for partition in member.owned]
        assert sorted(owned) == sorted(self.world.cluster.partitions(*wanted))


TestConsumerGroupMachine = ConsumerGroupMachine.TestCase
TestConsumerGroupMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
