"""Arrays and maps: blocks of items, each with their count, up to a block of none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ottla.records.columns.varint import Int64s
from ottla.spark.pipeline.formats.avro.lanes import ENDS_EARLY, Batch, Lanes, Reader


class ListReader:
    """Reads the first item of every lane, then the second of those that have one, and so on: as many rounds as the
    longest list has items."""

    def __init__(self, items: Reader, item_type: Any, type_: Any, item_width_min: int, where: str) -> None:
        self._items = items
        self._item_type = item_type
        self._type = type_
        self._width_min = item_width_min
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
            done = 0
            reading = waiting
            while reading.size:
                piece, after = self._items.read(batch, Lanes(lanes.values[reading], at[reading]))
                at[reading] = after.at
                owners.append(reading)
                pieces.append(piece)
                done += 1
                # Of a value that is bad nothing more is wanted, and its count may be any.
                reading = waiting[(counts > done) & ~batch.is_bad[lanes.values[waiting]]]
            waiting = waiting[~batch.is_bad[lanes.values[waiting]]]
        return self._lists(owners, pieces, len(lanes.at)), lanes.moved(at)

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
        left = (batch.ends[lanes.values] - lanes.at) // self._width_min
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
