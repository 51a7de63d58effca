"""A broker that is about to stop: everything that is decided about the partitions it has."""

from __future__ import annotations

from ottla.base.types import TopicPartition, Uuid
from ottla.machines.cluster.controller import ShutdownAsked, decide
from ottla.machines.cluster.decision import Decision, TellMetadata, TellRoles
from ottla.machines.cluster.state import (
    ClusterState,
    LiveBroker,
    NoteStopping,
    PartitionState,
    TopicState,
    WritePartition,
)

PARTITIONS = {
    0: PartitionState((1, 2, 3), 1, 4, (1, 2, 3), 7),
    1: PartitionState((2, 1), 2, 5, (2, 1), 8),
    2: PartitionState((1, 2), 1, 6, (1,), 9),
    3: PartitionState((1,), 1, 0, (1,), 0),
    4: PartitionState((2, 3, 1), 2, 0, (2, 9), 0),
    5: PartitionState((3, 1), 1, 2, (3, 1), 3),
}
"""Broker 1 leads 0 and follows in 1, is alone in sync in 2 and alone altogether in 3, is behind in 4, and leads 5 where
the other's disk has failed. In 4 there is somebody in sync who is gone, which is another matter."""


def test_it_gives_up_what_others_can_lead_and_keeps_what_nobody_else_can() -> None:
    tps = [TopicPartition("t", index) for index in PARTITIONS]
    state = ClusterState()
    state.brokers = {broker_id: LiveBroker(broker_id, (), None) for broker_id in (1, 2, 3)}
    state.topics["t"] = TopicState(Uuid(bytes(range(16))), dict(PARTITIONS))
    state.offline = {3: frozenset({tps[5]})}
    assert decide(state, ShutdownAsked(1, 1), lambda _: True) == Decision(
        [
            NoteStopping(1),
            WritePartition(tps[0], 2, 5, (2, 3), 7),
            WritePartition(tps[1], 2, 6, (2,), 8),
        ],
        [
            TellRoles(1, (tps[0], tps[1])),
            TellRoles(2, (tps[0], tps[1])),
            TellRoles(3, (tps[0],)),
            *(TellMetadata(broker_id, (tps[0], tps[1])) for broker_id in (1, 2, 3)),
        ],
        result=(tps[2], tps[5]),
    )
