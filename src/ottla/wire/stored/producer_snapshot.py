"""The producer state a partition writes beside its segments. Only version 1 exists; a checksum comes second."""

from __future__ import annotations

from ottla.wire.fields import array, int16, int32, int64, uint32
from ottla.wire.message import StoredRecord, Struct


class ProducerEntry(Struct):
    producer_id: int = int64()
    epoch: int = int16()
    last_sequence: int = int32()
    last_offset: int = int64()
    offset_delta: int = int32()
    timestamp: int = int64()
    coordinator_epoch: int = int32()
    current_txn_first_offset: int = int64()


class ProducerSnapshot(StoredRecord, versions="1"):
    crc: int = uint32()
    producer_entries: list[ProducerEntry] = array(ProducerEntry)
