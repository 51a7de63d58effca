"""The two hashes clients and brokers must agree on: of record keys, and of the ids coordinators are found by."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MASK: Final = 0xFFFFFFFF
SEED: Final = 0x9747B28C
"""Of the hash of keys, as is the multiplier."""
MULTIPLIER: Final = 0x5BD1E995


def murmur2(key: bytes) -> int:
    """The 32-bit MurmurHash2 of the default partitioner, as the signed number Java shows."""
    length = len(key)
    h = SEED ^ length
    whole = length & ~3
    for pos in range(0, whole, 4):
        k = int.from_bytes(key[pos : pos + 4], "little") * MULTIPLIER & _MASK
        k = (k ^ k >> 24) * MULTIPLIER & _MASK
        h = (h * MULTIPLIER & _MASK) ^ k
    if length & 3:
        h = (h ^ int.from_bytes(key[whole:], "little")) * MULTIPLIER & _MASK
    h = (h ^ h >> 13) * MULTIPLIER & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Where the default partitioner puts a key. Counts all partitions, whether they have a leader or not."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def java_string_hash(text: str) -> int:
    """`String.hashCode()`: over UTF-16 units, so a character outside the basic plane counts as two."""
    units = text.encode("utf-16-le", "surrogatepass")
    h = 0
    for pos in range(0, len(units), 2):
        h = (h * 31 + units[pos] + (units[pos + 1] << 8)) & _MASK
    return h - (1 << 32) if h >> 31 else h


@lru_cache(maxsize=10_000)
def coordinator_partition(text: str, partition_count: int) -> int:
    """The partition of the coordinator's topic that a group id or transactional id belongs to."""
    h = java_string_hash(text)
    # Java's abs of the smallest int is negative; Kafka takes 0 for it. Keys use a mask instead.
    return (0 if h == -(1 << 31) else abs(h)) % partition_count
