"""What the controller decides: scenarios, and laws that hold after any sequence of events."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import Endpoint, TopicPartition, Uuid
from ottla.machines.cluster.controller import (
    BrokersChanged,
    DemotionAsked,
    ElectionAsked,
    ElectionKind,
    Event,
    LeaderAsked,
    ReplicasFailed,
    ShutdownAsked,
    TakenOver,
    decide,
)
from ottla.machines.cluster.decision import Decision, DeleteReplicas, TellMetadata, TellRoles
from ottla.machines.cluster.image import NO_LEADER
from ottla.machines.cluster.isr_changes import IsrAsked, ProposedIsr
from ottla.machines.cluster.state import ClusterState, LiveBroker, PartitionState, WritePartition, WriteTopic
from ottla.machines.cluster.topics import DeletionWanted, NewTopic, PartitionsWanted, ReplicasDeleted, TopicWanted

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def broker(epoch: int, first_epoch: int | None = None, *, is_clean: bool = False) -> LiveBroker:
    return LiveBroker(epoch, ((Endpoint("PLAINTEXT", "host", 9092), "PLAINTEXT"),), None, first_epoch, is_clean)


class World:
    """Commits every decision as a store would, and keeps what was said."""

    def __init__(self, *brokers: int) -> None:
        self.state = ClusterState()
        self.state.brokers = {broker_id: broker(broker_id) for broker_id in brokers}
        self.unclean: set[str] = set()
        self.messages: list[Any] = []
        self.warnings: list[str] = []

    def happens(self, event: Event) -> Any:
        before = copy.deepcopy(vars(self.state))
        try:
            decision = decide(self.state, event, lambda topic: topic in self.unclean)
        finally:
            assert vars(self.state) == before, "nothing changes before it is committed"
        self.commit(decision)
        self.messages = decision.messages
        self.warnings = list(decision.warnings)
        if decision.next_event is not None:
            self.happens(decision.next_event)
            self.messages = [*decision.messages, *self.messages]
        return decision.result

    def commit(self, decision: Decision) -> None:
        for change in decision.changes:
            version = -1
            if isinstance(change, WritePartition):
                partition = self.state.partition(change.tp)
                version = change.expected_epoch + 1
                assert partition is not None and partition.partition_epoch == change.expected_epoch
            elif isinstance(change, WriteTopic):
                version = change.expected_version + 1
            self.state.note(change, version)

    def create(self, name: str, assignment: dict[int, list[int]]) -> None:
        self.happens(TopicWanted(NewTopic(name, -1, -1, assignment), Uuid(bytes(16)), 0, 0))

    def brokers(self, **changes: int | None) -> None:
        """b1=7: broker 1 is alive since commit 7; b1=None: it is gone."""
        live = dict(self.state.brokers)
        for name, epoch in changes.items():
            if epoch is None:
                live.pop(int(name[1:]))
            else:
                live[int(name[1:])] = broker(epoch)
        self.happens(BrokersChanged(live))

    def of(self, tp: TopicPartition) -> PartitionState:
        found = self.state.partition(tp)
        assert found is not None
        return found

    def told(self, kind: type[Any]) -> dict[int, set[TopicPartition]]:
        return {message.broker_id: set(message.partitions) for message in self.messages if isinstance(message, kind)}


def test_a_new_topic_is_led_by_its_first_live_replicas() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2], 1: [2, 1]})
    assert world.of(T0) == PartitionState((1, 2), 1, 0, (1, 2), 0)
    assert world.of(T1) == PartitionState((2, 1), 2, 0, (2, 1), 0)
    assert world.told(TellRoles) == {1: {T0, T1}, 2: {T0, T1}}
    assert all(message.are_new for message in world.messages if isinstance(message, TellRoles))
    assert world.told(TellMetadata) == {1: {T0, T1}, 2: {T0, T1}}


def test_nobody_is_told_of_what_does_not_concern_it() -> None:
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2], 1: [2, 3]})
    world.brokers(b3=None)
    assert world.told(TellRoles) == {2: {T1}}, "only the in-sync set of t-1 has changed"
    assert world.told(TellMetadata) == {1: {T1}, 2: {T1}}
    world.brokers(b3=9)
    assert world.told(TellRoles) == {3: {T1}}
    assert world.told(TellMetadata) == {1: {T1}, 2: {T1}, 3: {T0, T1}}, "a newcomer knows nothing"


def test_the_same_brokers_are_no_news() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    world.happens(BrokersChanged(dict(world.state.brokers)))
    assert world.messages == []


def test_the_last_in_sync_replica_is_kept_when_it_dies() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    world.brokers(b2=None)
    world.brokers(b1=None)
    assert world.of(T0)[1:4] == (NO_LEADER, 2, (1,))
    world.brokers(b2=5)
    assert world.of(T0)[1:4] == (NO_LEADER, 2, (1,)), "it lacks records"
    world.brokers(b1=6)
    assert world.of(T0)[1:4] == (1, 3, (1,))


def test_taking_over_elects_only_where_it_must() -> None:
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2], 1: [2, 1]})
    before = world.of(T1)
    world.happens(TakenOver({T0: frozenset({1, 2})}))
    assert world.of(T0)[1:4] == (1, 1, (1, 2)), "both were restarted, and one of them is elected anew"
    assert world.of(T1) == before
    assert world.told(TellRoles) == {1: {T0, T1}, 2: {T0, T1}}
    assert world.told(TellMetadata) == {1: {T0, T1}, 2: {T0, T1}, 3: {T0, T1}}


def test_who_was_restarted_unseen_is_not_in_sync_where_another_stayed() -> None:
    """Its controller was gone with it; in a power cut it has lost its tail."""
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2, 3], 1: [2, 1, 3]})
    world.happens(TakenOver(dict.fromkeys((T0, T1), frozenset({1}))))
    assert world.of(T0)[1:4] == (2, 1, (2, 3)), "it led this one"
    assert world.of(T1)[1:4] == (2, 1, (2, 3)), "it followed this one"


def test_who_lost_its_session_unseen_has_its_log_and_may_lead() -> None:
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2, 3], 1: [2, 1, 3]})
    restarted, returned = dict.fromkeys((T0, T1), frozenset({1, 3})), dict.fromkeys((T0, T1), frozenset({2}))
    world.happens(TakenOver(restarted, returned))
    assert world.of(T0)[1:4] == (2, 1, (2,)), "the only one that cannot have lost anything"
    assert world.of(T1)[1:4] == (2, 1, (2,)), "it led in epoch 0, but knows nothing of that any more"
    world.happens(TakenOver({}, returned))
    assert world.of(T1)[1:4] == (2, 2, (2,))


def test_whose_process_lived_on_is_preferred_to_who_was_restarted() -> None:
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2, 3]})
    world.happens(BrokersChanged({1: broker(10), 2: broker(11, first_epoch=2), 3: broker(12)}))
    assert world.of(T0)[1:4] == (2, 1, (2,))
    world.happens(BrokersChanged({}))
    world.happens(BrokersChanged({1: broker(20), 2: broker(22)}))
    assert world.of(T0).leader == 2


def test_who_comes_back_with_its_log_is_elected_before_who_may_have_lost_its_tail() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    world.happens(BrokersChanged({}))
    assert world.of(T0)[1:4] == (NO_LEADER, 1, (1, 2))
    world.happens(BrokersChanged({1: broker(10), 2: broker(11, first_epoch=2)}))
    assert world.of(T0)[1:4] == (2, 2, (2,))


def test_who_was_stopped_cleanly_is_elected_before_who_may_have_lost_its_tail() -> None:
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    world.happens(BrokersChanged({}))
    world.happens(BrokersChanged({1: broker(10), 2: broker(11, is_clean=True), 3: broker(12)}))
    assert world.of(T0)[1:4] == (2, 2, (2,))
    assert world.of(T1)[1:4] == (2, 2, (2,))
    assert world.warnings == [], "nothing can be lost"


@pytest.mark.parametrize("is_new_controller", [False, True])
def test_it_is_said_who_leads_although_it_may_have_lost_its_tail(is_new_controller: bool) -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2], 1: [2, 1]})
    world.create("u", {0: [2]})
    world.brokers(b2=None)
    world.brokers(b1=None)
    if is_new_controller:
        world.state.brokers = {1: broker(9), 2: broker(10)}
        world.happens(TakenOver(dict.fromkeys((T0, T1), frozenset({1}))))
    else:
        world.happens(BrokersChanged({1: broker(9), 2: broker(10, is_clean=True)}))
    assert world.of(T0)[1:4] == (1, 3, (1,))
    (warning,) = world.warnings
    assert warning.startswith("broker 1 was not stopped cleanly and leads 2 partitions, such as t-0,")


def test_a_new_controller_forgets_marks_of_topics_that_are_gone() -> None:
    world = World(1)
    world.create("t", {0: [1]})
    world.state.pending_deletions |= {"gone", "t"}
    world.happens(TakenOver({}))
    assert world.state.pending_deletions == {"t"}


def test_who_was_not_even_in_sync_is_said_to_lead_once() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    world.brokers(b2=None)
    world.brokers(b1=None)
    world.unclean = {"t"}
    world.brokers(b2=9)
    assert world.of(T0)[1:4] == (2, 3, (2,))
    (warning,) = world.warnings
    assert warning.startswith("t-0: broker 2 leads although it was not in sync")


@pytest.mark.parametrize(
    ("epoch", "first_epoch", "is_clean", "commit_id", "may_lack"),
    [
        (7, None, False, 6, True),
        (7, None, False, 7, False),
        (7, None, False, 8, False),
        (7, None, True, 6, False),
        (7, 4, False, 3, True),
        (7, 4, False, 4, False),
        (7, 4, True, 3, False),
    ],
)
def test_a_process_that_began_after_a_commit_may_lack_its_records(
    epoch: int, first_epoch: int | None, is_clean: bool, commit_id: int, may_lack: bool
) -> None:
    assert broker(epoch, first_epoch, is_clean=is_clean).may_lack_records_of(commit_id) is may_lack


def test_others_lead_what_a_failed_directory_has_taken() -> None:
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2, 3], 1: [2, 1, 3]})
    world.happens(ReplicasFailed(1, (T0, T1)))
    assert world.of(T0)[1:4] == (2, 1, (2, 3)), "it led this one"
    assert world.of(T1)[1:4] == (2, 1, (2, 3)), "it followed this one"
    world.happens(ReplicasFailed(1, (T0, T1)))
    assert world.messages == [], "it is known"
    world.brokers(b2=None)
    world.brokers(b3=None)
    assert world.of(T0)[1:4] == (NO_LEADER, 3, (3,)), "its copy cannot be used, so nobody leads"
    asked = ElectionAsked((T0,), ElectionKind.UNCLEAN)
    assert world.happens(asked) == {T0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    world.brokers(b1=9)
    assert world.happens(asked) == {T0: ErrorCode.NONE}, "it was started again, and may have another disk"
    assert world.of(T0).leader == 1


def test_a_partition_without_a_state_gets_its_first() -> None:
    world = World(1, 2)
    world.state.note(WriteTopic("t", Uuid(bytes(16)), {0: (3, 2)}), 0)
    world.happens(TakenOver({}))
    assert world.of(T0) == PartitionState((3, 2), 2, 0, (2,), 0)


def test_a_partition_without_a_state_waits_for_its_first_leader() -> None:
    world = World(1)
    world.state.note(WriteTopic("t", Uuid(bytes(16)), {0: (3, 2)}), 0)
    world.happens(TakenOver({}))
    assert world.of(T0) == PartitionState((3, 2))
    world.brokers(b2=8)
    assert world.of(T0) == PartitionState((3, 2), 2, 0, (2,), 0)


@pytest.mark.parametrize(
    ("kind", "isr", "live", "code", "leader"),
    [
        (ElectionKind.PREFERRED, (1, 2), (1, 2), ErrorCode.NONE, 1),
        (ElectionKind.PREFERRED, (2,), (1, 2), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 2),
        (ElectionKind.PREFERRED, (1, 2), (2,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 2),
        (ElectionKind.UNCLEAN, (2,), (1, 2), ErrorCode.ELECTION_NOT_NEEDED, 2),
        (ElectionKind.UNCLEAN, (2,), (1,), ErrorCode.NONE, 1),
        (ElectionKind.UNCLEAN, (2,), (3,), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_LEADER),
        (ElectionKind.ANEW, (2,), (1,), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_LEADER),
        (ElectionKind.ANEW, (1, 2), (1, 2), ErrorCode.NONE, 1),
    ],
)
def test_elections_that_are_asked_for(
    kind: ElectionKind, isr: tuple[int, ...], live: tuple[int, ...], code: ErrorCode, leader: int
) -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    world.state.topics["t"].partitions[0] = PartitionState((1, 2), 2, 4, isr, 6)
    world.state.brokers = {broker_id: broker(broker_id) for broker_id in live}
    unknown = TopicPartition("nope", 0)
    codes = world.happens(ElectionAsked((T0, unknown), kind))
    assert codes == {T0: code, unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.of(T0).leader == leader
    assert world.of(T0).leader_epoch == (5 if world.messages else 4)


def test_a_preferred_leader_that_leads_needs_no_election() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    assert world.happens(ElectionAsked((T0,), ElectionKind.PREFERRED)) == {T0: ErrorCode.ELECTION_NOT_NEEDED}


def test_a_partition_can_be_left_without_a_leader() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    world.happens(DemotionAsked(T0))
    assert world.of(T0)[1:4] == (NO_LEADER, 1, (1, 2))
    assert world.told(TellRoles) == world.told(TellMetadata) == {1: {T0}, 2: {T0}}
    with pytest.raises(KafkaError) as refused:
        world.happens(DemotionAsked(T1))
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_member_of_the_in_sync_set_can_be_asked_to_lead() -> None:
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2]})
    world.happens(LeaderAsked(T0, 2))
    assert world.of(T0)[1:4] == (2, 1, (1, 2))
    assert world.told(TellRoles) == {1: {T0}, 2: {T0}}
    assert world.told(TellMetadata) == {1: {T0}, 2: {T0}, 3: {T0}}
    world.happens(LeaderAsked(T0, 2))
    assert world.of(T0)[1:4] == (2, 1, (1, 2)), "it leads already"
    world.brokers(b1=None)
    for broker_id in (1, 3):
        with pytest.raises(KafkaError) as refused:
            world.happens(LeaderAsked(T0, broker_id))
        assert refused.value.code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("proposal", "code"),
    [
        (ProposedIsr(T0, 0, 0, (1, 2)), ErrorCode.NONE),
        (ProposedIsr(T0, 0, 0, (1,)), ErrorCode.NONE),
        (ProposedIsr(T0, 0, 0, (1, 2, 3)), ErrorCode.NONE),
        (ProposedIsr(T1, 0, 0, (1,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ProposedIsr(T0, -1, 0, (1,)), ErrorCode.FENCED_LEADER_EPOCH),
        (ProposedIsr(T0, 1, 0, (1,)), ErrorCode.NOT_CONTROLLER),
        (ProposedIsr(T0, 0, 1, (1,)), ErrorCode.NOT_CONTROLLER),
        (ProposedIsr(T0, 0, -1, (1,)), ErrorCode.INVALID_UPDATE_VERSION),
        (ProposedIsr(T0, 0, -1, (1, 2, 3)), ErrorCode.NONE),
        (ProposedIsr(T0, 0, 0, (1, 2), {1: 1, 2: 2}), ErrorCode.NONE),
        (ProposedIsr(T0, 0, 0, (1, 2), {1: -1, 2: -1}), ErrorCode.NONE),
        (ProposedIsr(T0, 0, 0, (1, 2), {1: 1, 2: 1}), ErrorCode.INELIGIBLE_REPLICA),
        (ProposedIsr(T0, 0, 0, ()), ErrorCode.INVALID_REQUEST),
        (ProposedIsr(T0, 0, 0, (2, 3)), ErrorCode.INVALID_REQUEST),
        (ProposedIsr(T0, 0, 0, (1, 9)), ErrorCode.INVALID_REQUEST),
        (ProposedIsr(T0, 0, 0, (1, 2, 4)), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_in_sync_sets_leaders_ask_for(proposal: ProposedIsr, code: ErrorCode) -> None:
    world = World(1, 2, 3)
    world.state.note(WriteTopic("t", Uuid(bytes(16)), {0: (1, 2, 3, 4)}), 0)
    world.state.note(WritePartition(T0, 1, 0, (1, 2, 3), -1), 0)
    assert world.happens(IsrAsked(1, 1, (proposal,))) == {proposal.tp: code}
    if code == ErrorCode.NONE:
        assert world.of(T0).isr == proposal.isr
        assert world.of(T0).leader_epoch == 0
        assert world.told(TellRoles) == {}
        is_news = proposal.isr != (1, 2, 3)
        assert world.told(TellMetadata) == ({1: {T0}, 2: {T0}, 3: {T0}} if is_news else {})
    else:
        assert world.of(T0).isr == (1, 2, 3)
        assert world.messages == []


@pytest.mark.parametrize(("asker", "epoch"), [(1, 0), (9, 9)])
def test_only_live_brokers_may_ask(asker: int, epoch: int) -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    with pytest.raises(KafkaError) as refused:
        world.happens(IsrAsked(asker, epoch, (ProposedIsr(T0, 0, 0, (1,)),)))
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize(
    ("asker", "epoch", "code"),
    [
        (1, 0, ErrorCode.STALE_BROKER_EPOCH),
        (1, 2, ErrorCode.STALE_BROKER_EPOCH),
        (9, 9, ErrorCode.BROKER_NOT_AVAILABLE),
    ],
)
def test_only_live_brokers_are_relieved(asker: int, epoch: int, code: ErrorCode) -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    with pytest.raises(KafkaError) as refused:
        world.happens(ShutdownAsked(asker, epoch))
    assert refused.value.code == code
    assert world.of(T0).leader == 1


def test_a_change_whose_answer_was_lost_is_confirmed_when_it_is_asked_for_again() -> None:
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2, 3]})
    wish = IsrAsked(1, 1, (ProposedIsr(T0, 0, 0, (1, 2)),))
    assert world.happens(wish) == {T0: ErrorCode.NONE}
    assert world.happens(wish) == {T0: ErrorCode.NONE}
    assert (world.of(T0).isr, world.of(T0).partition_epoch, world.messages) == ((1, 2), 1, [])


def test_who_is_alive_is_told_before_roles_are_given() -> None:
    """Or a follower would not know where its leader is. A newcomer is told of partitions, too, at once."""
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2, 3]})
    world.brokers(b3=None)
    world.brokers(b3=9)
    assert [message for message in world.messages if message.broker_id == 3] == [
        TellMetadata(3, (T0,), comes_first=True),
        TellRoles(3, (T0,)),
        TellMetadata(3, (T0,)),
    ]
    world.happens(TakenOver({}))
    first = [message for message in world.messages if isinstance(message, TellMetadata) and message.comes_first]
    assert first == [TellMetadata(broker_id, (), comes_first=True) for broker_id in (1, 2, 3)]
    world.brokers(b2=None, b3=None)
    world.happens(TakenOver({}))
    assert world.messages == [TellRoles(1, (T0,)), TellMetadata(1, (T0,))], "who is alone has nobody to find"


def test_only_the_leader_may_ask() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    wish = IsrAsked(2, 2, (ProposedIsr(T0, 0, 0, (1, 2)),))
    assert world.happens(wish) == {T0: ErrorCode.INVALID_REQUEST}


def test_a_broker_that_is_about_to_stop_is_relieved() -> None:
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2, 3], 1: [2, 1, 3]})
    assert world.happens(ShutdownAsked(1, 1)) == ()
    assert world.of(T0)[1:4] == (2, 1, (2, 3)), "it led this one"
    assert world.of(T1)[1:4] == (2, 1, (2, 3)), "it followed this one"
    assert world.told(TellRoles) == {1: {T0, T1}, 2: {T0, T1}, 3: {T0, T1}}
    assert world.happens(ShutdownAsked(1, 1)) == (), "asked again, nothing is left to do"
    assert world.messages == []


def test_who_is_about_to_stop_does_not_come_back_until_it_was_gone() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    world.happens(ShutdownAsked(1, 1))
    back = ProposedIsr(T0, 1, 1, (2, 1))
    assert world.happens(IsrAsked(2, 2, (back,))) == {T0: ErrorCode.INELIGIBLE_REPLICA}
    world.brokers(b1=9)
    assert world.happens(IsrAsked(2, 2, (back,))) == {T0: ErrorCode.NONE}


def test_a_leader_that_is_about_to_stop_still_takes_others_in() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    assert world.happens(IsrAsked(1, 1, (ProposedIsr(T0, 0, 0, (1,)),))) == {T0: ErrorCode.NONE}
    assert world.happens(ShutdownAsked(1, 1)) == (T0,)
    assert world.happens(IsrAsked(1, 1, (ProposedIsr(T0, 0, 1, (1, 2)),))) == {T0: ErrorCode.NONE}
    assert world.happens(ShutdownAsked(1, 1)) == ()
    assert world.of(T0)[1:4] == (2, 1, (2,))


def test_what_nobody_else_can_lead_stays() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    world.create("alone", {0: [1]})
    world.brokers(b2=None)
    assert world.happens(ShutdownAsked(1, 1)) == (T0,), "the other topic has no other replica and is not waited for"
    assert world.of(T0).leader == world.of(TopicPartition("alone", 0)).leader == 1


def test_a_topic_goes_with_its_last_replica() -> None:
    world = World(1, 2, 3)
    world.create("t", {0: [1, 2], 1: [2, 1]})
    assert world.happens(DeletionWanted("t")) is True
    assert world.told(DeleteReplicas) == {1: {T0, T1}, 2: {T0, T1}}
    assert world.told(TellMetadata) == {1: {T0, T1}, 2: {T0, T1}, 3: {T0, T1}}
    world.happens(ReplicasDeleted(1, (T0, T1)))
    world.happens(ReplicasDeleted(2, (T1,)))
    assert "t" in world.state.topics
    # A topic that is going to go takes no part in anything.
    world.brokers(b1=None)
    assert world.told(TellRoles) == {}
    assert world.happens(ElectionAsked((T0,), ElectionKind.ANEW)) == {T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    world.happens(ReplicasDeleted(2, (T0,)))
    assert (world.state.topics, world.state.pending_deletions, world.state.deleted_replicas) == ({}, set(), set())


def test_a_deletion_waits_for_brokers_that_are_not_there() -> None:
    world = World(1, 2)
    world.create("t", {0: [1, 2]})
    world.brokers(b2=None)
    assert world.happens(DeletionWanted("t")) is False
    world.happens(ReplicasDeleted(1, (T0,)))
    world.brokers(b2=7)
    assert world.told(DeleteReplicas) == {2: {T0}}
    world.happens(ReplicasDeleted(2, (T0,)))
    assert world.state.topics == {}


_IDS = (1, 2, 3, 4)


class RandomCluster(RuleBasedStateMachine):
    """Whatever happens in whatever order: who leads is alive and in sync, and every change of leader has an epoch."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.world = World(*_IDS)
        self.clock = 100
        replicas = st.permutations(_IDS).map(lambda ids: list(ids[:3]))
        self.world.create("t", {index: data.draw(replicas) for index in range(3)})
        self.seen: dict[TopicPartition, PartitionState] = dict(self.world.state.partitions())

    @rule(broker_id=st.sampled_from(_IDS))
    def come_or_bounce(self, broker_id: int) -> None:
        self.clock += 1
        self.world.brokers(**{f"b{broker_id}": self.clock})

    @rule(broker_id=st.sampled_from(_IDS))
    def go(self, broker_id: int) -> None:
        if broker_id in self.world.state.brokers:
            self.world.brokers(**{f"b{broker_id}": None})

    @rule(broker_id=st.sampled_from(_IDS))
    def announce_stop(self, broker_id: int) -> None:
        live = self.world.state.brokers.get(broker_id)
        if live is not None:
            self.world.happens(ShutdownAsked(broker_id, live.epoch))

    @rule(kind=st.sampled_from(ElectionKind), index=st.integers(0, 3))
    def elect(self, kind: ElectionKind, index: int) -> None:
        self.world.happens(ElectionAsked((TopicPartition("t", index),), kind))

    @rule(is_allowed=st.booleans())
    def allow_unclean(self, is_allowed: bool) -> None:
        self.world.unclean = {"t"} if is_allowed else set()

    @rule(restarted=st.dictionaries(st.integers(0, 2), st.frozensets(st.sampled_from(_IDS))))
    def take_over(self, restarted: dict[int, frozenset[int]]) -> None:
        self.world.happens(TakenOver({TopicPartition("t", index): frozenset(who) for index, who in restarted.items()}))

    @rule(index=st.integers(0, 2), data=st.data())
    def alter_isr(self, index: int, data: st.DataObject) -> None:
        tp = TopicPartition("t", index)
        partition = self.world.of(tp)
        live = self.world.state.brokers.get(partition.leader)
        if live is not None:
            isr = tuple(data.draw(st.lists(st.sampled_from(_IDS), unique=True)))
            proposal = ProposedIsr(tp, partition.leader_epoch, partition.partition_epoch, isr)
            self.world.happens(IsrAsked(partition.leader, live.epoch, (proposal,)))

    @invariant()
    def leaders_are_alive_and_in_sync(self) -> None:
        for tp, partition in self.world.state.partitions():
            assert partition.isr and set(partition.isr) <= set(partition.replicas)
            if partition.leader != NO_LEADER:
                assert partition.leader in partition.isr
                assert partition.leader in self.world.state.brokers
                assert set(partition.isr) <= self.world.state.brokers.keys()
            before = self.seen[tp]
            assert partition.leader_epoch >= before.leader_epoch
            assert partition.partition_epoch >= before.partition_epoch
            if partition.leader != before.leader:
                assert partition.leader_epoch > before.leader_epoch
            if partition[:4] != before[:4]:
                assert partition.partition_epoch > before.partition_epoch
        self.seen = dict(self.world.state.partitions())


TestRandomCluster = RandomCluster.TestCase
TestRandomCluster.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(), st.integers())
def test_placed_replicas_are_told_their_roles(partitions: int, factor: int, start: int, shift: int) -> None:
    world = World(*_IDS)
    new = NewTopic("t", partitions, factor)
    created = world.happens(TopicWanted(new, Uuid(bytes(16)), start, shift))
    assert (created.partitions, created.replication_factor) == (partitions, factor)
    told = world.told(TellRoles)
    for tp, partition in world.state.partitions():
        assert {broker_id for broker_id, mine in told.items() if tp in mine} == set(partition.replicas)
    world.happens(PartitionsWanted("t", partitions + 2))
    assert set().union(*world.told(TellRoles).values()) == {
        TopicPartition("t", partitions),
        TopicPartition("t", partitions + 1),
    }
