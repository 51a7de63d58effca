"""The offset map: what it answers is never beyond a record that is still to be read, and how near it comes."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.spark.mirror.offset_map import (
    Entry,
    OffsetMap,
    Run,
    decode_entry,
    encode_key,
    encode_value,
    slot_of,
    thin_out,
)

HERE, THERE = TopicPartition("orders", 1), TopicPartition("west.orders", 1)


class Copying:
    """A partition copied in batches: source and target offsets of every record, and a map as compaction leaves it."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []
        self.map = OffsetMap()
        self.slots: set[str] = set()

    def copy(self, source_offsets: list[int], target_offset: int) -> None:
        runs: list[Run] = []
        for index, offset in enumerate(source_offsets):
            self.places.append((offset, target_offset + index))
            if runs and runs[-1].source_offset + runs[-1].length == offset:
                runs[-1] = runs[-1]._replace(length=runs[-1].length + 1)
            else:
                runs.append(Run(offset, target_offset + index, 1))
        slot = slot_of(source_offsets[0], source_offsets[-1] + 1)
        self.slots.add(slot)
        self.map.add(Entry(HERE, THERE, slot, thin_out(runs)))

    def first_to_read(self, committed: int) -> int:
        """The target offset of the first record that a group which has committed this has not read yet."""
        return next((target for source, target in self.places if source >= committed), self.places[-1][1] + 1)


@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 3), min_size=1, max_size=90), st.integers(0, 5)), min_size=1, max_size=40
    ),
    st.integers(0, 3),
)
def test_it_never_skips_a_record(batches: list[tuple[list[int], int]], first: int) -> None:
    copying = Copying()
    source, target = first, 0
    for steps, gap in batches:
        offsets = [source, *(source + step for step in accumulate(steps))]
        copying.copy(offsets, target)
        source, target = offsets[-1] + 2, target + len(offsets) + 1 + gap
    for committed in range(source + 1):
        translated = copying.map.translate(HERE, committed)
        assert translated is None or translated <= copying.first_to_read(committed)


def test_near_the_end_it_is_exact() -> None:
    copying = Copying()
    for batch in range(100):
        copying.copy(list(range(batch * 10, batch * 10 + 10)), batch * 11)
    off = [
        copying.first_to_read(committed) - (copying.map.translate(HERE, committed) or 0) for committed in range(1001)
    ]
    assert set(off[990:]) == {0}, "the last batch"
    assert max(off[900:]) <= 11, "a batch before may have left its slot to its neighbour"
    assert sum(off[900:]) < 100


