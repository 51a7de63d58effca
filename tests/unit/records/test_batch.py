from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import CorruptBatchError
from ottla.records.batch import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    TimestampType,
    assign_offsets,
    crc_is_valid,
    increment_sequence,
    iter_headers,
    iter_ordered_headers,
    pack_batch,
    pack_in_place,
    pack_plain_batch,
    peek_attributes,
    peek_first_offset,
    read_header,
    set_append_time,
    set_max_timestamp,
    set_producer,
)
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.reader import read_records

RECORDS = [(b"k", b"v1", (), 1000), (None, b"v2", (("h", b"x"),), 3000), (b"k", None, (), 2000)]


def three_batches() -> bytes:
    return b"".join(build_batch(RECORDS, base_offset=10 * i) for i in range(3))


def test_a_batch_that_nobody_has_numbered_says_so() -> None:
    header = read_header(build_batch(RECORDS))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.partition_leader_epoch == -1
    assert not header.has_producer_id and header.last_sequence == NO_SEQUENCE


def test_every_truncated_prefix_gives_the_whole_batches_before_the_cut() -> None:
    data = three_batches()
    size = len(data) // 3
    for cut in range(len(data) + 1):
        assert [h.base_offset for _, h in iter_headers(data[:cut])] == [0, 10, 20][: cut // size]
        assert [pos for pos, _ in iter_headers(data, 0, cut)] == [0, size, 2 * size][: cut // size]


def test_iteration_can_start_within_a_buffer() -> None:
    data = b"junk" + three_batches()
    assert [h.base_offset for _, h in iter_headers(memoryview(data), 4)] == [0, 10, 20]


@pytest.mark.parametrize("length", [-1, 0, 14, HEADER_SIZE - 12 - 1, -(2**31)])
def test_a_length_no_batch_can_have_is_noticed(length: int) -> None:
    data = bytearray(three_batches())
    second = len(data) // 3
    data[second + 8 : second + 12] = length.to_bytes(4, "big", signed=True)
    found = iter_headers(data)
    assert next(found)[0] == 0
    with pytest.raises(CorruptBatchError, match="length"):
        next(found)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_format_is_noticed(magic: int) -> None:
    data = bytearray(three_batches())
    data[16] = magic
    with pytest.raises(CorruptBatchError, match="magic"):
        list(iter_headers(data))


def test_a_short_entry_of_an_older_format_is_noticed() -> None:
    entry = bytes(8) + (14).to_bytes(4, "big") + bytes(14)
    with pytest.raises(CorruptBatchError, match="magic"):
        list(iter_headers(entry))


def test_a_batch_of_a_log_that_starts_before_the_last_one_ends_is_noticed() -> None:
    data = bytearray(three_batches())
    assert [header.base_offset for _, header in iter_ordered_headers(data)] == [0, 10, 20]
    second = len(data) // 3
    data[second] ^= 0x40
    found = iter_ordered_headers(data)
    assert [next(found)[1].base_offset, next(found)[1].base_offset] == [0, 10 + (0x40 << 56)]
    with pytest.raises(CorruptBatchError, match=r"the batch at offset 20 comes after offset 46116860184273"):
        next(found)


def test_a_header_that_is_cut_short() -> None:
    data = three_batches()
    for size in range(HEADER_SIZE):
        with pytest.raises(CorruptBatchError, match=f"{size} are left"):
            read_header(data[:size])
    with pytest.raises(CorruptBatchError):
        read_header(data, len(data) - HEADER_SIZE + 1)


def test_a_flipped_bit_breaks_the_checksum_or_lies_outside_it(golden_batch: dict[str, Any]) -> None:
    original = golden_batch["bytes"]
    for position in range(len(original)):
        data = bytearray(original)
        data[position] ^= 1 << position % 8
        outside = position < 8 or 12 <= position < 17
        assert crc_is_valid(memoryview(data), read_header(data)) == outside, position


def test_the_checksum_of_a_batch_that_is_cut_or_claims_nonsense_is_not_valid() -> None:
    data = build_batch(RECORDS)
    header = read_header(data)
    assert not crc_is_valid(memoryview(data)[:-1], header)
    assert not crc_is_valid(memoryview(data), header._replace(batch_length=5))
    assert crc_is_valid(memoryview(data + b"more"), header)


def test_offsets_are_assigned_without_touching_the_rest() -> None:
    data = bytearray(b"xx" + build_batch(RECORDS) + b"yy")
    before = bytes(data)
    assign_offsets(memoryview(data), 2, 2**40, 77)
    header = read_header(data, 2)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 77)
    assert (header.last_offset, header.next_offset) == (2**40 + 2, 2**40 + 3)
    assert crc_is_valid(memoryview(data)[2:], header)
    changed = [i for i, (a, b) in enumerate(zip(before, data, strict=True)) if a != b]
    assert all(2 <= i < 10 or 14 <= i < 18 for i in changed)


@pytest.mark.parametrize("codec", list(Codec))
def test_append_time_replaces_every_timestamp(codec: Codec) -> None:
    data = bytearray(b"xx" + build_batch(RECORDS, codec=codec) + b"yy")
    set_append_time(data, 2, len(data) - 4, 9999)
    header = read_header(data, 2)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.codec is codec
    assert crc_is_valid(memoryview(data)[2:], header)
    assert [r.timestamp for r in read_records(memoryview(data)[2:])] == [9999] * 3


def test_max_timestamp_and_producer_are_patched_under_a_new_checksum() -> None:
    data = bytearray(build_batch(RECORDS))
    set_max_timestamp(data, 0, len(data), 5000)
    set_producer(memoryview(data), 0, len(data), producer_id=7, producer_epoch=3, base_sequence=MAX_SEQUENCE - 1)
    header = read_header(data)
    assert crc_is_valid(data, header)
    assert header.max_timestamp == 5000
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, MAX_SEQUENCE - 1)
    assert header.has_producer_id
    assert header.last_sequence == 0


