"""A batch of records: what it holds, where its records were stored, and whom it tells."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.producer.batch import RECORD_OVERHEAD, UNKNOWN_OFFSET, Batch, RecordMetadata, record_size
from ottla.client.core.producer.encoded_batch import EncodedBatch, EncodedRows
from ottla.client.errors import ClientError
from ottla.records.batch import HEADER_SIZE, NO_TIMESTAMP, read_header
from ottla.records.builder import RecordFields, build_batch
from ottla.records.compression import Codec
from ottla.records.reader import read_records


def value(data: bytes, timestamp_ms: int = 1) -> RecordFields:
    return None, data, (), timestamp_ms


def batch_of(*records: RecordFields, room: int = 10_000) -> Batch:
    made = Batch("t", 3, (0,), opened_ms=5, deadline_ms=105)
    made.room = room
    for record in records:
        made.add(record, record_size(record))
    return made


def test_records_are_counted_from_zero_and_measured() -> None:
    batch = batch_of()
    assert (batch.record_count, batch.size) == (0, HEADER_SIZE) and batch.records() == []
    assert batch.add(value(b"abc"), 17) == 0
    assert batch.add(value(b"d"), 15) == 1
    assert (batch.record_count, batch.size, batch.longest) == (2, HEADER_SIZE + 32, 3)
    assert batch.rows is None, "they are only values"
    assert batch.add((b"k", b"v", (), 2), 16) == 2
    assert batch.add(value(b"e"), 15) == 3
    assert batch.records() == [value(b"abc"), value(b"d"), (b"k", b"v", (), 2), value(b"e")]
    assert batch.topic_partition == TopicPartition("t", 3)


@pytest.mark.parametrize("record", [(b"k", b"v", (), 1), (None, None, (), 1), (None, b"v", [("h", b"1")], 1)])
def test_a_record_that_is_more_than_a_value_is_kept_in_full(record: Any) -> None:
    batch = batch_of(value(b"a"), record)
    assert batch.rows == [value(b"a"), record] and batch.values == []


@pytest.mark.parametrize("plain", [True, False])
def test_each_record_has_its_own_timestamp(plain: bool) -> None:
    times = [7, 7, 8, 8, 8, 6]
    batch = batch_of(*(value(b"v", time) for time in times))
    if not plain:
        batch.add((b"k", b"v", (), 9), 16)
        times = [*times, 9]
    assert [batch.timestamp_of(index) for index in range(len(times))] == times
    assert [record[3] for record in batch.records()] == times
    if plain:
        assert batch.marks == [(0, 7), (2, 8), (5, 6)]


@pytest.mark.parametrize(
    ("base_offset", "append_time_ms", "expected"),
    [
        (10, NO_TIMESTAMP, RecordMetadata("t", 3, 11, 7)),
        (10, 99, RecordMetadata("t", 3, 11, 99)),
        (0, 0, RecordMetadata("t", 3, 1, 0)),
        (UNKNOWN_OFFSET, NO_TIMESTAMP, RecordMetadata("t", 3, -1, 7)),
    ],
)
def test_where_a_record_was_stored(base_offset: int, append_time_ms: int, expected: RecordMetadata) -> None:
    batch = batch_of(value(b"a", 5), value(b"b", 7))
    batch.succeed(base_offset, append_time_ms)
    assert batch.done and batch.metadata(1) == expected


def test_callbacks_are_told_of_their_records_and_waiters_once() -> None:
    batch = batch_of(value(b"a"), value(b"b"))
    told: list[str] = []

    def first(metadata: object, error: object) -> None: ...

    def second(metadata: object, error: object) -> None: ...

    batch.callbacks += [(0, first), (1, second)]
    batch.add_waiter(lambda: told.append("early"))
    culprit, error = ClientError("this one"), ClientError("another one")
    batch.fail(error, {1: culprit})
    assert told == [] and not batch.announced and batch.reason is culprit
    assert list(batch.outcomes()) == [(first, None, error), (second, None, culprit)]
    for waiter in batch.announce():
        waiter()
    batch.add_waiter(lambda: told.append("late"))
    assert told == ["early", "late"]
    assert len(batch.announce()) == 1 and batch.announce() == []


def test_what_is_split_is_known_by_its_parts() -> None:
    batch = batch_of(*(value(b"%d" % number, number) for number in range(4)))
    head, tail = batch_of(value(b"0", 0)), batch_of(*(value(b"%d" % number, number) for number in (1, 2, 3)))
    inner = [batch_of(value(b"1", 1), value(b"2", 2)), batch_of(value(b"3", 3))]
    batch.split_into([head, tail])
    tail.split_into(inner)
    assert [batch.part_of(index) for index in range(4)] == [
        (head, 0),
        (inner[0], 0),
        (inner[0], 1),
        (inner[1], 0),
    ]
    head.succeed(50)
    assert list(head.settle_parents()) == []
    inner[0].succeed(60)
    inner[1].fail(ClientError("too large"))
    assert list(inner[1].settle_parents()) == [tail, batch]
    assert list(inner[0].settle_parents()) == [], "only the first gives them"
    assert [batch.metadata(index).offset for index in range(3)] == [50, 60, 61]
    assert [batch.error_of(index) is not None for index in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(("codec", "is_kept"), [(Codec.NONE, False), (Codec.GZIP, True)])
@pytest.mark.parametrize("plain", [True, False])
def test_what_was_compressed_is_kept_until_it_is_numbered_anew(codec: Codec, is_kept: bool, plain: bool) -> None:
    batch = batch_of(value(b"a" * 100), value(b"b") if plain else (b"k", b"b", (), 1))
    batch.number(7, 1, 5)
    first = batch.encode(codec, None, transactional=False)
    assert (batch.encode(codec, None, transactional=False) is first) is is_kept
    batch.number(7, 2, 0)
    again = bytes(batch.encode(codec, None, transactional=True))
    header = read_header(again)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)
    assert header.is_transactional and not read_header(bytes(first)).is_transactional
    assert [record.value for record in read_records(again)] == [b"a" * 100, b"b"]


# Lanes


@pytest.mark.parametrize(("spare", "places"), [(-1, None), (0, 1), (18, 1), (19, 2)])
def test_a_lane_has_as_many_places_as_there_is_room_for(spare: int, places: int | None) -> None:
    batch = batch_of(value(b"12345"))
    each = 5 + RECORD_OVERHEAD
    batch.room = batch.size + each + spare
    lane = batch.open_lane(1000, 1, 5, is_timed=False)
    assert (None if lane is None else lane.place_count) == places
    if lane is not None:
        assert (lane.base, lane.length, lane.timed_length) == (1, 5, 5)
        assert batch.size == HEADER_SIZE + each + lane.place_count * each, "as much as it can hold"
        batch.close_lane()
        assert batch.size == HEADER_SIZE + each and batch.lane is None


def test_a_lane_is_no_longer_than_it_may_be_and_only_for_values() -> None:
    batch = batch_of(value(b"1"))
    lane = batch.open_lane(3, 1, 5, is_timed=True)
    assert lane is not None and (lane.place_count, lane.length, lane.timed_length) == (3, -1, 1)
    batch.add((b"k", b"v", (), 1), 16)
    assert batch.open_lane(3, 1, 5, is_timed=False) is None


def test_what_a_lane_took_is_part_of_the_batch_when_it_is_closed() -> None:
    batch = batch_of(value(b"123"))
    lane = batch.open_lane(4, 1, 5, is_timed=False)
    assert lane is not None
    for data in (b"ab", b"c"):
        lane.places[next(lane.numbers)] = data
    batch.seal()
    assert batch.room == 0 and [record[1] for record in batch.records()] == [b"123", b"ab", b"c"]
    assert batch.size == HEADER_SIZE + 6 + 3 * RECORD_OVERHEAD


@pytest.mark.parametrize("plain", [True, False])
def test_what_an_interruption_has_left_is_made_to_agree(plain: bool) -> None:
    records = [value(b"a", 1), value(b"bcd", 2)]
    batch = batch_of(*records)
    if not plain:
        batch.add((b"k", b"v", (), 1), 16)
        records.append((b"k", b"v", (), 1))
    batch.marks.append((len(batch.values), 9))
    batch._lengths.append(77)
    batch.size = 1
    batch.longest = 99
    batch.repair()
    assert batch.size == HEADER_SIZE + sum(map(record_size, records))
    assert batch.records() == records
    if plain:
        assert batch.longest == 3 and batch.marks == [(0, 1), (1, 2)]
        assert bytes(batch.encode(Codec.NONE, None, transactional=False))


@pytest.mark.parametrize(
    ("record", "size"),
    [
        ((None, None, (), 1), RECORD_OVERHEAD),
        ((b"k", None, (), 1), RECORD_OVERHEAD + 1),
        ((b"k", b"vv", (), 1), RECORD_OVERHEAD + 3),
        ((None, b"", [("ä", None), ("b", b"123")], 1), RECORD_OVERHEAD + (2 + 4) + (1 + 3 + 4)),
    ],
)
def test_sizes(record: RecordFields, size: int) -> None:
    assert record_size(record) == size


# Batches that come as bytes


def test_rows_that_come_as_bytes_are_a_batch_that_takes_no_more() -> None:
    rows: list[RecordFields] = [(b"k", b"v", (), 5), (None, b"w", (), 6)]
    made: list[memoryview] = []

    def make() -> memoryview:
        made.append(memoryview(bytearray(build_batch(rows))))
        return made[-1]

    batch = EncodedBatch(TopicPartition("t", 1), (4,), EncodedRows(make, 123, 2), opened_ms=1, deadline_ms=9)
    assert (batch.record_count, batch.size, batch.room, batch.order) == (2, 123, 0, (4,))
    assert batch.topic_partition == ("t", 1) and (batch.opened_ms, batch.deadline_ms) == (1, 9)
    assert [record[:2] for record in batch.records()] == [(b"k", b"v"), (None, b"w")]
    assert [batch.timestamp_of(index) for index in range(2)] == [5, 6]
    batch.repair()
    assert read_header(batch.encode(Codec.NONE, None, transactional=False)).producer_id == -1
    batch.number(7, 2, 30)
    header = read_header(batch.encode(Codec.NONE, None, transactional=False))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 30)
    assert not batch.done
    batch.succeed(10)
    assert batch.done and batch.records() == [] and batch.timestamp_of(0) == NO_TIMESTAMP, (
        "the table is no longer needed"
    )
    assert batch.metadata(1) == RecordMetadata("t", 1, 11, NO_TIMESTAMP)


def test_a_new_batch_was_never_sent_and_nothing_has_become_of_it() -> None:
    batch = Batch("t", 3, (2, 1), opened_ms=5, deadline_ms=105)
    state = {name: getattr(batch, name) for name in Batch.__slots__ if not name.startswith("_")}
    assert state == {
        "announced": False,
        "attempts": 0,
        "base_offset": -1,
        "base_sequence": -1,
        "callbacks": [],
        "culprits": {},
        "deadline_ms": 105,
        "done": False,
        "error": None,
        "lane": None,
        "log_append_time_ms": -1,
        "longest": 0,
        "marks": [],
        "maybe_stored": False,
        "opened_ms": 5,
        "order": (2, 1),
        "parent": None,
        "partition": 3,
        "parts": [],
        "producer_epoch": -1,
        "producer_id": -1,
        "refused": False,
        "reserved": 0,
        "retry_at_ms": 0,
        "room": 0,
        "rows": None,
        "topic": "t",
        "topic_partition": TopicPartition("t", 3),
        "values": [],
    }
    assert not batch.is_numbered and batch.reason is None and batch.batch is batch and batch.index_of(4) == 4


@pytest.mark.parametrize("end", ["succeed", "fail", "split"])
def test_what_was_compressed_is_not_kept_for_longer_than_it_is_needed(end: str) -> None:
    batch = batch_of(value(b"a" * 100))
    assert batch.encode(Codec.GZIP, None, transactional=False) is batch._compressed
    if end == "succeed":
        batch.succeed(5)
    elif end == "fail":
        batch.fail(ClientError("no"))
    else:
        batch.split_into([batch_of(value(b"a"))])
    assert batch._compressed is None and batch.done is (end != "split")


def test_a_batch_of_nothing_is_as_large_as_its_header() -> None:
    batch = batch_of()
    batch.size, batch.longest = 99, 99
    batch.repair()
    assert (batch.size, batch.longest, batch.marks, batch.record_count) == (61, 0, [], 0)
    assert record_size((None, None, (), 1)) == 14


@pytest.mark.parametrize("with_lane", [True, False])
def test_values_that_are_added_together_follow_those_there_are(with_lane: bool) -> None:
    batch = batch_of(value(b"a", 7))
    expected = [value(b"a", 7)]
    if with_lane:
        lane = batch.open_lane(4, 7, 5, is_timed=False)
        assert lane is not None
        lane.places[next(lane.numbers)] = b"l"
        expected.append(value(b"l", 7))
    batch.extend([b"bcd", b"ef"], [3, 2], 5 + 2 * RECORD_OVERHEAD)
    expected += [value(b"bcd", 7), value(b"ef", 7)]
    assert batch.records() == expected and batch.size == HEADER_SIZE + sum(map(record_size, expected))
    assert bytes(batch.encode(Codec.NONE, None, transactional=False)) == build_batch(expected)


def test_what_a_lane_took_outlives_an_interruption() -> None:
    batch = batch_of(value(b"a"))
    lane = batch.open_lane(4, 1, 5, is_timed=False)
    assert lane is not None
    lane.places[next(lane.numbers)] = b"l"
    batch.repair()
    assert batch.lane is None and lane.places == []
    assert batch.records() == [value(b"a"), value(b"l")] and batch.size == HEADER_SIZE + 2 * (1 + RECORD_OVERHEAD)
