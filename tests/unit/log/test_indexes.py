"""The index files: their bytes, and that a lookup finds what a linear scan would find."""

from __future__ import annotations

import json
import os
import stat
import struct
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.index_file import CorruptIndexError, IndexFile
from ottla.log.offset_index import OffsetIndex
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from tests.own_thread import patch_own_thread

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "on_disk.json").read_text())
BASE = 1000


def golden_bytes(beginning: str) -> bytes:
    return next(bytes.fromhex(item["hex"]) for item in GOLDEN["items"] if item["what"].startswith(beginning))


@pytest.fixture
def offset_index(tmp_path: Path) -> OffsetIndex:
    index = OffsetIndex(tmp_path / "i.index", BASE, 805)
    index.create()
    return index


@pytest.fixture
def time_index(tmp_path: Path) -> TimeIndex:
    index = TimeIndex(tmp_path / "i.timeindex", BASE, 1205)
    index.create()
    return index


def test_offset_index_bytes(offset_index: OffsetIndex) -> None:
    offset_index.append(1010, 4200)
    offset_index.append(1023, 8500)
    offset_index.seal()
    assert offset_index.path.read_bytes() == golden_bytes(".index")
    again = OffsetIndex(offset_index.path, BASE, 805)
    again.open_sealed()
    assert [again.entry(0), again.entry(1)] == [(1010, 4200), (1023, 8500)]


def test_time_index_bytes(time_index: TimeIndex) -> None:
    time_index.maybe_append(1700000000000, 1010)
    time_index.maybe_append(1700000000000, 1015)
    time_index.maybe_append(1700000000050, 1023)
    time_index.seal()
    assert time_index.path.read_bytes() == golden_bytes(".timeindex")
    again = TimeIndex(time_index.path, BASE, 1205)
    again.open_sealed()
    assert [again.entry(0), again.entry(1)] == [(1700000000000, 1010), (1700000000050, 1023)]


def test_txn_index_bytes(tmp_path: Path) -> None:
    index = TransactionIndex(tmp_path / "i.txnindex", BASE)
    index.create()
    index.write_pending()
    assert not index.path.exists()
    index.append(AbortedTransaction(4000, 1003, 1015, 1016))
    index.write_pending()
    assert index.path.read_bytes() == golden_bytes(".txnindex")
    assert TransactionIndex(index.path, BASE).entries() == [(4000, 1003, 1015, 1016)]


def test_active_file_is_presized_and_sealed_file_is_trimmed(offset_index: OffsetIndex) -> None:
    assert offset_index.path.stat().st_size == 800
    offset_index.append(1001, 10)
    offset_index.write_pending()
    assert offset_index.path.read_bytes() == bytes.fromhex("000000010000000a") + bytes(792)
    offset_index.seal()
    assert offset_index.path.stat().st_size == 8
    offset_index.reopen_writable()
    offset_index.append(1002, 20)
    offset_index.seal()
    assert offset_index.path.read_bytes() == bytes.fromhex("000000010000000a0000000200000014")


def test_a_presized_file_takes_no_space(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "i.index", 0, 10_485_760)
    index.create()
    assert index.path.stat().st_size == 10_485_760
    assert index.path.stat().st_blocks * 512 < 65536


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60),
    targets=st.lists(st.integers(BASE - 5, BASE + 3500), min_size=1),
    sealed=st.booleans(),
)
def test_offset_lookup_is_a_linear_scan(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], targets: list[int], sealed: bool
) -> None:
    index = OffsetIndex(tmp_path_factory.mktemp("index") / "i.index", BASE, 4096)
    index.create()
    offsets = list(accumulate((step for step, _ in steps), initial=BASE))[1:]
    positions = list(accumulate(step for _, step in steps))
    for offset, position in zip(offsets, positions, strict=True):
        index.append(offset, position)
    if sealed:
        index.seal()
    for target in targets:
        below = [pair for pair in zip(offsets, positions, strict=True) if pair[0] <= target]
        assert index.lookup(target) == (below[-1] if below else (BASE, 0))
    index.truncate_to(targets[0])
    assert [tuple(index.entry(n)) for n in range(index.entry_count)] == [
        pair for pair in zip(offsets, positions, strict=True) if pair[0] < targets[0]
    ]


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(-20, 50)), max_size=60),
    targets=st.lists(st.integers(0, 2000), min_size=1),
    sealed=st.booleans(),
)
def test_time_lookup_is_a_linear_scan(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], targets: list[int], sealed: bool
) -> None:
    index = TimeIndex(tmp_path_factory.mktemp("index") / "i.timeindex", BASE, 4096)
    index.create()
    offset, timestamp, kept = BASE, 100, []
    for offset_step, time_step in steps:
        offset, timestamp = offset + offset_step, timestamp + time_step
        index.maybe_append(timestamp, offset)
        if timestamp > (kept[-1][0] if kept else -1):
            kept.append((timestamp, offset))
    if sealed:
        index.seal()
    for target in targets:
        below = [entry for entry in kept if entry[0] <= target]
        assert index.lookup(target) == (below[-1] if below else None)
    index.truncate_to(BASE + targets[0])
    assert [tuple(index.entry(n)) for n in range(index.entry_count)] == [
        entry for entry in kept if entry[1] < BASE + targets[0]
    ]