def test_a_codec_nobody_has_is_corrupt() -> None:
    header = read_header(build_batch(RECORDS))
    assert header.codec is Codec.NONE
    for number in (5, 6, 7):
        with pytest.raises(CorruptBatchError, match=str(number)):
            _ = header._replace(attributes=number).codec


def test_what_a_plain_batch_does_not_have() -> None:
    header = read_header(build_batch(RECORDS))
    assert not header.has_producer_id
    assert not header.is_transactional
    assert not header.is_control
    assert header.delete_horizon_ms is None
    assert header.last_sequence == NO_SEQUENCE
    assert header.timestamp_type is TimestampType.CREATE_TIME


def test_a_plain_batch_is_the_one_that_the_builder_makes() -> None:
    records = [(b"k", b"value", (), 5000), (None, b"", (), 5000), (b"", None, (("h", b"x"),), 5000)]
    built = build_batch(records, base_offset=77, partition_leader_epoch=9)
    assert pack_plain_batch(built[HEADER_SIZE:], len(records), 5000, 77, 9) == built


@pytest.mark.parametrize("pos", [0, 5])
def test_attributes_are_peeked_at_as_soon_as_they_are_there(pos: int) -> None:
    data = bytes(pos) + build_batch(RECORDS, codec=Codec.LZ4, transactional=True)
    assert peek_attributes(data, pos) == 0x13
    assert peek_attributes(data[: pos + 23], pos) == 0x13
    assert peek_attributes(data[: pos + 22], pos) == 0
    assert peek_attributes(b"") == 0
    assert peek_attributes(data[pos:]) == 0x13


def test_the_first_offset_is_peeked_at_where_a_batch_begins() -> None:
    data = build_batch(RECORDS, base_offset=2**40 + 3)
    assert peek_first_offset(data) == 2**40 + 3
    assert peek_first_offset(data[:HEADER_SIZE]) == 2**40 + 3
    assert peek_first_offset(data[: HEADER_SIZE - 1]) is None


