"""The heads of records read by the column have the numbers that were written, short or long."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.base.errors import CorruptBatchError
from ottla.records.arrays.heads import Heads, read_heads
from ottla.records.varint import encode_varint

INT32, INT64 = 2**31, 2**63


class Record(NamedTuple):
    length: int
    timestamp_delta: int
    offset_delta: int
    key_length: int

    @property
    def head(self) -> bytes:
        return b"".join((encode_varint(self.length), b"\xff", *(encode_varint(each) for each in self[1:])))


def read(records: list[Record], padding: int) -> tuple[Heads, list[int]]:
    heads = [record.head for record in records]
    starts = np.cumsum([0, *map(len, heads)])[:-1]
    return read_heads(np.frombuffer(b"".join(heads) + bytes(padding), np.uint8), starts), starts.tolist()


def numbers(limit: int) -> st.SearchStrategy[int]:
    edges = [sign * (1 << bits) + step for bits in (6, 13, 20, 27) for sign in (1, -1) for step in (-1, 0)]
    return st.one_of(st.sampled_from(edges), st.integers(-64, 63), st.integers(-limit, limit - 1))


SHORT = Record(120, 3, 70, 16)
RECORDS = st.lists(
    st.one_of(
        st.builds(Record, st.integers(0, 8000), st.integers(0, 60), st.integers(0, 8000), st.integers(-1, 63)),
        st.builds(Record, numbers(INT32), numbers(INT64), numbers(INT32), numbers(INT32)),
    ),
    min_size=1,
    max_size=8,
)


@given(RECORDS, st.sampled_from([0, 8]))
@example([SHORT], 8)
@example([SHORT, SHORT._replace(timestamp_delta=64)], 8)  # seven bytes, and eight
@example([SHORT, SHORT._replace(timestamp_delta=64, key_length=64)], 8)  # nine: one reaches beyond its word
@example([SHORT, SHORT._replace(length=1 << 20, offset_delta=0)], 8)  # a number of four bytes in a head of eight
@example([SHORT], 0)
def test_heads_are_read_as_they_were_written(records: list[Record], padding: int) -> None:
    heads, starts = read(records, padding)
    assert heads.lengths.tolist() == [record.length for record in records]
    assert heads.timestamp_deltas.tolist() == [record.timestamp_delta for record in records]
    assert heads.offset_deltas.tolist() == [record.offset_delta for record in records]
    assert heads.key_lengths.tolist() == [record.key_length for record in records]
    assert heads.body_starts.tolist() == [
        start + len(encode_varint(record.length)) for start, record in zip(starts, records, strict=True)
    ]
    assert heads.key_starts.tolist() == [
        start + len(record.head) for start, record in zip(starts, records, strict=True)
    ]


def test_no_heads() -> None:
    heads = read_heads(np.zeros(8, np.uint8), np.zeros(0, np.int64))
    assert [len(column) for column in heads] == [0] * 6


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_number_without_an_end_is_noticed(place: int) -> None:
    parts = [encode_varint(number) for number in SHORT]
    parts[place] = b"\xff" * 10 + b"\x01"
    parts.insert(1, b"\0")
    with pytest.raises(CorruptBatchError, match="varint"):
        read_heads(np.frombuffer(b"".join(parts) + bytes(16), np.uint8), np.zeros(1, np.int64))


def test_short_heads_are_read_with_one_look_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_slowly(*arguments: object) -> None:
        raise AssertionError("each number was looked for")

    monkeypatch.setattr("ottla.records.arrays.heads.read_varints", read_slowly)
    heads, _ = read([SHORT, SHORT._replace(timestamp_delta=64), SHORT._replace(length=1 << 13)], 8)
    assert heads.key_lengths.tolist() == [16, 16, 16]
