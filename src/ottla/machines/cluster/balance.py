"""Which leaderships are handed back to preferred replicas: those of brokers that lead too few of their own."""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.machines.cluster.state import ClusterState, PartitionState


class BalanceDue(NamedTuple):
    """It is time to look. Up to `percentage` of the partitions that prefer a broker may be led by others."""

    percentage: int


def unbalanced(state: ClusterState, percentage: int) -> tuple[TopicPartition, ...]:
    """Partitions whose preferred replica should lead and can. None while replicas are being moved: who is preferred is
    about to change."""
    preferring: dict[int, list[tuple[TopicPartition, PartitionState]]] = {}
    for tp, partition in state.partitions():
        if partition.is_being_reassigned:
            return ()
        preferring.setdefault(partition.replicas[0], []).append((tp, partition))
    found: list[TopicPartition] = []
    for broker_id, partitions in sorted(preferring.items()):
        if broker_id not in state.eligible:
            continue
        led_by_others = [(tp, partition) for tp, partition in partitions if partition.leader != broker_id]
        if 100 * len(led_by_others) > percentage * len(partitions):
            found += [
                tp
                for tp, partition in led_by_others
                if broker_id in partition.isr and not state.is_offline(tp, broker_id)
            ]
    return tuple(found)
