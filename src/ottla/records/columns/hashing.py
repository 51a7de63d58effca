"""The hash of record keys for a whole column at once: the numbers of `hashing`, and none of its loops over rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.records.arrays.varint import Int64s
from ottla.records.hashing import MULTIPLIER, SEED, partition_for_key

NO_PARTITION: Final = -1

_VECTOR_KEY_BYTES_MAX: Final = 512
"""All rows take a step for every four bytes of the longest key; one that is longer than this goes its way alone."""

_M: Final = np.uint32(MULTIPLIER)
_Words = npt.NDArray[np.uint32]


def partitions_for_keys(keys: Any, partition_count: int) -> Int64s:
    """For each key of a binary array what `partition_for_key` says of it; NO_PARTITION where the key is null."""
    partitions = np.full(len(keys), NO_PARTITION, np.int64)
    if keys.null_count == len(keys):
        return partitions
    keys = keys.cast(pa.binary())
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    is_there = np.ones(len(keys), bool) if not keys.null_count else keys.is_valid().to_numpy(zero_copy_only=False)
    is_short = is_there & (lengths <= _VECTOR_KEY_BYTES_MAX)
    everywhere = bool(is_short.all())
    starts = offsets[:-1] if everywhere else offsets[:-1][is_short]
    hashes = _murmur2(data_buffer, starts, lengths if everywhere else lengths[is_short])
    partitions[is_short] = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partition_count)
    for row in np.flatnonzero(is_there & ~is_short).tolist():
        partitions[row] = partition_for_key(keys[row].as_py(), partition_count)
    return partitions


def _murmur2(data: Any, starts: Int64s, lengths: Int64s) -> _Words:
    """MurmurHash2 of the slices, as unsigned numbers. All rows that have a next word take it in the same step."""
    size = int((starts + lengths).max()) if len(starts) else 0
    octets = np.zeros(size + 4, np.uint8)
    if size:
        octets[:size] = np.frombuffer(data, np.uint8, size)
    # Every position begins a word here, whatever its alignment; the zeros behind the last key end the last word.
    words: _Words = np.ndarray((size + 1,), np.dtype("<u4"), octets, strides=(1,))
    hashes: _Words = np.uint32(SEED) ^ lengths.astype(np.uint32)
    word_counts = lengths >> 2
    fewest, most = (int(word_counts.min()), int(word_counts.max())) if len(lengths) else (0, 0)
    for number in range(most):
        if number < fewest:
            hashes = _mix(hashes, words[starts + 4 * number])
        else:
            rows = np.flatnonzero(word_counts > number)
            hashes[rows] = _mix(hashes[rows], words[starts[rows] + 4 * number])
    rests = lengths & 3
    if rests.any():
        rows = np.flatnonzero(rests)
        masks = (np.uint32(1) << (rests[rows].astype(np.uint32) * np.uint32(8))) - np.uint32(1)
        hashes[rows] = (hashes[rows] ^ (words[starts[rows] + 4 * word_counts[rows]] & masks)) * _M
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
    return hashes ^ (hashes >> np.uint32(15))


def _mix(hashes: _Words, words: _Words) -> _Words:
    words = words * _M
    words = (words ^ (words >> np.uint32(24))) * _M
    return (hashes * _M) ^ words
