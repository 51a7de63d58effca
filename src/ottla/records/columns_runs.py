"""Batches that are a few long runs of records of one shape, by the column: most batches are.

What `runs` is for records, this is for columns: within a run every field stands at the same distance from the next
record's, so the bytes around the values are taken out eight at a time, and one comparison checks all records. Keys and
values are copied as the elements of an array. Whatever is not like this is left to the general way, and so is what is
damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.base.types import ReadBuffer
from ottla.records.columns_varint import Int64s, Octets, binary_array
from ottla.records.runs import Shape, shape_at

Words = npt.NDArray[np.uint64]

_WORD: Final = 8
_WINDOW_MAX: Final = 64
_MEAN_RUN_MIN: Final = 16
_VARINT_SIZE_MAX: Final = 4
_LOW_BITS: Final = np.uint64(0x7F)


class Run(NamedTuple):
    """`rows` records of one shape, the first at the position `start`."""

    start: int
    rows: int
    shape: Shape


def read_runs(
    buf: ReadBuffer, octets: Octets, start: int, end: int, timestamp_deltas: Int64s, offset_deltas: Int64s
) -> list[Run] | None:
    """The runs that make up `buf[start:end]`, and their numbers in the two arrays, one for each record.

    None if these bytes are anything else than long runs from the first to the last.
    """
    count = len(offset_deltas)
    runs: list[Run] = []
    done, pos = 0, start
    while done < count:
        try:
            shape = shape_at(buf, pos)
        except IndexError:
            return None
        if shape is None or pos + shape.size > end or _has_long_varints(shape):
            return None
        numbers = timestamp_deltas[done:], offset_deltas[done:]
        found = _read_run(buf, octets, pos, min(count - done, (end - pos) // shape.size), shape, *numbers)
        runs.append(Run(pos, found, shape))
        done += found
        pos += found * shape.size
        if done < count and done < _MEAN_RUN_MIN * len(runs):
            return None
    return runs if pos == end else None


def _has_long_varints(shape: Shape) -> bool:
    """Numbers of that size are rare, and have bounds that are not checked here."""
    widths = (
        shape.length_width,
        shape.timestamp_width,
        shape.delta_width,
        shape.key_at - shape.delta_at - shape.delta_width,
        shape.value_at - shape.key_at - max(shape.key_size, 0),
    )
    return max(widths) > _VARINT_SIZE_MAX


def _read_run(
    buf: ReadBuffer,
    octets: Octets,
    pos: int,
    limit: int,
    shape: Shape,
    timestamp_deltas: Int64s,
    offset_deltas: Int64s,
) -> int:
    """How many records, at most `limit`, the run has. Their numbers are put into the two arrays."""
    timestamp_deltas[0] = _number(buf, pos + shape.timestamp_at, shape.timestamp_width)
    offset_deltas[0] = first = _number(buf, pos + shape.delta_at, shape.delta_width)
    # Where offsets have no gaps, more records cannot have deltas of this width.
    limit = min(limit, (1 << (7 * shape.delta_width - 1)) - first)
    # A window begins with the byte before the record, which ends the record before it.
    window = -(-(shape.value_at + 1) // _WORD) * _WORD
    if limit < 2 or window > min(shape.size, _WINDOW_MAX):
        return 1
    words: list[Words] = [
        np.ndarray((limit - 1,), "<u8", octets, pos + shape.size - 1 + at, (shape.size,)).astype(np.uint64)
        for at in range(0, window, _WORD)
    ]
    expected, mask = _expected(shape, window)
    differing = (words[0] ^ expected[0]) & mask[0]
    for word, want, bits in zip(words[1:], expected[1:], mask[1:], strict=True):
        differing |= (word ^ want) & bits
    count = limit
    if differing.any():
        at = int((differing != 0).argmax())
        # If the record before has headers, it does not belong to the run itself.
        count = at + 1 if int(words[0][at]) & 0xFF == 0 else at
    elif octets[pos + limit * shape.size - 1]:
        count = limit - 1
    if count > 1:
        words = [word[: count - 1] for word in words]
        timestamp_deltas[1:count] = _numbers(words, shape.timestamp_at + 1, shape.timestamp_width)
        offset_deltas[1:count] = _numbers(words, shape.delta_at + 1, shape.delta_width)
    return max(count, 1)


def _expected(shape: Shape, window: int) -> tuple[Words, Words]:
    """What stands in the window of a record of this shape, and which bits of it are the same in all of them."""
    expected, mask = bytearray(window), bytearray(window)
    mask[0] = 0xFF
    for at, byte in shape.fixed:
        if at + 1 < window:
            expected[at + 1], mask[at + 1] = byte, 0xFF
    for at, width in ((shape.timestamp_at, shape.timestamp_width), (shape.delta_at, shape.delta_width)):
        mask[at + 1 : at + 1 + width] = b"\x80" * width
        expected[at + 1 : at + width] = b"\x80" * (width - 1)
    return np.frombuffer(expected, "<u8").astype(np.uint64), np.frombuffer(mask, "<u8").astype(np.uint64)


def _numbers(words: Sequence[Words], at: int, width: int) -> Int64s:
    """The varints of `width` bytes that stand at the byte `at` of each window."""
    raw: Words | None = None
    for index in range(width):
        word, byte = divmod(at + index, _WORD)
        part = (words[word] >> np.uint64(8 * byte)) & _LOW_BITS
        raw = part if raw is None else raw | (part << np.uint64(7 * index))
    assert raw is not None
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)


def _number(buf: ReadBuffer, pos: int, width: int) -> int:
    raw = sum((buf[pos + index] & 0x7F) << (7 * index) for index in range(width))
    return (raw >> 1) ^ -(raw & 1)


def keys_of(octets: Octets, runs: Sequence[Run]) -> Any:
    """The keys of all records as an Arrow array."""
    return _slices(octets, [(run.start + run.shape.key_at, run.shape.key_size, run) for run in runs])


def values_of(octets: Octets, runs: Sequence[Run]) -> Any:
    return _slices(octets, [(run.start + run.shape.value_at, run.shape.value_size, run) for run in runs])


def _slices(octets: Octets, parts: Sequence[tuple[int, int, Run]]) -> Any:
    """`parts` are where the first slice of a run is and how long all of them are, -1 if they are null."""
    rows = sum(run.rows for _, _, run in parts)
    if all(size < 0 for _, size, _ in parts):
        return pa.nulls(rows, pa.binary())
    offsets = np.empty(rows + 1, np.int32)
    copied: Octets = np.empty(sum(max(size, 0) * run.rows for _, size, run in parts), np.uint8)
    row = filled = 0
    for start, given_size, run in parts:
        size = max(given_size, 0)
        after = filled + run.rows * size
        if size:
            # As one element each they are copied without a loop over their bytes.
            copied[filled:after].view(f"V{size}")[...] = np.ndarray(
                (run.rows,), f"V{size}", octets, start, (run.shape.size,)
            )
        offsets[row : row + run.rows] = np.arange(filled, after, size) if size else filled
        row += run.rows
        filled = after
    offsets[rows] = filled
    if all(size >= 0 for _, size, _ in parts):
        return binary_array(offsets, copied)
    is_there = np.repeat([size >= 0 for _, size, _ in parts], [run.rows for _, _, run in parts])
    bits = pa.py_buffer(np.packbits(is_there, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [bits, pa.py_buffer(offsets), pa.py_buffer(copied)])
