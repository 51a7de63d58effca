"""Batches in the form in which a topic stores them: what is patched, rebuilt and refused, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import CorruptBatchError, ErrorCode, InvalidRecordError, KafkaError
from ottla.log.append_rules import AppendRules
from ottla.log.config import LOG_APPEND_TIME, LogConfig
from ottla.log.preparation import prepare_client_batch, prepare_coordinator_batches, split_batches
from ottla.log.retired_segments import RetiredSegments
from ottla.log.segment import Segment
from ottla.records.batch import crc_is_valid, read_header, set_max_timestamp
from ottla.records.compression import Codec
from ottla.records.control import end_transaction_marker
from ottla.records.reader import read_records
from tests.unit.log.samples import NOW_MS, batch

COMPACT = frozenset({"compact"})


def prepared(records: memoryview, *, now_ms: int = NOW_MS, **settings: Any) -> memoryview:
    return prepare_client_batch(records, AppendRules(LogConfig(**settings)), now_ms)


def refused(records: memoryview, **settings: Any) -> tuple[type[KafkaError], ErrorCode, str]:
    with pytest.raises(KafkaError) as raised:
        prepared(records, **settings)
    return type(raised.value), raised.value.code, raised.value.message


def joined(*batches: bytes | memoryview) -> memoryview:
    return memoryview(bytearray(b"".join(map(bytes, batches))))


def test_what_is_plain_is_given_back_as_it_came() -> None:
    records = batch(b"a", b"b", codec=Codec.LZ4)
    before = bytes(records)
    assert prepared(records) is records and bytes(records) == before
    assert prepared(records, compression_type="lz4") is records
    assert prepared(records, segment_bytes=len(before)) is records


@pytest.mark.parametrize("length", [17, 40, 60])
def test_the_beginning_of_another_format_is_told_by_its_magic(length: int) -> None:
    records = batch()
    records[16] = 1
    words = "the batch has magic 1, only 2 is accepted"
    assert refused(records[:length]) == (InvalidRecordError, ErrorCode.INVALID_RECORD, words)
    assert refused(records) == (InvalidRecordError, ErrorCode.INVALID_RECORD, words)
    assert refused(batch()[:length])[1] is ErrorCode.CORRUPT_MESSAGE
    assert refused(records[:16])[1] is ErrorCode.CORRUPT_MESSAGE


def test_what_is_refused_and_in_which_words() -> None:
    damaged = batch(b"a")
    damaged[-1] ^= 1
    corrupt = CorruptBatchError, ErrorCode.CORRUPT_MESSAGE
    assert refused(damaged) == (*corrupt, "the batch has a wrong checksum")
    size = len(batch(b"a"))
    too_long = f"{size} bytes are to be stored together, a segment takes {size - 1}"
    assert refused(batch(b"a"), segment_bytes=size - 1) == (KafkaError, ErrorCode.RECORD_LIST_TOO_LARGE, too_long)
    large = batch(b"a" * 900, codec=Codec.GZIP)
    _, code, words = refused(large, compression_type="uncompressed", max_message_bytes=500)
    assert code is ErrorCode.MESSAGE_TOO_LARGE
    assert words.startswith("the batch has 9") and words.endswith(" bytes, max.message.bytes is 500")


@pytest.mark.parametrize(("claimed", "stored"), [(NOW_MS + 900, NOW_MS), (NOW_MS - 5, NOW_MS), (NOW_MS, NOW_MS)])
@pytest.mark.parametrize("is_compacted", [True, False])
def test_the_largest_timestamp_is_that_of_the_records_where_they_are_looked_at(
    claimed: int, stored: int, is_compacted: bool
) -> None:
    records = batch(b"a", b"b")
    set_max_timestamp(records, 0, len(records), claimed)
    settings: dict[str, Any] = {"cleanup_policy": COMPACT} if is_compacted else {}
    found = prepared(records, **settings)
    header = read_header(found)
    assert header.max_timestamp == (stored if is_compacted else claimed)
    assert crc_is_valid(found, header)


def test_records_without_timestamps_keep_what_the_header_says() -> None:
    found = prepared(batch(b"a", timestamp=-1), cleanup_policy=COMPACT)
    assert read_header(found).max_timestamp == -1


@pytest.mark.parametrize(
    ("timestamp", "settings", "is_refused"),
    [
        (NOW_MS - 10, {"message_timestamp_before_max_ms": 10}, False),
        (NOW_MS - 11, {"message_timestamp_before_max_ms": 10}, True),
        (NOW_MS + 10, {"message_timestamp_after_max_ms": 10}, False),
        (NOW_MS + 11, {"message_timestamp_after_max_ms": 10}, True),
        (NOW_MS + 11, {"message_timestamp_after_max_ms": 10, "cleanup_policy": COMPACT}, True),
        (NOW_MS - 99, {"message_timestamp_before_max_ms": 10, "message_timestamp_type": LOG_APPEND_TIME}, False),
        (NOW_MS + 99, {"message_timestamp_after_max_ms": 10, "message_timestamp_type": LOG_APPEND_TIME}, False),
        (0, {"cleanup_policy": COMPACT}, False),
    ],
)
def test_limits_on_timestamps(timestamp: int, settings: dict[str, Any], is_refused: bool) -> None:
    records = batch(b"a", timestamp=timestamp)
    if is_refused:
        assert refused(records, **settings)[1] is ErrorCode.INVALID_TIMESTAMP
    else:
        prepared(records, **settings)


@pytest.mark.parametrize("level", [1, 9])
def test_a_batch_is_rebuilt_with_the_codec_of_its_topic(level: int) -> None:
    records = batch(b"a" * 300, b"b" * 300, codec=Codec.GZIP, producer_id=5, producer_epoch=2, base_sequence=9)
    before = read_header(records)
    found = prepared(records, compression_type="lz4", compression_lz4_level=level)
    header = read_header(found)
    assert header.codec is Codec.LZ4 and crc_is_valid(found, header) and header.size == len(found)
    assert header._replace(crc=0, attributes=0, batch_length=0) == before._replace(crc=0, attributes=0, batch_length=0)
    assert [record.value for record in read_records(found)] == [b"a" * 300, b"b" * 300]


def test_a_batch_is_stamped_and_rebuilt() -> None:
    found = prepared(batch(b"a", timestamp=5), compression_type="zstd", message_timestamp_type=LOG_APPEND_TIME)
    header = read_header(found)
    assert (header.codec, header.max_timestamp, header.attributes & 8) == (Codec.ZSTD, NOW_MS, 8)
    assert crc_is_valid(found, header)


# -- several batches ---------------------------------------------------------------------------------------------


def test_batches_are_split_where_they_end() -> None:
    batches = [batch(b"a"), batch(b"b", b"c", base_offset=7), batch(b"d" * 50, base_offset=3)]
    found = split_batches(joined(*batches))
    assert [(position, header.base_offset, header.size) for position, header in found] == [
        (0, 0, len(batches[0])),
        (len(batches[0]), 7, len(batches[1])),
        (len(batches[0]) + len(batches[1]), 3, len(batches[2])),
    ]


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (joined(), "0 bytes are left after the last whole batch"),
        (batch()[:30], "30 bytes are left after the last whole batch"),
        (joined(batch(), batch()[:-1]), f"{len(batch()) - 1} bytes are left after the last whole batch"),
        (joined(batch(), b"x"), "1 bytes are left after the last whole batch"),
        (joined(batch(), bytes(batch(base_offset=4))[:-1] + b"?"), "the batch of offset 4 has a wrong checksum"),
    ],
)
def test_what_is_not_whole_is_named(records: memoryview, words: str) -> None:
    with pytest.raises(CorruptBatchError) as raised:
        split_batches(records)
    assert raised.value.message == words


def test_batches_of_the_broker_together_fit_into_a_segment_and_each_into_a_message() -> None:
    records = joined(batch(b"a"), end_transaction_marker(7, 0, True, 0, 5, base_offset=1))
    size, largest = len(records), len(end_transaction_marker(7, 0, True, 0, 5))
    for config in (LogConfig(segment_bytes=size), LogConfig(max_message_bytes=largest)):
        found = prepare_coordinator_batches(records, AppendRules(config), NOW_MS)
        assert [(position, header.max_timestamp) for position, header in found] == [(0, NOW_MS), (len(batch(b"a")), 5)]
    for config, code in (
        (LogConfig(segment_bytes=size - 1), ErrorCode.RECORD_LIST_TOO_LARGE),
        (LogConfig(max_message_bytes=largest - 1), ErrorCode.MESSAGE_TOO_LARGE),
    ):
        with pytest.raises(KafkaError) as raised:
            prepare_coordinator_batches(records, AppendRules(config), NOW_MS)
        assert raised.value.code is code


# -- what is not stored any more ---------------------------------------------------------------------------------


def test_segments_that_retire_go_a_while_after_somebody_has_looked(tmp_path: Path) -> None:
    added: list[int] = []
    retired = RetiredSegments(lambda: added.append(len(retired)))
    config = LogConfig(segment_index_bytes=80)
    segments = [Segment.create(tmp_path, base_offset, config, now_ms=0) for base_offset in (0, 1, 2)]

    def left() -> set[int]:
        return {int(path.name[:20]) for path in tmp_path.glob("*.log.deleted")}

    assert len(retired) == 0
    retired.add(segments[:2])
    assert (added, len(retired), left()) == ([2], 2, {0, 1})
    retired.remove_files(1_000, 50)
    retired.add(segments[2:])
    retired.remove_files(1_049, 50)
    assert (added, len(retired), left()) == ([2, 3], 3, {0, 1, 2})
    retired.remove_files(1_050, 50)
    assert (len(retired), left()) == (1, {2})
    retired.remove_files(1_098, 50)
    assert left() == {2}
    retired.remove_files(1_099, 50)
    assert (len(retired), list(tmp_path.iterdir())) == (0, [])
    retired.add([Segment.create(tmp_path, 9, config, now_ms=0)])
    retired.remove_files(0, 50, at_once=True)
    assert (len(retired), list(tmp_path.iterdir())) == (0, [])
