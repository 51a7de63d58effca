"""Random walks of groups with members of both protocols: nothing is held twice, nothing gets stuck, all is logged."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.base.types import TopicPartition
from ottla.machines.groups.classic.group import ClassicGroup
from ottla.machines.groups.config import GroupConfig
from ottla.machines.groups.consumer.group import ConsumerGroup
from ottla.machines.groups.consumer.state import ConsumerGroupPhase
from tests.unit.machines.groups.migration.world import COOPERATIVE, AnyMember, ClassicMember, ConsumerMember, settle
from tests.unit.machines.groups.runner import GROUP, Runner

subscriptions = st.sampled_from(["orders", "clicks", "orders clicks"])


class MixedGroup(RuleBasedStateMachine):
    members = Bundle("members")

    @initialize(assignor=st.sampled_from(["range", COOPERATIVE]))
    def start(self, assignor: str) -> None:
        self.runner = Runner(GroupConfig(initial_rebalance_delay_ms=0))
        self.live: dict[str, AnyMember] = {}
        self.assignor = assignor
        self.made = 0

    def _next_name(self) -> str:
        self.made += 1
        return f"m{self.made}"

    @precondition(lambda self: len(self.live) < 5)
    @rule(target=members, topics=subscriptions)
    def classic_comes(self, topics: str) -> str:
        name = self._next_name()
        self.live[name] = ClassicMember(self.runner, name, topics, assignor=self.assignor)
        return name

    @precondition(lambda self: len(self.live) < 5)
    @rule(target=members, topics=subscriptions, always_full=st.booleans())
    def consumer_comes(self, topics: str, always_full: bool) -> str:
        name = self._next_name()
        self.live[name] = ConsumerMember(self.runner, name, topics, always_full=always_full)
        return name

    @rule(name=members)
    def step(self, name: str) -> None:
        if name in self.live:
            self.live[name].step()

    @rule()
    def everybody_steps(self) -> None:
        for member in list(self.live.values()):
            member.step()

    @rule(name=members)
    def leave(self, name: str) -> None:
        if name in self.live:
            self.live.pop(name).leave()

    @rule(data=st.data())
    def fire_a_timer(self, data: st.DataObject) -> None:
        if not self.runner.timers:
            return
        key = data.draw(st.sampled_from(sorted(self.runner.timers)))
        del self.runner.timers[key]
        before = self._known()
        self.runner.perform(self.runner.shard.timer_fired(key, self.runner.now_ms))
        for member in self.live.values():
            if member.member_id in before - self._known():
                member.expelled()

    def _known(self) -> set[str]:
        group = self.runner.shard._groups.get(GROUP)
        if isinstance(group, ClassicGroup):
            return {member.member_id for member in group.members}
        return set() if group is None else set(group.durable.members)

    @rule()
    def coordinator_moves(self) -> None:
        """A classic group in the middle of a rebalance is found as it was before it."""
        before = self._known()
        self.runner = self.runner.reloaded()
        for member in self.live.values():
            member.moved(self.runner)
            if member.member_id in before - self._known():
                member.expelled()

    @rule(topic=st.sampled_from(["orders", "clicks"]))
    def topic_grows(self, topic: str) -> None:
        counts = self.runner.topics.counts
        if counts[topic] < 6:
            counts[topic] += 1
            self.runner.perform(self.runner.shard.topics_changed(self.runner.now_ms))

    @invariant()
    def nothing_is_held_twice(self) -> None:
        held: dict[TopicPartition, str] = {}
        for member in self.live.values():
            for partition in member.held:
                assert held.setdefault(partition, member.name) == member.name, partition

    @invariant()
    def the_log_tells_the_kind_and_the_members(self) -> None:
        live, loaded = self.runner.shard._groups.get(GROUP), self.runner.reloaded().shard._groups.get(GROUP)
        if isinstance(live, ConsumerGroup):
            assert isinstance(loaded, ConsumerGroup) and loaded.durable == live.durable
        elif live is not None and live.is_stored:
            assert isinstance(loaded, ClassicGroup)
            assert loaded.generation <= live.generation

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        # Ids that were handed out and members that are not there any more go when their time is over.
        ghosts = self._known() - {member.member_id for member in self.live.values()}
        for key in sorted(self.runner.timers):
            if key[0] == "pending" or (key[-1] in ghosts and key[0] in ("session", "consumer-session")):
                self.runner.timers.pop(key, None)
                self.runner.perform(self.runner.shard.timer_fired(key, self.runner.now_ms))
        settle(*self.live.values())
        group = self.runner.shard._groups.get(GROUP)
        is_consumer = [isinstance(member, ConsumerMember) for member in self.live.values()]
        if any(is_consumer):
            assert isinstance(group, ConsumerGroup)
            assert group.state is ConsumerGroupPhase.STABLE
        wanted = {
            TopicPartition(topic, index)
            for member in self.live.values()
            for topic in member.topics
            for index in range(self.runner.topics.counts[topic])
        }
        if any(is_consumer):
            # Without them it is the leader that sees topics grow, which this test's leaders do not.
            assert {partition for member in self.live.values() for partition in member.owned} == wanted


TestMixedGroup = MixedGroup.TestCase
TestMixedGroup.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
