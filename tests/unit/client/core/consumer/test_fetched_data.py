"""The batches of one answer to a fetch: what is shown of each, where reading goes on, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.fetched_data import FetchedData, RecordClasses
from ottla.client.errors import CorruptRecordError
from ottla.records.batch import TimestampType
from ottla.records.builder import build_batch
from ottla.records.control import end_transaction_marker

PLACE = TopicPartition("t", 3)


def batch(base_offset: int, count: int = 2, producer_id: int = -1, **fields: Any) -> bytes:
    rows = [(None, b"%d" % (base_offset + number), (), 1000) for number in range(count)]
    if producer_id >= 0:
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": True, **fields}
    return build_batch(rows, base_offset=base_offset, **fields)


def marker(base_offset: int, producer_id: int, *, commit: bool = False) -> bytes:
    return end_transaction_marker(producer_id, 0, commit, 0, 1000, base_offset=base_offset)


def damaged(data: bytes) -> bytes:
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


def fetched(
    *batches: bytes,
    start_offset: int = 0,
    aborted: Sequence[tuple[int, int]] | None = None,
    check_crcs: bool = True,
) -> FetchedData:
    return FetchedData(
        PLACE,
        b"".join(batches),
        start_offset=start_offset,
        aborted=aborted,
        check_crcs=check_crcs,
        classes=RecordClasses(PLACE),
    )


def shown(data: FetchedData) -> list[tuple[list[int], int]]:
    """The offsets of each batch's records, and where reading goes on after it."""
    found = []
    while (entry := data.next_batch()) is not None:
        found.append(([record.offset for record in entry[1]], data.next_offset))
    return found


def offsets(data: FetchedData) -> list[int]:
    return [offset for batch_offsets, _ in shown(data) for offset in batch_offsets]


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (0, [([0, 1], 2), ([2, 3, 4], 5)]),
        (1, [([1], 2), ([2, 3, 4], 5)]),
        (2, [([], 2), ([2, 3, 4], 5)]),
        (3, [([], 3), ([3, 4], 5)]),
        (4, [([], 4), ([4], 5)]),
        (9, [([], 9), ([], 9)]),
    ],
)
def test_nothing_is_shown_from_before_the_start(start_offset: int, expected: list[tuple[list[int], int]]) -> None:
    data = fetched(batch(0), batch(2, 3), start_offset=start_offset)
    assert data.next_offset == start_offset
    assert shown(data) == expected
    assert data.next_batch() is None and data.arrival == 0
    assert data.byte_count == len(batch(0)) + len(batch(2, 3))


@pytest.mark.parametrize(("partition_leader_epoch", "told"), [(-1, None), (0, 0), (7, 7)])
@pytest.mark.parametrize(
    ("append_time_ms", "kind", "timestamp"),
    [(None, TimestampType.CREATE_TIME, 1000), (2000, TimestampType.LOG_APPEND_TIME, 2000)],
)
def test_records_know_what_their_batch_says_of_them(
    partition_leader_epoch: int, told: int | None, append_time_ms: int | None, kind: TimestampType, timestamp: int
) -> None:
    fields: dict[str, Any] = {
        "partition_leader_epoch": partition_leader_epoch,
        "log_append_time_ms": append_time_ms,
    }
    entry = fetched(batch(5, 1, **fields)).next_batch()
    assert entry is not None
    header, (record,) = entry
    assert (header.base_offset, header.partition_leader_epoch) == (5, partition_leader_epoch)
    assert (record.topic_partition, record.offset, record.timestamp) == (PLACE, 5, timestamp)
    assert (record.leader_epoch, record.timestamp_type) == (told, kind)
    assert (record.key, record.value, record.headers) == (None, b"5", ())


def test_records_of_one_origin_are_of_one_class() -> None:
    kinds = []
    data = fetched(
        batch(0, partition_leader_epoch=1),
        batch(2, partition_leader_epoch=1),
        batch(4, partition_leader_epoch=2),
        batch(6, partition_leader_epoch=1, log_append_time_ms=5),
        batch(8, partition_leader_epoch=1),
    )
    while (entry := data.next_batch()) is not None:
        kinds.append(type(entry[1][0]))
    assert kinds[0] is kinds[1] is kinds[4]
    assert len(set(kinds)) == 3


def test_what_is_put_back_is_given_once_more() -> None:
    data = fetched(batch(0, 3), batch(3, 1))
    entry = data.next_batch()
    assert entry is not None
    data.put_back(entry[0], entry[1][1:])
    again = data.next_batch()
    assert again is not None and again[0] is entry[0] and again[1] == entry[1][1:]
    assert data.next_offset == 3
    assert shown(data) == [([3], 4)]


def test_the_same_bytes_can_be_read_again() -> None:
    data = fetched(batch(0), batch(2, producer_id=1), start_offset=1, aborted=[(1, 2)], check_crcs=False)
    assert shown(data) == [([1], 2), ([], 4)]
    again = data.from_its_start()
    assert (again.topic_partition, again.aborted, again.check_crcs) == (PLACE, ((1, 2),), False)
    assert again.next_offset == 1 and shown(again) == [([1], 2), ([], 4)]


# Transactions


