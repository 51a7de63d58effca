"""Entries of message formats 0 and 1 are told from damage, and from batches, to the byte."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from ottla.base.errors import StartError
from ottla.log.file import LogFile
from ottla.log.old_formats import refuse_old_format

BEFORE = 7


def entry(magic: int, *, body: bytes = b"\0" * 40, length: int | None = None, crc: int | None = None) -> bytes:
    """Offset, length and checksum, then the format and what follows it."""
    rest = bytes([magic]) + body
    return (
        struct.pack(">qiI", 5, len(rest) + 4 if length is None else length, zlib.crc32(rest) if crc is None else crc)
        + rest
    )


def is_refused(tmp_path: Path, data: bytes, *, behind: bytes = b"", size: int | None = None) -> bool:
    """Whether a file is that has this entry behind a few other bytes."""
    file = LogFile.create(tmp_path / "f.log")
    file.write_at(0, b"\xee" * BEFORE + data + behind)
    try:
        refuse_old_format(file, BEFORE, BEFORE + len(data) if size is None else size)
    except StartError as e:
        assert str(e) == (
            f"{file.path} holds records of message format {data[16]}, and only format 2 can be read (KIP-724); they "
            "are left as they are: copy the topic with a Kafka 3.x broker, whose default format is 2, or move its "
            "directories away"
        )
        return True
    return False


@pytest.mark.parametrize(("magic", "expected"), [(0, True), (1, True), (2, False), (3, False), (255, False)])
def test_the_formats_that_are_refused(tmp_path: Path, magic: int, expected: bool) -> None:
    assert is_refused(tmp_path, entry(magic)) is expected


@pytest.mark.parametrize("behind", [b"", b"another entry"])
def test_whatever_follows_it(tmp_path: Path, behind: bytes) -> None:
    assert is_refused(tmp_path, entry(1), behind=behind)


@pytest.mark.parametrize(("body_bytes", "expected"), [(9, True), (8, False), (0, False)])
def test_an_entry_has_room_for_its_fields(tmp_path: Path, body_bytes: int, expected: bool) -> None:
    """Fourteen bytes behind the length: the checksum, format and attributes, and the lengths of key and value."""
    assert is_refused(tmp_path, entry(0, body=bytes(body_bytes))) is expected


@pytest.mark.parametrize("length", [-1, 0, 13, 44, 46, 1 << 30])
def test_a_length_that_is_wrong_is_damage(tmp_path: Path, length: int) -> None:
    assert not is_refused(tmp_path, entry(1, length=length), behind=bytes(10), size=BEFORE + 70)


def test_a_checksum_that_is_wrong_is_damage(tmp_path: Path) -> None:
    assert not is_refused(tmp_path, entry(1, crc=1))


@pytest.mark.parametrize("missing", [1, 5, 40, 41, 56])
def test_an_entry_that_the_data_ends_within_is_damage(tmp_path: Path, missing: int) -> None:
    data = entry(1)
    assert not is_refused(tmp_path, data, size=BEFORE + len(data) - missing)


@pytest.mark.parametrize("size", [0, 1, 16])
def test_a_file_that_ends_before_the_format_is_damage(tmp_path: Path, size: int) -> None:
    assert not is_refused(tmp_path, entry(1)[:size])
