"""What the controller's events, changes and messages mean where nothing else is said."""

from __future__ import annotations

from ottla.base.types import NIL_UUID, TopicPartition
from ottla.machines.cluster.controller import TakenOver
from ottla.machines.cluster.decision import Decision, TellMetadata, TellRoles
from ottla.machines.cluster.election import Elected
from ottla.machines.cluster.isr_changes import ProposedIsr
from ottla.machines.cluster.state import (
    ClusterState,
    LiveBroker,
    MarkForDeletion,
    PartitionState,
    TopicState,
    WriteTopic,
)
from ottla.machines.cluster.topics import DeletionWanted, NewTopic, PartitionsWanted, TopicWanted

T0 = TopicPartition("t", 0)


def test_messages_are_of_old_partitions_and_in_no_hurry() -> None:
    assert TellRoles(1, (T0,)) == (1, (T0,), False)
    assert TellMetadata(1, (T0,)) == (1, (T0,), False)


def test_a_decision_changes_nothing_and_has_nothing_to_say() -> None:
    decision = Decision()
    assert (decision.changes, decision.messages, decision.result) == ([], [], None)
    assert (decision.warnings, decision.next_event) == ([], None)


def test_wishes_are_meant() -> None:
    new = NewTopic("t", 1, 1)
    assert (new.assignment, new.configs) == ({}, {})
    assert TopicWanted(new, NIL_UUID, 0, 0) == (new, NIL_UUID, 0, 0, False)
    assert PartitionsWanted("t", 3) == ("t", 3, None, False)
    assert DeletionWanted("t") == ("t", False)
    assert MarkForDeletion("t") == ("t", False)
    assert TakenOver() == ({}, {})
    assert ProposedIsr(T0, 1, 2, (1,)) == (T0, 1, 2, (1,), {})
    assert Elected(1, [1]) == (1, [1], False)


def test_what_is_new_has_no_version_no_leader_and_does_not_move() -> None:
    assert WriteTopic("t", NIL_UUID, {}) == ("t", NIL_UUID, {}, -1, None, {}, {})
    assert PartitionState((1,)) == ((1,), -1, -1, (), -1, (), ())
    assert LiveBroker(5, (), None) == (5, (), None, None, False)
    assert TopicState(NIL_UUID, {}).node_version == 0
    state = ClusterState()
    assert (state.brokers, state.topics, state.pending_deletions, state.deleted_replicas) == ({}, {}, set(), set())
    assert (state.offline, state.stopping) == ({}, {})
