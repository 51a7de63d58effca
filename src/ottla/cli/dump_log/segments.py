"""The lines of a dump, by kind of file."""

from __future__ import annotations

import mmap
import sys
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from ottla.base.errors import CorruptBatchError, KafkaError
from ottla.cli.dump_log import Settings
from ottla.cli.dump_log.text import batch_line, record_line, snapshot_lines
from ottla.cli.failures import UsageError
from ottla.log.offset_index import OffsetIndex, OffsetPosition
from ottla.log.producer_snapshot import SnapshotError, decode_snapshot
from ottla.log.time_index import TimeEntry, TimeIndex
from ottla.log.transaction_index import TransactionIndex
from ottla.records.batch import BatchHeader, crc_is_valid, iter_headers
from ottla.records.reader import Record, read_records

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def dump_lines(path: Path, settings: Settings) -> Iterator[str]:
    match path.suffix:
        case ".log":
            yield from _log_lines(path, settings)
        case ".index":
            yield from _index_lines(path, settings)
        case ".timeindex":
            yield from _time_index_lines(path, settings)
        case ".txnindex":
            for entry in TransactionIndex(path, _base_offset(path)).entries():
                yield (
                    f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
                    f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
                )
        case ".snapshot":
            try:
                yield from snapshot_lines(decode_snapshot(path.read_bytes()))
            except SnapshotError as e:
                raise KafkaError(f"{path} is no valid snapshot: {e}") from e


def _log_lines(path: Path, settings: Settings) -> Iterator[str]:
    yield f"Log starting offset: {_base_offset(path)}"
    data = _contents(path)
    end = 0
    last_offset = -1
    gaps: list[tuple[int, int]] = []
    for position, header in _whole_batches(data[: settings.max_bytes]):
        end = position + header.size
        batch = data[position:end]
        yield batch_line(header, position, valid=crc_is_valid(batch, header))
        if settings.deep:
            for record in _records(batch, header):
                if last_offset >= 0 and record.offset != last_offset + 1:
                    gaps.append((last_offset, record.offset))
                last_offset = record.offset
                yield record_line(record, header, settings.decoders, with_metadata=not settings.skip_record_metadata)
    if end < len(data) and settings.max_bytes is None:
        yield f"Found {len(data) - end} invalid bytes at the end of {path.name}"
    if gaps:
        _complain(f"Non-consecutive offsets in {path}", [f"{before} is followed by {after}" for before, after in gaps])


def _records(batch: memoryview, header: BatchHeader) -> list[Record]:
    """The records as far as they make sense: a batch with a wrong checksum may still have readable ones."""
    try:
        return read_records(batch, header)
    except CorruptBatchError as e:
        _complain(f"The records of the batch of offset {header.base_offset} cannot be read", [e.message])
        return []


def _index_lines(path: Path, settings: Settings) -> Iterator[str]:
    index = OffsetIndex(path, _base_offset(path), path.stat().st_size)
    index.open_sealed()
    log = _contents(path.with_suffix(".log"))
    entries = _used_offset_entries(index)
    if settings.sanity_check:
        _check_order([(entry.offset, entry.position) for entry in entries], path)
        if entries and entries[-1].position >= len(log):
            raise KafkaError(f"{path} points outside its log")
        yield f"{path} passed sanity check."
        return
    headers = dict(_whole_batches(log))
    mismatches = []
    for entry in entries:
        header = headers.get(entry.position)
        if header is None or header.last_offset != entry.offset:
            found = header.last_offset if header is not None else -1
            mismatches.append(f"Index offset: {entry.offset}, log offset: {found}")
        if not settings.verify_only:
            yield f"offset: {entry.offset} position: {entry.position}"
    if mismatches:
        _complain(f"Mismatches in :{path.absolute()}", mismatches)


def _time_index_lines(path: Path, settings: Settings) -> Iterator[str]:
    index = TimeIndex(path, _base_offset(path), path.stat().st_size)
    index.open_sealed()
    entries = _used_time_entries(index)
    if settings.sanity_check:
        _check_order([(entry.timestamp, entry.offset) for entry in entries], path)
        yield f"{path} passed sanity check."
        return
    batches = [header for _, header in _whole_batches(_contents(path.with_suffix(".log")))]
    last_offsets = [header.last_offset for header in batches]
    mismatches, unordered, not_found = [], [], []
    previous = -1
    for entry in entries:
        number = bisect_left(last_offsets, entry.offset)
        holder = batches[number] if number < len(batches) else None
        if holder is None or holder.last_offset != entry.offset:
            found = holder.last_offset if holder is not None else -1
            not_found.append(f"Indexed offset: {entry.offset}, found log offset: {found}")
        elif holder.max_timestamp != entry.timestamp:
            mismatches.append(f"Index timestamp: {entry.timestamp}, log timestamp: {holder.max_timestamp}")
        if entry.timestamp < previous:
            unordered.append(f"Index timestamp: {entry.timestamp}, Previously indexed timestamp: {previous}")
        previous = entry.timestamp
        if not settings.verify_only:
            yield f"timestamp: {entry.timestamp} offset: {entry.offset}"
    if mismatches:
        _complain(f"Found timestamp mismatch in :{path.absolute()}", mismatches)
    if unordered:
        _complain(f"Found out of order timestamp in :{path.absolute()}", unordered)
    if not_found:
        _complain("The following indexed offsets are not found in the log.", not_found, indent="")


def _used_offset_entries(index: OffsetIndex) -> list[OffsetPosition]:
    """The entries before the tail of zeros that an active segment's file has."""
    entries = [index.entry(number) for number in range(index.entry_count)]
    unused = OffsetPosition(index.base_offset, 0)
    while entries and entries[-1] == unused:
        entries.pop()
    return entries


def _used_time_entries(index: TimeIndex) -> list[TimeEntry]:
    entries = [index.entry(number) for number in range(index.entry_count)]
    unused = TimeEntry(0, index.base_offset)
    while entries and entries[-1] == unused:
        entries.pop()
    return entries


def _check_order(entries: list[tuple[int, int]], path: Path) -> None:
    for before, after in pairwise(entries):
        if after[0] <= before[0] or after[1] <= before[1]:
            raise KafkaError(f"{path} is out of order at {after[0]}")


def _whole_batches(data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Stops at the first bytes that are no batch: a torn tail, or zeros in a file that was reserved ahead."""
    try:
        yield from iter_headers(data)
    except CorruptBatchError:
        return


def _contents(path: Path) -> memoryview:
    with path.open("rb") as file:
        # An empty file cannot be mapped.
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b"")


def _base_offset(path: Path) -> int:
    if not path.stem.isdecimal():
        raise UsageError(f"the name of {path} is not the offset a segment begins with")
    return int(path.stem)


def _complain(title: str, lines: list[str], *, indent: str = "  ") -> None:
    print(title, *(f"{indent}{line}" for line in lines), sep="\n", file=sys.stderr)
