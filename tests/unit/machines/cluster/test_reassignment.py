"""Moving partitions: Kafka's phases and refusals, and what holds whatever happens in between."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.machines.cluster.controller import BrokersChanged, DemotionAsked, Event, TakenOver, decide
from ottla.machines.cluster.decision import DeleteReplicas, TellMetadata, TellRoles
from ottla.machines.cluster.image import NO_LEADER
from ottla.machines.cluster.isr_changes import IsrAsked, ProposedIsr
from ottla.machines.cluster.reassignment import ReassignmentAsked, ReassignmentsAdvanced
from ottla.machines.cluster.requests import Sender, leader_and_isr, stop_replica
from ottla.machines.cluster.state import PartitionState
from ottla.machines.cluster.topics import DeletionWanted, PartitionsWanted, ReplicasDeleted
from tests.unit.machines.cluster.test_controller import T0, T1, World

SENDER = Sender(1, 1)


def move(world: World, *replicas: int, tp: TopicPartition = T0) -> KafkaError | None:
    outcome: dict[TopicPartition, KafkaError | None] = world.happens(ReassignmentAsked({tp: replicas}))
    return outcome[tp]


def cancel(world: World, tp: TopicPartition = T0) -> KafkaError | None:
    outcome: dict[TopicPartition, KafkaError | None] = world.happens(ReassignmentAsked({tp: None}))
    return outcome[tp]


def in_sync(world: World, *isr: int, tp: TopicPartition = T0) -> None:
    """The leader asks for an in-sync set and gets it."""
    partition = world.of(tp)
    epoch = world.state.brokers[partition.leader].epoch
    proposal = ProposedIsr(tp, partition.leader_epoch, partition.partition_epoch, isr)
    assert world.happens(IsrAsked(partition.leader, epoch, (proposal,))) == {tp: ErrorCode.NONE}


def one_partition(*replicas: int) -> World:
    world = World(1, 2, 3, 4)
    world.create("t", {0: list(replicas)})
    return world


def test_a_move_begins_with_old_and_new_replicas_and_ends_with_the_new() -> None:
    world = one_partition(2)
    assert move(world, 3) is None
    assert world.of(T0) == PartitionState((3, 2), 2, 1, (2,), 1, adding=(3,), removing=(2,))
    assert world.told(TellRoles) == {2: {T0}, 3: {T0}}
    assert world.told(TellMetadata) == {key: {T0} for key in (1, 2, 3, 4)}
    in_sync(world, 2, 3)
    # As in Kafka: one epoch for the new leader, one for the replica that leaves the in-sync set.
    assert world.of(T0) == PartitionState((3,), 3, 3, (3,), 4)
    assert world.told(TellRoles) == {3: {T0}}
    assert world.told(DeleteReplicas) == {2: {T0}}


def test_a_leader_that_stays_leads_on() -> None:
    world = one_partition(2)
    move(world, 1, 2, 3)
    in_sync(world, 2, 1)
    assert world.of(T0) == PartitionState((1, 2, 3), 2, 1, (2, 1), 2, adding=(1, 3))
    in_sync(world, 2, 1, 3)
    assert world.of(T0) == PartitionState((1, 2, 3), 2, 2, (2, 1, 3), 4)
    assert world.told(DeleteReplicas) == {}


def test_another_order_keeps_the_leader_and_takes_one_epoch() -> None:
    world = one_partition(3, 1, 2)
    assert move(world, 1, 2, 3) is None
    assert world.of(T0) == PartitionState((1, 2, 3), 3, 1, (3, 1, 2), 1)


def test_replicas_that_are_there_are_only_taken_away() -> None:
    world = one_partition(1, 2, 3)
    assert move(world, 2) is None
    assert world.of(T0) == PartitionState((2,), 2, 3, (2,), 3)
    assert world.told(DeleteReplicas) == {1: {T0}, 3: {T0}}


def test_what_is_so_already_changes_nothing() -> None:
    world = one_partition(1, 2)
    before = world.of(T0)
    assert move(world, 1, 2) is None
    assert world.of(T0) == before and world.messages == []


def test_new_replicas_are_told_that_they_are_new() -> None:
    world = one_partition(1, 2)
    move(world, 3, 2)
    told = {}
    for broker_id in (1, 2, 3):
        request = leader_and_isr(world.state, SENDER, broker_id, {T0: False})
        assert request is not None
        ((state,),) = [topic.partition_states for topic in request.topic_states]
        assert (state.replicas, state.adding_replicas, state.removing_replicas) == ([3, 2, 1], [3], [1])
        told[broker_id] = state.is_new
    assert told == {1: False, 2: False, 3: True}
    assert leader_and_isr(world.state, SENDER, 4, {T0: False}) is None, "it is no replica"


def test_a_deletion_names_the_epoch_and_is_dropped_if_the_replica_is_wanted_again() -> None:
    world = one_partition(1, 2)
    move(world, 1)
    request = stop_replica(world.state, SENDER, 2, [T0])
    assert request is not None
    ((state,),) = [topic.partition_states for topic in request.topic_states]
    assert (state.leader_epoch, state.delete_partition) == (world.of(T0).leader_epoch, True)
    move(world, 1, 2)
    assert stop_replica(world.state, SENDER, 2, [T0]) is None


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ((), "Empty replica list"),
        ((1, 1), r"Duplicate replica ids .*\[1, 1\]"),
        ((1, -1), r"Invalid broker id in replica list: \[1, -1\]"),
        ((1, 9), r"brokers that are not alive.*Replica list: \[9\], live broker list: \[1, 2, 3, 4\]"),
    ],
)
def test_impossible_replicas_are_refused_in_kafkas_words(replicas: tuple[int, ...], words: str) -> None:
    world = one_partition(1, 2)
    before = world.of(T0)
    refused = move(world, *replicas)
    assert refused is not None and refused.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(KafkaError, match=words):
        raise refused
    assert world.of(T0) == before


def test_partitions_are_refused_one_by_one() -> None:
    world = one_partition(1, 2)
    outcome = world.happens(ReassignmentAsked({T0: (3, 2), T1: (3, 2), TopicPartition("u", 0): None}))
    assert outcome[T0] is None
    assert outcome[T1].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome[TopicPartition("u", 0)].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.of(T0).adding == (3,)


def test_a_dead_replica_may_stay_where_it_is() -> None:
    world = one_partition(1, 2)
    world.brokers(b2=None)
    assert move(world, 3, 2) is None, "only new replicas have to be alive"


def test_all_that_are_alive_may_be_new() -> None:
    world = one_partition(1)
    world.brokers(b1=None)
    assert move(world, 2, 3, 4) is None
    assert world.of(T0).adding == (2, 3, 4)


def test_the_first_broker_may_have_the_number_0() -> None:
    world = World(0, 1)
    world.create("t", {0: [1]})
    assert move(world, 0, 1) is None
    assert world.of(T0).replicas == (0, 1)


def test_a_partition_without_a_leader_gets_one_when_it_begins_to_move() -> None:
    world = one_partition(2, 1)
    world.happens(DemotionAsked(T0))
    assert world.of(T0).leader == NO_LEADER
    assert move(world, 3, 1) is None
    assert (world.of(T0).leader, world.of(T0).isr) == (1, (2, 1)), "3 comes first, but is not in sync"


def test_a_partition_whose_replicas_are_all_away_has_no_leader_when_it_begins_to_move() -> None:
    world = one_partition(1)
    world.brokers(b1=None)
    assert move(world, 3, 1) is None
    assert (world.of(T0).leader, world.of(T0).isr) == (NO_LEADER, (1,))


def test_only_what_is_moving_comes_to_its_end() -> None:
    world = one_partition(1, 2)
    before, version = world.of(T0), world.state.topics["t"].node_version
    world.happens(ReassignmentsAdvanced((T0, T1, TopicPartition("nowhere", 0))))
    assert (world.of(T0), world.state.topics["t"].node_version, world.messages) == (before, version, [])


def test_whatever_could_end_a_move_has_it_looked_at() -> None:
    world = one_partition(2)
    move(world, 3)
    partition, advanced = world.of(T0), ReassignmentsAdvanced((T0,))

    def next_event(event: Event) -> object:
        return decide(world.state, event, lambda _: False).next_event

    live = world.state.brokers
    for gone, expected in ((3, advanced), (2, advanced), (4, None)):
        left = {broker_id: broker for broker_id, broker in live.items() if broker_id != gone}
        assert next_event(BrokersChanged(left)) == expected
    assert next_event(BrokersChanged({**live, 3: live[3]._replace(epoch=99)})) == advanced
    assert next_event(TakenOver()) == advanced
    proposal = ProposedIsr(T0, partition.leader_epoch, partition.partition_epoch, (2, 3))
    assert next_event(IsrAsked(2, live[2].epoch, (proposal,))) == advanced


def test_cancelling_brings_back_the_old_replicas() -> None:
    world = one_partition(1, 2)
    move(world, 3, 4)
    in_sync(world, 1, 2, 3)
    assert world.of(T0).is_being_reassigned
    assert cancel(world) is None
    after = world.of(T0)
    assert (after.replicas, after.adding, after.removing) == ((1, 2), (), ())
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1, 2), 3)
    assert world.told(DeleteReplicas) == {3: {T0}, 4: {T0}}
    refused = cancel(world)
    assert refused is not None and refused.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_can_be_replaced_by_another() -> None:
    world = one_partition(1, 2)
    move(world, 3, 2)
    assert move(world, 4, 2) is None
    assert world.of(T0) == PartitionState((4, 2, 1), 1, 2, (1, 2), 2, adding=(4,), removing=(1,))
    assert world.told(DeleteReplicas) == {3: {T0}}
    in_sync(world, 1, 2, 4)
    assert world.of(T0).replicas == (4, 2)


def test_the_only_replica_in_sync_is_not_called_off() -> None:
    world = one_partition(1)
    move(world, 3, 4)
    in_sync(world, 1, 3)
    world.brokers(b1=None)
    assert (world.of(T0).leader, world.of(T0).isr) == (3, (3,))
    refused = cancel(world)
    assert refused is not None and refused.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "unclean leader election" in refused.message
    assert world.of(T0).is_being_reassigned and world.of(T0).leader == 3
    world.brokers(b3=None)
    assert (world.of(T0).leader, world.of(T0).isr) == (NO_LEADER, (3,))
    assert cancel(world) is not None, "it may come back"


def test_a_move_waits_for_a_broker_that_has_died_and_goes_on_when_it_is_back() -> None:
    world = one_partition(1, 2)
    move(world, 3, 4)
    in_sync(world, 1, 2, 3)
    world.brokers(b4=None)
    assert world.of(T0).is_being_reassigned
    world.brokers(b4=50)
    in_sync(world, 1, 2, 3, 4)
    assert (world.of(T0).replicas, world.of(T0).leader) == ((3, 4), 3)


def test_a_new_controller_ends_what_is_ready() -> None:
    world = one_partition(1, 2)
    world.state.topics["t"].partitions[0] = PartitionState((3, 2, 1), 1, 4, (1, 2, 3), 7, (3,), (1,))
    world.happens(TakenOver())
    assert world.of(T0).replicas == (3, 2) and world.of(T0).leader == 3
    assert world.told(DeleteReplicas) == {1: {T0}}


def test_a_topic_that_is_being_moved_does_not_grow_but_can_be_deleted() -> None:
    world = one_partition(1, 2)
    move(world, 3, 4)
    with pytest.raises(KafkaError, match="reassignment is in progress for the topic 't'") as caught:
        world.happens(PartitionsWanted("t", 2))
    assert caught.value.code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    world.happens(DeletionWanted("t"))
    assert world.told(DeleteReplicas) == {key: {T0} for key in (1, 2, 3, 4)}
    refused = cancel(world)
    assert refused is not None and refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for broker_id in (1, 2, 3, 4):
        world.happens(ReplicasDeleted(broker_id, (T0,)))
    assert world.state.topics == {}


def test_a_replica_that_was_moved_away_is_not_taken_for_one_of_a_deleted_topic() -> None:
    world = one_partition(1, 2)
    move(world, 1)
    world.happens(ReplicasDeleted(2, (T0,)))
    move(world, 1, 2)
    in_sync(world, 1, 2)
    world.happens(DeletionWanted("t"))
    world.happens(ReplicasDeleted(1, (T0,)))
    assert "t" in world.state.topics, "broker 2 has a copy again"


_IDS = (1, 2, 3, 4, 5)


class MovingCluster(RuleBasedStateMachine):
    """Whatever is asked for and whoever dies: a partition ends with replicas somebody wanted, and nothing committed is
    given up for it."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.world = World(*_IDS)
        self.clock = 100
        replicas = st.permutations(_IDS)
        self.world.create("t", {index: list(data.draw(replicas))[:2] for index in range(2)})
        self.wanted = {tp: {frozenset(found.replicas)} for tp, found in self.world.state.partitions()}
        self.seen = dict(self.world.state.partitions())

    @rule(broker_id=st.sampled_from(_IDS))
    def come_or_bounce(self, broker_id: int) -> None:
        self.clock += 1
        self.world.brokers(**{f"b{broker_id}": self.clock})

    @rule(broker_id=st.sampled_from(_IDS))
    def go(self, broker_id: int) -> None:
        if broker_id in self.world.state.brokers:
            self.world.brokers(**{f"b{broker_id}": None})

    @rule(index=st.integers(0, 1), replicas=st.permutations(_IDS), count=st.integers(1, 4))
    def reassign(self, index: int, replicas: list[int], count: int) -> None:
        tp = TopicPartition("t", index)
        if move(self.world, *replicas[:count], tp=tp) is None:
            self.wanted[tp].add(frozenset(replicas[:count]))

    @rule(index=st.integers(0, 1))
    def call_off(self, index: int) -> None:
        cancel(self.world, TopicPartition("t", index))

    @rule()
    def take_over(self) -> None:
        self.world.happens(TakenOver())

    @rule(index=st.integers(0, 1), data=st.data())
    def follow(self, index: int, data: st.DataObject) -> None:
        """Some follower catches up, or falls behind."""
        tp = TopicPartition("t", index)
        partition = self.world.of(tp)
        if partition.leader != NO_LEADER:
            others = [replica for replica in partition.replicas if replica in self.world.state.brokers]
            isr = {partition.leader, *data.draw(st.lists(st.sampled_from(others), unique=True))}
            self._agree(tp, isr)

    def _agree(self, tp: TopicPartition, isr: set[int]) -> None:
        in_sync(self.world, *sorted(isr), tp=tp)
        # The controller may have gone on from there at once.
        self.seen[tp] = self.seen[tp]._replace(isr=tuple({*self.seen[tp].isr, *isr}))

    @invariant()
    def nothing_is_given_up(self) -> None:
        for tp, partition in self.world.state.partitions():
            before = self.seen[tp]
            assert partition.isr and set(partition.isr) <= set(partition.replicas)
            assert set(partition.adding) | set(partition.removing) <= set(partition.replicas)
            assert set(partition.isr) & (set(before.isr) | set(before.replicas))
            if partition.leader != NO_LEADER:
                assert partition.leader in partition.isr and partition.leader in self.world.state.brokers
                if partition.leader != before.leader:
                    assert partition.leader in before.isr, "only who had everything leads"
                    assert partition.leader_epoch > before.leader_epoch
            if partition.replicas != before.replicas:
                assert partition.leader_epoch > before.leader_epoch
            if not partition.is_being_reassigned:
                assert frozenset(partition.replicas) in self.wanted[tp]
        self.seen = dict(self.world.state.partitions())

    def teardown(self) -> None:
        """Everybody comes back and catches up: whatever was asked for last comes to its end."""
        if not hasattr(self, "world"):
            return
        for broker_id in _IDS:
            if broker_id not in self.world.state.brokers:
                self.come_or_bounce(broker_id)
        for tp, _ in list(self.world.state.partitions()):
            partition = self.world.of(tp)
            assert partition.leader != NO_LEADER
            self._agree(tp, set(partition.replicas))
            assert not self.world.of(tp).is_being_reassigned
            assert set(self.world.of(tp).isr) == set(self.world.of(tp).replicas)
        self.nothing_is_given_up()


TestMovingCluster = MovingCluster.TestCase
TestMovingCluster.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