def test_the_horizon_of_tombstones_is_where_the_first_time_was() -> None:
    header = read_header(build_batch(RECORDS))
    assert header._replace(attributes=DELETE_HORIZON_BIT).delete_horizon_ms == 1000
    assert header._replace(attributes=0xBF).delete_horizon_ms is None
    assert DELETE_HORIZON_BIT == 0x40


@pytest.mark.parametrize(("producer_id", "has_one"), [(-2, False), (-1, False), (0, True), (1, True)])
def test_producer_ids_begin_with_0(producer_id: int, has_one: bool) -> None:
    assert read_header(build_batch(RECORDS, producer_id=producer_id)).has_producer_id is has_one


def test_the_last_sequence_counts_from_the_first() -> None:
    header = read_header(build_batch(RECORDS, base_sequence=0))
    assert header.last_sequence == 2
    assert read_header(build_batch(RECORDS, base_sequence=MAX_SEQUENCE)).last_sequence == 1


def test_a_batch_without_records_has_a_checksum_that_holds() -> None:
    header = read_header(build_batch(RECORDS))._replace(record_count=0)
    data = pack_batch(header, b"")
    assert len(data) == HEADER_SIZE
    assert crc_is_valid(data, read_header(data))
    assert [position for position, _ in iter_headers(data * 2)] == [0, HEADER_SIZE]


def test_records_that_are_in_place_get_their_header_before_them() -> None:
    data = build_batch(RECORDS)
    header = read_header(data)
    for options in ({}, {"checksum": True}):
        made = bytearray(HEADER_SIZE) + data[HEADER_SIZE:]
        pack_in_place(header._replace(batch_length=0, magic=0, crc=5), made, **options)
        assert made == data
    pack_in_place(header, made, checksum=False)
    assert read_header(made) == header._replace(crc=0)


@pytest.mark.parametrize(
    ("left", "magic", "complaint"),
    [(12, 2, "impossible length"), (16, 2, "impossible length"), (17, 2, "impossible length"), (17, 1, "of magic 2")],
)
def test_what_ends_soon_is_judged_by_what_there_is(left: int, magic: int, complaint: str) -> None:
    first = build_batch(RECORDS)
    data = first + (bytes(8) + (48).to_bytes(4, "big") + bytes([9, 9, 9, 9, magic]))[:left]
    with pytest.raises(CorruptBatchError, match=complaint):
        list(iter_headers(data))
    assert len(list(iter_headers(data[: len(first) + 11]))) == 1
    assert len(list(iter_headers(data, 0, len(first) + 11))) == 1


def test_the_shortest_length_of_a_batch() -> None:
    for length, is_good in ((48, False), (49, True), (50, True)):
        data = bytearray(build_batch(RECORDS)[: HEADER_SIZE + 1])
        data[8:12] = length.to_bytes(4, "big")
        if is_good:
            assert [header.size for _, header in iter_headers(data[: length + 12])] == [length + 12]
        else:
            with pytest.raises(CorruptBatchError, match="impossible length 48"):
                list(iter_headers(data))


def test_batches_of_a_log_may_follow_at_once_and_after_gaps() -> None:
    first, second = build_batch(RECORDS, base_offset=7), build_batch(RECORDS, base_offset=10)
    assert len(list(iter_ordered_headers(first + second))) == 2
    assert len(list(iter_ordered_headers(first + build_batch(RECORDS, base_offset=99)))) == 2
    with pytest.raises(CorruptBatchError, match="the batch at offset 9 comes after offset 9"):
        list(iter_ordered_headers(first + build_batch(RECORDS, base_offset=9)))


def test_timestamp_types_have_the_names_of_the_setting() -> None:
    for kind in TimestampType:
        assert TimestampType.from_name(kind.config_name) is kind
    with pytest.raises(ValueError, match="createtime"):
        TimestampType.from_name("createtime")


@given(st.integers(0, MAX_SEQUENCE), st.integers(0, MAX_SEQUENCE))
def test_sequences_go_round(sequence: int, by: int) -> None:
    later = increment_sequence(sequence, by)
    wraps = sequence > MAX_SEQUENCE - by
    assert later == (by - (MAX_SEQUENCE - sequence) - 1 if wraps else sequence + by)
