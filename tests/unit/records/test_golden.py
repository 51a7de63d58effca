"""Batches other implementations wrote, field by field."""

from __future__ import annotations

from typing import Any

from ottla.records.batch import BatchHeader, crc_is_valid, iter_headers, read_header
from ottla.records.builder import build_batch
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.control import ControlType, end_transaction_marker, parse_control_key, parse_end_marker
from ottla.records.reader import Record, read_records
from ottla.records.scan import read_payload, scan_payload
from tests.unit.log.cleaning_passes import rewritten

from .conftest import GOLDEN


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def expected_records(item: dict[str, Any]) -> list[Record]:
    return [
        Record(
            r["offset"],
            r["timestamp"],
            unhex(r["key"]),
            unhex(r["value"]),
            tuple((bytes.fromhex(name).decode(), unhex(value)) for name, value in r["headers"]),
        )
        for r in item["records"]
    ]


def test_header_fields_and_checksum(golden_batch: dict[str, Any]) -> None:
    data = golden_batch["bytes"]
    header = read_header(data)
    assert header == BatchHeader(**golden_batch["header"])
    assert header.size == len(data)
    assert crc_is_valid(memoryview(data), header)
    assert list(iter_headers(data)) == [(0, header)]


def test_records(golden_batch: dict[str, Any]) -> None:
    assert read_records(golden_batch["bytes"]) == expected_records(golden_batch)


def test_scan_finds_what_reading_finds(golden_batch: dict[str, Any]) -> None:
    data = golden_batch["bytes"]
    header = read_header(data)
    records = expected_records(golden_batch)
    spans = scan_payload(read_payload(data, header), header)
    assert [(s.offset, s.timestamp, s.key, s.is_tombstone) for s in spans] == [
        (r.offset, r.timestamp, r.key, r.value is None) for r in records
    ]


def test_our_builder_writes_the_same_bytes_as_other_clients() -> None:
    compared = 0
    for item in GOLDEN["record_batches"]:
        header = BatchHeader(**item["header"])
        plain = header.codec is Codec.NONE and not header.attributes & 0x48 and header.record_count
        if not plain:
            continue
        ours = build_batch(
            [(r.key, r.value, r.headers, r.timestamp) for r in expected_records(item)],
            base_offset=header.base_offset,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            partition_leader_epoch=header.partition_leader_epoch,
        )
        assert ours.hex() == item["hex"], item["name"]
        compared += 1
    assert compared >= 10


def test_rebuilding_with_every_record_kept_changes_nothing(golden_batch: dict[str, Any]) -> None:
    data = golden_batch["bytes"]
    header = read_header(data)
    rebuilt = rewritten(bytes(data), list(range(header.record_count)))
    records = expected_records(golden_batch)
    assert read_records(rebuilt) == records
    # What is rewritten has the first record's timestamp as its base.
    if header.codec is Codec.NONE and (not records or header.base_timestamp == records[0].timestamp):
        assert rebuilt == data


def test_markers() -> None:
    markers = [item for item in GOLDEN["record_batches"] if "coordinator_epoch" in item]
    assert len(markers) == 2
    for item in markers:
        header = BatchHeader(**item["header"])
        (record,) = read_records(bytes.fromhex(item["hex"]))
        end = parse_end_marker(record)
        assert end is not None
        assert end.coordinator_epoch == item["coordinator_epoch"]
        ours = end_transaction_marker(
            header.producer_id,
            header.producer_epoch,
            end.commit,
            end.coordinator_epoch,
            header.max_timestamp,
            base_offset=header.base_offset,
            partition_leader_epoch=header.partition_leader_epoch,
        )
        assert ours.hex() == item["hex"]


def test_reading_a_log_as_read_committed() -> None:
    scenario = GOLDEN["log_scenario"]
    log = bytes.fromhex(scenario["hex"])
    aborts = sorted((a["first_offset"], a["producer_id"]) for a in scenario["aborted_transactions"])
    aborted: set[int] = set()
    seen: list[list[Any]] = []
    position = 0
    for pos, header in iter_headers(log):
        assert crc_is_valid(memoryview(log)[pos:], header)
        position = header.next_offset
        while aborts and aborts[0][0] <= header.last_offset:
            aborted.add(aborts.pop(0)[1])
        records = read_records(memoryview(log)[pos:], header)
        if header.is_control:
            if parse_control_key(records[0].key) is ControlType.ABORT:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            seen += [[r.offset, r.key, r.value, r.timestamp] for r in records]
    assert position == scenario["final_position"]
    assert seen == [
        [offset, key and key.encode(), value and value.encode(), timestamp]
        for offset, key, value, timestamp in scenario["expect_read_committed"]
    ]


def test_crc32c() -> None:
    for item in GOLDEN["crc32c"]["items"]:
        data = bytes.fromhex(item["hex"])
        assert crc32c(data) == item["crc32c"]
        assert crc32c(data[3:], crc32c(data[:3])) == item["crc32c"]
