"""The offset map: which target offset a source offset corresponds to, as records of a compacted topic.

A record holds *runs*: records at source offsets S, S+1, …, S+n-1 are at target offsets T, T+1, …, T+n-1. Since a copy
keeps the order, a run also says that everything from S+n on is at T+n or later. So one run is enough to translate any
offset from S on without skipping a record; more of them only make the answer tighter.

Which records compaction keeps is decided by their keys. A key has the partition and a *slot*. A record whose source
offsets reach an odd multiple of 2^k, and no multiple of a higher power of 2, has a slot of level k, of which there are
32, used in turn. So the map stays small for ever, is dense where groups usually are, and thins out with distance: for a
group that is d offsets behind, the map knows a place at most d/8 offsets before it.

Pure: who reads and writes the topic is elsewhere.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.base.types import TopicPartition

_KEPT_PER_LEVEL = 32
_RUNS_MAX = 32


class Run(NamedTuple):
    source_offset: int
    target_offset: int
    length: int


class Entry(NamedTuple):
    """One record of the map."""

    source: TopicPartition
    target: TopicPartition
    slot: str
    runs: tuple[Run, ...]


# Writing


def slot_of(first_offset: int, end_offset: int) -> str:
    """The slot for source offsets from `first_offset` up to `end_offset`, both of which count as reached: what lies
    between two batches, such as the marker of a transaction, belongs to neither."""
    if first_offset == 0:
        return "first"
    level = ((first_offset - 1) ^ end_offset).bit_length() - 1
    return f"{level}.{(end_offset >> (level + 1)) % _KEPT_PER_LEVEL}"


def thin_out(runs: Sequence[Run]) -> tuple[Run, ...]:
    """As many of them as a record shall have, spread evenly, the first and the last among them."""
    if len(runs) <= _RUNS_MAX:
        return tuple(runs)
    last = len(runs) - 1
    return tuple(runs[last * index // (_RUNS_MAX - 1)] for index in range(_RUNS_MAX))


def encode_key(source: TopicPartition, slot: str) -> bytes:
    return _dump({"topic": source.topic, "partition": source.partition, "slot": slot})


def encode_value(target: TopicPartition, runs: Iterable[Run]) -> bytes:
    return _dump({"target_topic": target.topic, "runs": [list(run) for run in runs]})


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# Reading


def decode_entry(key: bytes, value: bytes) -> Entry:
    """ValueError if it is not a record of a map."""
    try:
        named, held = json.loads(key), json.loads(value)
        partition = int(named["partition"])
        return Entry(
            TopicPartition(str(named["topic"]), partition),
            TopicPartition(str(held["target_topic"]), partition),
            str(named["slot"]),
            tuple(Run(int(source), int(target), int(length)) for source, target, length in held["runs"]),
        )
    except (KeyError, TypeError) as e:
        raise ValueError(f"not a record of an offset map: {key!r}") from e


class OffsetMap:
    """All that is known of all partitions; entries of the same slot replace each other."""

    def __init__(self) -> None:
        self._runs: dict[TopicPartition, dict[str, tuple[Run, ...]]] = {}
        self._sorted: dict[TopicPartition, list[Run]] = {}
        self._targets: dict[TopicPartition, TopicPartition] = {}

    def add(self, entry: Entry) -> None:
        self._runs.setdefault(entry.source, {})[entry.slot] = entry.runs
        self._targets[entry.source] = entry.target
        self._sorted.pop(entry.source, None)

    def target_of(self, source: TopicPartition) -> TopicPartition | None:
        """None if nothing of this partition was ever copied."""
        return self._targets.get(source)

    def translate(self, source: TopicPartition, offset: int) -> int | None:
        """A target offset with every record from `offset` on at or after it; None if only the beginning of the copy is
        sure to be that."""
        runs = self._sorted.get(source)
        if runs is None:
            known = self._runs.get(source, {}).values()
            runs = self._sorted[source] = sorted(run for entry in known for run in entry)
        position = bisect_right(runs, offset, key=lambda run: run.source_offset)
        if position == 0:
            return None
        run = runs[position - 1]
        return run.target_offset + min(offset - run.source_offset, run.length)
