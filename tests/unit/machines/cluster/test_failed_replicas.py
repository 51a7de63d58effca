"""Replicas whose directory has failed: everything that is decided about them, and everybody who is told."""

from __future__ import annotations

import pytest

from ottla.base.types import TopicPartition, Uuid
from ottla.machines.cluster.controller import ReplicasFailed, decide
from ottla.machines.cluster.decision import Decision, TellMetadata, TellRoles
from ottla.machines.cluster.state import (
    ClusterState,
    LiveBroker,
    NoteOffline,
    PartitionState,
    TopicState,
    WritePartition,
)

T0, T1, T2, GONE = (*(TopicPartition("t", index) for index in range(3)), TopicPartition("gone", 0))


def three_brokers() -> ClusterState:
    """Broker 2 leads t-0, follows in t-1 and has fallen behind in t-2."""
    state = ClusterState()
    state.brokers = {broker_id: LiveBroker(broker_id, (), None) for broker_id in (1, 2, 3)}
    state.topics["t"] = TopicState(
        Uuid(bytes(range(16))),
        {
            0: PartitionState((2, 1, 3), 2, 5, (2, 3), 7),
            1: PartitionState((1, 2), 1, 0, (1, 2), 0),
            2: PartitionState((1, 2), 1, 3, (1,), 4),
        },
    )
    return state


def failed(state: ClusterState, *partitions: TopicPartition, unclean: bool = False) -> Decision:
    return decide(state, ReplicasFailed(2, partitions), lambda _: unclean)


def test_each_partition_goes_on_with_whom_it_has_left() -> None:
    assert failed(three_brokers(), GONE, T0, T1, T2) == Decision(
        [
            NoteOffline(2, (T0, T1, T2)),
            WritePartition(T0, 3, 6, (3,), 7),
            WritePartition(T1, 1, 1, (1,), 0),
        ],
        [
            TellRoles(1, (T0, T1)),
            TellRoles(2, (T0, T1)),
            TellRoles(3, (T0,)),
            *(TellMetadata(broker_id, (T0, T1)) for broker_id in (1, 2, 3)),
            *(TellMetadata(broker_id, (T0, T1, T2)) for broker_id in (1, 2, 3)),
        ],
        warnings=["broker 2 cannot use its replicas of 3 partitions, such as t-0"],
    )


def test_a_replica_that_was_behind_is_only_told_to_be_away() -> None:
    assert failed(three_brokers(), T2) == Decision(
        [NoteOffline(2, (T2,))],
        [TellMetadata(broker_id, (T2,)) for broker_id in (1, 2, 3)],
        warnings=["broker 2 cannot use its replicas of 1 partitions, such as t-2"],
    )


@pytest.mark.parametrize(("unclean", "written"), [(False, (-1, 6, (2,))), (True, (1, 6, (1,)))])
def test_without_another_in_sync_only_a_topic_that_allows_it_is_led(
    unclean: bool, written: tuple[int, int, tuple[int, ...]]
) -> None:
    state = three_brokers()
    state.topics["t"].partitions[0] = PartitionState((2, 1, 3), 2, 5, (2,), 7)
    decision = failed(state, T0, unclean=unclean)
    assert decision.changes == [NoteOffline(2, (T0,)), WritePartition(T0, *written, 7)]
    warning = "broker 2 cannot use its replicas of 1 partitions, such as t-0"
    lost = ["t-0: broker 1 leads although it was not in sync; records may be lost"] if unclean else []
    assert decision.warnings == [*lost, warning]


def test_what_is_known_or_gone_is_no_news() -> None:
    state = three_brokers()
    state.offline = {2: frozenset({T0})}
    assert failed(state, T0, GONE) == Decision()
    assert failed(state, T0, T1).changes == [NoteOffline(2, (T1,)), WritePartition(T1, 1, 1, (1,), 0)]
