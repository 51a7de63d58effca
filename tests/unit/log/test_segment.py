"""One segment by itself: what its indexes are told and when, what is reserved, cut, synced and renamed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import CorruptBatchError
from ottla.log.config import LogConfig
from ottla.log.file import LogFile
from ottla.log.index_file import CorruptIndexError
from ottla.log.segment import Segment
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import HEADER_SIZE, read_header
from tests.own_thread import patch_own_thread
from tests.unit.log.samples import NOW_MS, batch

ONE = len(batch())
BASE = 100
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")

NewSegment = Callable[..., Segment]


@pytest.fixture
def new(tmp_path: Path) -> NewSegment:
    def make(ending: str = "", base_offset: int = BASE, **settings: Any) -> Segment:
        config = LogConfig(**{"segment_index_bytes": 240, "index_interval_bytes": ONE, **settings})
        return Segment.create(tmp_path, base_offset, config, now_ms=NOW_MS, ending=ending)

    return make


def put(segment: Segment, *timestamps: int) -> None:
    """A batch of one record for each, with the next offset."""
    for timestamp in timestamps:
        offset = segment.next_offset()
        segment.append(batch(timestamp=timestamp, base_offset=offset), offset, timestamp)


def opened(segment: Segment, **settings: Any) -> Segment:
    """Closed and opened by somebody else, sealed."""
    segment.seal()
    config = LogConfig(**{"segment_index_bytes": 240, "index_interval_bytes": ONE, **settings})
    again = Segment.open(segment.directory, segment.base_offset, config)
    again.open_indexes()
    return again


def indexed(segment: Segment) -> list[int]:
    """Which of the batches, that are all of one size, have an entry."""
    index = segment.offset_index
    return [index.entry(number).position // ONE for number in range(index.entry_count)]


# -- indexes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval_bytes", "expected"),
    [(0, [1, 2, 3, 4]), (ONE - 1, [1, 2, 3, 4]), (ONE, [2, 4]), (2 * ONE - 1, [2, 4]), (2 * ONE, [3])],
)
def test_entries_are_further_apart_than_the_interval(new: NewSegment, interval_bytes: int, expected: list[int]) -> None:
    segment = new(index_interval_bytes=interval_bytes)
    put(segment, *[NOW_MS] * 5)
    assert indexed(segment) == expected
    segment.rebuild_indexes()
    assert indexed(segment) == expected


@pytest.mark.parametrize(("before", "expected"), [(1, [1, 2]), (2, [1, 2]), (3, [1, 2, 3])])
def test_the_interval_goes_on_behind_the_last_entry_when_a_segment_is_opened(
    new: NewSegment, before: int, expected: list[int]
) -> None:
    segment = new(index_interval_bytes=ONE - 1)
    put(segment, *[NOW_MS] * before)
    again = opened(segment, index_interval_bytes=ONE - 1)
    again.become_active()
    put(again, *[NOW_MS] * (len(expected) + 1 - before))
    assert indexed(again) == expected


def test_the_interval_goes_on_behind_the_last_entry_that_a_cut_has_left(new: NewSegment) -> None:
    segment = new(index_interval_bytes=ONE - 1)
    put(segment, *[NOW_MS] * 4)
    assert segment.truncate_to(BASE + 1) == 3 * ONE
    put(segment, NOW_MS, NOW_MS)
    assert indexed(segment) == [1, 2]
    segment.truncate_to(BASE + 2)
    put(segment, NOW_MS)
    assert indexed(segment) == [1, 2]
    assert segment.truncate_to(BASE + 3) == 0


def test_the_first_of_several_youngest_batches_is_remembered(new: NewSegment) -> None:
    segment = new()
    put(segment, 5, 9, 9, 3)
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (9, BASE + 1)
    segment.truncate_to(BASE + 1)
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (5, BASE)
    segment.truncate_to(BASE)
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (-1, BASE)


def test_the_age_is_counted_from_the_first_batch(new: NewSegment) -> None:
    segment = new()
    assert segment.first_timestamp == -1
    put(segment, 7, 3)
    assert segment.first_timestamp == 7
    assert opened(segment).first_timestamp == 7
    segment.become_active()
    segment.truncate_to(BASE)
    assert segment.first_timestamp == -1
    put(segment, 5)
    assert segment.first_timestamp == 5


@pytest.mark.parametrize("full", ["offset", "time"])
def test_an_index_that_is_full_is_known_to_be_when_a_segment_is_written_to_again(new: NewSegment, full: str) -> None:
    settings = {"index_interval_bytes": 0, "segment_index_bytes": 24}
    segment = new(**settings)
    if full == "offset":
        put(segment, *[-1] * 3)
        assert not segment.is_index_full
        put(segment, -1)
        assert segment.offset_index.is_full and not segment.time_index.is_full
    else:
        put(segment, 1, 2)
        assert segment.time_index.is_full and not segment.offset_index.is_full
    assert segment.is_index_full
    again = opened(segment, **settings)
    again.become_active()
    assert again.is_index_full
    again.truncate_to(BASE + 1)
    assert not again.is_index_full


def test_jitter_takes_every_value_up_to_its_limit(new: NewSegment) -> None:
    found = {new(base_offset=offset, segment_jitter_ms=2).roll_jitter_ms for offset in range(40)}
    assert found == {0, 1, 2}
    assert {new(base_offset=offset).roll_jitter_ms for offset in range(40)} == {0}


def test_an_entry_may_point_at_a_last_batch_that_is_a_header_alone(
    new: NewSegment, caplog: pytest.LogCaptureFixture
) -> None:
    segment = new(index_interval_bytes=0)
    put(segment, 5, 6)
    header = read_header(batch(base_offset=BASE + 2))._replace(batch_length=HEADER_SIZE - 12, record_count=0)
    segment.append(bytes(batch(base_offset=BASE + 2))[:8] + (HEADER_SIZE - 12).to_bytes(4, "big")
                   + bytes(batch())[12:HEADER_SIZE], header.last_offset, 6)  # fmt: skip
    again = opened(segment, index_interval_bytes=0)
    assert again.position_of(BASE + 2) == 2 * ONE
    assert again.position_of(BASE + 3) == again.size == 2 * ONE + HEADER_SIZE
    assert caplog.records == []


# -- opening -----------------------------------------------------------------------------------------------------


def test_a_segment_is_as_old_as_its_file(new: NewSegment) -> None:
    segment = new()
    assert segment.created_ms == NOW_MS
    put(segment, NOW_MS)
    segment.seal()
    os.utime(segment.log.path, ns=(0, 123_456_789_000))
    assert opened(segment).created_ms == 123_456


def test_files_of_an_earlier_segment_of_the_name_are_replaced(new: NewSegment) -> None:
    segment = new()
    put(segment, 1, 2, 3)
    segment.transaction_index.append(AbortedTransaction(1, BASE, BASE + 1, BASE + 2))
    segment.seal()
    again = new()
    assert (again.size, again.log.size(), again.offset_index.entry_count) == (0, 0, 0)
    assert again.transaction_index.entries() == []
    assert segment.log.size() == 3 * ONE, "whoever reads the old one goes on"


@pytest.mark.parametrize(
    ("suffix", "words"),
    [(".index", "is empty although its log is not"), (".timeindex", "is empty although its log has timestamps")],
)
def test_an_index_that_has_lost_its_entries_is_noticed(new: NewSegment, suffix: str, words: str) -> None:
    segment = new()
    put(segment, 1, 2, 3)
    segment.seal()
    os.truncate(segment.log.path.with_suffix(suffix), 0)
    with pytest.raises(CorruptIndexError, match=words):
        opened(segment)


def test_no_entries_are_missed_where_there_is_no_need_for_any(new: NewSegment) -> None:
    segment = new()
    assert opened(segment).max_timestamp == -1
    put(again := new(index_interval_bytes=ONE), -1, -1)
    assert opened(again).max_timestamp == -1


@pytest.mark.parametrize(("timestamp", "offset"), [(3, BASE + 1), (2, BASE + 9), (1, BASE + 1)])
def test_a_time_index_that_does_not_fit_its_log_is_noticed(new: NewSegment, timestamp: int, offset: int) -> None:
    segment = new()
    put(segment, 1, 2)
    segment.max_timestamp, segment.offset_of_max_timestamp = timestamp, offset
    with pytest.raises(CorruptIndexError):
        opened(segment)


# -- space -------------------------------------------------------------------------------------------------------


def reservations(monkeypatch: pytest.MonkeyPatch, from_bytes: int) -> list[tuple[int, int]]:
    asked: list[tuple[int, int]] = []

    def reserve(file: LogFile, position: int, length: int) -> bool:
        asked.append((position, length))
        return True

    monkeypatch.setattr("ottla.log.segment._RESERVE_FROM_BYTES", from_bytes)
    monkeypatch.setattr(LogFile, "reserve_behind", reserve)
    return asked


@pytest.mark.parametrize(("together", "asked_at"), [(1, [8, 10, 13]), (2, [8, 10])])
def test_space_is_reserved_from_a_size_on_and_again_where_it_ends(
    new: NewSegment, monkeypatch: pytest.MonkeyPatch, together: int, asked_at: list[int]
) -> None:
    asked = reservations(monkeypatch, 8 * ONE)
    segment = new()

    def append() -> None:
        if together == 1:
            put(segment, NOW_MS)
        else:
            records = [batch(base_offset=BASE)] * 2
            segment.append_all(records, [(segment.size, BASE, -1)], segment.size + 2 * ONE)

    while segment.size < 14 * ONE:
        append()
    # A quarter of what is there, each time from where the space ends or soon after.
    assert asked == [(at * ONE, at * ONE // 4) for at in asked_at]


def test_a_reservation_has_its_limit(new: NewSegment, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = reservations(monkeypatch, 8 * ONE)
    monkeypatch.setattr("ottla.log.segment._RESERVE_BYTES_MAX", ONE)
    segment = new()
    put(segment, *[NOW_MS] * 10)
    assert asked == [(8 * ONE, ONE), (9 * ONE, ONE)]


def test_nothing_is_reserved_where_all_space_was_taken_beforehand(
    new: NewSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = reservations(monkeypatch, 0)
    segment = new(preallocate=True, segment_bytes=10 * ONE)
    put(segment, *[NOW_MS] * 3)
    assert asked == []
    segment.seal()
    assert segment.log.size() == 3 * ONE


@pytest.mark.parametrize(("surplus", "is_cut"), [(99, False), (100, True)])
def test_what_a_killed_broker_had_reserved_is_given_back(
    new: NewSegment, monkeypatch: pytest.MonkeyPatch, surplus: int, is_cut: bool
) -> None:
    segment = new()
    put(segment, NOW_MS)
    again = opened(segment)
    monkeypatch.setattr("ottla.log.segment._RESERVE_FROM_BYTES", 400)
    monkeypatch.setattr(LogFile, "allocated_bytes", lambda file: ONE + surplus)
    cut: list[int] = []
    monkeypatch.setattr(LogFile, "truncate", lambda file, size: cut.append(size))
    again.become_active()
    again.seal()
    assert cut == [ONE] * is_cut


@pytest.mark.parametrize("call", ["pwrite", "pwritev"])
def test_what_a_failed_write_has_left_is_cut_at_once_or_later(
    new: NewSegment, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    segment = new()
    put(segment, NOW_MS)

    def half(fd: int, data: Any, position: int) -> int:
        whole(fd, b"x" * 20, position)
        raise OSError(28, "No space left on device")

    def refuses(*_: object) -> None:
        raise OSError(5, "Input/output error")

    whole = os.pwrite

    def attempt() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(os, call, half)
            with pytest.raises(OSError, match="No space left"):
                if call == "pwrite":
                    segment.append(batch(), BASE + 1, NOW_MS)
                else:
                    segment.append_all([batch()] * 2, [], 3 * ONE)

    attempt()
    assert segment.size == segment.log.size() == ONE
    with monkeypatch.context() as refusing:
        refusing.setattr(os, "ftruncate", refuses)
        attempt()
    assert segment.log.size() == ONE + 20
    segment.seal()
    assert segment.log.size() == ONE


# -- files -------------------------------------------------------------------------------------------------------


def test_a_segment_is_durable_with_all_its_files(new: NewSegment, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = new()
    put(segment, 1, 2, 3)
    segment.transaction_index.append(AbortedTransaction(1, BASE, BASE + 1, BASE + 2))
    synced: set[str] = set()
    patch_own_thread(
        monkeypatch, os, "fdatasync", lambda fd: synced.add(Path(os.readlink(f"/proc/self/fd/{fd}")).suffix)
    )
    segment.sync()
    assert synced == set(SUFFIXES)
    again = opened(segment)
    assert (again.offset_index.entry_count, again.transaction_index.entries()[0].producer_id) == (1, 1)


def test_files_of_a_segment_that_is_not_part_of_its_log_yet_have_another_ending(new: NewSegment) -> None:
    segment = new(".cleaned")
    put(segment, 1)
    segment.transaction_index.ensure_file()
    names = {f"{BASE:020}{suffix}" for suffix in SUFFIXES}
    assert {path.name for path in segment.directory.iterdir()} == {f"{name}.cleaned" for name in names}
    segment.rename_files("")
    assert {path.name for path in segment.directory.iterdir()} == names
    segment.mark_deleted()
    assert {path.name for path in segment.directory.iterdir()} == {f"{name}.deleted" for name in names}
    segment.remove_files()
    assert list(segment.directory.iterdir()) == []
    segment.remove_files()


@pytest.mark.parametrize("suffix", SUFFIXES[:3])
def test_somebody_else_may_remove_a_file_only_of_a_segment_that_goes(new: NewSegment, suffix: str) -> None:
    segment = new()
    (segment.directory / f"{BASE:020}{suffix}").unlink()
    with pytest.raises(FileNotFoundError):
        segment.rename_files(".swap")
    other = new(base_offset=7)
    (other.directory / f"{7:020}{suffix}").unlink()
    other.mark_deleted()
    assert other.is_deleted
    assert len(list(other.directory.glob(f"{7:020}.*.deleted"))) == 2


def test_a_directory_may_be_renamed_under_a_segment(new: NewSegment) -> None:
    segment = new()
    put(segment, 1, 2, 3)
    moved = segment.directory.with_name("moved")
    segment.directory.rename(moved)
    segment.moved_to(moved)
    segment.transaction_index.append(AbortedTransaction(1, BASE, BASE + 1, BASE + 2))
    segment.seal()
    assert {path.suffix for path in moved.iterdir()} == set(SUFFIXES)
    segment.mark_deleted()
    assert {path.suffix for path in moved.iterdir()} == {".deleted"}


def test_a_batch_that_the_file_ends_within_is_not_given(new: NewSegment) -> None:
    segment = new()
    put(segment, 1)
    header = segment.header_at(0)
    assert segment.batch_at(0, header) == bytes(batch(timestamp=1, base_offset=BASE))
    segment.log.truncate(ONE - 1)
    with pytest.raises(CorruptBatchError, match="ends inside the batch at position 0"):
        segment.batch_at(0, header)


def test_damage_ends_an_index_that_is_made_anew(new: NewSegment, caplog: pytest.LogCaptureFixture) -> None:
    segment = new(index_interval_bytes=0)
    put(segment, 1, 2, 9, 4)
    segment.seal()
    segment.log.write_at(2 * ONE + 16, b"\7")
    segment.rebuild_indexes()
    assert "holds no batch at position" in caplog.text
    assert indexed(segment) == [1]
    assert segment.time_index.last() == (2, BASE + 1)
    assert not segment.offset_index.is_writable and not segment.time_index.is_writable
    assert segment.position_of(BASE + 1) == ONE
    with pytest.raises(CorruptBatchError):
        segment.position_of(BASE + 3)