@pytest.mark.parametrize("size", [1, 7, 100])
def test_further_back_it_is_off_by_an_eighth_of_the_lag_at_most(size: int) -> None:
    """Every offset after the last is a transaction's marker, on both sides: those are never in a run."""
    copying = Copying()
    step = size + 1
    for batch in range(20_000 // size):
        copying.copy(list(range(batch * step + 1, batch * step + 1 + size)), batch * step)
    end = copying.places[-1][0] + 1
    for committed in range(1, end, 13):
        translated = copying.map.translate(HERE, committed)
        exact = copying.first_to_read(committed)
        if translated is None:
            assert committed < end * 3 / 4, "only what is far behind is beyond the map"
            continue
        assert 0 <= exact - translated <= (end - committed) / 8 + step
    assert len(copying.slots) <= 32 * end.bit_length()


def test_what_is_before_all_it_knows_has_no_answer() -> None:
    known = OffsetMap()
    known.add(Entry(HERE, THERE, "3.1", (Run(100, 40, 5),)))
    assert known.translate(HERE, 99) is None
    assert known.translate(HERE, 100) == 40
    assert known.translate(TopicPartition("orders", 0), 100) is None
    assert (known.target_of(HERE), known.target_of(TopicPartition("orders", 0))) == (THERE, None)


def test_a_later_entry_of_a_slot_replaces_the_earlier() -> None:
    known = OffsetMap()
    known.add(Entry(HERE, THERE, "0.0", (Run(1, 1, 1),)))
    assert known.translate(HERE, 2) == 2
    known.add(Entry(HERE, THERE, "0.0", (Run(9, 9, 1),)))
    assert known.translate(HERE, 2) is None


def test_thinning_keeps_the_first_and_the_last() -> None:
    runs = [Run(number * 10, number, 1) for number in range(1000)]
    thinned = thin_out(runs)
    assert len(thinned) == 32
    assert (thinned[0], thinned[-1]) == (runs[0], runs[-1])
    assert thin_out(runs[:32]) == tuple(runs[:32])


def test_the_documented_format() -> None:
    key, value = encode_key(HERE, "3.17"), encode_value(THERE, [Run(100, 90, 50)])
    assert json.loads(key) == {"topic": "orders", "partition": 1, "slot": "3.17"}
    assert json.loads(value) == {"target_topic": "west.orders", "runs": [[100, 90, 50]]}
    assert decode_entry(key, value) == Entry(HERE, THERE, "3.17", (Run(100, 90, 50),))
    for foreign in (b"no json", b"{}", b"[]", b'{"topic": "t"}'):
        with pytest.raises(ValueError):
            decode_entry(foreign, value)
    with pytest.raises(ValueError):
        decode_entry(key, b'{"runs": []}')


@pytest.mark.parametrize(
    ("first_offset", "end_offset", "slot"),
    [
        (0, 1, "first"),
        (0, 4096, "first"),
        (1, 1, "0.0"),
        (1, 2, "1.0"),
        (2, 2, "1.0"),
        (3, 3, "0.1"),
        (5, 8, "3.0"),
        (9, 10, "1.2"),
        (100, 101, "2.12"),
        (63, 63, "0.31"),
        (65, 65, "0.0"),
        (2143, 2145, "5.1"),
        (1000, 5000, "12.0"),
    ],
)
def test_the_slot_is_that_of_the_roundest_offset_that_is_reached(first_offset: int, end_offset: int, slot: str) -> None:
    """An odd multiple of 2^k is of level k; the odd numbers are counted from 0, and 32 slots are used in turn."""
    assert slot_of(first_offset, end_offset) == slot


def test_records_of_the_map_have_no_more_bytes_than_they_need() -> None:
    key = '{"topic":"übung","partition":3,"slot":"0.1"}'.encode()
    value = '{"target_topic":"west.übung","runs":[[1,2,3],[9,5,1]]}'.encode()
    source, target = TopicPartition("übung", 3), TopicPartition("west.übung", 3)
    assert encode_key(source, "0.1") == key
    assert encode_value(target, [Run(1, 2, 3), Run(9, 5, 1)]) == value
    assert decode_entry(key, value) == Entry(source, target, "0.1", (Run(1, 2, 3), Run(9, 5, 1)))


def test_runs_that_are_left_out_are_spread_evenly() -> None:
    runs = [Run(number, number, 1) for number in range(63)]
    assert thin_out(runs) == tuple(runs[::2])
    assert thin_out(runs[:33]) == (*runs[:31], runs[32])
    assert thin_out(runs[:32]) == tuple(runs[:32]) and thin_out([]) == ()


def test_all_that_is_known_of_a_partition_is_looked_at_wherever_it_was_written() -> None:
    known = OffsetMap()
    known.add(Entry(HERE, THERE, "b", (Run(50, 25, 5), Run(70, 30, 1))))
    known.add(Entry(HERE, THERE, "a", (Run(10, 5, 20),)))
    translated = {10: 5, 15: 10, 29: 24, 30: 25, 49: 25, 50: 25, 54: 29, 55: 30, 69: 30, 70: 30, 71: 31, 999: 31}
    assert {offset: known.translate(HERE, offset) for offset in translated} == translated
    assert known.translate(HERE, 9) is None
    other = TopicPartition("west.other", 1)
    known.add(Entry(HERE, other, "c", (Run(0, 0, 3),)))
    assert (known.target_of(HERE), known.translate(HERE, 9)) == (other, 3)
