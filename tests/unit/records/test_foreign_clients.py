"""kafka-python and aiokafka read what we write, and we read what they write."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.codec import has_lz4, has_snappy, has_zstd
from kafka.record import MemoryRecords as KafkaPythonRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from ottla.records.batch import crc_is_valid, iter_headers, read_header
from ottla.records.builder import NewRecord, build_batch
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker
from ottla.records.reader import Record, read_records

NOW = 1_700_000_000_000
KAFKA_PYTHON_CODECS = [Codec.NONE, Codec.GZIP] + [
    codec
    for codec, is_there in ((Codec.SNAPPY, has_snappy), (Codec.LZ4, has_lz4), (Codec.ZSTD, has_zstd))
    if is_there()
]
CLIENTS: dict[str, tuple[Any, Any, list[Codec]]] = {
    "kafka-python": (KafkaPythonBuilder, KafkaPythonRecords, KAFKA_PYTHON_CODECS),
    "aiokafka": (AiokafkaBuilder, AiokafkaRecords, list(Codec)),
}
PAIRS = [(client, codec) for client, (_, _, codecs) in CLIENTS.items() for codec in codecs]

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
fields = st.none() | st.binary(max_size=150)
headers = st.lists(st.tuples(names, st.binary(max_size=20)), max_size=3)
written_records = st.lists(
    st.builds(NewRecord, fields, fields, headers, st.integers(NOW, NOW + 100_000)), min_size=1, max_size=20
)


def as_read(written: list[NewRecord]) -> list[Record]:
    return [Record(i, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for i, r in enumerate(written)]


def read_as(client: str, data: bytes) -> list[Record]:
    memory_records = CLIENTS[client][1](data)
    batch = memory_records.next_batch()
    assert batch.validate_crc()
    found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert not memory_records.has_next()
    return found


def write_as(client: str, codec: Codec, written: list[NewRecord]) -> bytes:
    builder = CLIENTS[client][0](
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for i, r in enumerate(written):
        builder.append(i, timestamp=r.timestamp_ms, key=r.key, value=r.value, headers=list(r.headers))
    return bytes(builder.build())


@pytest.mark.parametrize(("client", "codec"), PAIRS)
@settings(max_examples=40)
@given(written=written_records)
def test_they_read_ours(client: str, codec: Codec, written: list[NewRecord]) -> None:
    assert read_as(client, build_batch(written, codec=codec)) == as_read(written)


@pytest.mark.parametrize(("client", "codec"), PAIRS)
@settings(max_examples=40)
@given(written=written_records)
def test_we_read_theirs(client: str, codec: Codec, written: list[NewRecord]) -> None:
    data = write_as(client, codec, written)
    header = read_header(data)
    assert crc_is_valid(data, header)
    # Both leave a batch uncompressed that compression would make larger.
    assert header.codec in (codec, Codec.NONE)
    assert read_records(data, header) == as_read(written)


@pytest.mark.parametrize(("client", "codec"), PAIRS)
def test_batches_of_several_compressed_blocks(client: str, codec: Codec) -> None:
    written = [NewRecord(b"key-%d" % i, b"value %d " % i * 40, (), NOW + i) for i in range(1500)]
    assert read_as(client, build_batch(written, codec=codec)) == as_read(written)
    theirs = write_as(client, codec, written)
    assert read_header(theirs).codec is codec
    assert read_records(theirs) == as_read(written)


@pytest.mark.parametrize("client", CLIENTS)
def test_they_know_our_markers(client: str) -> None:
    batch = CLIENTS[client][1](end_transaction_marker(4000, 7, True, 3, NOW)).next_batch()
    assert batch.validate_crc()
    assert batch.is_control_batch
    assert batch.is_transactional
    assert batch.producer_id == 4000


@pytest.mark.parametrize("client", CLIENTS)
def test_they_walk_a_run_of_our_batches(client: str) -> None:
    run = b"".join(build_batch([(b"k", b"v", (), NOW)], base_offset=i, codec=Codec(i % 2)) for i in range(5))
    theirs = CLIENTS[client][1](run + run[:40])
    offsets = []
    while theirs.has_next():
        offsets += [r.offset for r in theirs.next_batch()]
    assert offsets == [h.base_offset for _, h in iter_headers(run + run[:40])] == [0, 1, 2, 3, 4]
