"""Where each record of a batch starts. A record begins with its length, so the way to the next leads through this one.

Records of one size are common, because values often are, and then their starts are an arithmetic series. That is no
guess: if the record at p has the size s, the next one starts at p + s, and if the same length stands there, it has the
size s too. So one comparison of columns confirms a whole run, up to the first record that differs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer
from ottla.records.arrays.varint import Int64s, Octets
from ottla.records.faults import raise_wrong_length
from ottla.records.varint import read_unsigned

_SINGLE_STEPS: Final = 32
_EQUAL_STEPS: Final = 4
_FIRST_RUN: Final = 128
_RUN_GROWTH: Final = 8


def find_starts(buf: ReadBuffer, octets: Octets, start: int, end: int, starts: Int64s) -> None:
    """Fills `starts` with the position of each record of the payload `buf[start:end]`, which holds as many exactly.

    A length is not looked at further than that it leads to the next record: negative ones are for the caller to find.
    """
    count = len(starts)
    done = 0
    pos = start
    while done < count:
        steps = _single_steps(buf, pos, min(_SINGLE_STEPS, count - done))
        starts[done : done + len(steps) - 1] = steps[:-1]
        done += len(steps) - 1
        pos = steps[-1]
        if done < count:
            size = pos - steps[-2]
            if pos - steps[-1 - _EQUAL_STEPS] == size * _EQUAL_STEPS and steps[-2] - steps[-3] == size:
                length = octets[steps[-2] : steps[-2] + _length_size(buf, steps[-2])]
                run = _equal_run(octets, pos, size, length, min(count - done, (end - pos) // size))
                starts[done : done + run] = np.arange(pos, pos + run * size, size)
                done += run
                pos += run * size
        if pos > end:
            break
    if pos != end or done != count:
        raise CorruptBatchError(f"{count} records do not end where their batch does")


def _single_steps(buf: ReadBuffer, pos: int, count: int) -> list[int]:
    """The starts of the next `count` records, and where the last of them ends."""
    steps = [pos]
    append = steps.append
    for _ in range(count):
        n = buf[pos]
        if n < 128:
            pos += 1 + (n >> 1)
        else:
            m = buf[pos + 1]
            if m < 128:
                pos += 2 + ((m << 7) - 128 + n >> 1)
            else:
                n, size = read_unsigned(bytes(buf[pos : pos + 6]), 0, 32)
                pos += size + (n >> 1)
        append(pos)
    return steps


def _length_size(buf: ReadBuffer, pos: int) -> int:
    end = pos
    while buf[end] > 0x7F:
        end += 1
    return end + 1 - pos


def _equal_run(octets: Octets, pos: int, size: int, length: Octets, limit: int) -> int:
    """How many records from `pos` on, at most `limit`, begin with the same length as the one before them."""
    run = 0
    window = _FIRST_RUN
    while run < limit:
        tried = min(window, limit - run)
        first = pos + run * size
        last = first + (tried - 1) * size + 1
        differs = octets[first:last:size] != length[0]
        for index in range(1, len(length)):
            differs |= octets[first + index : last + index : size] != length[index]
        found = int(differs.argmax())
        if differs[found]:
            return run + found
        run += tried
        window *= _RUN_GROWTH
    return run


def check_lengths(lengths: Int64s) -> None:
    if lengths.size and int(lengths.min()) < 0:
        raise_wrong_length(int(lengths.min()))
