"""Which partition a record goes to: by its key, by staying with one partition for a while, in turn, or by your rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

from ottla.records.hashing import partition_for_key

_REMEMBERED_KEYS = 65_536

key_partition = lru_cache(maxsize=_REMEMBERED_KEYS)(partition_for_key)
"""`partition_for_key` with the partitions of keys that come again and again remembered: hashing is slow in Python."""


class Partitioner(Protocol):
    """A rule of your own: any callable of this shape. `available` are the partitions that have a leader now."""

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int: ...


class StickyChoice:
    """Keyless records of one topic stay with a partition until `batch_size` bytes went there (KIP-480, KIP-794).

    Full batches are made that way, and because the switch counts bytes and not batches, a slow broker whose batches
    go out half full does not get more records than the others.
    """

    __slots__ = ("_batch_size", "_bytes", "_random_below", "partition")

    def __init__(self, batch_size: int, random_below: Callable[[int], int]) -> None:
        self._batch_size = batch_size
        self._bytes = 0
        self._random_below = random_below
        self.partition = -1

    def produced(self, size: int) -> None:
        self._bytes += size

    def choose(self, available: Sequence[int], partition_count: int) -> int:
        """The partition to open a batch for; another one than before once enough bytes went there."""
        candidates = available or range(partition_count)
        if self.partition < 0 or self._bytes >= self._batch_size or self.partition not in candidates:
            self._bytes = 0
            others = [partition for partition in candidates if partition != self.partition]
            self.partition = others[self._random_below(len(others))] if others else candidates[0]
        return self.partition


class RoundRobin:
    """Every record to the next partition that has a leader, whatever its key."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int:
        turn = self._turns[topic] = self._turns.get(topic, -1) + 1
        candidates = available or range(partition_count)
        return candidates[turn % len(candidates)]
