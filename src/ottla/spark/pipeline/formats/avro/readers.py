"""Readers of Avro values: a tree of them is made for a writer's and a reader's schema, and gives Arrow arrays.

`reader_for` decides once all that the schemas tell: which fields are read, dropped or taken from defaults, and what
numbers become. A tree reads all values of a batch at the same time, a field at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.records.arrays.varint import Int64s
from ottla.spark.pipeline.formats.avro.lanes import Batch, Lanes, Reader
from ottla.spark.pipeline.formats.avro.numbers import Finish, decimals
from ottla.spark.pipeline.formats.avro.types import Fixed, Primitive


class NullReader:
    def __init__(self, type_: Any) -> None:
        self._type = type_

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        return pa.nulls(len(lanes.at), self._type), lanes


class BooleanReader:
    def __init__(self, where: str) -> None:
        self._where = where

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        octets, lanes = batch.octets(lanes, self._where)
        is_wrong = octets > 1
        if is_wrong.any():
            lanes = lanes.moved(batch.fail(lanes, is_wrong, f"{self._where}: a boolean is neither 0 nor 1"))
        return pa.array(octets == 1), lanes


class NumberReader:
    """An int or a long."""

    def __init__(self, finish: Finish, where: str) -> None:
        self._finish = finish
        self._where = where

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        numbers, lanes = batch.longs(lanes, self._where)
        return self._finish(batch, lanes, numbers)


class FloatReader:
    def __init__(self, width: int, type_: Any, where: str) -> None:
        self._width = width
        self._type = type_
        self._where = where

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        octets, lanes = batch.matrix(lanes, self._width, self._where)
        floats = octets.view(f"<f{self._width}")[:, 0]
        return pa.array(floats.astype(self._type.to_pandas_dtype(), copy=False)), lanes


class BytesReader:
    """Bytes or text, of a length that comes first or that the schema has."""

    def __init__(self, size: int | None, type_: Any, where: str) -> None:
        self._size = size
        self._type = type_
        self._where = where

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        lengths, lanes = _lengths(batch, lanes, self._size, self._where)
        data = batch.slices(lanes, lengths)
        lanes = lanes.moved(lanes.at + lengths)
        if self._type == pa.binary():
            return data, lanes
        try:
            return data.cast(pa.string()), lanes
        except pa.ArrowInvalid:
            return self._some_text(batch, lanes, data)

    def _some_text(self, batch: Batch, lanes: Lanes, data: Any) -> tuple[Any, Lanes]:
        texts = [_as_text(octets) for octets in data.to_pylist()]
        is_wrong = np.array([text is None for text in texts], np.bool_)
        lanes = lanes.moved(batch.fail(lanes, is_wrong, f"{self._where}: a text is not UTF-8"))
        # Not null: it may be the key of a map.
        return pa.array((text or "" for text in texts), pa.string()), lanes


class DecimalReader:
    def __init__(self, size: int | None, kind: Primitive | Fixed, where: str) -> None:
        self._size = size
        self._kind = kind
        self._where = where

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        lengths, lanes = _lengths(batch, lanes, self._size, self._where)
        return decimals(batch, lanes, lengths, self._kind, self._where)


class UuidReader:
    """A UUID in 16 bytes, as the text that it usually is."""

    def __init__(self, where: str) -> None:
        self._where = where

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        octets, lanes = batch.matrix(lanes, 16, self._where)
        texts = (row.tobytes().hex() for row in octets)
        return pa.array((f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts), pa.string()), lanes


class EnumReader:
    """`symbols` are the reader's words for the writer's symbols; None is one that the reader does not know."""

    def __init__(self, symbols: Sequence[str | None], written: Sequence[str], where: str) -> None:
        self._symbols = pa.array(symbols, pa.string())
        self._unknown = [index for index, symbol in enumerate(symbols) if symbol is None]
        self._written = written
        self._where = where

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        numbers, lanes = batch.longs(lanes, self._where)
        is_wrong = (numbers < 0) | (numbers >= len(self._symbols))
        if is_wrong.any():
            lanes = lanes.moved(batch.fail(lanes, is_wrong, f"{self._where}: the enum has no such symbol"))
            numbers = np.where(is_wrong, 0, numbers)
        for index in self._unknown:
            is_unknown = numbers == index
            if is_unknown.any():
                sentence = f"{self._where}: the schema it is read with has no symbol {self._written[index]!r}"
                lanes = lanes.moved(batch.fail(lanes, is_unknown, sentence))
        return self._symbols.take(pa.array(numbers)), lanes


class UnionReader:
    """A writer's union: all branches are read into the same type."""

    def __init__(self, branches: Sequence[Reader], type_: Any, where: str) -> None:
        self._branches = branches
        self._type = type_
        self._where = where

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        chosen, lanes = batch.longs(lanes, self._where)
        is_wrong = (chosen < 0) | (chosen >= len(self._branches))
        if is_wrong.any():
            lanes = lanes.moved(batch.fail(lanes, is_wrong, f"{self._where}: the union has no such branch"))
            chosen = np.where(is_wrong, 0, chosen)
        at = lanes.at.copy()
        pieces = []
        order: list[Int64s] = []
        for index, branch in enumerate(self._branches):
            rows = np.flatnonzero(chosen == index)
            if rows.size:
                piece, after = branch.read(batch, lanes.of(rows))
                at[rows] = after.at
                pieces.append(piece)
                order.append(rows)
        lanes = lanes.moved(at)
        if len(pieces) <= 1:
            return (pieces[0] if pieces else pa.array([], self._type)), lanes
        places = np.empty(len(at), np.int64)
        places[np.concatenate(order)] = np.arange(len(at))
        return pa.concat_arrays(pieces).take(pa.array(places)), lanes


