"""Edges of the memory that waiting batches have, and what becomes of the batch that anybody's records go to."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.producer.accumulator import Accumulator, PartitionQueue
from ottla.client.core.producer.batch import RECORD_OVERHEAD, Batch, record_size
from ottla.client.core.producer.encoded_batch import EncodedRows
from ottla.client.core.producer.partitioners import Backlog
from ottla.records.batch import HEADER_SIZE
from ottla.records.builder import RecordFields

STEP = 16_384
"""At least so much memory is set aside at a time, if a batch may have it."""
T0 = TopicPartition("t", 0)


def accumulator(batch_size: int = 1000, buffer_memory: int = 10_000, **settings: Any) -> Accumulator:
    return Accumulator(
        batch_size=batch_size,
        buffer_memory=buffer_memory,
        delivery_timeout_ms=100,
        random_below=lambda bound: 0,
        **settings,
    )


def value(size: int, timestamp_ms: int = 1) -> RecordFields:
    return None, b"x" * (size - RECORD_OVERHEAD), (), timestamp_ms


def add(box: Accumulator, size: int, partition: int = 0, now_ms: int = 5) -> Batch | None:
    """A record that takes so much of its batch."""
    return box.append("t", partition, value(size), size, now_ms)


def add_sticky(box: Accumulator, size: int = 20, topic: str = "t", now_ms: int = 5, count: int = 1) -> Batch:
    batch = box.append_sticky(topic, tuple(range(count)), count, value(size, now_ms), size, now_ms)
    assert batch is not None
    return batch


def rows(size: int, count: int = 3) -> EncodedRows:
    return EncodedRows(lambda: memoryview(bytearray(size)), size, count)


@pytest.mark.parametrize(("spare", "is_shared"), [(0, True), (-1, False)])
def test_a_batch_is_filled_to_the_last_byte(spare: int, is_shared: bool) -> None:
    box = accumulator(batch_size=HEADER_SIZE + 200 + spare)
    first = add(box, 100)
    assert (add(box, 100) is first) is is_shared
    assert first is not None and first.record_count == (2 if is_shared else 1)


def test_memory_is_set_aside_in_steps_that_double_and_not_beyond_the_size_of_a_batch() -> None:
    box = accumulator(batch_size=100_000, buffer_memory=1_000_000)
    batch = add(box, 1000)
    assert batch is not None
    steps = [batch.reserved]
    while add(box, 1000) is batch:
        if batch.reserved != steps[-1]:
            steps.append(batch.reserved)
        assert batch.room == batch.reserved
    assert steps == [STEP, 2 * STEP, 4 * STEP, 100_000]
    assert batch.size > 99_000 and batch.room == 0


def test_a_record_that_needs_more_than_a_step_gets_as_much_as_it_needs() -> None:
    box = accumulator(batch_size=100_000, buffer_memory=1_000_000)
    batch = add(box, 100)
    assert batch is not None and batch.reserved == STEP
    assert add(box, 60_000) is batch
    assert batch.reserved == batch.size == HEADER_SIZE + 60_100
    assert box.free_bytes == 1_000_000 - batch.reserved


@pytest.mark.parametrize(("free", "grows"), [(5000, True), (4999, False)])
def test_a_batch_grows_by_the_last_memory_if_that_is_enough_for_the_record(free: int, grows: bool) -> None:
    box = accumulator(batch_size=100_000, buffer_memory=STEP + free)
    batch = add(box, STEP - HEADER_SIZE)
    assert batch is not None and batch.size == batch.room == STEP and box.free_bytes == free
    taken = add(box, 5000)
    assert (taken is batch) is grows
    assert box.free_bytes == (0 if grows else free) and (batch.room > 0) is grows


def test_a_batch_may_have_all_the_memory_there_is() -> None:
    box = accumulator(batch_size=STEP, buffer_memory=2 * STEP)
    assert add(box, 10, partition=0) is not None and add(box, 10, partition=1) is not None
    assert box.free_bytes == 0
    assert add(box, 10, partition=2) is None


@pytest.mark.parametrize(("size", "is_taken"), [(10_000, True), (10_001, False)])
def test_a_record_as_large_as_all_the_memory_goes_alone(size: int, is_taken: bool) -> None:
    box = accumulator(buffer_memory=10_000)
    assert (add(box, size) is not None) is is_taken
    if is_taken:
        assert box.free_bytes == -HEADER_SIZE and add(box, 20, partition=1) is None


@pytest.mark.parametrize(("size", "is_taken"), [(9000, True), (9001, False)])
def test_rows_are_taken_if_there_is_memory_for_them(size: int, is_taken: bool) -> None:
    box = accumulator()
    assert add(box, 100) is not None and box.free_bytes == 9000
    batch = box.append_encoded(T0, rows(size), 7)
    assert (batch is not None) is is_taken
    assert box.free_bytes == (0 if is_taken else 9000)
    if batch is not None:
        assert batch.reserved == size and (batch.opened_ms, batch.deadline_ms) == (7, 107)


def test_rows_larger_than_all_the_memory_go_alone() -> None:
    box = accumulator()
    batch = box.append_encoded(T0, rows(20_000), 7)
    assert batch is not None and box.free_bytes == -10_000
    box.release(batch)
    assert box.free_bytes == 10_000 and not box.incomplete


def test_batches_of_a_partition_are_numbered_in_turn_from_zero() -> None:
    box = accumulator()
    for _ in range(3):
        assert add(box, 900) is not None
    assert add(box, 900, partition=1) is not None
    assert [batch.order for batch in box.incomplete] == [(0,), (1,), (2,), (0,)]


def test_what_is_sent_again_takes_its_place_among_what_waits() -> None:
    box = accumulator()
    batches = [batch for _ in range(4) if (batch := add(box, 900)) is not None]
    queue = box.partitions[T0]
    for number in (2, 0, 3, 1):
        queue.queue.remove(batches[number])
        queue.put_back(batches[number])
        assert list(queue.queue) == batches


@pytest.mark.parametrize(
    ("fates", "expected"),
    [
        ([(True, True), (True, False), (True, False)], 1),
        ([(False, False), (True, True)], None),
        ([(False, True), (True, False)], 1),
        ([], None),
    ],
)
def test_the_first_batch_that_may_be_stored_and_was_not_refused(
    fates: list[tuple[bool, bool]], expected: int | None
) -> None:
    box = accumulator()
    batches = []
    for maybe_stored, refused in fates:
        batch = add(box, 900)
        assert batch is not None
        batch.maybe_stored, batch.refused = maybe_stored, refused
        batches.append(batch)
    add(box, 900, partition=1)
    queue = box.partitions.get(T0) or box.partitions[TopicPartition("t", 1)]
    assert queue.first_unsure() is (None if expected is None else batches[expected])


def test_a_partition_that_was_served_comes_last_and_one_without_batches_is_forgotten() -> None:
    box = accumulator()
    for partition in range(4):
        add(box, 900, partition)
    places = [TopicPartition("t", partition) for partition in range(4)]
    box.served(places[0])
    box.served(places[2])
    assert [place.partition for place in box.busy] == [1, 3, 0, 2]
    for partition in (0, 1, 2):
        queue = box.partitions[places[partition]]
        batch = queue.queue.popleft()
        if partition == 1:
            queue.in_flight.append(batch)
        if partition == 2:
            queue.queue.append(batch)
    box.forget_idle()
    assert [place.partition for place in box.busy] == [1, 3, 2]


# The batch that anybody's records go to


def test_who_may_go_anywhere_goes_elsewhere_once_a_batch_is_unstuck() -> None:
    box = accumulator(adaptive=False)
    box.lanes = {}
    first = add_sticky(box)
    box.open_lane("t", 1, 5)
    other = add_sticky(box, topic="u")
    box.unstick(other)
    assert box.sticky == {"t": first} and first.lane is not None, "it was another topic's"
    box.unstick(other)
    box.unstick(first)
    assert box.sticky == {} and first.lane is None and box.lanes["t"].places == []
    assert add_sticky(box) is first, "its partition has room in it still"


def test_records_with_and_without_a_key_share_the_batch_of_a_partition() -> None:
    box = accumulator()
    first = add_sticky(box)
    assert add(box, 20) is first and add_sticky(box) is first
    first.seal()
    second = add(box, 20)
    assert second is not first and add_sticky(box) is second


def test_what_waits_for_other_topics_does_not_hold_up_this_one() -> None:
    box = accumulator(availability_timeout_ms=10)
    add(box, 900, partition=1)
    box.held_up_since_ms = {TopicPartition("t", 1): 0, TopicPartition("u", 2): 0, TopicPartition("t", 3): 5}
    assert box.backlog("t", 11) == Backlog({1: 1}, {1})
    assert box.backlog("u", 11) == Backlog({}, {2})
    assert box.backlog("t", 15) == Backlog({1: 1}, {1}) and box.backlog("t", 16) == Backlog({1: 1}, {1, 3})


def test_without_a_time_for_it_what_is_held_up_since_earlier_is_unavailable_at_once() -> None:
    box = accumulator()
    box.held_up_since_ms = {T0: 4}
    assert box.backlog("t", 4).unavailable == set() and box.backlog("t", 5).unavailable == {0}


# Lanes


def with_lane(steady_ms: int | None = None, size: int = 20) -> tuple[Accumulator, Batch]:
    box = accumulator() if steady_ms is None else accumulator(steady_ms=steady_ms)
    box.lanes = {}
    batch = add_sticky(box, size)
    box.open_lane("t", 1, 5)
    return box, batch


def test_without_shells_that_want_lanes_there_are_none() -> None:
    box = accumulator()
    batch = add_sticky(box)
    box.open_lane("t", 1, 5)
    assert batch.lane is None and box.lanes is None


def test_a_lane_asks_for_the_time_at_once_unless_batches_are_sent_soon() -> None:
    box, batch = with_lane()
    assert batch.lane is not None and batch.lane.length == -1
    box, batch = with_lane(steady_ms=1)
    assert batch.lane is not None and batch.lane.length == 6 and box.lanes == {"t": batch.lane}


def test_a_batch_without_room_for_a_lane_leaves_the_last_one_known() -> None:
    box, batch = with_lane()
    assert box.lanes is not None
    before = box.lanes["t"]
    batch.add((b"key", b"v", (), 1), 20)
    before.used_up_ms = 5
    box.open_lane("t", 1, 5)
    assert batch.lane is None and box.lanes["t"] is before


@pytest.mark.parametrize("size", [RECORD_OVERHEAD, 20])
def test_lanes_that_do_not_ask_for_the_time_are_closed_when_their_batch_is_late(size: int) -> None:
    box, batch = with_lane(steady_ms=10, size=size)
    box.close_late_lanes(14)
    assert batch.lane is not None
    box.close_late_lanes(15)
    assert batch.lane is None
    box, batch = with_lane(steady_ms=0, size=size)
    box.close_late_lanes(1000)
    assert batch.lane is not None, "that one asks"
    add_sticky(box, topic="u")
    box.close_late_lanes(1000)
    box.close_lanes()
    assert batch.lane is None


def test_a_lane_is_closed_before_more_is_added() -> None:
    box, batch = with_lane()
    lane = batch.lane
    assert lane is not None
    lane.places[next(lane.numbers)] = b"lane"
    assert box.extend(batch, [b"0", b"1"], [1, 1], [0, 15, 30], 1) == 2
    assert [record[1] for record in batch.records()] == [b"x" * 6, b"lane", b"1"]
    box, batch = with_lane()
    assert add(box, 20) is batch and batch.lane is None


# Many values at once


def test_values_are_not_added_to_a_batch_of_records_with_keys_or_to_one_that_is_closed() -> None:
    box = accumulator()
    with_key = box.append("t", 0, (b"k", b"v", (), 1), 16, 5)
    assert with_key is not None and box.extend(with_key, [b"v"], [1], [0, 15], 0) == 0
    closed = add(box, 20, partition=1)
    assert closed is not None
    closed.seal()
    assert box.extend(closed, [b"v"], [1], [0, 15], 0) == 0
    assert with_key.record_count == closed.record_count == 1


def test_values_of_any_length_fill_a_batch_to_its_last_byte_and_take_its_memory() -> None:
    box = accumulator(batch_size=HEADER_SIZE + 20 + 100)
    batch = add_sticky(box)
    lengths = [6, 36, 16, 50]
    ends = [0, *itertools.accumulate(length + RECORD_OVERHEAD for length in lengths)]
    values = [b"v" * length for length in lengths]
    assert box.extend(batch, values, lengths, ends, 0) == 3
    assert batch.size == batch.room == batch.reserved == HEADER_SIZE + 120
    assert box.free_bytes == 10_000 - batch.reserved
    assert box.extend(batch, values, lengths, ends, 3) == 3


# Repair, and batches that are split


def test_what_a_signal_has_left_half_done_is_put_right() -> None:
    box = accumulator()
    kept, empty = add(box, 100), add(box, 100, partition=1)
    add(box, 900, partition=2)
    assert kept is not None and empty is not None
    sticky = add_sticky(box, topic="u")
    nothing = add_sticky(box, topic="v", now_ms=1)
    for batch in (empty, nothing):
        batch.values.clear()
        batch.marks.clear()
    del box.incomplete[kept], box.busy[T0]
    box.partitions[TopicPartition("t", 2)].queue.clear()
    box.free_bytes = box.earliest_deadline_ms = 3
    box.repair()
    assert kept in box.incomplete and T0 in box.busy
    assert empty not in box.incomplete and not box.partitions[TopicPartition("t", 1)].queue
    assert box.sticky == {"u": sticky}
    assert box.free_bytes == 10_000 - sum(batch.reserved for batch in box.incomplete) < 10_000
    assert box.earliest_deadline_ms == 105
    for batch in list(box.incomplete):
        box.release(batch)
        box.partitions[batch.topic_partition].queue.clear()
    box.repair()
    assert box.earliest_deadline_ms is None and box.free_bytes == 10_000


def test_after_an_interruption_nothing_is_added_to_batches_there_are() -> None:
    box = accumulator()
    before = [add(box, 100), add_sticky(box, topic="u")]
    box.close_open()
    assert [batch is not None and batch.room for batch in before] == [0, 0]
    assert add(box, 100) not in before and add_sticky(box, topic="u") not in before


def test_the_parts_of_a_batch_are_as_large_as_their_records_and_as_old_as_it() -> None:
    box = accumulator()
    batch = None
    records: list[RecordFields] = [(b"k", b"v" * size, (), 9) for size in (10, 20, 30)]
    for record in records:
        batch = box.append("t", 3, record, record_size(record), 5)
    assert batch is not None
    reserved = batch.reserved
    parts = box.split(batch)
    assert [part.size for part in parts] == [
        HEADER_SIZE + record_size(records[0]),
        HEADER_SIZE + record_size(records[1]) + record_size(records[2]),
    ]
    assert {(part.opened_ms, part.deadline_ms, part.topic_partition) for part in parts} == {(5, 105, ("t", 3))}
    assert [part.order for part in parts] == [(0, 0), (0, 1)]
    assert (batch.reserved, sum(part.reserved for part in parts)) == (0, reserved)
    assert set(box.incomplete) == {batch, *parts} and not any(part.is_numbered for part in parts)


def test_the_next_lane_has_as_many_places_as_are_used_up_in_a_millisecond() -> None:
    box = accumulator(batch_size=100_000, buffer_memory=1_000_000)
    box.lanes = {}
    add_sticky(box, now_ms=0)
    box.open_lane("t", 0, 0)
    now_ms, found = 0, []
    for took_ms in (0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 9):
        lane = box.lanes["t"]
        found.append(lane.most)
        assert lane.opened_ms == now_ms and lane.used_up_ms is None
        add_sticky(box, now_ms=now_ms + took_ms)
        add_sticky(box, now_ms=now_ms + took_ms + 5)
        assert lane.used_up_ms == now_ms + took_ms, "when it was, not when there was memory for the next one"
        now_ms += took_ms + 7
        box.open_lane("t", now_ms, now_ms)
    assert found == [16, 32, 64, 128, 128, 64, 21, 42, 84, 168, 336, 672, 1024, 1024]
    assert box.lanes["t"].most == 113


def test_a_partition_begins_without_a_producer_and_without_batches() -> None:
    queue = PartitionQueue(T0)
    state = {name: getattr(queue, name) for name in PartitionQueue.__slots__}
    assert state == {
        "confirmed": False,
        "in_flight": [],
        "last_cause": "",
        "last_done_order": (),
        "next_sequence": 0,
        "next_serial": 0,
        "producer_epoch": -1,
        "producer_id": -1,
        "queue": deque(),
        "topic_partition": T0,
    }
    queue.next_sequence, queue.confirmed, queue.last_done_order, queue.next_serial = 5, True, (3,), 4
    queue.restart(7, 2)
    assert (queue.producer_id, queue.producer_epoch, queue.next_sequence) == (7, 2, 0)
    assert (queue.confirmed, queue.last_done_order) == (False, ())
    assert queue.next_serial == 4, "batches keep their order under any producer id"


def test_an_accumulator_begins_with_all_its_memory_and_nobody_waiting() -> None:
    box = accumulator()
    assert (box.batch_size, box.free_bytes, box.buffer_memory, box.waiting) == (1000, 10_000, 10_000, 0)
    assert (box.sticky, box.lanes, box.partitions, box.busy, box.held_up_since_ms) == ({}, None, {}, {}, {})
    assert (box.incomplete, box.earliest_deadline_ms) == ({}, None)


def test_places_of_a_lane_that_nobody_used_have_room_for_other_records() -> None:
    box, batch = with_lane()
    assert batch.size == HEADER_SIZE + 20 + 16 * 20 and batch.room == 1000
    assert add(box, 1000 - HEADER_SIZE - 20) is batch and batch.size == 1000
    box, batch = with_lane()
    most = (1000 - HEADER_SIZE - 20) // 20
    assert box.extend(batch, [b"v" * 6] * 60, [6] * 60, range(0, 20 * 61, 20), 0) == most
    assert batch.size == HEADER_SIZE + 20 + 20 * most
