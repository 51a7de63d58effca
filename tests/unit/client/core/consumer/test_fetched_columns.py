"""Columns of fetched data against reading it record by record: the same records, positions and refusals."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import Cursor
from ottla.client.core.consumer.fetched_data import FetchedData
from ottla.client.core.consumer.handout import ClaimedData
from ottla.client.errors import CorruptRecordError
from ottla.records.batch import assign_offsets
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker

pytest.importorskip("pyarrow")

from ottla.client.core.consumer.fetched_columns import CLAIM_BYTES, PIECE_BYTES, chosen_columns, decode_claimed

PARTITION = TopicPartition("t", 3)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """Batches of two producers, some in transactions that were aborted, under rising leader epochs."""
    data = b""
    offset = draw(st.integers(0, 100))
    epoch = 0
    aborted: list[tuple[int, int]] = []
    for number in range(draw(st.integers(1, 5))):
        epoch += draw(st.integers(0, 1))
        producer_id, fate = draw(st.integers(1, 2)), draw(st.sampled_from(["plain", "committed", "aborted"]))
        count = draw(st.integers(1, 5))
        batch = bytearray(
            build_batch(
                [(None, b"%d-%d" % (number, index), (), index) for index in range(count)],
                codec=draw(st.sampled_from([Codec.NONE, Codec.LZ4])),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=fate != "plain",
            )
        )
        assign_offsets(batch, 0, offset, epoch)
        data += batch
        if fate == "aborted":
            aborted.append((producer_id, offset))
        offset += count
        if fate != "plain":
            marker = bytearray(
                end_transaction_marker(producer_id, 0, commit=fate == "committed", coordinator_epoch=0, now_ms=0)
            )
            assign_offsets(marker, 0, offset, epoch)
            data += marker
            offset += 1
        offset += draw(st.integers(0, 2))
    return data, aborted


def fetched(cursor: Cursor, data: bytes, aborted: list[tuple[int, int]], start: int) -> FetchedData:
    return FetchedData(PARTITION, data, start_offset=start, aborted=aborted, check_crcs=True, classes=cursor.classes)


def by_record(chunk: FetchedData) -> tuple[list[tuple[int, bytes | None]], int, int, CorruptRecordError | None]:
    """What there is to see, the position after it, the last leader epoch, and what ended it."""
    rows: list[tuple[int, bytes | None]] = []
    epoch = -1
    try:
        while (found := chunk.next_batch()) is not None:
            epoch = found[0].partition_leader_epoch
            rows += [(record.offset, record.value) for record in found[1]]
    except CorruptRecordError as e:
        return rows, chunk.next_offset, epoch, e
    return rows, chunk.next_offset, epoch, None


@settings(max_examples=100)
@given(logs(), st.data())
def test_columns_give_what_records_give(log: tuple[bytes, list[tuple[int, int]]], draws: st.DataObject) -> None:
    data, aborted = log
    start = draws.draw(st.integers(0, 110))
    damaged_at = draws.draw(st.none() | st.integers(61, len(data) - 1))
    if damaged_at is not None:
        data = data[:damaged_at] + bytes([data[damaged_at] ^ 0x40]) + data[damaged_at + 1 :]
    cursor = Cursor(PARTITION)
    cursor.seek(start)
    expected, end, epoch, error = by_record(fetched(cursor, data, aborted, start))

    cursor.chunks.append(fetched(cursor, data, aborted, start))
    schema = chosen_columns(["value", "offset"])
    found: list[tuple[int, bytes | None]] = []
    raised: CorruptRecordError | None = None
    piece_bytes = draws.draw(st.sampled_from([1, 200, PIECE_BYTES]))
    while cursor.chunks and raised is None:
        claimed = [ClaimedData(cursor, cursor.turn, cursor.chunks.popleft())]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ottla.client.core.consumer.fetched_columns.PIECE_BYTES", piece_bytes)
            patch.setattr("ottla.client.core.consumer.fetched_columns.CLAIM_BYTES", piece_bytes)
            try:
                rows = decode_claimed(claimed, schema, draws.draw(st.none() | st.integers(1, 4)))
            except CorruptRecordError as e:
                raised = e
                continue
        found += [(row["offset"], row["value"]) for row in rows.to_pylist()]
        assert cursor.position > max((offset for offset, _ in found), default=-1)
    assert found == expected
    assert (None if raised is None else raised.offset) == (None if error is None else error.offset)
    assert cursor.position == max(start, end)
    if cursor.position > start:
        assert cursor.position_epoch == epoch
    if raised is not None:
        # It stays there until somebody seeks.
        assert len(cursor.chunks) == 1


@pytest.mark.parametrize("is_read", [False, True])
def test_what_was_read_is_gone_at_once(is_read: bool) -> None:
    """Its memory is needed for what is fetched next: the garbage collector would be long in coming."""
    chunk = fetched(Cursor(PARTITION), build_batch([(None, b"value", (), 0)]), [], 0)
    if is_read:
        by_record(chunk)
    reference = weakref.ref(chunk)
    gc.disable()
    try:
        del chunk
        assert reference() is None
    finally:
        gc.enable()


def test_a_cursor_that_was_moved_gets_nothing() -> None:
    cursor = Cursor(PARTITION)
    cursor.seek(0)
    chunk = fetched(cursor, build_batch([(None, b"old", (), 0)]), [], 0)
    claimed = [ClaimedData(cursor, cursor.turn, chunk)]
    cursor.seek(40)
    assert decode_claimed(claimed, chosen_columns(None)).num_rows == 0
    assert (cursor.position, len(cursor.chunks)) == (40, 0)


def test_what_is_not_given_goes_back_in_its_order() -> None:
    cursor = Cursor(PARTITION)
    cursor.seek(0)
    claimed: list[Any] = []
    for offset in (0, 1, 2):
        batch = bytearray(build_batch([(None, b"%d" % offset, (), 0)]))
        assign_offsets(batch, 0, offset, 0)
        claimed.append(ClaimedData(cursor, cursor.turn, fetched(cursor, bytes(batch), [], offset)))
    assert decode_claimed(claimed, chosen_columns(None), 1)["value"].to_pylist() == [b"0"]
    assert [chunk.next_offset for chunk in cursor.chunks] == [1, 2]


def test_a_large_answer_is_given_in_pieces() -> None:
    cursor = Cursor(PARTITION)
    cursor.seek(0)
    data = b""
    for offset in range(5):
        batch = bytearray(build_batch([(None, b"%d" % offset * (PIECE_BYTES * 2 // 5), (), 0)]))
        assign_offsets(batch, 0, offset, 0)
        data += batch
    cursor.chunks.append(fetched(cursor, data, [], 0))
    found: list[list[int]] = []
    while cursor.chunks:
        claimed = [ClaimedData(cursor, cursor.turn, cursor.chunks.popleft())]
        found.append(decode_claimed(claimed, chosen_columns(["offset"]))["offset"].to_pylist())
    assert found == [[0, 1], [2, 3], [4]]


def test_how_much_is_decoded_at_once() -> None:
    assert (CLAIM_BYTES, PIECE_BYTES) == (524_288, 2_097_152), "half a mebibyte, and two"


@pytest.mark.parametrize(("size", "together"), [(CLAIM_BYTES // 4, [[0, 1, 2, 3], [4]]), (CLAIM_BYTES, [[0], [1]])])
def test_small_answers_are_joined_and_large_ones_are_not(size: int, together: list[list[int]]) -> None:
    cursor = Cursor(PARTITION)
    cursor.seek(0)
    for offset in range(sum(map(len, together))):
        batch = bytearray(build_batch([(None, bytes(size), (), 0)]))
        assign_offsets(batch, 0, offset, 0)
        cursor.chunks.append(fetched(cursor, bytes(batch), [], offset))
    found: list[list[int]] = []
    while cursor.chunks:
        claimed = [ClaimedData(cursor, cursor.turn, chunk) for chunk in cursor.chunks]
        cursor.chunks.clear()
        found.append(decode_claimed(claimed, chosen_columns(["offset"]))["offset"].to_pylist())
    assert found == together


def test_columns_are_chosen_by_their_names() -> None:
    usual = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert chosen_columns(None).names == usual
    assert chosen_columns(iter(["headers", "key", "headers"])).names == ["headers", "key"]
    for nothing in ("value", "v"):
        with pytest.raises(ValueError, match="columns must be a list of names"):
            chosen_columns(nothing)
    with pytest.raises(ValueError, match="no column 'vaule'"):
        chosen_columns(["vaule"])


def three_claims() -> tuple[Cursor, list[ClaimedData]]:
    """Of two records each."""
    cursor = Cursor(PARTITION)
    cursor.seek(0)
    claims = []
    for number in range(3):
        batch = bytearray(build_batch([(None, b"%d" % (2 * number + index), (), 1) for index in range(2)]))
        assign_offsets(batch, 0, 2 * number, number)
        claims.append(ClaimedData(cursor, cursor.turn, fetched(cursor, bytes(batch), [], 0)))
    return cursor, claims


@pytest.mark.parametrize(
    ("rows_max", "given", "chunks_left"),
    [(None, 6, 0), (6, 6, 0), (5, 5, 1), (4, 4, 1), (3, 3, 2), (2, 2, 2), (1, 1, 3), (0, 0, 3)],
)
def test_several_claims_are_given_in_their_order_and_the_rest_goes_back(
    rows_max: int | None, given: int, chunks_left: int
) -> None:
    cursor, claims = three_claims()
    found = decode_claimed(claims, chosen_columns(["value", "offset"]), rows_max)
    assert found["offset"].to_pylist() == list(range(given))
    assert found.schema.names == ["value", "offset"]
    assert cursor.position == given
    assert len(cursor.chunks) in (chunks_left, chunks_left - (given % 2 == 0 and chunks_left > 0))
    if given:
        assert cursor.position_epoch == (given - 1) // 2
    rest = []
    while cursor.chunks:
        rest.append(ClaimedData(cursor, cursor.turn, cursor.chunks.popleft()))
    after = decode_claimed(rest, chosen_columns(["offset"]))
    assert after["offset"].to_pylist() == list(range(given, 6)), "nothing is lost, and nothing comes twice"


def test_what_was_claimed_before_the_cursor_was_moved_is_of_no_use() -> None:
    cursor, claims = three_claims()
    cursor.seek(50)
    found = decode_claimed(claims, chosen_columns(["offset"]))
    assert found.num_rows == 0 and found.schema.names == ["offset"]
    assert cursor.position == 50 and not cursor.chunks


@pytest.mark.parametrize("end_offset", [1, 2, 3, 6, 9])
def test_a_claim_is_read_to_where_the_reader_wants_to_end(end_offset: int) -> None:
    cursor, claims = three_claims()
    found = decode_claimed(claims, chosen_columns(["offset"]), None, {PARTITION: end_offset})
    assert found["offset"].to_pylist() == list(range(min(end_offset, 6)))
    assert cursor.position == min((end_offset + 1) // 2 * 2, 6), "nobody asks for the rest of a batch"


def test_what_comes_before_damage_is_given_first() -> None:
    cursor, claims = three_claims()
    damaged = bytearray(claims[1].chunk.data)
    damaged[-1] ^= 1
    claims[1] = claims[1]._replace(chunk=fetched(cursor, bytes(damaged), [], 0))
    assert decode_claimed(claims, chosen_columns(["offset"]))["offset"].to_pylist() == [0, 1]
    assert len(cursor.chunks) == 2
    again = [ClaimedData(cursor, cursor.turn, chunk) for chunk in cursor.chunks]
    cursor.chunks.clear()
    with pytest.raises(CorruptRecordError, match="offset 2"):
        decode_claimed(again, chosen_columns(["offset"]))
    assert len(cursor.chunks) == 2 and cursor.position == 2, "it is reached again, unless somebody seeks past it"


def test_as_long_as_a_byte_is_left_one_more_answer_is_decoded() -> None:
    cursor = Cursor(PARTITION)
    cursor.seek(0)
    overhead = len(build_batch([(None, bytes(CLAIM_BYTES - 100), (), 0)])) - (CLAIM_BYTES - 100)
    claims = []
    for offset in range(3):
        batch = bytearray(build_batch([(None, bytes(CLAIM_BYTES - 1 - overhead), (), 0)]))
        assert len(batch) == CLAIM_BYTES - 1
        assign_offsets(batch, 0, offset, 0)
        claims.append(ClaimedData(cursor, cursor.turn, fetched(cursor, bytes(batch), [], offset)))
    assert decode_claimed(claims, chosen_columns(["offset"]))["offset"].to_pylist() == [0, 1]
    assert len(cursor.chunks) == 1


def test_an_answer_that_is_only_the_beginning_of_a_batch_is_gone_when_it_has_been_read() -> None:
    cursor = Cursor(PARTITION)
    cursor.seek(0)
    chunk = fetched(cursor, build_batch([(None, b"value", (), 0)])[:-1], [], 0)
    assert decode_claimed([ClaimedData(cursor, cursor.turn, chunk)], chosen_columns(["offset"])).num_rows == 0
    assert cursor.position == 0 and not cursor.chunks
