"""Which letters of a topic were sent back already, as records of a compacted topic.

A record tells of a block of offsets of one partition: `{"sent": [[0, 411], [500, 500]]}` are the first and last offsets
of the runs in it that were sent. It is written in the transaction that sends the letters, so it is never ahead of them
or behind them. Letters that a filter has left out stay unmarked, wherever they are, and can be asked for later.

Pure: who reads and writes the topic is elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

from ottla.base.types import Uuid, uuid_to_text

BLOCK = 16_384
"""Offsets in a record. At worst every other one was sent: about 100 KB, below what any broker takes."""


class BlockKey(NamedTuple):
    topic_id: str
    """Offsets mean nothing in a topic that was deleted and created again."""
    partition: int
    block: int


class SentLetters:
    """Of one topic of letters."""

    def __init__(self, topic_id: Uuid) -> None:
        self._topic_id = uuid_to_text(topic_id)
        self._blocks: dict[tuple[int, int], bytearray] = {}
        self._changed: set[tuple[int, int]] = set()

    def was_sent(self, partition: int, offset: int) -> bool:
        block = self._blocks.get((partition, offset // BLOCK))
        return block is not None and bool(block[offset % BLOCK])

    def mark(self, partition: int, first_offset: int, last_offset: int) -> None:
        """Notes a letter as sent, together with offsets before it that hold no letters: so that what is done has no
        holes, and need not be read again."""
        offset = first_offset
        while offset <= last_offset:
            number, begin = divmod(offset, BLOCK)
            end = min(BLOCK, begin + last_offset - offset + 1)
            self._block(partition, number)[begin:end] = b"\1" * (end - begin)
            self._changed.add((partition, number))
            offset += end - begin

    def first_unsent(self, partition: int, offset: int) -> int:
        """The first offset from here on that was not sent."""
        while (block := self._blocks.get((partition, offset // BLOCK))) is not None:
            found = block.find(0, offset % BLOCK)
            if found >= 0:
                return offset // BLOCK * BLOCK + found
            offset = (offset // BLOCK + 1) * BLOCK
        return offset

    def _block(self, partition: int, number: int) -> bytearray:
        return self._blocks.setdefault((partition, number), bytearray(BLOCK))

    # As records

    def take_changes(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values for all that was marked since the last call."""
        changed, self._changed = sorted(self._changed), set()
        for partition, number in changed:
            key = BlockKey(self._topic_id, partition, number)
            first = number * BLOCK
            runs = [[first + begin, first + end - 1] for begin, end in _runs(self._blocks[partition, number])]
            yield json.dumps(key._asdict()).encode(), json.dumps({"sent": runs}).encode()

    def read(self, key: bytes, value: bytes) -> None:
        """Takes in a record; later ones of a block replace earlier ones. ValueError if it is something else."""
        try:
            found, runs = BlockKey(**json.loads(key)), json.loads(value)["sent"]
            if found.topic_id != self._topic_id:
                return
            flags = bytearray(BLOCK)
            for first, last in runs:
                begin, end = first - found.block * BLOCK, last - found.block * BLOCK + 1
                flags[begin:end] = b"\1" * (end - begin)
        except (KeyError, TypeError) as e:
            raise ValueError(f"not a record of letters that were sent: {key!r}") from e
        self._blocks[found.partition, found.block] = flags


def _runs(flags: bytearray) -> Iterator[tuple[int, int]]:
    """The runs of ones, ends exclusive."""
    lengths = [(flag, sum(1 for _ in group)) for flag, group in groupby(flags)]
    ends = [0]
    for _, length in lengths:
        ends.append(ends[-1] + length)
    for (flag, _), (begin, end) in zip(lengths, pairwise(ends), strict=True):
        if flag:
            yield begin, end
