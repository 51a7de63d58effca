"""Handing out what was fetched: how far positions move, and what is read again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import Cursor
from ottla.client.core.consumer.fetched_columns import chosen_columns, decode_claimed
from ottla.client.errors import ClientError

from .test_cursors import FIRST, SECOND, Reader, batch


def offsets(reader: Reader, most: int) -> list[int]:
    return [record.offset for record in reader.handout.take(most)]


def filled(*batches: bytes, **settings: object) -> tuple[Reader, Cursor]:
    reader = Reader(**settings)  # type: ignore[arg-type]
    for data in batches:
        reader.answer(data)
    (cursor,) = reader.cursors.all()
    return reader, cursor


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 6])
def test_records_come_in_pieces_of_any_size_and_the_position_follows(most: int) -> None:
    reader, cursor = filled(batch(0, 3, partition_leader_epoch=2) + batch(3, 2, partition_leader_epoch=4))
    found: list[int] = []
    while piece := offsets(reader, most):
        assert len(piece) <= most
        found += piece
        assert cursor.position == len(found)
        assert cursor.position_epoch == (2 if len(found) <= 3 else 4)
    assert found == [0, 1, 2, 3, 4]


def test_only_what_is_decoded_is_taken_without_decoding() -> None:
    reader, cursor = filled(batch(0) + batch(3))
    assert reader.handout.take_decoded(10) == [] and cursor.position == 0
    assert offsets(reader, 1) == [0]
    assert [record.offset for record in reader.handout.take_decoded(1)] == [1]
    assert [record.offset for record in reader.handout.take_decoded(10)] == [2]
    assert reader.handout.take_decoded(10) == [] and cursor.position == 3


@pytest.mark.parametrize("change", ["pause", "seek", "remove", "replace"])
def test_what_was_decoded_is_of_no_use_to_a_cursor_that_has_changed(change: str) -> None:
    reader, cursor = filled(batch(0, 4))
    assert offsets(reader, 1) == [0] and reader.handout.has_records()
    if change == "pause":
        cursor.is_paused = True
    elif change == "seek":
        cursor.seek(2)
    else:
        reader.cursors.replace([])
        if change == "replace":
            reader.cursors.replace([FIRST])
    assert not reader.handout.has_records()
    assert reader.handout.take_decoded(9) == [] and reader.handout.take(9) == []
    assert cursor.position == (2 if change == "seek" else 1), "what was not taken is read again"


def test_a_partition_that_is_paused_in_the_middle_goes_on_there() -> None:
    reader, cursor = filled(batch(0, 4))
    assert offsets(reader, 1) == [0]
    cursor.is_paused = True
    assert offsets(reader, 9) == []
    assert (cursor.position, cursor.fetch_offset) == (1, 1), "it is fetched again from there"
    cursor.is_paused = False
    reader.answer(batch(0, 4))
    assert offsets(reader, 9) == [1, 2, 3]


def test_a_poll_that_came_to_nothing_gives_back_what_it_took() -> None:
    reader, cursor = filled(batch(0, 3, partition_leader_epoch=5) + batch(3, 3))
    reader.handout.begin_poll()
    assert offsets(reader, 2) == [0, 1]
    reader.handout.begin_poll()
    assert offsets(reader, 1) == [2] and offsets(reader, 1) == [3]
    reader.handout.give_back()
    assert (cursor.position, cursor.position_epoch, cursor.fetch_offset) == (2, 5, 2)
    assert not cursor.chunks
    reader.answer(batch(0, 3) + batch(3, 3))
    assert offsets(reader, 9) == [2, 3, 4, 5]
    reader.handout.begin_poll()
    reader.handout.give_back()
    assert cursor.position == 6, "nothing was taken since"


def test_a_cursor_that_was_moved_since_is_left_where_it_is() -> None:
    reader, cursor = filled(batch(0, 3))
    reader.handout.begin_poll()
    assert offsets(reader, 2) == [0, 1]
    cursor.seek(50)
    reader.handout.give_back()
    assert cursor.position == 50


def test_a_claim_takes_whole_answers_until_it_has_enough() -> None:
    first, second = batch(0), batch(3)
    reader, cursor = filled(first, second)
    reader.handout.begin_poll()
    assert reader.handout.claim(0) == []
    (claimed,) = reader.handout.claim(1)
    assert claimed.cursor is cursor and claimed.turn == cursor.turn
    assert claimed.chunk.next_offset == 0 and claimed.chunk.byte_count == len(first)
    (claimed,) = reader.handout.claim(1 << 20)
    assert claimed.chunk.batches[0][1].base_offset == 3
    assert reader.handout.claim(1) == []
    cursor.position = 6
    reader.handout.give_back()
    assert cursor.position == 0, "a claim is given back like records"


@pytest.mark.parametrize(("bytes_max", "count"), [(0, 1), (1, 2)])
def test_a_claim_that_is_exactly_full_takes_no_more(bytes_max: int, count: int) -> None:
    first, second = batch(0), batch(3)
    reader, _ = filled(first, second)
    assert len(reader.handout.claim(len(first) + bytes_max)) == count


def test_a_claim_goes_on_where_records_were_taken() -> None:
    reader, cursor = filled(batch(0, 4))
    assert offsets(reader, 1) == [0]
    assert reader.handout.claim(1 << 20) == []
    assert cursor.fetch_offset == 1
    reader.answer(batch(0, 4))
    (claimed,) = reader.handout.claim(1 << 20)
    assert claimed.cursor.position == 1


# One record after the other


def read_some(reader: Reader, records: int, *, most: int = 10) -> list[int]:
    reader.handout.begin_poll()
    iterator = reader.handout.one_by_one(reader.handout.take(most))
    return [next(iterator).offset for _ in range(records)]


def test_in_an_iteration_each_record_counts_as_read_when_it_is_asked_for() -> None:
    reader, cursor = filled(batch(0, 3, partition_leader_epoch=1) + batch(3, 2, partition_leader_epoch=2))
    reader.handout.begin_poll()
    positions = [
        (record.offset, cursor.position, cursor.position_epoch)
        for record in reader.handout.one_by_one(reader.handout.take(10))
    ]
    assert positions == [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 4, 2), (4, 5, 2)]
    assert (cursor.position, cursor.position_epoch) == (5, 2)
    assert not reader.handout.begin_poll(), "it was read to its end"
    reader.handout.give_back_unread()
    assert cursor.position == 5


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_what_an_iteration_did_not_come_to_is_read_again(count: int) -> None:
    reader, cursor = filled(batch(0, 3) + batch(3, 2))
    assert read_some(reader, count) == list(range(count))
    assert reader.handout.begin_poll() is (count > 0), "an iteration that has not begun has left nothing"
    turn = cursor.turn
    reader.handout.give_back_unread()
    if count:
        assert cursor.position == cursor.fetch_offset == count
        assert (cursor.turn > turn) is (count < 5)
    assert not reader.handout.begin_poll()


def test_an_iteration_gives_no_more_of_a_partition_that_was_moved() -> None:
    reader, cursor = filled(batch(0, 3))
    reader.handout.begin_poll()
    iterator = reader.handout.one_by_one(reader.handout.take(10))
    assert next(iterator).offset == 0
    cursor.seek(40)
    assert list(iterator) == [] and cursor.position == 40


def test_an_older_iteration_does_not_undo_a_newer_poll() -> None:
    reader, cursor = filled(batch(0, 3))
    reader.handout.begin_poll()
    older = reader.handout.one_by_one(reader.handout.take(10))
    assert next(older).offset == 0
    reader.handout.give_back_unread()
    assert list(older) == []
    assert cursor.position == 1


# What stands in the way


def failing(reader: Reader, partition: TopicPartition) -> ClientError:
    error = ClientError("in the way", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    reader.cursors.of(partition).complain(error)
    return error


def test_an_error_waits_behind_what_was_fetched_before_it() -> None:
    reader, _ = filled(batch(0, 2))
    error = failing(reader, FIRST)
    assert offsets(reader, 1) == [0], "the rest of the batch is first"
    assert offsets(reader, 1) == [1]
    assert reader.handout.has_records()
    with pytest.raises(ClientError) as raised:
        reader.handout.take(1)
    assert raised.value is error
    assert not reader.handout.has_records(), "it was told, and may pass"
    with pytest.raises(ClientError):
        reader.handout.take(1)
    with pytest.raises(ClientError):
        reader.handout.claim(1)


def test_the_error_of_a_paused_partition_is_not_told() -> None:
    reader, cursor = filled()
    failing(reader, FIRST)
    cursor.is_paused = True
    assert not reader.handout.has_records()
    assert reader.handout.take(1) == [] and reader.handout.claim(1) == []
    cursor.is_paused = False
    assert reader.handout.has_records()
    with pytest.raises(ClientError):
        reader.handout.claim(1)


def test_an_error_that_has_ended_reading_ends_every_poll() -> None:
    reader, cursor = filled()
    cursor.halt(ClientError("for good"))
    for _ in range(2):
        assert reader.handout.has_records()
        with pytest.raises(ClientError, match="for good"):
            reader.handout.take(1)
    cursor.complain(ClientError("another", code=ErrorCode.INVALID_REQUEST))
    assert not cursor.error_is_told
    cursor.error_is_told = True
    cursor.complain(ClientError("the same again", code=ErrorCode.INVALID_REQUEST))
    assert cursor.error_is_told and "another" in str(cursor.error), "once, as long as nothing else happens"


def test_damage_is_told_after_what_was_good_and_a_poll_of_others_goes_on() -> None:
    damaged = bytearray(batch(3))
    damaged[-1] ^= 1
    reader, cursor = filled(batch(0) + bytes(damaged))
    assert offsets(reader, 9) == [0, 1, 2], "what was taken is not lost to an error behind it"
    for _ in range(2):
        with pytest.raises(ClientError, match="offset 3"):
            reader.handout.take(9)
    assert cursor.position == 3


def test_partitions_that_are_not_assigned_have_nothing_to_say() -> None:
    reader, _ = filled(batch(0))
    reader.cursors.replace([SECOND])
    assert not reader.handout.has_records() and reader.handout.take(1) == []


@pytest.mark.parametrize("as_columns", range(8))
def test_records_go_on_where_columns_have_ended(as_columns: int) -> None:
    reader, cursor = filled(batch(0, 4) + batch(4, 3))
    columns = decode_claimed(reader.handout.claim(1 << 20), chosen_columns(["offset"]), as_columns)
    assert columns["offset"].to_pylist() == list(range(as_columns))
    assert offsets(reader, 99) == list(range(as_columns, 7)) and cursor.position == 7


@pytest.mark.parametrize("has_more", [False, True])
def test_an_answer_that_is_gone_when_it_has_been_read_takes_no_other_with_it(has_more: bool) -> None:
    """The handler of a signal may move a cursor at any time."""
    reader, cursor = filled(batch(0))
    (fetched,) = cursor.chunks

    def moved() -> None:
        cursor.seek(0)
        if has_more:
            cursor.chunks.append(fetched)

    last: Any = SimpleNamespace(next_batch=moved, arrival=0)
    cursor.chunks.clear()
    cursor.chunks.append(last)
    assert offsets(reader, 9) == ([0, 1, 2] if has_more else [])


def test_a_partition_that_was_moved_before_the_iteration_stays_where_it_is() -> None:
    reader, cursor = filled(batch(0, 3))
    reader.handout.begin_poll()
    records = reader.handout.take(10)
    cursor.seek(40)
    assert [record.offset for record in reader.handout.one_by_one(records)] == [0, 1, 2]
    assert cursor.position == 40


def test_records_of_a_partition_that_has_gone_are_given_all_the_same() -> None:
    reader, _ = filled(batch(0, 3))
    reader.handout.begin_poll()
    records = reader.handout.take(10)
    reader.cursors.replace([])
    assert [record.offset for record in reader.handout.one_by_one(records)] == [0, 1, 2]


def test_of_the_last_large_batches_some_records_are_kept() -> None:
    reader, _ = filled()
    sizes = [255, 256, 257, 513, 255, 256, 256, 256, 256, 256, 300]
    start = 0
    for size in sizes:
        reader.answer(batch(start, size))
        assert len(reader.handout.take(size)) == size
        start += size
    kept = [[record.offset for record in records] for records in reader.handout._kept]
    assert [len(offsets) for offsets in kept] == [2, 3, 1, 1, 1, 1, 1, 2]
    assert kept[1] == [255 + 256 + 257, 255 + 256 + 257 + 256, 255 + 256 + 257 + 512]


@pytest.mark.parametrize(("epoch", "committed"), [(-1, None), (0, 0), (3, 3)])
def test_what_is_read_again_is_read_under_the_epochs_it_was_read_under(epoch: int, committed: int | None) -> None:
    reader, cursor = filled(batch(0, 3, partition_leader_epoch=epoch))
    cursor.leader_epoch = 4
    assert offsets(reader, 1) == [0]
    reader.handout.begin_poll()
    assert offsets(reader, 1) == [1]
    reader.handout.give_back()
    assert (cursor.position, cursor.position_epoch, cursor.fetch_epoch, cursor.leader_epoch) == (1, epoch, epoch, 4)
    assert cursor.committable() == (1, "", committed)
