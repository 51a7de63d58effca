"""A set of segments is a value: what others may be made of it, and that it stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ottla.log.config import LogConfig
from ottla.log.segment import Segment
from ottla.log.segment_set import SegmentSet

MakeSegment = Callable[[int], Segment]


@pytest.fixture
def segment(tmp_path: Path) -> MakeSegment:
    made = 0

    def make(base_offset: int) -> Segment:
        nonlocal made
        made += 1
        directory = tmp_path / str(made)
        directory.mkdir()
        return Segment.create(directory, base_offset, LogConfig(segment_index_bytes=80), now_ms=0)

    return make


@pytest.fixture
def segments(segment: MakeSegment) -> SegmentSet:
    return SegmentSet(map(segment, (10, 20, 30, 40)))


def bases(segments: SegmentSet) -> list[int]:
    return [segment.base_offset for segment in segments.all()]


def test_finding(segments: SegmentSet) -> None:
    assert [segments.number_of(offset) for offset in (0, 10, 19, 20, 39, 40, 999)] == [0, 0, 0, 1, 2, 3, 3]
    assert [segments.end_of(number, 45) for number in range(4)] == [20, 30, 40, 45]
    assert segments.from_offset(25) == segments.all()[1:]
    assert segments.from_offset(0) == segments.all()
    assert (segments.first, segments.active) == (segments.all()[0], segments.all()[-1])


@pytest.mark.parametrize("offsets", [(20, 10), (10, 10), (10, 30, 20)])
def test_the_order_is_kept(segment: MakeSegment, offsets: Sequence[int]) -> None:
    with pytest.raises(ValueError, match="in order"):
        SegmentSet(map(segment, offsets))


def test_others_are_made_and_this_one_stays(segments: SegmentSet, segment: MakeSegment) -> None:
    added = segment(50)
    before = segments.all()
    assert (bases(segments.add(added)), segments.add(added).active) == ([10, 20, 30, 40, 50], added)
    assert (bases(segments.up_to(1)), segments.up_to(1).active) == ([10, 20], before[1])
    assert bases(segments.replace(before[1:3], [segment(20)])) == [10, 20, 40]
    assert (segments.all(), segments.active, segments.number_of(30)) == (before, before[3], 2)
    with pytest.raises(ValueError, match="in order"):
        segments.add(segment(40))


class TestReplace:
    @pytest.mark.parametrize(
        ("start", "end", "new", "expected"),
        [
            pytest.param(0, 1, [], [20, 30, 40], id="the first is dropped"),
            pytest.param(0, 3, [], [40], id="all but the active one are dropped"),
            pytest.param(0, 3, [10], [10, 40], id="three become one"),
            pytest.param(0, 2, [15], [15, 30, 40], id="the beginning is cut"),
            pytest.param(1, 2, [20], [10, 20, 30, 40], id="one for one"),
            pytest.param(1, 3, [20, 24, 39], [10, 20, 24, 39, 40], id="two become three"),
        ],
    )
    def test_a_run_of_segments(
        self,
        segments: SegmentSet,
        segment: MakeSegment,
        start: int,
        end: int,
        new: list[int],
        expected: list[int],
    ) -> None:
        made = [segment(base_offset) for base_offset in new]
        replaced = segments.replace(segments.all()[start:end], made)
        assert bases(replaced) == expected
        assert set(made) <= set(replaced.all())
        assert not set(segments.all()[start:end]) & set(replaced.all())
        assert replaced.active is segments.active
        assert [replaced.all()[replaced.number_of(offset)].base_offset for offset in expected] == expected

    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            pytest.param([], [10], "nothing to be replaced", id="nothing"),
            pytest.param([0, 2], [10], "no run of segments", id="not adjacent"),
            pytest.param([1, 0], [10], "no run of segments", id="not in order"),
            pytest.param([3], [40], "active segment", id="the active one"),
            pytest.param([0, 1, 2, 3], [10], "active segment", id="everything"),
            pytest.param([1], [], "would belong to an earlier segment", id="a hole"),
            pytest.param([1], [21], "would belong to an earlier segment", id="begins later"),
            pytest.param([0], [9], "precede the log", id="begins before the log"),
            pytest.param([1], [20, 30], "in order", id="runs into the next"),
            pytest.param([1, 2], [20, 45], "in order", id="runs past the next"),
            pytest.param([1, 2], [20, 20], "in order", id="one offset twice"),
        ],
    )
    def test_what_is_refused(
        self, segments: SegmentSet, segment: MakeSegment, old: list[int], new: list[int], reason: str
    ) -> None:
        with pytest.raises(ValueError, match=reason):
            segments.replace([segments.all()[number] for number in old], [segment(base_offset) for base_offset in new])

    def test_a_segment_of_another_log(self, segments: SegmentSet, segment: MakeSegment) -> None:
        with pytest.raises(ValueError, match="no run of segments"):
            segments.replace([segment(20)], [segment(20)])
