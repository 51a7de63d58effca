"""Arrays and maps: blocks of items, each with their count, up to a block of none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.records.arrays.varint import Int64s
from ottla.spark.pipeline.formats.avro.lanes import ENDS_EARLY, Batch, Lanes, Reader


class Items(NamedTuple):
    """What is known of the items of a list from the schema."""

    width_min: int
    width: int | None = None
    """In bytes, if all have the same."""
    are_numbers: bool = False
    """Varints, whose ends can be seen."""


class ListReader:
    """Items whose ends can be known beforehand are read all at once. Of others, the first of every lane is read, then
    the second of those that have one, and so on: as many rounds as the longest list has items."""

    def __init__(self, items: Reader, item_type: Any, type_: Any, known: Items, where: str) -> None:
        self._items = items
        self._item_type = item_type
        self._type = type_
        self._known = known
        self._where = where

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        owners: list[Int64s] = []
        pieces: list[Any] = []
        at = lanes.at.copy()
        waiting = np.arange(len(at))
        while waiting.size:
            block = Lanes(lanes.values[waiting], at[waiting])
            counts, block = self._counts(batch, block)
            at[waiting] = block.at
            waiting, counts = waiting[counts > 0], counts[counts > 0]
            read = self._read_at_once if self._known.width or self._known.are_numbers else self._read_in_turn
            for lane, piece in read(batch, lanes.values, at, waiting, counts):
                owners.append(lane)
                pieces.append(piece)
            waiting = waiting[~batch.is_bad[lanes.values[waiting]]]
        return self._lists(owners, pieces, len(lanes.at)), lanes.moved(at)

    def _read_at_once(
        self, batch: Batch, values: Int64s, at: Int64s, waiting: Int64s, counts: Int64s
    ) -> Iterator[tuple[Int64s, Any]]:
        """A block of each waiting lane: the items' lanes and the items. Positions are moved on in place."""
        if waiting.size:
            block = Lanes(values[waiting], at[waiting])
            items, after = batch.several(block, counts, self._known.width, self._where)
            piece, _ = self._items.read(batch, items)
            # An item may have ended its value.
            at[waiting] = np.where(batch.is_bad[after.values], batch.ends[after.values], after.at)
            yield np.repeat(waiting, counts), piece

    def _read_in_turn(
        self, batch: Batch, values: Int64s, at: Int64s, waiting: Int64s, counts: Int64s
    ) -> Iterator[tuple[Int64s, Any]]:
        done = 0
        reading = waiting
        while reading.size:
            piece, after = self._items.read(batch, Lanes(values[reading], at[reading]))
            at[reading] = after.at
            yield reading, piece
            done += 1
            # Of a value that is bad nothing more is wanted, and its count may be any.
            reading = waiting[(counts > done) & ~batch.is_bad[values[waiting]]]

    def _counts(self, batch: Batch, lanes: Lanes) -> tuple[Int64s, Lanes]:
        """The items of the next block of each lane; 0 after the last one."""
        counts, lanes = batch.longs(lanes, self._where)
        has_size = counts < 0
        if has_size.any():
            # A block whose size is given as well, for those who want to skip it.
            sized = np.flatnonzero(has_size)
            _, after = batch.lengths(lanes.of(sized), self._where)
            at = lanes.at.copy()
            at[sized] = after.at
            lanes = lanes.moved(at)
            counts = np.abs(counts)
        left = (batch.ends[lanes.values] - lanes.at) // self._known.width_min
        is_wrong = (counts > left) | (counts < 0)
        if is_wrong.any():
            lanes = lanes.moved(batch.fail(lanes, is_wrong, f"{self._where}: {ENDS_EARLY}"))
        return np.where(is_wrong | batch.is_bad[lanes.values], 0, counts), lanes

    def _lists(self, owners: list[Int64s], pieces: list[Any], count: int) -> Any:
        if pieces:
            owner = np.concatenate(owners)
            order = np.argsort(owner, kind="stable")
            items = pa.concat_arrays(pieces).take(pa.array(order))
            lengths = np.bincount(owner, minlength=count)
        else:
            items, lengths = pa.array([], self._item_type), np.zeros(count, np.int64)
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return self._made(pa.array(offsets), items)

    def _made(self, offsets: Any, items: Any) -> Any:
        return pa.ListArray.from_arrays(offsets, items, type=self._type)


class MapReader(ListReader):
    """A map is a list of records with key and value."""

    def _made(self, offsets: Any, items: Any) -> Any:
        keys, values = items.flatten()
        return pa.MapArray.from_arrays(offsets, keys, values, type=self._type)
