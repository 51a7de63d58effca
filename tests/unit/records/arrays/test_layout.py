"""Fields of records by the column: what is whole is read, and what a loop would refuse is refused."""

from __future__ import annotations

import numpy as np
import pytest

from ottla.base.errors import CorruptBatchError
from ottla.records.arrays.layout import MAX_INT64, Payload, Payloads, RecordLayout
from ottla.records.batch import LOG_APPEND_TIME_BIT, read_header
from ottla.records.builder import build_batch
from ottla.records.varint import encode_varint

HEADER = read_header(build_batch([(b"k", b"v", (), 1_000)]))


def record(
    delta: int, key: bytes | None = b"k", value: bytes | None = b"v", *, timestamp: int = 0, more: int = 0
) -> bytes:
    """`more` is by how many bytes its length is wrong."""
    body = b"\0" + encode_varint(timestamp) + encode_varint(delta)
    for part in (key, value):
        body += encode_varint(-1) if part is None else encode_varint(len(part)) + part
    body += b"\0"
    return encode_varint(len(body) + more) + body


def layout(*batches: list[bytes], **fields: int) -> RecordLayout:
    data = b"".join(one for records in batches for one in records)
    payloads, start = [], 0
    for records in batches:
        end = start + sum(map(len, records))
        last = {"last_offset_delta": max(0, len(records) - 1), "record_count": len(records)}
        payloads.append(Payload(HEADER._replace(**(last | fields)), start, end))
        start = end
    return RecordLayout(data, np.frombuffer(data + bytes(8), np.uint8), Payloads.of(payloads))


def test_null_and_empty_keys_and_values() -> None:
    found = layout([record(0, None, b""), record(1, b"", None)], [record(0, b"key", b"value")], base_offset=50)
    assert found.key_lengths.tolist() == [-1, 0, 3]
    assert found.value_lengths.tolist() == [0, -1, 5]
    assert found.offsets.tolist() == [50, 51, 50]
    assert (found.first_offset, found.last_offset) == (50, 51)
    assert [found.are_within(*bounds) for bounds in ((50, 52), (50, None), (51, None), (50, 51))] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("deltas", [[0, 0], [1, 0], [-1, 0], [0, 1, 1]])
def test_offsets_rise_from_record_to_record(deltas: list[int]) -> None:
    with pytest.raises(CorruptBatchError, match="do not rise"):
        layout([record(delta) for delta in deltas], last_offset_delta=9)


def test_offsets_may_have_gaps_and_end_before_the_batch_does_but_not_beyond() -> None:
    records = [record(2), record(7)]
    assert layout(records, last_offset_delta=7).last_offset - HEADER.base_offset == 7
    assert layout(records, last_offset_delta=8).last_offset - HEADER.base_offset == 7
    with pytest.raises(CorruptBatchError, match="beyond the last one of its batch"):
        layout(records, last_offset_delta=6)


def test_offsets_have_64_bits() -> None:
    assert layout([record(0), record(1)], base_offset=MAX_INT64 - 1).last_offset == MAX_INT64
    with pytest.raises(CorruptBatchError, match="beyond 64 bits"):
        layout([record(0), record(1)], base_offset=MAX_INT64)


@pytest.mark.parametrize(
    ("base", "delta", "is_good"),
    [
        (MAX_INT64, 0, True),
        (MAX_INT64, 1, False),
        (MAX_INT64 - 5, 5, True),
        (-MAX_INT64 - 1, -1, False),
        (-MAX_INT64, -1, True),
        (MAX_INT64, -1, True),
    ],
)
def test_timestamps_have_64_bits(base: int, delta: int, is_good: bool) -> None:
    records = [record(0, timestamp=0), record(1, timestamp=delta)]
    if is_good:
        assert layout(records, base_timestamp=base).timestamps.tolist() == [base, base + delta]
    else:
        with pytest.raises(CorruptBatchError, match="timestamp"):
            layout(records, base_timestamp=base)
    appended = layout(records, base_timestamp=base, attributes=LOG_APPEND_TIME_BIT, max_timestamp=77)
    assert appended.timestamps.tolist() == [77, 77]


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("number", [0, 1])
def test_a_record_ends_where_its_length_says(more: int, number: int) -> None:
    """The batch ends where its records do, all the same: one is as much longer as the other is shorter."""
    records = [record(index, more=more if index == number else -more) for index in range(2)]
    with pytest.raises((CorruptBatchError, IndexError)):
        layout(records)


def test_a_record_without_even_a_count_of_headers_is_refused() -> None:
    whole = record(0)
    short = encode_varint(len(whole) - 2) + whole[1:-1]
    with pytest.raises(CorruptBatchError, match="where its length says"):
        layout([short])
    with pytest.raises(CorruptBatchError, match="where its length says"):
        layout([short, record(1)])


def test_a_record_with_a_byte_too_many_is_refused() -> None:
    whole = record(0)
    long = encode_varint(len(whole)) + whole[1:] + b"\0"
    for records in ([long], [long, long.replace(b"\0\0\0", b"\0\0\2", 1)], [record(0), long]):
        with pytest.raises(CorruptBatchError):
            layout(records)


def test_a_record_with_nothing_but_the_count_of_its_headers_is_refused() -> None:
    claims = record(0)[:-1] + b"\2"
    with pytest.raises(CorruptBatchError, match="where its length says"):
        layout([claims])


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_length_below_that_of_null_is_refused(part: str) -> None:
    head = b"\0" + encode_varint(0) + encode_varint(0)
    body = head + (encode_varint(-2) if part == "key" else encode_varint(-1) + encode_varint(-2)) + b"\0\0"
    with pytest.raises(CorruptBatchError, match=part):
        layout([encode_varint(len(body)) + body])
