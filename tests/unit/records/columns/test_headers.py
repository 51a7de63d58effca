"""The headers of records as a column, byte by byte: what is read, and which lies are refused."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import CorruptBatchError

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from ottla.records.columns.headers import _ROUNDS, read_header_columns  # noqa: E402

HEADER = b"\x02k\x02v"
WITHOUT_VALUE = b"\x02n\x01"
EMPTY = b"\x00\x00"


def count(number: int) -> bytes:
    """As one byte of zigzag, which holds what is between -64 and 63."""
    return bytes([number << 1 if number >= 0 else (-number << 1) - 1])


def read(*records: bytes, beyond: bytes = b"\x00" * 8) -> Any:
    """Each of `records` is the end of one: a count, and headers; something else lies beyond them."""
    data = b"".join(records) + beyond
    ends = np.cumsum([len(record) for record in records])
    starts = ends - [len(record) for record in records]
    return read_header_columns(data, np.frombuffer(data, np.uint8), starts, ends).to_pylist()


def pair(key: str, value: bytes | None) -> dict[str, object]:
    return {"key": key, "value": value}


def test_headers_are_those_of_their_record() -> None:
    assert read(count(0), count(0)) == [None, None]
    assert read(count(2) + HEADER + WITHOUT_VALUE, count(0), count(1) + EMPTY, count(1) + HEADER) == [
        [pair("k", b"v"), pair("n", None)],
        None,
        [pair("", b"")],
        [pair("k", b"v")],
    ]


@pytest.mark.parametrize("number", [_ROUNDS - 1, _ROUNDS, _ROUNDS + 1, _ROUNDS + 2])
def test_however_many_headers_a_record_has(number: int) -> None:
    last = b"\x02l\x02w"
    assert read(count(1) + HEADER, count(number) + HEADER * (number - 1) + last) == [
        [pair("k", b"v")],
        [pair("k", b"v")] * (number - 1) + [pair("l", b"w")],
    ]


@pytest.mark.parametrize(
    "lie",
    [
        count(-1),
        count(-1) + HEADER,
        count(-1) + HEADER * _ROUNDS,
        count(1),
        count(1) + EMPTY[:1],
        count(3) + HEADER,
        count(63) + HEADER * 31,
    ],
)
def test_a_count_for_which_the_record_has_no_room(lie: bytes) -> None:
    for records in ([lie], [count(1) + HEADER, lie, count(2) + HEADER * 2]):
        with pytest.raises(CorruptBatchError, match="claims headers that it has no room for"):
            read(*records)


def test_the_least_room_that_headers_need() -> None:
    assert read(count(3) + EMPTY * 3) == [[pair("", b"")] * 3]


@pytest.mark.parametrize("before", [0, _ROUNDS], ids=["among the first", "among very many"])
@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        (b"\x01\x02v", "header key"),
        (b"\x03k\x02v", "header key"),
        (b"\x02k\x03v", "header value"),
        (b"\x02k\x02", "do not end where the record does"),
        (b"\x02k\x06v", "do not end where the record does"),
        (b"\x02k\x02vv", "do not end where the record does"),
        (b"\x02k\x01v", "do not end where the record does"),
    ],
)
def test_a_header_that_lies(before: int, header: bytes, complaint: str) -> None:
    with pytest.raises(CorruptBatchError, match=complaint):
        read(count(1) + HEADER, count(before + 1) + HEADER * before + header)


def test_headers_that_reach_into_the_next_record() -> None:
    """All in all they fill what there is, but not each its own."""
    long, short = count(2) + HEADER + b"\x02k\x08v", count(1) + HEADER
    with pytest.raises(CorruptBatchError, match="do not end where the record does"):
        read(long, short)
