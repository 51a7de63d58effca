"""What a cluster says of a partition."""

from __future__ import annotations

from typing import NamedTuple


class PartitionInfo(NamedTuple):
    partition: int
    leader_id: int
    """-1 while the partition has no leader."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