@pytest.mark.parametrize(
    ("aborted", "expected"),
    [
        (None, [0, 1, 3, 4, 6, 7]),
        ([], [0, 1, 3, 4, 6, 7]),
        ([(1, 0)], [3, 4, 6, 7]),
        ([(1, 1)], [3, 4, 6, 7]),
        ([(1, 2)], [0, 1, 3, 4, 6, 7]),
        ([(1, 3)], [0, 1, 6, 7]),
        ([(1, 4)], [0, 1, 6, 7]),
        ([(1, 0), (1, 3)], [6, 7]),
        ([(1, 3), (1, 0)], [6, 7]),
        ([(2, 0), (2, 3)], [0, 1, 3, 4, 6, 7]),
        ([(1, 8)], [0, 1, 3, 4, 6, 7]),
    ],
)
def test_records_of_aborted_transactions_are_hidden_until_the_marker(
    aborted: list[tuple[int, int]] | None, expected: list[int]
) -> None:
    data = fetched(
        batch(0, producer_id=1), marker(2, 1), batch(3, producer_id=1), marker(5, 1), batch(6), aborted=aborted
    )
    assert shown(data)[1][1] == 3, "the marker is passed over"
    again = data.from_its_start()
    assert offsets(again) == expected


def test_a_marker_ends_the_transaction_of_its_producer_only_and_only_if_it_aborts() -> None:
    others = [batch(0, 1, producer_id=1), batch(1, 1, producer_id=2), marker(2, 2), batch(3, 1, producer_id=1)]
    assert offsets(fetched(*others, batch(4, 1, producer_id=2), aborted=[(1, 0), (2, 1)])) == [4]
    committed = [batch(0, 1, producer_id=1), marker(1, 1, commit=True), batch(2, 1, producer_id=1)]
    assert offsets(fetched(*committed, aborted=[(1, 0)])) == []


def test_a_transaction_that_ends_before_the_start_is_over() -> None:
    data = fetched(
        batch(0, producer_id=1), marker(2, 1), batch(3, producer_id=1), batch(5), start_offset=3, aborted=[(1, 0)]
    )
    assert shown(data) == [([], 3), ([], 3), ([3, 4], 5), ([5, 6], 7)]


def test_records_outside_of_transactions_are_shown_whoever_wrote_them() -> None:
    plain = batch(0, producer_id=1, transactional=False)
    assert offsets(fetched(plain, batch(2, producer_id=1), aborted=[(1, 0)])) == [0, 1]


# Damage


def test_a_damaged_batch_from_before_the_start_is_nobodys_business() -> None:
    assert shown(fetched(damaged(batch(0)), batch(2), start_offset=2)) == [([], 2), ([2, 3], 4)]


@pytest.mark.parametrize("is_control", [False, True])
def test_a_damaged_batch_is_told_of_each_time(is_control: bool) -> None:
    second = marker(2, 1) if is_control else batch(2, 3)
    data = fetched(batch(0), damaged(second), batch(5), aborted=[] if is_control else None)
    assert data.next_batch() is not None
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="its checksum is wrong") as found:
            data.next_batch()
        assert (found.value.topic_partition, found.value.offset) == (PLACE, 2)
        assert found.value.next_offset == (3 if is_control else 5)
    assert data.next_offset == 2


@pytest.mark.parametrize(("aborted", "is_told"), [(None, False), ([], False), ([(1, 0)], True)])
def test_a_marker_of_no_kind_matters_to_who_waits_for_it(aborted: list[tuple[int, int]] | None, is_told: bool) -> None:
    fields: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "transactional": True, "control": True}
    odd = build_batch([(b"\0", None, (), 1)], base_offset=2, **fields)
    data = fetched(batch(0, producer_id=1), odd, aborted=aborted)
    assert data.next_batch() is not None
    if is_told:
        with pytest.raises(CorruptRecordError, match="the key of a control record is too short") as found:
            data.next_batch()
        assert (found.value.offset, found.value.next_offset) == (2, 3)
    else:
        assert shown(data) == [([], 3)]


@pytest.mark.parametrize(("start_offset", "bad_offset"), [(0, 2), (7, 7)])
def test_after_the_last_batch_that_makes_sense_the_rest_is_an_error(start_offset: int, bad_offset: int) -> None:
    data = fetched(batch(0), bytes(100), start_offset=start_offset)
    assert [header.base_offset for _, header in data.batches] == [0]
    assert data.next_batch() is not None
    for _ in range(2):
        with pytest.raises(CorruptRecordError) as found:
            data.next_batch()
        assert (found.value.offset, found.value.next_offset) == (bad_offset, bad_offset + 1)
    with pytest.raises(CorruptRecordError):
        shown(data.from_its_start())


def test_the_beginning_of_a_batch_is_what_the_next_answer_is_for() -> None:
    data = fetched(batch(0), batch(2)[:-1])
    assert shown(data) == [([0, 1], 2)]


@pytest.mark.parametrize("aborted", [[(1, 4), (2, 0)], [(2, 0), (1, 4)]])
def test_transactions_of_several_producers_are_aborted_where_they_began(aborted: list[tuple[int, int]]) -> None:
    data = fetched(batch(0, producer_id=2), batch(2, producer_id=1), batch(4, producer_id=1), batch(6), aborted=aborted)
    assert offsets(data) == [2, 3, 6, 7]
