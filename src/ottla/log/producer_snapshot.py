"""What is remembered of one producer, and the file in which a partition's producers are kept (`.snapshot`).

A snapshot is a matter of speed only: what it says can always be found again in the log. So it carries a checksum, and
one that is damaged is thrown away.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ottla.base.errors import OttlaError
from ottla.log.segment_files import SNAPSHOT_SUFFIX, offsets_of_files, segment_path
from ottla.records.batch import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from ottla.records.checksum import crc32c

DUPLICATE_WINDOW = 5
"""As many batches as a client may have in flight, so that each of them can be recognised when it is sent again."""

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6
NO_OFFSET = -1
_NO_COORDINATOR_EPOCH = -1


class StoredBatch(NamedTuple):
    """A batch that is in the log, as far as recognising it again needs."""

    base_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    batches: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=DUPLICATE_WINDOW))
    coordinator_epoch: int = _NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int = NO_OFFSET
    """Where the open transaction began; -1 if none is open."""
    lacks_earlier: bool = False
    """Whether the log may hold batches before these that belong into the window: a snapshot keeps only the newest."""

    def begin_epoch(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.batches.clear()
        self.lacks_earlier = False

    @property
    def has_ended_transaction(self) -> bool:
        return self.coordinator_epoch != _NO_COORDINATOR_EPOCH

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class SnapshotError(OttlaError):
    """A producer snapshot that cannot be trusted."""


def find_snapshots(directory: Path) -> dict[int, Path]:
    """The snapshot files by the offset they end at."""
    return {
        offset: segment_path(directory, offset, SNAPSHOT_SUFFIX)
        for offset in offsets_of_files(directory, SNAPSHOT_SUFFIX)
    }


def encode_snapshot(entries: list[ProducerEntry]) -> bytes:
    body = [_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(entries))[_CRC_END:]]
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        body.append(
            _SNAPSHOT_ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                last.last_sequence if last else NO_SEQUENCE,
                last.last_offset if last else NO_OFFSET,
                last.offset_delta if last else 0,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        )
    data = b"".join(body)
    return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(data), 0)[:_CRC_END] + data


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The inverse of `encode_snapshot`; raises SnapshotError on damage. Only the newest batch per producer is known."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise SnapshotError("it is too short")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise SnapshotError(f"its version is {version}")
    if crc32c(data[_CRC_END:]) != crc:
        raise SnapshotError("its checksum is wrong")
    if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise SnapshotError(f"it does not hold the {count} producers it announces")
    entries = []
    for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = fields
        entry = ProducerEntry(
            producer_id,
            epoch,
            coordinator_epoch=coordinator_epoch,
            last_timestamp=timestamp,
            transaction_first_offset=first_offset,
        )
        if last_offset >= 0:
            base_sequence = NO_SEQUENCE if last_sequence == NO_SEQUENCE else (last_sequence - delta) & MAX_SEQUENCE
            entry.batches.append(StoredBatch(base_sequence, last_sequence, last_offset, delta, timestamp))
            entry.lacks_earlier = True
        entries.append(entry)
    return entries
