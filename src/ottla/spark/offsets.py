"""Offsets of a source as numbers: their JSON, what is lost between two of them, how much to take, how to share it out.

Pure, so that a micro-batch planned again after a crash is the same micro-batch: it depends on its two ends alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ottla.base.types import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]
"""For each partition the next offset to read."""

OffsetJson: TypeAlias = dict[str, dict[str, int]]
"""`{"topic": {"0": 23}}`, the form in Spark's checkpoints. Spark compares the text, so the order of keys is fixed."""

NEW_PARTITION_START = 0

_PLACED = ""
"""In place of a topic. Marks offsets to which a query was moved: the batch that ends there holds no records, whatever
lies before."""


class OffsetRange(NamedTuple):
    """A part of a partition that one task reads; `end_offset` is exclusive."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    written: OffsetJson = {}
    for topic, partition in sorted(offsets):
        written.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return written


def from_json(written: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in written.items()
        if topic != _PLACED
        for partition, offset in partitions.items()
    }


def to_placed_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    return {_PLACED: {"0": 0}, **to_json(offsets)}


def is_placed(written: Mapping[str, object]) -> bool:
    return _PLACED in written


# What one micro-batch covers


def begin_of(topic_partition: TopicPartition, start: Mapping[TopicPartition, int], end_offset: int) -> int:
    """Where a micro-batch begins in a partition.

    A partition that is not in `start` is new and read from its beginning. One whose log has become shorter than what
    was read of it is another log under the same name, and is read from its beginning, too.
    """
    begin = start.get(topic_partition, NEW_PARTITION_START)
    return begin if begin <= end_offset else NEW_PARTITION_START


def ranges_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    found = [OffsetRange(partition, begin_of(partition, start, end[partition]), end[partition]) for partition in end]
    return sorted(one for one in found if one.size > 0)


def take(
    start: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    max_offsets: int | None,
) -> Offsets:
    """The end of the next micro-batch, of at most `max_offsets`, shared among partitions by how much they have left.

    Offsets before `earliest` are gone and count for nothing.
    """
    begins = {
        partition: min(max(begin_of(partition, start, end), earliest.get(partition, 0)), end)
        for partition, end in latest.items()
    }
    lags = {partition: latest[partition] - begins[partition] for partition in latest}
    shares = lags if max_offsets is None else share(lags, max_offsets)
    return {partition: begins[partition] + shares[partition] for partition in latest}


def lag(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    return sum(one.size for one in ranges_between(start, end))


def share(lags: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """`limit` offsets dealt out in proportion to the lags: all of them, and to nobody more than its lag.

    Every partition that has any gets at least one, if the limit allows, so that none starves beside larger ones.
    """
    waiting = [partition for partition in lags if lags[partition] > 0]
    if not len(waiting) <= limit < sum(lags.values()):
        return _in_proportion(lags, limit)
    first = {partition: int(lags[partition] > 0) for partition in lags}
    rest = {partition: lags[partition] - first[partition] for partition in lags}
    more = _in_proportion(rest, limit - len(waiting))
    return {partition: first[partition] + more[partition] for partition in lags}


def _in_proportion(weights: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Whole parts rounded down, and what that leaves to the largest remainders."""
    total = sum(weights.values())
    if total <= limit:
        return dict(weights)
    parts: dict[TopicPartition, int] = {}
    remainders: list[tuple[int, TopicPartition]] = []
    for partition, weight in weights.items():
        parts[partition], rest = divmod(weight * limit, total)
        remainders.append((-rest, partition))
    for _, partition in sorted(remainders)[: limit - sum(parts.values())]:
        parts[partition] += 1
    return parts


# Tasks


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records_per_partition: int | None = None
) -> list[OffsetRange]:
    """The ranges in pieces: none longer than `max_records_per_partition`, and together at least `min_partitions`.

    Only offsets limit how many pieces there can be. Longer ranges are cut into more of them.
    """
    whole = [one for one in ranges if one.size > 0]
    counts = {
        one: 1 if max_records_per_partition is None else -(-one.size // max_records_per_partition) for one in whole
    }
    if min_partitions is not None and sum(counts.values()) < min_partitions:
        wanted = _in_proportion({one.topic_partition: one.size for one in whole}, min_partitions)
        counts = {one: max(count, wanted[one.topic_partition]) for one, count in counts.items()}
    return [piece for one in whole for piece in _pieces(one, counts[one])]


def gathered(pieces: Iterable[OffsetRange], rows_min: int) -> list[list[OffsetRange]]:
    """What each task reads: in order, so many pieces that it has `rows_min` rows if there are as many."""
    tasks: list[list[OffsetRange]] = []
    rows = rows_min
    for piece in pieces:
        if rows >= rows_min:
            tasks.append([])
            rows = 0
        tasks[-1].append(piece)
        rows += piece.size
    return tasks


def _pieces(one: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [one.start_offset + one.size * index // count for index in range(count + 1)]
    return [OffsetRange(one.topic_partition, low, high) for low, high in pairwise(bounds)]


# What is lost


def losses(
    start: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[str]:
    """What can no longer be read of what comes after `start`, a sentence for each partition."""
    found: list[str] = []
    for partition in sorted({*start, *latest}):
        begin = start.get(partition)
        if partition not in latest:
            found.append(f"{partition} is gone, and was read up to offset {begin}")
        elif begin is not None and begin > latest[partition]:
            found.append(f"{partition} was read up to offset {begin} and now ends at {latest[partition]}")
        elif (begin or 0) < earliest[partition]:
            at = f"was read up to offset {begin}" if begin is not None else "is new"
            found.append(f"{partition} {at} and now begins at {earliest[partition]}")
    return found
