"""The lines of `ottla dump-log`, word for word those of Kafka's DumpLogSegments, so that other tools can read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.cli.dump_log.decoders import Decoders
from ottla.log.producer_snapshot import ProducerEntry
from ottla.records.batch import NO_SEQUENCE, BatchHeader, increment_sequence
from ottla.records.control import parse_end_marker
from ottla.records.reader import Record


def batch_line(header: BatchHeader, position: int, *, valid: bool) -> str:
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} isTransactional: {_flag(header.is_transactional)} "
        f"isControl: {_flag(header.is_control)} "
        f"deleteHorizonMs: {_optional(header.delete_horizon_ms)} "
        f"position: {position} {header.timestamp_type.config_name}: {header.max_timestamp} size: {header.size} "
        f"magic: {header.magic} compresscodec: {header.codec.config_name} crc: {header.crc & 0xFFFFFFFF} "
        f"isvalid: {_flag(valid)}"
    )


def record_line(record: Record, header: BatchHeader, decoders: Decoders | None, *, with_metadata: bool = True) -> str:
    line = ""
    if with_metadata:
        line = (
            f"| offset: {record.offset} {header.timestamp_type.config_name}: {record.timestamp} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)} sequence: {_sequence(record, header)} "
            f"headerKeys: [{','.join(name for name, _ in record.headers)}]"
        )
        marker = parse_end_marker(record) if header.is_control else None
        if marker is not None:
            kind = "COMMIT" if marker.commit else "ABORT"
            line += f" endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"
    if decoders is not None and not header.is_control:
        key, value = decoders(record)
        # Kafka's tool begins a line with the bar only for metadata or a key.
        if key is not None:
            line = f"{line or '|'} key: {key}"
        if value is not None:
            line += f" payload: {value}"
    return line


def snapshot_lines(entries: Iterable[ProducerEntry]) -> Iterator[str]:
    for entry in entries:
        open_since = entry.transaction_first_offset if entry.transaction_first_offset >= 0 else None
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {_optional(open_since)} "
            f"lastTimestamp: {entry.last_timestamp}"
        )
        if entry.batches:
            newest = entry.batches[-1]
            line += (
                f" firstSequence: {newest.base_sequence} lastSequence: {newest.last_sequence} "
                f"lastOffset: {newest.last_offset} offsetDelta: {newest.offset_delta} timestamp: {newest.timestamp}"
            )
        yield line


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _sequence(record: Record, header: BatchHeader) -> int:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return increment_sequence(header.base_sequence, record.offset - header.base_offset)
