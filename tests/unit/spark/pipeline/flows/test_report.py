"""What is told of a flow: rows apart, lag from where topics end, rates over time."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.spark.pipeline.flows.report import Batch, BatchAtWork, EndOffsets, FlowMeter, FlowReport, Rows
from ottla.spark.pipeline.flows.row_rate import RowRate
from ottla.spark.progress import QueryProgress

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def batch(number: int, *, read: int, end: dict[TopicPartition, int], written: int = 0, bad: int = 0) -> QueryProgress:
    return QueryProgress("id", "run", "f", number, number * 1000, 500, read, written, bad, 3, None, end, True)


class TestRows:
    def test_read_written_and_bad_are_apart(self) -> None:
        meter = FlowMeter(sets_bad_aside=False)
        meter.begin_at({A: 0}, 0)
        meter.add(batch(0, read=100, written=7, bad=3, end={A: 100}))
        meter.add(batch(1, read=20, written=1, bad=0, end={A: 120}))
        report = meter.report(2000)
        assert (report.rows, report.batches) == (Rows(120, 8, 3), 2)
        assert report.last is not None and report.last.rows == Rows(20, 1, 0)

    def test_what_sets_records_aside_writes_bad_ones(self) -> None:
        meter = FlowMeter(sets_bad_aside=True)
        meter.add(batch(0, read=665, written=4, end={A: 665}))
        assert meter.report(0).rows == Rows(665, 4, 4)

    def test_a_batch_that_was_computed_twice_was_read_once(self) -> None:
        meter = FlowMeter(sets_bad_aside=False)
        meter.begin_at({A: 10}, 5)
        meter.add(batch(5, read=180, end={A: 100, B: 0}))
        assert meter.report(0).rows.read == 90

    def test_fewer_records_than_offsets_are_no_mistake(self) -> None:
        meter = FlowMeter(sets_bad_aside=False)
        meter.begin_at({A: 10}, 0)
        meter.add(batch(0, read=40, end={A: 100}))
        assert meter.report(0).rows.read == 40

    def test_the_number_of_the_batch_at_work(self) -> None:
        meter = FlowMeter(sets_bad_aside=False)
        meter.begin_at({A: 10}, 5)
        assert meter.next_batch_id == 5
        meter.add(batch(5, read=1, end={A: 11}))
        assert meter.next_batch_id == 6


class TestLag:
    def test_it_is_the_distance_to_the_end_now(self) -> None:
        meter = FlowMeter(sets_bad_aside=False)
        meter.begin_at({A: 10, B: 5}, 0)
        assert meter.report(0).lag is None
        meter.note_ends(EndOffsets(7, {A: 30, B: 5}))
        assert meter.report(9).lag == 20
        assert meter.report(9).age_ms(9) == 2
        meter.add(batch(0, read=20, end={A: 30, B: 5}))
        assert meter.report(9).lag == 0
        meter.note_ends(EndOffsets(8, {A: 1030, B: 6}))
        assert meter.report(9).lag == 1001

    def test_a_new_partition_waits_from_its_beginning(self) -> None:
        meter = FlowMeter(sets_bad_aside=False)
        meter.begin_at({A: 10}, 0)
        meter.note_ends(EndOffsets(0, {A: 10, B: 8}))
        assert meter.report(0).lag == 8

    def test_ends_of_before_the_batch_make_no_lag(self) -> None:
        meter = FlowMeter(sets_bad_aside=False)
        meter.begin_at({A: 10}, 0)
        meter.note_ends(EndOffsets(0, {A: 12}))
        meter.add(batch(0, read=20, end={A: 30}))
        assert meter.report(0).lag == 0


class TestRate:
    def test_over_the_window(self) -> None:
        rate = RowRate(window_ms=10_000)
        assert rate.per_second(0) == 0
        rate.add(1000, begin_ms=0, end_ms=1000)
        assert rate.per_second(2000) == 500
        assert rate.per_second(10_000) == 100
        rate.add(3000, begin_ms=10_000, end_ms=11_000)
        assert rate.per_second(11_000) == 300
        assert rate.per_second(60_000) == 0

    def test_a_batch_longer_than_the_window_counts_for_its_part(self) -> None:
        rate = RowRate(window_ms=10_000)
        rate.add(40_000, begin_ms=0, end_ms=40_000)
        assert rate.per_second(40_000) == 1000
        assert rate.per_second(45_000) == 500

    @given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 3000), st.integers(1, 3000)), max_size=30))
    def test_a_steady_flow_has_the_rate_it_has(self, steps: list[tuple[int, int, int]]) -> None:
        """However it is cut into batches, with whatever pauses, the rate is rows by time."""
        rate, now_ms, rows = RowRate(window_ms=10**9), 0, 0
        first_ms = steps[0][1] if steps else 0
        for count, pause_ms, length_ms in steps:
            begin_ms = now_ms + pause_ms
            now_ms = begin_ms + length_ms
            rate.add(count, begin_ms=begin_ms, end_ms=now_ms)
            rows += count
        expected = rows * 1000 / (now_ms - first_ms) if steps else 0.0
        assert rate.per_second(now_ms) == pytest.approx(expected)


class TestReport:
    def test_of_a_flow_that_has_not_begun(self) -> None:
        report = FlowMeter(sets_bad_aside=False).report(5)
        assert report == FlowReport(None, None, Rows(0, 0, 0), 0, 0.0, None, None, {}, 0, None)
        assert (FlowMeter(sets_bad_aside=False).next_batch_id, report.age_ms(9)) == (0, 0)

    def test_it_tells_all_there_is(self) -> None:
        meter = FlowMeter(sets_bad_aside=False)
        meter.begin_at({A: 0}, 3)
        assert meter.ends_age_ms(10**12) == inf
        meter.note_ends(ends := EndOffsets(2500, {A: 70}))
        assert meter.ends_age_ms(2700) == 200
        meter.add(QueryProgress("q", "r", "f", 3, 1000, 500, 60, 7, 2, 11, "noon", {A: 60}, True))
        at_work = BatchAtWork(4, 2000, 1, 2)
        expected = FlowReport(
            Batch(3, Rows(60, 7, 2), 500), at_work, Rows(60, 7, 2), 1, 30.0, 10, ends, {A: 60}, 11, "noon"
        )
        assert meter.report(3000, at_work) == expected
        assert meter.report(3000) == expected._replace(at_work=None)
        assert (expected.age_ms(2500), expected.age_ms(2400), expected.age_ms(2501)) == (0, 0, 1)
        meter.add(QueryProgress("q", "r", "f", 4, 3000, 0, 30, 1, 0, 0, None, {}, False))
        assert meter.report(4000) == FlowReport(
            Batch(4, Rows(30, 1, 0), 0), None, Rows(90, 8, 2), 2, 30.0, 10, ends, {A: 60}, 0, None
        )
        assert meter.next_batch_id == 5

    def test_a_batch_in_no_time_took_a_millisecond(self) -> None:
        """Of a window that begins where it ends, half a batch is in it or none: never less than nothing."""
        meter = FlowMeter(sets_bad_aside=False)
        meter.add(QueryProgress("q", "r", "f", 0, 1000, 0, 50, 0, 0, 0, None, {}, False))
        assert meter.report(1001).rows_per_second == 50_000
        assert meter.report(11_000).rows_per_second == 5
        assert meter.report(11_001).rows_per_second == 0

    def test_rows_that_others_read_are_not_measured_by_offsets(self) -> None:
        meter = FlowMeter(sets_bad_aside=False)
        meter.begin_at({A: 0}, 0)
        meter.add(QueryProgress("q", "r", "f", 0, 0, 1, 500, 0, 0, 0, None, {A: 5}, False))
        assert meter.report(0).rows.read == 500

    def test_a_partition_of_which_nothing_is_known_has_all_its_records_left(self) -> None:
        meter = FlowMeter(sets_bad_aside=False)
        meter.note_ends(EndOffsets(0, {A: 5}))
        assert meter.report(0).lag is None, "it is not known where the flow is"
        meter.begin_at({B: 2}, 0)
        assert meter.report(0).lag == 5

    def test_rows_are_added_to_rows_alone(self) -> None:
        assert Rows(1, 2, 3) + Rows(10, 20, 30) == Rows(11, 22, 33)
        assert Rows().__add__((1, 2, 3)) is NotImplemented


class TestWindow:
    def test_at_first_it_is_as_long_as_there_were_batches(self) -> None:
        rate = RowRate()
        rate.add(100, begin_ms=5000, end_ms=5000)
        assert rate.per_second(5000) == 100_000
        assert rate.per_second(5001) == 100_000
        assert rate.per_second(5010) == 10_000
        assert rate.per_second(14_999) == pytest.approx(100_000 / 9999)
        assert rate.per_second(15_000) == 0, "ten seconds are over"

    def test_it_goes_on_from_the_first_batch_when_others_follow(self) -> None:
        rate = RowRate(window_ms=1000)
        rate.add(10, begin_ms=0, end_ms=100)
        rate.add(20, begin_ms=300, end_ms=400)
        assert rate.per_second(500) == 60
        assert rate.per_second(1050) == 25
        assert rate.per_second(1100) == 20
        rate.add(1, begin_ms=1200, end_ms=1100)
        assert rate.per_second(1350) == pytest.approx(11)
