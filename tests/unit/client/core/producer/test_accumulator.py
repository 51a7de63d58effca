from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.client.core.producer.accumulator import Accumulator
from ottla.client.core.producer.batch import Batch, record_size
from ottla.client.core.producer.encoded_batch import EncodedRows
from ottla.client.core.producer.partitioners import NO_BACKLOG, Backlog
from ottla.records.builder import RecordFields


def accumulator(batch_size: int = 1000, buffer_memory: int = 10_000) -> Accumulator:
    return Accumulator(
        batch_size=batch_size, buffer_memory=buffer_memory, delivery_timeout_ms=100, random_below=lambda bound: 0
    )


def add(box: Accumulator, size: int, partition: int = 0) -> Batch | None:
    record: RecordFields = (None, b"x" * size, (), 1)
    return box.append("t", partition, record, record_size(record), 5)


def test_records_share_a_batch_until_it_is_full() -> None:
    box = accumulator()
    first = add(box, 400)
    assert first is not None and add(box, 400) is first
    second = add(box, 400)
    assert second is not None and second is not first
    assert first.room == 0 and second.order > first.order
    assert second.deadline_ms == 105


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    box = accumulator(batch_size=0)
    batches = {add(box, size) for size in (0, 5000, 1)}
    assert len(batches) == 3 and None not in batches


def test_memory_is_bounded_and_given_back() -> None:
    box = accumulator()
    taken = []
    while (batch := add(box, 900)) is not None:
        taken.append(batch)
    assert 5 < len(taken) <= 10
    assert 0 <= box.free_bytes < 1000
    box.release(taken[0])
    box.release(taken[0])
    assert add(box, 900) is not None
    for batch in list(box.incomplete):
        box.release(batch)
    assert box.free_bytes == 10_000


def test_a_topic_that_fills_its_batches_gets_its_share_of_the_memory_that_is_free() -> None:
    box = accumulator(batch_size=100_000, buffer_memory=250_000)

    def add_sticky(topic: str = "t") -> Batch | None:
        return box.append_sticky(topic, (0,), 1, (None, b"x" * 1000, (), 1), 1014, 5)

    first = add_sticky()
    assert first is not None and first.reserved == 16_384, "nobody knows yet how much will come"
    while (second := add_sticky()) is first:
        pass
    assert second is not None and second.reserved == 100_000, "one is full: so will be the next"
    while (batch := add_sticky()) is not None:
        last = batch
    assert last is not second and box.free_bytes < 16_384, "there is no memory left"
    box.release(first)
    after = add_sticky()
    assert after is not None and after.reserved == 100_000, "waiting for memory does not make it forget"
    box.release(last)
    assert add_sticky("u") is not None
    while (shared := add_sticky()) is after:
        pass
    assert shared is not None and shared.reserved == (250_000 - 2 * 100_000 - 16_384) // 2, "there are two topics now"
    shared.seal()
    box.release(second)
    following = add_sticky()
    assert following is not None and following.reserved == 16_384, "that one was sent before it was full"


def test_a_batch_grows_in_steps_and_is_closed_when_memory_ends() -> None:
    box = accumulator(batch_size=100_000, buffer_memory=40_000)
    batch = add(box, 1000)
    assert batch is not None and box.free_bytes == 40_000 - 16_384
    while add(box, 1000) is batch:
        pass
    assert batch.room == 0
    assert batch.size > 30_000
    assert box.free_bytes >= 0


@pytest.mark.parametrize(
    ("batch_size", "buffer_memory", "most"),
    [(40_000, 50_000, 40_000), (40_000, 30_000, 30_000), (9_000, 50_000, 9_000)],
)
def test_many_values_take_the_memory_they_need_and_no_more_than_there_is(
    batch_size: int, buffer_memory: int, most: int
) -> None:
    box = accumulator(batch_size, buffer_memory)
    batch = add(box, 1000)
    assert batch is not None
    each, first_reserved = batch.size, batch.reserved
    values, lengths = [b"x" * 1000] * 50, [1000] * 50
    ends = [0, *itertools.accumulate([each] * 50)]
    assert box.extend(batch, values[:7], lengths[:7], ends[:8], 0) == 7
    assert (batch.record_count, batch.size, batch.reserved) == (8, 8 * each, first_reserved), "there is room for these"
    end = box.extend(batch, values, lengths, ends, 7)
    assert end + 1 == batch.record_count == most // each
    assert batch.size == (end + 1) * each <= most < batch.size + each
    assert batch.reserved == batch.room == max(first_reserved, batch.size)
    assert box.free_bytes == buffer_memory - batch.reserved
    assert box.extend(batch, values, lengths, ends, end) == end, "it is full"
    batch.seal()
    assert box.extend(batch, values, lengths, ends, end) == end, "it is closed"


def test_keyless_records_stay_together_and_move_on_after_enough_bytes() -> None:
    box = Accumulator(
        batch_size=1000,
        buffer_memory=10**6,
        delivery_timeout_ms=1,
        random_below=lambda bound: bound - 1,
        adaptive=False,
    )
    places = []
    for _ in range(100):
        record: RecordFields = (None, b"x" * 100, (), 1)
        batch = box.append_sticky("t", (0, 1, 2), 3, record, record_size(record), 5)
        assert batch is not None
        places.append(batch.partition)
        if len(places) % 3 == 0:
            batch.room = 0  # sent before it was full
    switches = sum(before != after for before, after in itertools.pairwise(places))
    assert 8 <= switches <= 12
    assert set(places) == {1, 2}


