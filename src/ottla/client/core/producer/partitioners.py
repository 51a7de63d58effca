"""Which partition a record goes to: by its key, by staying with one partition for a while, in turn, or by your rule."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, Protocol

from ottla.records.hashing import partition_for_key

_REMEMBERED_KEYS = 65_536

key_partition = lru_cache(maxsize=_REMEMBERED_KEYS)(partition_for_key)
"""`partition_for_key` with the partitions of keys that come again and again remembered: hashing is slow in Python."""


class Partitioner(Protocol):
    """A rule of your own: any callable of this shape. `available` are the partitions that have a leader now."""

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int: ...


class Backlog(NamedTuple):
    """What holds up the partitions of a topic."""

    waiting: Mapping[int, int]
    """How many batches are not on their way yet, by partition, where there are any."""
    unavailable: Collection[int]
    """Those of these partitions whose leader could not be sent anything for too long."""


NO_BACKLOG = Backlog({}, frozenset())


class StickyChoice:
    """Keyless records of one topic stay with a partition until `batch_size` bytes went there (KIP-480, KIP-794).

    Full batches are made that way, and because the switch counts bytes and not batches, a slow broker whose batches
    go out half full does not get more records than the others. If batches wait, it gets fewer: the more of them wait
    for a partition, the less often it is chosen. The partition that was chosen last then takes part like the others,
    because with two of them there would be no choice otherwise.
    """

    __slots__ = ("_batch_size", "_bytes", "_random_below", "partition")

    def __init__(self, batch_size: int, random_below: Callable[[int], int]) -> None:
        self._batch_size = batch_size
        self._bytes = 0
        self._random_below = random_below
        self.partition = -1

    def produced(self, size: int) -> None:
        self._bytes += size

    def choose(self, available: Sequence[int], partition_count: int, backlog: Callable[[], Backlog]) -> int:
        """The partition to open a batch for. Only when it is time for another one, `backlog` is asked."""
        candidates = available or range(partition_count)
        if self.partition < 0 or self._bytes >= self._batch_size or self.partition not in candidates:
            self._bytes = 0
            self.partition = self._next(candidates, backlog()) if len(candidates) > 1 else candidates[0]
        return self.partition

    def _next(self, candidates: Sequence[int], backlog: Backlog) -> int:
        if backlog.waiting:
            candidates = [number for number in candidates if number not in backlog.unavailable] or candidates
            lengths = [backlog.waiting.get(number, 0) for number in candidates]
            longest = max(lengths)
            if longest > min(lengths):
                weights_so_far = list(accumulate(longest + 1 - length for length in lengths))
                return candidates[bisect_right(weights_so_far, self._random_below(weights_so_far[-1]))]
        others = [number for number in candidates if number != self.partition]
        return others[self._random_below(len(others))] if others else candidates[0]


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
