"""What a segment still takes: by size, by index, by offsets, and by the age of its first batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.log.config import INT64_MAX, LogConfig
from ottla.log.segment_room import NO_ROOM, SegmentRoom, measure_room

CONFIG = LogConfig(segment_bytes=1_000, segment_ms=500)
MAX_OFFSET = 100 + 2**31 - 1


@pytest.mark.parametrize(
    ("position", "end_position", "last_offset", "max_timestamp", "expected"),
    [
        (10, 20, 30, 40, True),
        (11, 20, 30, 40, False),
        (10, 21, 30, 40, False),
        (10, 20, 31, 40, False),
        (10, 20, 30, 41, False),
        (0, 0, 0, -1, True),
    ],
)
def test_each_limit_is_inclusive(
    position: int, end_position: int, last_offset: int, max_timestamp: int, expected: bool
) -> None:
    room = SegmentRoom(10, 20, 30, 40)
    assert room.lasts
    assert room.takes(position, end_position, last_offset, max_timestamp) is expected


def test_what_was_not_measured_takes_nothing() -> None:
    assert not NO_ROOM.takes(0, 0, 0, -1)


def measured(now_ms: int = 0, **fields: Any) -> SegmentRoom:
    segment = {
        "size": 60,
        "base_offset": 100,
        "roll_jitter_ms": 0,
        "is_index_full": False,
        "first_timestamp": 7_000,
        "indexed_up_to": 80,
        "created_ms": 5_000,
    }
    return measure_room(SimpleNamespace(**(segment | fields)), CONFIG, now_ms)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "position", "end_position", "last_offset", "max_timestamp", "expected"),
    [
        ({}, 80, 1_000, MAX_OFFSET, 7_500, True),
        ({}, 81, 1_000, MAX_OFFSET, 7_500, False),
        ({}, 80, 1_001, MAX_OFFSET, 7_500, False),
        ({}, 80, 1_000, MAX_OFFSET + 1, 7_500, False),
        ({}, 80, 1_000, MAX_OFFSET, 7_501, False),
        ({"indexed_up_to": 50}, 60, 1_000, 100, 7_000, True),
        ({"indexed_up_to": 50}, 61, 1_000, 100, 7_000, False),
        ({"is_index_full": True}, 0, 0, 100, 7_000, False),
        ({"roll_jitter_ms": 100}, 60, 1_000, 100, 7_400, True),
        ({"roll_jitter_ms": 100}, 60, 1_000, 100, 7_401, False),
        ({"first_timestamp": 0}, 60, 1_000, 100, 500, True),
        ({"first_timestamp": 0}, 60, 1_000, 100, 501, False),
        ({"size": 0, "first_timestamp": -1}, 0, 1_000, 100, INT64_MAX, True),
        ({"size": 0, "first_timestamp": -1}, 1, 1_000, 100, 7_000, False),
    ],
)
def test_what_the_next_batch_meets(
    fields: dict[str, Any], position: int, end_position: int, last_offset: int, max_timestamp: int, expected: bool
) -> None:
    room = measured(**fields)
    assert room.lasts
    assert room.takes(position, end_position, last_offset, max_timestamp) is expected


@pytest.mark.parametrize(("now_ms", "jitter_ms", "expected"), [(5_500, 0, True), (5_501, 0, False), (5_500, 1, False)])
def test_without_timestamps_the_clock_decides_and_only_for_the_next_batch(
    now_ms: int, jitter_ms: int, expected: bool
) -> None:
    room = measured(now_ms, first_timestamp=-1, roll_jitter_ms=jitter_ms)
    assert not room.lasts
    assert room.takes(60, 1_000, 100, -1) is expected
    assert not room.takes(61, 1_000, 100, -1)