def test_the_backlog_of_a_topic_is_what_waits_for_its_partitions() -> None:
    box = accumulator()
    for partition in (0, 1, 1):
        add(box, 900, partition)
    box.append("u", 2, (None, b"x", (), 1), 20, 5)
    assert box.backlog("t", 5) == Backlog({0: 1, 1: 2}, set())
    box.partitions[TopicPartition("t", 0)].queue.clear()
    assert box.backlog("t", 5).waiting == {1: 2}, "those on their way do not count"
    assert box.backlog("v", 5) == NO_BACKLOG


def test_without_adaptive_partitioning_nothing_is_said_to_wait() -> None:
    box = Accumulator(
        batch_size=1, buffer_memory=1000, delivery_timeout_ms=1, random_below=lambda bound: 0, adaptive=False
    )
    add(box, 100)
    box.held_up_since_ms[TopicPartition("t", 0)] = 0
    assert box.backlog("t", 10**6) == NO_BACKLOG


def test_keyless_records_avoid_the_partition_for_which_batches_wait() -> None:
    bounds = []

    def draw(bound: int) -> int:
        bounds.append(bound)
        return 0

    box = Accumulator(batch_size=1, buffer_memory=10_000, delivery_timeout_ms=1, random_below=draw)
    add(box, 100, partition=2)
    add(box, 100, partition=2)
    batch = box.append_sticky("t", (0, 1, 2), 3, (None, b"x", (), 1), 20, 5)
    assert batch is not None and batch.partition == 0
    assert bounds == [3 + 3 + 1]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_split_batch_keeps_records_numbers_and_place(count: int) -> None:
    box = accumulator()
    batch = None
    for number in range(count):
        batch = box.append("t", 0, (b"k", b"%d" % number, (), 9), 30, 5)
    assert batch is not None
    batch.number(3, 1, 2**31 - 1)
    first, second = box.split(batch)
    assert first.records() + second.records() == batch.records()
    assert (first.base_sequence, second.base_sequence) == (2**31 - 1, (count // 2 - 1) % 2**31)
    assert batch.order < first.order < second.order < (1,)
    first.succeed(10)
    assert list(first.settle_parents()) == []
    second.succeed(100)
    assert list(second.settle_parents()) == [batch]
    half = count // 2
    assert [batch.metadata(index).offset for index in range(count)] == [
        *range(10, 10 + half),
        *range(100, 100 + count - half),
    ]
    for done in (batch, first, second):
        box.release(done)
    assert box.free_bytes == 10_000


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "sticky"]), st.integers(0, 70)),
        st.tuples(st.just("many"), st.integers(1, 60)),
        st.tuples(st.sampled_from(["release", "split", "seal", "repair"]), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([200, 400, 40_000]), st.integers(1, 4))
def test_memory_is_what_the_batches_hold_and_what_is_free(
    steps: list[tuple[str, int]], batch_size: int, batches_that_fit: int
) -> None:
    box = accumulator(batch_size, buffer_memory=batches_that_fit * batch_size)
    added = 0
    for name, number in steps:
        unfinished = list(box.incomplete)
        chosen = unfinished[number % len(unfinished)] if unfinished else None
        record: RecordFields = (None, b"x" * number, (), 1)
        size = record_size(record)
        match name:
            case "append":
                added += box.append("t", 1, record, size, 5) is not None
            case "sticky":
                added += box.append_sticky("t", (0,), 1, record, size, 5) is not None
            case "many" if (batch := box.append_sticky("t", (0,), 1, record, size, 5)) is not None:
                ends = [0, *itertools.accumulate([size] * 9)]
                added += 1 + box.extend(batch, [record[1]] * 9, [number] * 9, ends, 0)
            case "release" if chosen is not None:
                chosen.seal()
                added -= chosen.record_count
                box.partitions[chosen.topic_partition].queue.remove(chosen)
                box.release(chosen)
            case "split" if chosen is not None and chosen.record_count > 1 and not chosen.parts:
                chosen.seal()
                queue = box.partitions[chosen.topic_partition]
                queue.queue.remove(chosen)
                for part in box.split(chosen):
                    queue.put_back(part)
                box.release(chosen)
            case "seal":
                box.close_open()
            case "repair":
                box.repair()
        assert box.free_bytes + sum(batch.reserved for batch in box.incomplete) == box.buffer_memory
        assert box.free_bytes >= 0
        assert sum(batch.record_count for batch in box.incomplete) == added
        for batch in box.incomplete:
            assert batch.size <= batch_size or batch.record_count == 1
            assert batch.room in (0, batch.reserved) or batch.parent is not None
            assert batch.room == 0 or batch.size <= batch.room


def test_records_do_not_overtake_rows_that_were_sent_before_them() -> None:
    box = accumulator()
    first, open_ = add(box, 800), add(box, 400)
    assert open_ is not None and open_ is not first and open_.room > 0
    rows = EncodedRows(lambda: memoryview(bytearray(300)), 300, 3)
    encoded = box.append_encoded(TopicPartition("t", 0), rows, 7)
    assert encoded is not None and encoded.record_count == 3 and encoded.deadline_ms == 107
    after = add(box, 10)
    assert after is not None and after is not open_
    assert open_.order < encoded.order < after.order
    assert [batch for batch in box.incomplete if batch.topic == "t"] == [first, open_, encoded, after]
    assert box.append_encoded(TopicPartition("t", 0), rows._replace(size=10_000), 7) is None, "there is no memory"


def test_the_earliest_deadline_is_that_of_the_oldest_batch() -> None:
    box = accumulator()
    assert box.earliest_deadline_ms is None
    record: RecordFields = (None, b"x", (), 1)
    for partition, now_ms in ((0, 50), (1, 20), (2, 70)):
        assert box.append("t", partition, record, record_size(record), now_ms) is not None
    assert box.earliest_deadline_ms == 120
    assert list(box.busy) == [TopicPartition("t", partition) for partition in range(3)]
