"""What the tests of the log room share: batches as a client sends them, and ways to look into a log."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck

from ottla.base.types import FileSlice, TopicPartition, Uuid
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import load_partition
from ottla.records.batch import iter_headers
from ottla.records.builder import build_batch
from ottla.records.reader import Record, read_records

NOW_MS = 1_700_000_000_000
TP = TopicPartition("events", 0)
TOPIC_ID = Uuid(bytes(range(16)))

MakeLog = Callable[..., PartitionLog]
"""A new log with the given settings."""

FRESH_LOG = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
"""For property tests: `make_log` gives each example a directory of its own."""


def batch(*values: bytes | None, timestamp: int = NOW_MS, key: bytes | None = b"k", **fields: Any) -> memoryview:
    """One batch, writable, with a record per value."""
    values = values or (b"v",)
    return memoryview(bytearray(build_batch([(key, value, (), timestamp) for value in values], **fields)))


def idempotent(
    base_sequence: int, count: int = 1, *, producer_id: int = 7, producer_epoch: int = 0, **more: Any
) -> memoryview:
    return batch(
        *[b"v"] * count,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        **more,
    )


def append(log: PartitionLog, *values: bytes | None, **fields: Any) -> int:
    """Append one batch as leader; returns its first offset."""
    return log.append_as_leader(batch(*values, **fields), leader_epoch=0, now_ms=NOW_MS).first_offset


def slice_bytes(data: FileSlice | None) -> bytes:
    if data is None:
        return b""
    return os.pread(data.file.fd, data.length, data.position)


def read_all(log: PartitionLog) -> list[Record]:
    """Every record from the start to the end, through `read`."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = slice_bytes(log.read(offset, 1 << 20, end_offset=log.log_end_offset).data)
        if not data:
            break
        for position, header in iter_headers(data):
            records += [r for r in read_records(data[position:], header) if r.offset >= offset]
            next_offset = header.next_offset
        offset = next_offset
    return records


def reopen(log: PartitionLog, *, is_clean: bool, **checkpoints: int) -> PartitionLog:
    """Load the log's directory again, as a new process would."""
    offsets = {"recovery_point": 0, "log_start_offset": 0, "high_watermark": 0} | checkpoints
    return load_partition(
        log.directory, log.topic_partition, log.topic_id, log.config, is_clean=is_clean, now_ms=NOW_MS, **offsets
    )
