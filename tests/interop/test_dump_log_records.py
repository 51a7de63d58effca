"""Kafka's own DumpLogSegments reads the batches we write, whatever is in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.records.batch import iter_headers
from ottla.records.builder import NewRecord, build_batch
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker
from ottla.records.reader import read_records
from tests.unit.log.cleaning_passes import rewritten

from .kafka_tools import KafkaTools
from .kafka_tools import kafka_tools_fixture as kafka_tools_fixture

pytestmark = pytest.mark.interop

NOW = 1_700_000_000_000
RECORDS = [
    NewRecord(b"k1", b"v1", [("trace", b"x"), ("empty", None)], NOW),
    NewRecord(None, b"long " * 30_000, (), NOW + 5),
    NewRecord(b"k3", None, (), NOW + 3),
]


def write_segment(directory: Path, *batches: bytes) -> Path:
    segment = directory / f"{0:020}.log"
    segment.write_bytes(b"".join(batches))
    return segment


def batch_lines(dump: str) -> list[dict[str, str]]:
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in dump.splitlines() if line.startswith("baseOffset")]


def record_lines(dump: str) -> list[str]:
    return [line for line in dump.splitlines() if line.startswith("| ")]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    per_codec = [build_batch(RECORDS, base_offset=3 * codec, codec=codec, partition_leader_epoch=2) for codec in Codec]
    pair = [NewRecord(b"a", None, (), NOW), NewRecord(b"b", b"2", (), NOW + 1)]
    return write_segment(
        tmp_path,
        *per_codec,
        build_batch(pair, base_offset=15, producer_id=9, producer_epoch=1, base_sequence=5, transactional=True),
        end_transaction_marker(9, 1, True, 3, NOW, base_offset=17),
        end_transaction_marker(9, 1, False, 4, NOW, base_offset=18),
        build_batch(pair, base_offset=19, log_append_time_ms=NOW + 77),
        rewritten(build_batch(pair, base_offset=21), [0], NOW + 1_000_000),
        rewritten(build_batch(pair, base_offset=23, codec=Codec.ZSTD), []),
    )


def test_every_batch_is_valid_and_its_header_says_what_ours_says(kafka_tools: KafkaTools, segment: Path) -> None:
    data = segment.read_bytes()
    lines = batch_lines(kafka_tools.dump_log_segments([segment]))
    headers = list(iter_headers(data))
    assert len(lines) == len(headers) == 11
    for line, (position, header) in zip(lines, headers, strict=True):
        assert line["isvalid"] == "true"
        assert line["compresscodec"] == header.codec.config_name
        assert line[header.timestamp_type.config_name] == str(header.max_timestamp)
        assert line["isTransactional"] == str(header.is_transactional).lower()
        assert line["isControl"] == str(header.is_control).lower()
        numbers = {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.record_count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.partition_leader_epoch,
            "position": position,
            "size": header.size,
            "crc": header.crc,
        }
        assert {name: int(line[name]) for name in numbers} == numbers
    assert lines[-2]["deleteHorizonMs"] == f"OptionalLong[{NOW + 1_000_000}]"


def test_every_record_is_read_as_we_read_it(kafka_tools: KafkaTools, segment: Path) -> None:
    data = segment.read_bytes()
    lines = record_lines(kafka_tools.dump_log_segments([segment], "--print-data-log"))
    ours = [
        (header, record)
        for pos, header in iter_headers(data)
        for record in read_records(memoryview(data)[pos:], header)
    ]
    assert len(lines) == len(ours) == 22
    for line, (header, record) in zip(lines, ours, strict=True):
        assert line.startswith(f"| offset: {record.offset} {header.timestamp_type.config_name}: {record.timestamp} ")
        assert f" keySize: {-1 if record.key is None else len(record.key)} " in line
        assert f" valueSize: {-1 if record.value is None else len(record.value)} " in line
        assert f" headerKeys: [{','.join(name for name, _ in record.headers)}]" in line
        if not header.is_control:
            assert (f" key: {(record.key or b'').decode()}" in line) == (record.key is not None)
            assert record.value is None or line.endswith(f" payload: {record.value.decode()}")


def test_markers_are_read_as_markers(kafka_tools: KafkaTools, segment: Path) -> None:
    lines = record_lines(kafka_tools.dump_log_segments([segment], "--print-data-log"))
    markers = [line.partition("endTxnMarker: ")[2] for line in lines if "endTxnMarker" in line]
    assert markers == ["COMMIT coordinatorEpoch: 3", "ABORT coordinatorEpoch: 4"]


def test_the_tool_would_notice_damage(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    batch = bytearray(build_batch(RECORDS[:1]))
    batch[-3] ^= 1
    (line,) = batch_lines(kafka_tools.dump_log_segments([write_segment(tmp_path, bytes(batch))]))
    assert line["isvalid"] == "false"
