"""Hashes of keys: those of equal keys are equal, whatever lies around them, and no two others are."""

from __future__ import annotations

import numpy as np
import pytest

from ottla.log.cleaning.key_hashes import PADDING, hash_keys

KEYS = [
    b"",
    b"\x00",
    b"\x00\x00",
    *(bytes(size) for size in (7, 8, 9, 15, 16, 17, 511, 512, 513, 520)),
    *(bytes(range(1, 250))[:size] for size in (1, 2, 6, 7, 8, 9, 16, 23, 24, 25)),
    *(b"long" * count for count in (127, 128, 129, 400)),
    *(b"k" * place + b"x" + b"k" * (40 - place) for place in range(41)),
    *(b"k" * place + b"y" + b"k" * (44 - place) for place in range(45)),
    *(b"z" * size for size in range(1, 33)),
    b"k" * 600 + b"x",
    b"x" + b"k" * 600,
]


def hashes(keys: list[bytes], between: bytes = b"") -> list[tuple[int, int]]:
    data = between + between.join(keys) + between + b"\xff" * PADDING
    lengths = np.array([len(key) for key in keys], np.int64)
    starts = len(between) + np.cumsum(lengths + len(between)) - lengths - len(between)
    left, right = hash_keys(np.frombuffer(data, np.uint8), starts, lengths)
    return list(zip(left.tolist(), right.tolist(), strict=True))


def test_no_two_keys_have_the_same_hash_nor_half_of_it() -> None:
    assert len(set(KEYS)) == len(KEYS)
    found = hashes(KEYS)
    assert len({left for left, _ in found}) == len({right for _, right in found}) == len(KEYS)


@pytest.mark.parametrize("between", [b"\xff", b"\x00" * 3, b"other" * 5])
def test_a_hash_is_that_of_the_key_alone(between: bytes) -> None:
    together = hashes(KEYS)
    assert hashes(KEYS, between) == together
    assert hashes(KEYS[::-1]) == together[::-1]
    assert [hashes([key])[0] for key in KEYS] == together


def test_of_no_keys_there_are_no_hashes() -> None:
    assert hashes([]) == []
