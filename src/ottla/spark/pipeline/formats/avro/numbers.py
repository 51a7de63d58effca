"""Avro's numbers as Arrow arrays: plain ones, moments and decimals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.records.arrays.varint import Int64s, Octets
from ottla.records.columns.slices import slices
from ottla.spark.pipeline.formats.avro.lanes import Batch, Lanes
from ottla.spark.pipeline.formats.avro.spark_types import family
from ottla.spark.pipeline.formats.avro.types import AvroSchemaError, Fixed, Primitive

Finish: TypeAlias = Callable[[Batch, Lanes, Int64s], tuple[Any, Lanes]]
"""What becomes of whole numbers that were read: an array, and the lanes, of which some may have ended."""

_INT: Final = (-(2**31), 2**31 - 1)
_DAYS: Final = (-719162, 2932896)
"""The first day of the year 1 and the last of the year 9999: the range of Spark's DATE."""
_DAY_MICROS: Final = 86_400_000_000
_MICROS: Final = (_DAYS[0] * _DAY_MICROS, (_DAYS[1] + 1) * _DAY_MICROS - 1)
_PER_UNIT: Final = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}
"""By what a number is multiplied and divided to become microseconds."""


def whole_numbers(writer: Primitive, reader: Primitive, type_: Any, where: str) -> Finish:
    """For an int or a long of the writer that is read as the reader's type, which may also be float or double."""
    is_int = writer.kind == "int"
    convert = _conversion(writer, reader, type_, where)

    def finish(batch: Batch, lanes: Lanes, numbers: Int64s) -> tuple[Any, Lanes]:
        if is_int:
            numbers, lanes = _within(batch, lanes, numbers, _INT, f"{where}: a number does not fit an int")
        return convert(batch, lanes, numbers)

    return finish


def _conversion(writer: Primitive, reader: Primitive, type_: Any, where: str) -> Finish:
    if reader.logical is None:
        return lambda batch, lanes, numbers: (pa.array(numbers.astype(type_.to_pandas_dtype(), copy=False)), lanes)
    kind = family(reader.logical)
    if kind == "date":

        def days(batch: Batch, lanes: Lanes, numbers: Int64s) -> tuple[Any, Lanes]:
            numbers, lanes = _within(batch, lanes, numbers, _DAYS, f"{where}: a date is not of the years 1 to 9999")
            return pa.array(numbers.astype(np.int32)).view(type_), lanes

        return days
    # The writer's unit counts: the reader's only says what it would write itself.
    written = writer.logical or ""
    is_same_kind = family(written).removeprefix("local-") == kind.removeprefix("local-")
    unit = (written if is_same_kind else reader.logical).rpartition("-")[2]
    return _times(unit, type_, where) if kind == "time" else _moments(unit, type_, where)


