"""The newest entry of each key in memory of a given size, and keys that want the same slot.

No key has a hash of nothing but zeros: such a one looks like a free slot, and does not come in the age of the world.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from ottla.log.cleaning.key_hashes import UInt64s
from ottla.log.cleaning.offset_map import OffsetMap

Key = tuple[int, int]


def halves(keys: list[Key]) -> tuple[UInt64s, UInt64s]:
    left, right = zip(*keys, strict=True) if keys else ((), ())
    return np.array(left, np.uint64), np.array(right, np.uint64)


def put(found: OffsetMap, *entries: tuple[Key, int]) -> None:
    found.put(*halves([key for key, _ in entries]), np.array([entry for _, entry in entries], np.uint64))


def get(found: OffsetMap, *keys: Key) -> list[int | None]:
    entries, is_known = found.get(*halves(list(keys)))
    return [entry if known else None for entry, known in zip(entries.tolist(), is_known.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("memory_bytes", "load_factor", "keys_max", "slots"),
    [
        (1 << 20, 0.5, 0, 16),
        (1 << 20, 0.5, 8, 16),
        (1 << 20, 0.5, 9, 32),
        (1 << 20, 0.5, 16, 32),
        (1 << 20, 0.5, 17, 64),
        (0, 0.5, 1000, 16),
        # A slot takes 24 bytes, and what is sorted at the end eight more for each key.
        (32 * 28, 0.5, 1000, 32),
        (32 * 28 - 1, 0.5, 1000, 16),
        (64 * 32, 1.0, 1000, 64),
        (64 * 32 - 1, 1.0, 1000, 32),
        (1 << 20, 0.01, 1, 128),
    ],
)
def test_the_room_for_keys(memory_bytes: int, load_factor: float, keys_max: int, slots: int) -> None:
    found = OffsetMap(memory_bytes, load_factor, keys_max)
    assert len(found._table) == slots
    assert (found.room, found.key_count) == (max(int(slots * load_factor), 1), 0)
    put(found, ((1, 1), 0))
    assert (found.room, found.key_count) == (max(int(slots * load_factor), 1) - 1, 1)


def test_the_last_entry_of_a_key_counts() -> None:
    found = OffsetMap(1 << 16, 0.5, 8)
    assert found.sorted_entries().tolist() == [] and get(found, (1, 2)) == [None] and get(found) == []
    put(found)
    put(found, ((1, 2), 0), ((5, 2), 7), ((1, 2), 4))
    assert get(found, (1, 2), (5, 2), (1, 3), (5, 1)) == [4, 7, None, None]
    put(found, ((5, 2), 8), ((9, 9), 10), ((5, 2), 12), ((9, 9), 11))
    assert get(found, (9, 9), (5, 2), (9, 9), (1, 2)) == [11, 12, 11, 4]
    assert found.sorted_entries().tolist() == [4, 11, 12] and found.key_count == 3


def test_entry_zero_is_one() -> None:
    found = OffsetMap(0, 0.5, 1)
    put(found, ((0, 1), 0))
    assert (get(found, (0, 1)), found.sorted_entries().tolist(), found.key_count) == ([0], [0], 1)
    assert get(found, (0, 2), (16, 1), (0, 0)) == [None, None, None]


def test_keys_that_want_one_slot_find_another() -> None:
    """As many as there are slots, all of which begin at the same one, and their steps differ or not."""
    for step in (0, 1):
        found = OffsetMap(0, 1.0, 16)
        keys = [(16 * number, 2 * number * step + 2) for number in range(16)]
        put(found, *[(key, 100 + number) for number, key in enumerate(keys)])
        assert get(found, *keys) == [100 + number for number in range(16)]
        assert (found.key_count, found.room) == (16, 0)
        put(found, *[(key, 200 + number) for number, key in enumerate(keys[::-1])])
        assert get(found, *keys[::-1]) == [200 + number for number in range(16)]
        assert found.key_count == 16


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_a_dictionary_would_be(seed: int) -> None:
    draw = Random(seed)
    keys = [(draw.randrange(8), draw.randrange(1, 9)) for _ in range(40)] + [
        (draw.getrandbits(64), draw.getrandbits(64)) for _ in range(40)
    ]
    found, expected = OffsetMap(1 << 16, 0.9, 80), dict[Key, int]()
    entry = 0
    for _ in range(30):
        entries = []
        for key in draw.choices(keys, k=draw.randrange(20)):
            entry += draw.randrange(1, 4)
            entries.append((key, entry))
        put(found, *entries)
        expected.update(entries)
        assert get(found, *keys) == [expected.get(key) for key in keys]
        assert found.sorted_entries().tolist() == sorted(expected.values())
        assert found.key_count == len(expected)
