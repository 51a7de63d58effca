"""How a segment finds batches again: the newest from memory, older ones by its index, and none where there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import CorruptBatchError
from ottla.log.config import LogConfig
from ottla.log.file import LogFile
from ottla.log.segment import Segment
from tests.own_thread import patch_own_thread
from tests.unit.log.samples import NOW_MS, batch

ONE = len(batch())
BASE = 100


def new_segment(directory: Path, count: int = 0, **settings: Any) -> Segment:
    """With so many batches of one record."""
    config = LogConfig(**{"segment_index_bytes": 4096, **settings})
    segment = Segment.create(directory, BASE, config, now_ms=NOW_MS)
    put(segment, count)
    return segment


def put(segment: Segment, count: int) -> None:
    for _ in range(count):
        offset = segment.next_offset()
        segment.append(batch(base_offset=offset), offset, NOW_MS)


class Reads:
    """Positions at which the file is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.positions: list[int] = []
        pread = os.pread

        def noted(fd: int, length: int, position: int) -> bytes:
            self.positions.append(position)
            return pread(fd, length, position)

        patch_own_thread(monkeypatch, os, "pread", noted)

    def are_needed(self, segment: Segment, number: int) -> bool:
        """To find the batch of this number."""
        self.positions.clear()
        assert segment.position_of(BASE + number) == number * ONE
        return bool(self.positions)


def test_places_of_the_newest_batches_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = new_segment(tmp_path, 1024)
    reads = Reads(monkeypatch)
    assert [number for number in (0, 1, 511, 512, 1023) if reads.are_needed(segment, number)] == []
    put(segment, 1)
    # Half of them are forgotten at once, so that it does not happen with every batch.
    assert [reads.are_needed(segment, number) for number in (0, 511, 512, 513, 1024)] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert not reads.are_needed(segment, 1025)
    put(segment, 512)
    assert not reads.are_needed(segment, 513)
    put(segment, 1)
    assert [reads.are_needed(segment, number) for number in (1025, 1026)] == [True, False]


def test_after_it_was_opened_only_what_is_appended_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_segment(tmp_path, 5).seal()
    segment = Segment.open(tmp_path, BASE, LogConfig(segment_index_bytes=4096))
    segment.open_indexes()
    reads = Reads(monkeypatch)
    assert reads.are_needed(segment, 4) and reads.are_needed(segment, 5)
    segment.become_active()
    put(segment, 2)
    assert [reads.are_needed(segment, number) for number in (4, 5, 6, 7)] == [True, False, False, False]
    segment.truncate_to(BASE + 3)
    put(segment, 1)
    assert [reads.are_needed(segment, number) for number in (2, 3, 4)] == [True, False, False]
    segment.truncate_to(BASE)
    assert not reads.are_needed(segment, 0), "nothing is left"
    put(segment, 1)
    assert not reads.are_needed(segment, 0)
    segment.seal()
    assert reads.are_needed(segment, 0)


def test_sizes_of_the_newest_batches_are_known_without_their_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = new_segment(tmp_path)
    for number in range(3):
        offset = BASE + number
        segment.append(batch(b"v" * (number + 1), base_offset=offset), offset, NOW_MS)
    reads = Reads(monkeypatch)
    sizes = [(0, ONE), (ONE, ONE + 1), (2 * ONE + 1, ONE + 2)]
    assert [segment.size_of_batch(position) for position, _ in sizes] == [size for _, size in sizes]
    assert reads.positions == []
    with pytest.raises(CorruptBatchError):
        segment.size_of_batch(segment.size)
    segment.seal()
    assert [segment.size_of_batch(position) for position, _ in sizes] == [size for _, size in sizes]
    assert reads.positions[-3:] == [position for position, _ in sizes]


@pytest.mark.parametrize("is_open", [True, False])
def test_where_the_next_batch_goes(tmp_path: Path, is_open: bool) -> None:
    segment = new_segment(tmp_path, index_interval_bytes=0)
    expected = [BASE]
    assert segment.next_offset() == BASE
    for first, last in ((BASE, BASE + 4), (BASE + 10, BASE + 10)):
        segment.append(batch(*[b"v"] * (last - first + 1), base_offset=first), last, NOW_MS)
        if not is_open:
            segment.seal()
        expected.append(segment.next_offset())
        if not is_open:
            segment.become_active()
    assert expected == [BASE, BASE + 5, BASE + 11]


def test_how_far_its_indexes_reach(tmp_path: Path) -> None:
    """The one that has fewer entries left decides; one is kept for the end."""
    segment = new_segment(tmp_path, index_interval_bytes=ONE - 1, segment_index_bytes=60)
    assert (segment.offset_index.max_entries, segment.time_index.max_entries) == (7, 5)
    found = [segment.indexed_up_to]
    for timestamp in (5, 6, 7, 7, 7, 7):
        offset = segment.next_offset()
        segment.append(batch(base_offset=offset, timestamp=timestamp), offset, timestamp)
        found.append(segment.indexed_up_to)
    interval = ONE - 1
    assert found == [
        4 * interval,
        4 * interval,
        ONE + 3 * interval,
        2 * ONE + 2 * interval,
        3 * ONE + 2 * interval,
        4 * ONE + 2 * interval,
        5 * ONE + interval,
    ]


@pytest.mark.parametrize(
    ("count", "interval_bytes", "is_corrupt"), [(2, ONE, False), (3, ONE, True), (2, ONE - 1, True), (1, 0, False)]
)
def test_an_empty_index_is_damaged_only_if_a_batch_deserves_an_entry(
    tmp_path: Path, count: int, interval_bytes: int, is_corrupt: bool, caplog: pytest.LogCaptureFixture
) -> None:
    segment = new_segment(tmp_path, count, index_interval_bytes=interval_bytes)
    segment.seal()
    os.truncate(segment.offset_index.path, 0)
    again = Segment.open(tmp_path, BASE, LogConfig(index_interval_bytes=interval_bytes, segment_index_bytes=4096))
    if is_corrupt:
        with pytest.raises(Exception, match=r"index is empty although its log is not"):
            again.open_indexes()
    else:
        again.open_indexes()
        assert again.max_timestamp == NOW_MS


def test_an_index_that_leads_nowhere_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    segment = new_segment(tmp_path, 6, index_interval_bytes=0)
    segment.seal()
    whole = segment.offset_index.path.read_bytes()
    LogFile.open(segment.offset_index.path).write_at(2 * 8 + 4, (3 * ONE + 1).to_bytes(4, "big"))
    again = Segment.open(tmp_path, BASE, LogConfig(index_interval_bytes=0, segment_index_bytes=4096))
    again.open_indexes()
    assert again.position_of(BASE + 3) == 3 * ONE
    path = segment.offset_index.path
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} does not fit its log at offset {BASE + 3}; rebuilding it"
    ]
    assert path.read_bytes() == whole and not again.offset_index.is_writable
    assert (again.max_timestamp, again.offset_of_max_timestamp) == (NOW_MS, BASE)
    assert [again.position_of(BASE + number) for number in range(7)] == [number * ONE for number in range(7)]