def test_full(offset_index: OffsetIndex, time_index: TimeIndex) -> None:
    for number in range(1, 100):
        offset_index.append(BASE + number, number)
        time_index.maybe_append(number, BASE + number)
        assert not offset_index.is_full
        assert time_index.is_full == (number == 99)
    offset_index.append(BASE + 100, 100)
    assert offset_index.is_full


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_files_that_are_no_index(tmp_path: Path, kind: type[IndexFile]) -> None:
    index = kind(tmp_path / "i", BASE, 4096)
    with pytest.raises(CorruptIndexError, match="missing"):
        index.open_sealed()
    index.path.write_bytes(bytes(13))
    with pytest.raises(CorruptIndexError, match="no multiple"):
        index.open_sealed()


def test_zeros_are_no_entries(tmp_path: Path) -> None:
    (tmp_path / "o").write_bytes(bytes(16))
    offsets = OffsetIndex(tmp_path / "o", BASE, 4096)
    offsets.open_sealed()
    with pytest.raises(CorruptIndexError):
        offsets.check(log_size=1000)
    (tmp_path / "t").write_bytes(bytes(24))
    times = TimeIndex(tmp_path / "t", BASE, 4096)
    times.open_sealed()
    with pytest.raises(CorruptIndexError):
        times.check()


def test_pending_entries_are_written_beside_appends(offset_index: OffsetIndex) -> None:
    for number in range(1, 100):
        offset_index.append(BASE + number, number * 10)
        if number % 7 == 0:
            offset_index.write_pending()
    offset_index.truncate_to(BASE + 50)
    offset_index.append(BASE + 60, 5000)
    offset_index.seal()
    again = OffsetIndex(offset_index.path, BASE, 805)
    again.open_sealed()
    assert [again.entry(n).offset - BASE for n in range(again.entry_count)] == [*range(1, 50), 60]


