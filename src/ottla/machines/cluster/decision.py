"""What a controller decides: changes for the metadata store, and who is to be told of what once they are committed.

A message names partitions, not their states: what a broker is told is the state at the moment of sending, so a broker
that could not be reached for a while learns how things are, not how they came about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.machines.cluster.state import Assignment, Change, ClusterState, LiveBroker


class TellRoles(NamedTuple):
    """Which of these replicas the broker leads, and whom it follows for the others (LeaderAndIsr)."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]
    are_new: bool = False


class TellMetadata(NamedTuple):
    """Who leads these partitions, and which brokers are alive (UpdateMetadata)."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]
    comes_first: bool = False
    """Before roles: whoever is told to follow a broker must know where that broker is."""


class DeleteReplicas(NamedTuple):
    """The broker's replicas of these partitions are to go (StopReplica), unless they are wanted again by then."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


Message = TellRoles | TellMetadata | DeleteReplicas


@dataclass
class Decision:
    changes: list[Change] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    result: Any = None
    """For whoever asked."""
    warnings: list[str] = field(default_factory=list)
    """What an operator should know once it has happened."""
    next_event: Any = None
    """What is to be decided next, because of it."""


def tell_roles(
    assignment: Iterable[tuple[TopicPartition, tuple[int, ...]]],
    brokers: Iterable[int],
    *,
    are_new: bool = False,
) -> list[Message]:
    """One message for each of `brokers` that holds one of the partitions."""
    by_broker: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in sorted(brokers)}
    for tp, replicas in assignment:
        for replica in replicas:
            if replica in by_broker:
                by_broker[replica].append(tp)
    return [TellRoles(broker_id, tuple(mine), are_new) for broker_id, mine in by_broker.items() if mine]


def tell_metadata(partitions: Iterable[TopicPartition], brokers: Iterable[int]) -> list[Message]:
    told = tuple(partitions)
    return [TellMetadata(broker_id, told) for broker_id in sorted(brokers)]


def introduce(
    partitions: Iterable[TopicPartition], brokers: Mapping[int, LiveBroker], to: Iterable[int]
) -> list[Message]:
    """Tells brokers who is alive before they are given roles. One that is alone has nobody to find."""
    told = tuple(partitions)
    return [TellMetadata(broker_id, told, comes_first=True) for broker_id in sorted(to) if len(brokers) > 1]


def delete_replicas(state: ClusterState, topics: Iterable[str], brokers: Iterable[int]) -> list[Message]:
    """Lets those of `brokers` that hold replicas of the topics delete them."""
    by_broker: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in sorted(brokers)}
    for name in sorted(topics):
        for index, partition in state.topics[name].partitions.items():
            for replica in partition.replicas:
                if replica in by_broker:
                    by_broker[replica].append(TopicPartition(name, index))
    return [DeleteReplicas(broker_id, tuple(mine)) for broker_id, mine in by_broker.items() if mine]


def tell_everything(state: ClusterState, brokers: Mapping[int, LiveBroker], newcomers: Iterable[int]) -> list[Message]:
    """What a broker is told that knows nothing, or nothing for certain."""
    newcomers = [broker_id for broker_id in newcomers if broker_id in brokers]
    existing = [(tp, partition.replicas) for tp, partition in state.partitions()]
    doomed = [name for name in state.pending_deletions if name in state.topics]
    return [
        *tell_roles(existing, newcomers),
        *tell_metadata((tp for tp, _ in existing), newcomers),
        *delete_replicas(state, doomed, newcomers),
    ]


def of_topic(name: str, assignment: Assignment) -> list[tuple[TopicPartition, tuple[int, ...]]]:
    return [(TopicPartition(name, index), replicas) for index, replicas in sorted(assignment.items())]