def _moments(unit: str, type_: Any, where: str) -> Finish:
    times, parts = _PER_UNIT[unit]
    bounds = (-(-_MICROS[0] * parts // times), _MICROS[1] * parts // times)
    # Nanoseconds of those years do not fit 64 bits, so none are out of range.
    bounds = (max(bounds[0], -(2**63)), min(bounds[1], 2**63 - 1))

    def finish(batch: Batch, lanes: Lanes, numbers: Int64s) -> tuple[Any, Lanes]:
        numbers, lanes = _within(batch, lanes, numbers, bounds, f"{where}: a moment is not of the years 1 to 9999")
        return pa.array(numbers * times // parts).view(type_), lanes

    return finish


def _times(unit: str, type_: Any, where: str) -> Finish:
    nanos = 1000 * _PER_UNIT[unit][0]
    bounds = (0, 1000 * _DAY_MICROS // nanos - 1)

    def finish(batch: Batch, lanes: Lanes, numbers: Int64s) -> tuple[Any, Lanes]:
        numbers, lanes = _within(batch, lanes, numbers, bounds, f"{where}: a time is not within a day")
        return pa.array(numbers * nanos).view(type_), lanes

    return finish


def _within(
    batch: Batch, lanes: Lanes, numbers: Int64s, bounds: tuple[int, int], sentence: str
) -> tuple[Int64s, Lanes]:
    is_outside = (numbers < bounds[0]) | (numbers > bounds[1])
    if not is_outside.any():
        return numbers, lanes
    return np.where(is_outside, 0, numbers), lanes.moved(batch.fail(lanes, is_outside, sentence))


def decimals(batch: Batch, lanes: Lanes, lengths: Int64s, kind: Primitive | Fixed, where: str) -> tuple[Any, Lanes]:
    """Decimals of the bytes that follow; the lanes are before them, and afterwards behind them."""
    too_long = f"{where}: a decimal does not fit {kind.precision} digits"
    is_long = lengths > 16
    if is_long.any():
        lanes, lengths = lanes.moved(batch.fail(lanes, is_long, too_long)), np.where(is_long, 0, lengths)
    octets = batch.signed(lanes, lengths)
    lanes = lanes.moved(lanes.at + lengths)
    is_outside = _reaches(octets, 10**kind.precision)
    if is_outside.any():
        octets = np.where(is_outside[:, None], np.uint8(0), octets)
        lanes = lanes.moved(batch.fail(lanes, is_outside, too_long))
    data = pa.py_buffer(np.ascontiguousarray(octets))
    return pa.Array.from_buffers(pa.decimal128(kind.precision, kind.scale), len(lengths), [None, data]), lanes


def _reaches(octets: Octets, limit: int) -> npt.NDArray[np.bool_]:
    """Which numbers of 16 bytes, the least significant first, are `limit` or more, or as far below zero."""
    words = np.ascontiguousarray(octets)
    high, low = words.view("<i8")[:, 1], words.view("<u8")[:, 0]
    above, below = limit >> 64, -limit >> 64
    is_above = (high > above) | ((high == above) & (low >= np.uint64(limit % 2**64)))
    is_below = (high < below) | ((high == below) & (low <= np.uint64(-limit % 2**64)))
    reached: npt.NDArray[np.bool_] = is_above | is_below
    return reached


def check_decimals(writer: Primitive | Fixed, reader: Primitive | Fixed) -> None:
    if "decimal" in (writer.logical, reader.logical) and (writer.logical, writer.scale) != (
        reader.logical,
        reader.scale,
    ):
        raise AvroSchemaError(
            f"it is written as {_decimal(writer)} and read as {_decimal(reader)}, which are different numbers"
        )


def _decimal(kind: Primitive | Fixed) -> str:
    return f"a decimal of {kind.scale} places" if kind.logical == "decimal" else "bytes"


# Back to numbers and bytes


def moment_numbers(array: Any, logical: str, where: str) -> Int64s:
    """The numbers that a schema has for dates, times and moments. What is finer than its unit is dropped."""
    kind, unit = family(logical), logical.rpartition("-")[2]
    if kind == "date":
        return np.asarray(array.cast(pa.int32()).to_numpy(), np.int64)
    numbers: Int64s = array.view(pa.int64()).to_numpy()
    times, parts = _PER_UNIT[unit]
    if kind == "time":
        return numbers // (1000 * times)
    if parts > 1 and len(numbers) and max(int(numbers.max()), -int(numbers.min())) >= 2**63 // parts:
        raise ValueError(f"the column {where} has a moment for which there are no 64 bits of nanoseconds")
    return numbers // times * parts


def decimal_bytes(array: Any, size: int | None) -> Any:
    """Decimals as signed numbers, the most significant byte first: as short as each can be, or of a size, None if one
    does not fit it."""
    count = len(array)
    octets = np.frombuffer(array.buffers()[1], np.uint8)[16 * array.offset : 16 * (array.offset + count)]
    rows = np.ascontiguousarray(octets.reshape(count, 16)[:, ::-1])
    fill = np.where(rows[:, 0] > 0x7F, 0xFF, 0).astype(np.uint8)
    # The first byte that is needed must have the sign as its highest bit.
    leading = np.cumprod(rows == fill[:, None], axis=1).sum(axis=1)
    starts = np.minimum(leading, 15)
    firsts = rows[np.arange(count), starts]
    starts -= ((firsts > 0x7F) != (fill > 0)) & (starts > 0)
    if size is not None:
        if (starts < 16 - size).any():
            return None
        width = max(size, 16)
        padded = np.concatenate([np.repeat(fill[:, None], width - 16, axis=1), rows], axis=1)
        rows, starts = np.ascontiguousarray(padded[:, width - size :]), np.zeros(count, np.int64)
        return slices(rows.ravel().data, np.arange(count, dtype=np.int64) * size, np.full(count, size))
    return slices(rows.ravel().data, np.arange(count, dtype=np.int64) * 16 + starts, 16 - starts)
