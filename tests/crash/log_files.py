"""Judges the files of a partition without the code that wrote them: batches, indexes, producers, leader epochs.

Everything is derived from the `.log` files alone and compared with what lies beside them. The records inside batches
are decoded with the project's reader, which has tests of its own against other implementations.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from ottla.records.reader import Record, read_records

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = 12
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_MAX_SEQUENCE = 2**31 - 1


class Batch(NamedTuple):
    position: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    data: bytes

    def records(self) -> list[Record]:
        return read_records(self.data)


class SegmentFiles(NamedTuple):
    base_offset: int
    path: Path
    data: bytes
    batches: list[Batch]


def parse_batches(data: bytes, where: object) -> list[Batch]:
    """The batches of `data`, which must consist of whole, valid ones to its last byte."""
    return list(_iter_batches(data, where))


def _iter_batches(data: bytes, where: object) -> Iterator[Batch]:
    position = 0
    while position < len(data):
        assert position + _HEADER.size <= len(data), f"{where}: {len(data) - position} stray bytes at the end"
        (base, length, epoch, magic, crc, _, last_delta, _, max_ts, pid, pepoch, seq, count) = _HEADER.unpack_from(
            data, position
        )
        size = _PREFIX + length
        assert magic == 2 and length >= _HEADER.size - _PREFIX, f"{where}: no batch at {position}"
        assert position + size <= len(data), f"{where}: the batch at {position} is cut"
        batch = data[position : position + size]
        assert crc32c(batch[21:]) == crc, f"{where}: the batch of offset {base} is damaged"
        assert count == last_delta + 1, f"{where}: the batch of offset {base} holds {count} records"
        yield Batch(position, base, base + last_delta, epoch, max_ts, pid, pepoch, seq, batch)
        position += size


class PartitionFiles:
    """One partition's directory, read while nobody writes to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.segments: list[SegmentFiles] = []
        for path in sorted(directory.glob("*.log")):
            data = path.read_bytes()
            self.segments.append(SegmentFiles(int(path.stem), path, data, parse_batches(data, path)))

    @property
    def batches(self) -> list[Batch]:
        return [batch for segment in self.segments for batch in segment.batches]

    @property
    def data(self) -> bytes:
        return b"".join(segment.data for segment in self.segments)

    @property
    def log_end_offset(self) -> int:
        batches = self.segments[-1].batches
        return batches[-1].last_offset + 1 if batches else self.segments[-1].base_offset

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records()]

    def check_offsets(self) -> None:
        """Offsets go on without a gap, through batches and segments."""
        assert self.segments, f"{self.directory} has no segment"
        expected = self.segments[0].base_offset
        for segment in self.segments:
            assert segment.base_offset == expected, f"{segment.path} should begin at {expected}"
            for batch in segment.batches:
                assert batch.base_offset == expected, f"{segment.path}: {batch.base_offset} follows {expected - 1}"
                expected = batch.last_offset + 1

    def check_indexes(self, interval_bytes: int) -> None:
        """The indexes hold what a scan of the log gives. Behind the entries of the last segment there may be zeros."""
        for segment in self.segments:
            is_last = segment is self.segments[-1]
            self._check_offset_index(segment, interval_bytes, is_last)
            self._check_time_index(segment, interval_bytes, is_last)

    def _check_offset_index(self, segment: SegmentFiles, interval_bytes: int, is_last: bool) -> None:
        path = segment.path.with_suffix(".index")
        expected = [
            (batch.last_offset - segment.base_offset, batch.position) for batch in _indexed(segment, interval_bytes)
        ]
        assert _entries(path, _OFFSET_ENTRY, is_last) == expected, f"{path} is not what its log says"

    def _check_time_index(self, segment: SegmentFiles, interval_bytes: int, is_last: bool) -> None:
        """A recovery adds an entry wherever the log ended then, so there may be more true entries than a scan makes."""
        path = segment.path.with_suffix(".timeindex")
        reached: dict[int, int] = {}  # every value the largest timestamp had, and the offset that brought it
        largest_at: dict[int, int] = {}
        largest = -1
        for batch in segment.batches:
            if batch.max_timestamp > largest:
                largest = batch.max_timestamp
                reached[largest] = batch.last_offset - segment.base_offset
            largest_at[batch.position] = largest
        entries = _entries(path, _TIME_ENTRY, is_last)
        for timestamp, offset in entries:
            assert reached.get(timestamp) == offset, f"{path}: ({timestamp}, {offset}) is not what its log says"
        assert entries == sorted(set(entries)), f"{path} is not in order"
        needed = {largest_at[batch.position] for batch in _indexed(segment, interval_bytes)} | {largest} - {-1}
        missing = needed - {timestamp for timestamp, _ in entries}
        assert not missing, f"{path} lacks {sorted(missing)}"

    def check_snapshots(self) -> None:
        """Each producer snapshot says which batch of each producer was the last one below its offset."""
        batches = self.batches
        expected: dict[int, tuple[int, int, int]] = {}
        at = 0
        for path in sorted(self.directory.glob("*.snapshot")):
            end = int(path.stem)
            assert end <= self.log_end_offset, f"{path} is beyond the end {self.log_end_offset}"
            while at < len(batches) and batches[at].base_offset < end:
                batch = batches[at]
                at += 1
                if batch.producer_id >= 0:
                    sequence = (batch.base_sequence + batch.last_offset - batch.base_offset) & _MAX_SEQUENCE
                    expected[batch.producer_id] = (batch.producer_epoch, sequence, batch.last_offset)
            assert read_snapshot(path) == expected, f"{path} is not what its log says"

    def check_leader_epochs(self) -> None:
        path = self.directory / "leader-epoch-checkpoint"
        lines = path.read_text().splitlines() if path.exists() else ["0", "0"]
        rows = [tuple(map(int, line.split())) for line in lines[2:]]
        assert lines[0] == "0" and len(rows) == int(lines[1]), f"{path} is malformed"
        for batch in self.batches:
            at = bisect_right(rows, batch.base_offset, key=lambda row: row[1])
            known = rows[at - 1][0] if at else None
            assert known == batch.leader_epoch, f"{path}: {known} for {batch.base_offset}, not {batch.leader_epoch}"

    def check(self, interval_bytes: int) -> None:
        self.check_offsets()
        self.check_indexes(interval_bytes)
        self.check_snapshots()
        self.check_leader_epochs()
        strays = [p.name for p in self.directory.iterdir() if p.suffix in (".deleted", ".cleaned", ".swap", ".tmp")]
        assert not strays, f"{self.directory} still holds {strays}"

    def first_at_or_after(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that is at least as young, by looking at all batches."""
        for batch in self.batches:
            if batch.max_timestamp >= timestamp:
                for record in batch.records():
                    if record.timestamp >= timestamp:
                        return record.timestamp, record.offset
        return None


def read_snapshot(path: Path) -> dict[int, tuple[int, int, int]]:
    """Per producer: epoch, last sequence, last offset."""
    data = path.read_bytes()
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    assert version == 1 and crc32c(data[6:]) == crc, f"{path} is damaged"
    assert len(data) == _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size
    rows = _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :])
    return {pid: (epoch, sequence, offset) for pid, epoch, sequence, offset, *_ in rows}


def _indexed(segment: SegmentFiles, interval_bytes: int) -> Iterator[Batch]:
    """The batches that deserve an entry: more than the interval away from the last one that had one."""
    last_position = 0
    for batch in segment.batches:
        if batch.position - last_position > interval_bytes:
            last_position = batch.position
            yield batch


def _entries(path: Path, form: struct.Struct, has_zero_tail: bool) -> list[tuple[int, ...]]:
    data = path.read_bytes()
    if has_zero_tail:
        data = data[: -(len(data) % form.size) or None]
    entries = list(form.iter_unpack(data))
    while has_zero_tail and entries and not any(entries[-1]):
        entries.pop()
    return entries


def partition_directories(data_dir: Path) -> dict[tuple[str, int], Path]:
    found = {}
    for path in sorted(data_dir.iterdir()):
        topic, _, number = path.name.rpartition("-")
        if path.is_dir() and topic and number.isdigit():
            found[topic, int(number)] = path
    return found
