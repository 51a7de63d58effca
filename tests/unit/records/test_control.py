from __future__ import annotations

import pytest

from ottla.base.errors import CorruptBatchError
from ottla.records.batch import NO_SEQUENCE, crc_is_valid, read_header
from ottla.records.control import ControlType, EndMarker, end_transaction_marker, parse_control_key, parse_end_marker
from ottla.records.reader import Record, read_records

NOW = 1_700_000_000_000


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker(commit: bool) -> None:
    data = end_transaction_marker(4000, 7, commit, 12, NOW)
    header = read_header(data)
    assert len(data) == 78
    assert crc_is_valid(data, header)
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 7, NO_SEQUENCE)
    (record,) = read_records(data)
    assert record.timestamp == NOW
    assert parse_control_key(record.key) is (ControlType.COMMIT if commit else ControlType.ABORT)
    assert parse_end_marker(record) == EndMarker(commit, 12)
    assert (record.key, record.value) == (bytes([0, 0, 0, commit]), bytes([0, 0, 0, 0, 0, 12]))
    assert (header.base_offset, header.partition_leader_epoch) == (0, -1)
    placed = read_header(end_transaction_marker(4000, 7, commit, 12, NOW, base_offset=5, partition_leader_epoch=3))
    assert (placed.base_offset, placed.partition_leader_epoch) == (5, 3)


def test_every_kind_of_control_record_has_its_number() -> None:
    kinds = [parse_control_key(bytes([0, 0, 0, number])) for number in range(8)]
    assert kinds == [*ControlType, None]
    assert [kind.name for kind in ControlType] == [
        "ABORT",
        "COMMIT",
        "LEADER_CHANGE",
        "SNAPSHOT_HEADER",
        "SNAPSHOT_FOOTER",
        "KRAFT_VERSION",
        "KRAFT_VOTERS",
    ]


def test_kinds_that_are_not_about_transactions() -> None:
    leader_change = Record(0, NOW, b"\x00\x00\x00\x02", b"anything", ())
    assert parse_control_key(leader_change.key) is ControlType.LEADER_CHANGE
    assert parse_end_marker(leader_change) is None


def test_a_kind_or_version_of_the_future_is_not_an_error() -> None:
    assert parse_control_key(b"\x00\x00\x01\x00") is None
    assert parse_control_key(b"\x00\x05\x00\x01more") is ControlType.COMMIT
    later = Record(0, NOW, b"\x00\x00\x00\x01", b"\x00\x03\x00\x00\x00\x09more", ())
    assert parse_end_marker(later) == EndMarker(True, 9)


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_a_key_that_is_none(key: bytes | None) -> None:
    with pytest.raises(CorruptBatchError):
        parse_control_key(key)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x01"])
def test_a_marker_without_its_value(value: bytes | None) -> None:
    with pytest.raises(CorruptBatchError):
        parse_end_marker(Record(0, NOW, b"\x00\x00\x00\x01", value, ()))
