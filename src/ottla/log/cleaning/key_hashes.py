"""Hashes of many keys at once, of 128 bits: so many that two keys with the same one need not be thought of.

They are good for one process only. The numbers that go into them are drawn at random: whoever could make two keys meet
could make the broker forget somebody else's record.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.records.arrays.varint import Int64s, Octets

UInt64s: TypeAlias = npt.NDArray[np.uint64]

PADDING: Final = 8
"""So many bytes must follow the last key in its buffer: keys are read eight bytes at a time."""

_WORD: Final = 8
_LONG_KEY: Final = 512
"""All rows take a step for every eight bytes of the longest key; one that is longer than this goes its way alone."""

_SECRET: Final = os.urandom(32)
_SEEDS: Final = np.frombuffer(_SECRET, np.uint64)[:2]
_MULTIPLIERS: Final = np.frombuffer(_SECRET, np.uint64)[2:] | np.uint64(1)
_FINAL: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_HALF: Final = np.uint64(32)


def hash_keys(octets: Octets, starts: Int64s, lengths: Int64s) -> tuple[UInt64s, UInt64s]:
    """The two halves of the hash of each `octets[start:start + length]`."""
    is_long = lengths > _LONG_KEY
    if is_long.any():
        return _hash_uneven(octets, starts, lengths, is_long)
    words: UInt64s = np.ndarray((len(octets) - _WORD + 1,), np.dtype("<u8"), octets, strides=(1,))
    sizes = lengths.astype(np.uint64)
    left, right = (seed + sizes * multiplier for seed, multiplier in zip(_SEEDS, _MULTIPLIERS, strict=True))
    whole = lengths >> 3
    fewest, most = (int(whole.min()), int(whole.max())) if len(lengths) else (0, 0)
    for number in range(most):
        if number < fewest:
            word = words[starts + _WORD * number]
            left, right = _mix(left, word, 0), _mix(right, word, 1)
        else:
            rows = np.flatnonzero(whole > number)
            word = words[starts[rows] + _WORD * number]
            left[rows], right[rows] = _mix(left[rows], word, 0), _mix(right[rows], word, 1)
    rows = np.flatnonzero(lengths & 7)
    if len(rows):
        bits = (lengths[rows] & 7).astype(np.uint64) << np.uint64(3)
        rest = words[starts[rows] + _WORD * whole[rows]] & ((np.uint64(1) << bits) - np.uint64(1))
        left[rows], right[rows] = _mix(left[rows], rest, 0), _mix(right[rows], rest, 1)
    return _finish(left, 0), _finish(right, 1)


def _mix(state: UInt64s, word: UInt64s, lane: int) -> UInt64s:
    mixed: UInt64s = (state ^ word) * _MULTIPLIERS[lane]
    return mixed ^ (mixed >> _HALF)


def _finish(state: UInt64s, lane: int) -> UInt64s:
    state = state * _FINAL[lane]
    state = state ^ (state >> np.uint64(33))
    state = state * _FINAL[1 - lane]
    return state ^ (state >> np.uint64(29))


def _hash_uneven(
    octets: Octets, starts: Int64s, lengths: Int64s, is_long: npt.NDArray[np.bool_]
) -> tuple[UInt64s, UInt64s]:
    left, right = np.empty(len(starts), np.uint64), np.empty(len(starts), np.uint64)
    short = ~is_long
    left[short], right[short] = hash_keys(octets, starts[short], lengths[short])
    for row in np.flatnonzero(is_long).tolist():
        start = int(starts[row])
        key = octets[start : start + int(lengths[row])]
        left[row], right[row] = np.frombuffer(
            hashlib.blake2b(key.tobytes(), digest_size=16, key=_SECRET).digest(), np.uint64
        )
    return left, right
