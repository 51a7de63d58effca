"""Batches that are a few long runs of records of one shape, by the column: most batches are.

What `runs` is for records, this is for columns: within a run every field stands at the same distance from the next
record's, so the bytes around the values are taken out eight at a time, and one comparison checks all records. Keys and
values are copied as the elements of an array. Whatever is not like this is left to the general way, and so is what is
damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.base.types import ReadBuffer
from ottla.records.arrays.varint import Int64s, Octets
from ottla.records.columns.varint import binary_array
from ottla.records.runs import Shape, shape_at, signed_number_at

Words = npt.NDArray[np.uint64]

_WORD: Final = 8
_WORD_MASK: Final = (1 << 64) - 1
_WINDOW_MAX: Final = 64
_MEAN_RUN_MIN: Final = 16
_VARINT_SIZE_MAX: Final = 4
_LOW_BITS: Final = np.uint64(0x7F)
_KNOWN_DELTAS: Final = 1 << 15
"""The bytes of offset deltas below this are kept, for who looks for offsets that go up by one."""


class Run(NamedTuple):
    """`rows` records of one shape, the first at the position `start`."""

    start: int
    rows: int
    shape: Shape
    first_delta: int
    is_even: bool
    """Known to be the same but for keys, values and offsets, which go up by one."""


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
        run = _read_run(buf, octets, pos, min(count - done, (end - pos) // shape.size), shape, *numbers)
        runs.append(run)
        done += run.rows
        pos += run.rows * shape.size
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
) -> Run:
    """The run that begins at `pos`, of `limit` records at most. Their numbers are put into the two arrays."""
    timestamp_deltas[0] = timestamp = signed_number_at(buf, pos + shape.timestamp_at)
    offset_deltas[0] = first = signed_number_at(buf, pos + shape.delta_at)
    # Where offsets have no gaps, more records cannot have deltas of this width.
    limit = min(limit, (1 << (7 * shape.delta_width - 1)) - first)
    # A window begins with the byte before the record, which ends the record before it.
    window = -(-(shape.value_at + 1) // _WORD) * _WORD
    if limit < 2 or window > min(shape.size, _WINDOW_MAX):
        return Run(pos, 1, shape, first, is_even=True)
    words: list[Words] = [
        np.ndarray((limit - 1,), "<u8", octets, pos + shape.size - 1 + at, (shape.size,)).astype(np.uint64)
        for at in range(0, window, _WORD)
    ]
    if _is_even(words, buf, pos, first, shape):
        count = limit - 1 if octets[pos + limit * shape.size - 1] else limit
        timestamp_deltas[:count] = timestamp
        offset_deltas[:count] = np.arange(first, first + count)
        return Run(pos, count, shape, first, is_even=True)
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
    return Run(pos, max(count, 1), shape, first, is_even=False)


class _Check(NamedTuple):
    """What one word of a window has to be."""

    as_in_first: int
    """The bits that all records of the run share."""
    deltas: Words | None
    """Which bits are added by each offset delta, from 0 on; None if there are no such bits in this word."""
    mask: np.uint64 | None
    """All bits that are compared; None if none is left out."""


def _is_even(words: Sequence[Words], buf: ReadBuffer, pos: int, first: int, shape: Shape) -> bool:
    """Whether the windows of the second record and those after it are what the first one's head makes expect.

    Most runs are: a producer that is fast enough to fill them gives many records the same time.
    """
    rows = len(words[0])
    if not 0 <= first < _KNOWN_DELTAS - rows:
        return False
    head = int.from_bytes(buf[pos : pos + _WORD * len(words) - 1], "little") << 8
    checks = _checks(len(words), shape.delta_at, shape.delta_width, shape.key_at, shape.key_size, shape.value_at)
    all_differing: Words | None = None
    for word, check in zip(words, checks, strict=True):
        differing = word ^ np.uint64(head & check.as_in_first)
        if check.deltas is not None:
            differing ^= check.deltas[first + 1 : first + 1 + rows]
        if check.mask is not None:
            differing &= check.mask
        all_differing = differing if all_differing is None else all_differing | differing
        head >>= 8 * _WORD
    assert all_differing is not None
    return not all_differing.any()


@lru_cache(maxsize=64)
def _checks(words: int, delta_at: int, delta_width: int, key_at: int, key_size: int, value_at: int) -> list[_Check]:
    """For windows, which have one byte more in front than records have."""
    delta = ((1 << 8 * delta_width) - 1) << 8 * (delta_at + 1)
    compared = (1 << 8 * (value_at + 1)) - 1
    if key_size > 0:
        compared &= ~(((1 << 8 * key_size) - 1) << 8 * (key_at + 1))
    made = []
    for index, deltas in enumerate(_delta_words(words, delta_at + 1, delta_width)):
        bits = compared >> 64 * index & _WORD_MASK
        mask = None if bits == _WORD_MASK else np.uint64(bits)
        made.append(_Check(bits & ~(delta >> 64 * index), deltas, mask))
    return made


def _delta_words(words: int, at: int, width: int) -> list[Words | None]:
    """The offset deltas as varints of `width` bytes, where they stand in a window."""
    numbers = np.arange(0, 2 * min(1 << (7 * width - 1), _KNOWN_DELTAS), 2, dtype=np.uint64)
    made: list[Words | None] = [None] * words
    for index in range(width):
        octet = numbers >> np.uint64(7 * index) & _LOW_BITS
        if index < width - 1:
            octet |= np.uint64(0x80)
        word, byte = divmod(at + index, _WORD)
        placed = octet << np.uint64(8 * byte)
        before = made[word]
        made[word] = placed if before is None else before | placed
    return made


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