class BranchReader:
    """A value that is one branch of a reader's union of several: a struct with this field alone."""

    def __init__(self, inner: Reader, index: int, type_: Any) -> None:
        self._inner = inner
        self._index = index
        self._type = type_

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        value, lanes = self._inner.read(batch, lanes)
        fields = list(self._type)
        arrays = [value if i == self._index else pa.nulls(len(value), field.type) for i, field in enumerate(fields)]
        return pa.StructArray.from_arrays(arrays, fields=fields), lanes


class RecordReader:
    """`steps` are the writer's fields in their order, each with its place in the reader's record, None if that has not
    got it; `defaults` are arrays of one row for places that no field is read for."""

    def __init__(self, steps: Sequence[tuple[Reader, int | None]], defaults: dict[int, Any], type_: Any) -> None:
        self._steps = steps
        self._defaults = defaults
        self._fields = list(type_)

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        arrays: list[Any] = [None] * len(self._fields)
        for reader, place in self._steps:
            array, lanes = reader.read(batch, lanes)
            if place is not None:
                arrays[place] = array
        for place, default in self._defaults.items():
            arrays[place] = default.take(pa.array(np.zeros(len(lanes.at), np.int64)))
        return pa.StructArray.from_arrays(arrays, fields=self._fields), lanes


class FailingReader:
    """For a type that the reader cannot take; it matters only if a value has it."""

    def __init__(self, sentence: str, type_: Any) -> None:
        self._sentence = sentence
        self._type = type_

    def read(self, batch: Batch, lanes: Lanes) -> tuple[Any, Lanes]:
        everyone = np.ones(len(lanes.at), np.bool_)
        return pa.nulls(len(lanes.at), self._type), lanes.moved(batch.fail(lanes, everyone, self._sentence))


def _lengths(batch: Batch, lanes: Lanes, size: int | None, where: str) -> tuple[Int64s, Lanes]:
    if size is None:
        return batch.lengths(lanes, where)
    return batch.bounded(np.full(len(lanes.at), size, np.int64), lanes, where)


def _as_text(octets: bytes) -> str | None:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return None