class TestTxnIndex:
    @pytest.fixture
    def index(self, tmp_path: Path) -> TransactionIndex:
        index = TransactionIndex(tmp_path / "i.txnindex", 0)
        index.create()
        for entry in ((1, 0, 10, 5), (2, 5, 20, 15), (3, 15, 30, 31)):
            index.append(AbortedTransaction(*entry))
        return index

    @pytest.mark.parametrize(
        ("start", "end", "producers", "is_complete"),
        [
            (0, 5, [1], True),
            (0, 6, [1, 2], True),
            (11, 16, [2, 3], True),
            (11, 15, [2], True),
            (21, 31, [3], True),
            (21, 40, [3], False),
            (31, 40, [], False),
        ],
    )
    def test_overlapping(
        self, index: TransactionIndex, start: int, end: int, producers: list[int], is_complete: bool
    ) -> None:
        found, complete = index.overlapping(start, end)
        assert ([entry.producer_id for entry in found], complete) == (producers, is_complete)

    def test_truncation(self, index: TransactionIndex) -> None:
        index.write_pending()
        index.truncate_to(20)
        index.append(AbortedTransaction(4, 15, 25, 26))
        index.write_pending()
        assert [entry.producer_id for entry in TransactionIndex(index.path, 0).entries()] == [1, 4]

    def test_what_was_released_is_read_again(self, index: TransactionIndex) -> None:
        index.write_pending()
        index.path.write_bytes(index.path.read_bytes()[:34])
        assert len(index.entries()) == 3
        index.release()
        assert [entry.producer_id for entry in index.entries()] == [1]

    @pytest.mark.parametrize(
        "damage", [bytes(34), b"\xff" * 34, bytes(33), b"\x00\x01" + bytes(32)], ids=["zero", "ones", "short", "v1"]
    )
    def test_damage(self, index: TransactionIndex, damage: bytes) -> None:
        index.write_pending()
        index.path.write_bytes(index.path.read_bytes() + damage)
        with pytest.raises(CorruptIndexError):
            TransactionIndex(index.path, 0).entries()

    @pytest.mark.parametrize(
        ("entries", "is_possible"),
        [
            ([(0, 0, 1, 0, 0)], False),
            ([(1, 0, 0, 0, 0)], False),
            ([(0, -1, BASE, BASE, BASE)], False),
            ([(0, 0, BASE, BASE, BASE)], True),
            ([(0, 0, BASE - 5, BASE, BASE)], True),
            ([(0, 0, BASE - 5, BASE - 1, BASE)], False),
            ([(0, 0, BASE + 1, BASE, BASE + 1)], False),
            ([(0, 0, BASE + 1, BASE + 1, BASE)], False),
            ([(0, 0, BASE, BASE + end, BASE + end) for end in (1, 2, 3)], True),
            ([(0, 0, BASE, BASE + end, BASE + end) for end in (1, 1)], False),
            ([(0, 0, BASE, BASE + end, BASE + end) for end in (1, 3, 2)], False),
        ],
    )
    def test_what_is_an_entry(self, tmp_path: Path, entries: list[tuple[int, ...]], is_possible: bool) -> None:
        path = tmp_path / "i.txnindex"
        path.write_bytes(b"".join(struct.pack(">hqqqq", *entry) for entry in entries))
        index = TransactionIndex(path, BASE)
        if is_possible:
            assert [tuple(entry) for entry in index.entries()] == [entry[1:] for entry in entries]
        else:
            with pytest.raises(CorruptIndexError, match="impossible entry"):
                index.entries()

    def test_a_write_that_takes_a_part_is_gone_on_with(
        self, index: TransactionIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _write_in_parts(monkeypatch)
        index.write_pending()
        assert TransactionIndex(index.path, 0).entries() == index.entries()


def _write_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that is nearly full, or with a signal in between."""
    whole = os.pwrite
    patch_own_thread(monkeypatch, os, "pwrite", lambda fd, data, position: whole(fd, bytes(data[:5]), position))


def test_an_index_is_written_in_parts_if_need_be(offset_index: OffsetIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 50):
        offset_index.append(BASE + number, number * 10)
    _write_in_parts(monkeypatch)
    offset_index.seal()
    again = OffsetIndex(offset_index.path, BASE, 805)
    again.open_sealed()
    assert [again.entry(n).offset - BASE for n in range(again.entry_count)] == list(range(1, 50))


def test_an_index_is_readable_for_others_and_nothing_more(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "i.index", BASE, 805)
    before = os.umask(0o022)
    try:
        index.create()
    finally:
        os.umask(before)
    assert stat.S_IMODE(index.path.stat().st_mode) == 0o644


def test_what_the_system_takes_only_in_part_is_written_all_the_same(
    offset_index: OffsetIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pwrite
    patch_own_thread(monkeypatch, os, "pwrite", lambda fd, data, position: whole(fd, bytes(data)[:5], position))
    for number in range(1, 6):
        offset_index.append(BASE + number, number * 10)
        if number in (2, 5):
            offset_index.write_pending()
    expected = b"".join(struct.pack(">ii", number, number * 10) for number in range(1, 6))
    assert offset_index.path.read_bytes()[: len(expected)] == expected


@pytest.mark.parametrize(
    ("entries", "is_possible"),
    [
        ([], True),
        ([(0, 0)], True),
        ([(-1, 0)], False),
        ([(5, -1)], False),
        ([(5, 3), (6, 4)], True),
        ([(5, 3), (5, 4)], False),
        ([(5, 3), (6, 3)], False),
        ([(5, 3), (4, 4)], False),
        ([(5, 3), (6, 2)], False),
    ],
)
def test_timestamps_and_offsets_of_a_time_index_rise(
    tmp_path: Path, entries: list[tuple[int, int]], is_possible: bool
) -> None:
    path = tmp_path / "i.timeindex"
    path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))
    index = TimeIndex(path, BASE, 1200)
    index.open_sealed()
    if is_possible:
        index.check()
    else:
        with pytest.raises(CorruptIndexError):
            index.check()


@pytest.mark.parametrize(
    ("entries", "is_possible"),
    [
        ([], True),
        ([(0, 1)], True),
        ([(-1, 1)], False),
        ([(5, 0)], False),
        ([(5, 99)], True),
        ([(5, 100)], False),
        ([(5, 3), (6, 4)], True),
        ([(5, 3), (6, 99)], True),
        ([(5, 3), (6, 100)], False),
        ([(5, 3), (5, 4)], False),
        ([(5, 3), (6, 3)], False),
        ([(5, 3), (4, 4)], False),
        ([(5, 3), (6, 2)], False),
        ([(5, 3), (1, 1), (6, 4)], True),
    ],
)
def test_entries_of_an_offset_index_rise_and_lie_within_their_log(
    tmp_path: Path, entries: list[tuple[int, int]], is_possible: bool
) -> None:
    """No entry is made for the first batch; what lies between the first and the last entry is not looked at."""
    path = tmp_path / "i.index"
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    index = OffsetIndex(path, BASE, 800)
    index.open_sealed()
    if is_possible:
        index.check(100)
    else:
        with pytest.raises(CorruptIndexError):
            index.check(100)


@pytest.mark.parametrize(
    ("position", "before", "after"),
    [(0, 0, 10), (10, 0, 10), (11, 10, 20), (20, 10, 20), (21, 20, 30), (30, 20, 30), (31, 30, None)],
)
def test_entries_around_a_position(offset_index: OffsetIndex, position: int, before: int, after: int | None) -> None:
    assert (offset_index.last(), offset_index.first_at_or_after(0)) == (None, None)
    for number in (10, 20, 30):
        offset_index.append(BASE + number, number)
    assert offset_index.last_before(position) == (BASE + before, before)
    assert offset_index.first_at_or_after(position) == (None if after is None else (BASE + after, after))
    assert offset_index.last() == (BASE + 30, 30)


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_a_sealed_index_takes_no_entries(tmp_path: Path, kind: type[OffsetIndex] | type[TimeIndex]) -> None:
    index = kind(tmp_path / "i", BASE, 4096)
    index.create()
    index.seal()
    assert not index.is_writable and index.path.stat().st_size == 0
    with pytest.raises(CorruptIndexError, match="sealed"):
        index.append(1, 1) if isinstance(index, OffsetIndex) else index.maybe_append(1, 1)
    index.reopen_writable()
    assert index.is_writable and index.size_bytes == 0


def test_what_is_cut_off_before_it_was_written_is_written_when_it_comes_again(offset_index: OffsetIndex) -> None:
    for number in range(1, 5):
        offset_index.append(BASE + number, number)
    offset_index.write_pending()
    offset_index.truncate_to(BASE + 3)
    assert offset_index.size_bytes == 16
    offset_index.append(BASE + 8, 80)
    offset_index.write_pending()
    assert offset_index.path.read_bytes()[:24] == struct.pack(">6i", 1, 1, 2, 2, 8, 80)


def test_an_index_that_is_larger_than_it_may_be_keeps_what_it_has_when_it_is_written_to_again(tmp_path: Path) -> None:
    path = tmp_path / "i.index"
    path.write_bytes(b"".join(struct.pack(">ii", number, number) for number in range(1, 6)))
    index = OffsetIndex(path, BASE, 24)
    index.open_sealed()
    assert index.max_entries == 3
    index.reopen_writable()
    assert path.stat().st_size == 40
    assert index.is_full and index.last() == (BASE + 5, 5)


def test_a_released_index_has_no_entries_and_leaves_its_file(offset_index: OffsetIndex) -> None:
    offset_index.append(BASE + 1, 1)
    offset_index.seal()
    offset_index.release()
    assert (offset_index.entry_count, bytes(offset_index.entries())) == (0, b"")
    assert offset_index.path.stat().st_size == 8
